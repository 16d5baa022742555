# What training states hold is what mh-train lists, from which mhc(5) is made.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_shards
run() {  # OUT SETTING...
  local out=$1 settings=(model.layers=2 model.width=16 model.ffn=16 attention.heads=4 train.batch.block=16 train.batch.tokens=64 train.length=2u)
  shift
  settings+=("$@")
  expect 0 mh-train -q --train t.mhs --valid t.mhs --out "$out" "${settings[@]/#/--set=}"
}
run mixed attention.mixer=mixhead-b attention.combiner=mae train.procedures.block-coordinate.every=1
run memory model.backbone=transformer-xl model.positions=none attention.score=relative model.transformer-xl.memory=16 train.batch.order=streams \
  model.input_cutoffs='[8]' model.output_cutoffs='[8]' model.tied=false train.checkpoint.retain=2 train.checkpoint.retain_by=best
expect 0 python3 "$ROOT/tests/cli/checkpoint_page.py" "$(dirname "$(command -v mh-train)")" mixed/last.safetensors memory/last.safetensors
