# What training states hold is what mh-train lists, from which mhc(5) is made.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_shards
run() {  # OUT SETTING...
  local out=$1 settings=(model.layers=2 model.width=16 model.ffn=16 attention.heads=4 train.block=16 train.batch_tokens=64 train.length=2u)
  shift
  settings+=("$@")
  expect 0 mh-train -q --train t.mhs --valid t.mhs --out "$out" "${settings[@]/#/--set=}"
}
run mixed attention.mixer=mixhead-b attention.combiner=mae train.procedures.block-coordinate.every=1
run memory model.backbone=transformer-xl model.positions=none attention.score=relative model.memory=16 train.batching=streams \
  model.input_cutoffs='[8]' model.output_cutoffs='[8]' model.tied=false train.keep=2 train.keep_by=best
expect 0 python3 "$ROOT/tests/cli/checkpoint_page.py" "$(dirname "$(command -v mh-train)")" mixed/last.safetensors memory/last.safetensors
