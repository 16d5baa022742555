# mh-prune cut removes heads that --heads names or that a measure of importance selects, and writes a smaller checkpoint
# that every tool accepts; commands that fail write nothing.
[ -n "$(command -v mh-prune || true)" ] || skip "mh-prune is not built"
make_shards
# train OUT KEY=VALUE...: trains a small model with the configuration keys in the folder OUT.
train() {
  local sets=() key out=$1
  shift
  for key in "$@"; do sets+=(--set "$key"); done
  mh-train -q --train t.mhs --valid t.mhs --out "$out" --set model.layers=2 --set model.width=32 --set model.ffn_dim=32 --set attention.heads=4 \
    --set train.batch.sequence_length=32 --set train.batch.tokens=128 --set train.length=4u "${sets[@]}"
}
train run
model=run/best.safetensors
only_these="other.mhs t.mhs text v v2 $(find run -type f | tr '\n' ' ')"

expect 0 mh-prune cut "$model" --heads 0:1,0:3,1:2 -o small.safetensors
expect_stderr "decoder.self: heads per layer 4 4 -> 2 3"
expect_stderr "parameters "
[ "$(stat -c %s small.safetensors)" -lt "$(stat -c %s "$model")" ] || fail "the file is not smaller"
# The pruned model has the same loss as the complete model with weight 0 for the pruned heads.
mask0='[1, 0, 1, 0]' mask1='[1, 1, 0, 1]'
expect 0 mh-eval --format json "$model" t.mhs --set attention.combiner=head-weights \
  --set "attention.decoder.self.0.head-weights.weights=$mask0" --set "attention.decoder.self.1.head-weights.weights=$mask1"
cp out masked.json
expect 0 mh-eval --format json small.safetensors t.mhs
with_tolerance - <<'P'
import json, tolerance
a, b = json.load(open("masked.json")), json.load(open("out"))
assert abs(a["nll"] - b["nll"]) <= tolerance.mean_nll_bound(a, "run/best.safetensors", 32), (a["nll"], b["nll"])
P
rm masked.json

# Prunes a training state into a pipe, and prunes a pruned model again, down to a layer without heads.
mh-prune -q cut run/last.safetensors --heads decoder.self:0:1,0:3,1:2 -o - | cmp - small.safetensors
expect 0 mh-prune cut small.safetensors --heads 0:0,0:1 -o none.safetensors
expect_stderr "decoder.self: heads per layer 2 3 -> 0 3"
expect 0 mh-eval none.safetensors t.mhs
expect 0 mh-eval generate none.safetensors --length 5

# A pruned model can be analysed and trained.
for pruned in small none; do
  expect 0 mh-prune scan $pruned.safetensors t.mhs
  expect 0 mh-prune rank --by taylor,weight-norm $pruned.safetensors t.mhs
  expect 0 mh-spectrum --blocks 4 $pruned.safetensors t.mhs
  expect 0 mh-train -q --from $pruned.safetensors --train t.mhs --valid t.mhs --out trained --set train.length=2u
  expect 0 mh-eval trained/last.safetensors t.mhs
  rm -r trained
done

# A layer without heads can be configured, printed and trained.
expect 0 mh-train --dry-run --train t.mhs --set model.layers=2 --set model.width=32 --set attention.heads=4 \
  --set attention.decoder.self.0.heads=0
train headless attention.decoder.self.0.heads=0
expect 0 mh-eval headless/best.safetensors t.mhs
record 2 mh-train --dry-run --train t.mhs --set attention.heads=4 --set attention.value_heads=2
rm -rf headless

# Prunes the least important heads of the model, or of each layer.
expect 0 mh-prune cut "$model" --by confidence --data t.mhs --fraction 30% -o small.safetensors
[ "$(mh-eval --format json small.safetensors t.mhs | wc -l)" -eq 1 ] || fail "expected one score of the pruned model"
expect 0 mh-prune cut "$model" --by avg-l2 --data t.mhs --count 2 --per-layer --blocks 4 -o - > /dev/null
expect_stderr "decoder.self: heads per layer 4 4 -> 2 2"
mh-prune -q cut - --by avg-l2 --data t.mhs --count 2 -o a < "$model"
mh-prune -q cut "$model" --by avg-l2 --data - --count 2 -o b < t.mhs
cmp a b
# A measure that reads no data selects the same heads with a shard and without one.
for measure in random weight-norm; do
  mh-prune -q cut "$model" --by $measure --data t.mhs --count 3 -o a
  mh-prune -q cut "$model" --by $measure --count 3 -o b
  cmp a b
done
expect 0 mh-prune cut "$model" --by random --seed 2 --count 3 -o a
expect_stderr "by random; seed 2"

# With a mixer, score heads and value heads are pruned separately.
train mixed attention.mixer=mixhead-a attention.combiner=alphas
expect 0 mh-prune cut mixed/best.safetensors --heads 0:1 --side score -o s
expect_stderr "decoder.self, score: heads per layer 4 4 -> 3 4"
expect_stderr "decoder.self, value: heads per layer 4 4 -> 4 4"
expect 0 mh-prune cut s --heads 0:1 --side output -o o
expect 0 mh-eval o t.mhs
record 2 mh-prune cut s --heads 0:1 -o x
rm -rf a b s o mixed small.safetensors none.safetensors

# expect_refused STATUS OPTION...: records an error of mh-prune cut and checks that no file was written.
expect_refused() {
  record "$1" mh-prune cut "${@:2}" -o x
  expect_files $only_these
}
expect_refused 2 "$model"
expect_refused 2 "$model" --heads 0:1 --by avg-l2 --data t.mhs --count 1
expect_refused 2 "$model" --heads 0:4
expect_refused 2 "$model" --heads 2:0
expect_refused 2 "$model" --heads 0.1
expect_refused 2 "$model" --heads 0:1,0:1
expect_refused 2 "$model" --heads encoder.self:0:1
expect_refused 2 "$model" --heads 0:1 --kind decoder.cross
expect_refused 2 "$model" --heads 0:1 --side score
expect_refused 2 "$model" --by avg-l2 --count 1
expect_refused 2 "$model" --by avg-l2 --data t.mhs
expect_refused 2 "$model" --by avg-l2 --data t.mhs --fraction 0.3
expect_refused 2 "$model" --by avg-l2 --data t.mhs --fraction 1%
expect_refused 2 "$model" --by avg-l2 --data t.mhs --count 9
expect_refused 2 "$model" --by avg-l2 --data t.mhs --count 5 --per-layer
expect 2 mh-prune cut "$model" --heads 0:1 --data t.mhs -o x
# Options of the data need a shard.
for option in "--blocks 4" "--sequence-length 8" "--precision fp32" "--attention auto"; do
  expect 2 mh-prune cut "$model" --by random $option --count 1 -o x
  expect_stderr "--data, on which importance is measured"
done
# A misspelt option is named, although --data without --by is an error too.
expect 2 mh-prune cut "$model" --bye taylor --data t.mhs -o x; expect_stderr "found --bye; did you mean '--by'?"
expect 3 mh-prune cut "$model" --by avg-l2 --data other.mhs --count 1 -o x
expect_refused 3 missing --heads 0:1
expect_refused 3 t.mhs --heads 0:1
record 2 mh-prune cut "$model" --heads 0:1
record 2 mh-prune cut "$model" --heads 0:1 -o "$model"
expect 1 mh-prune cut "$model" --heads 0:1 -o /dev/full
record 1 mh-prune cut "$model" --heads 0:1 -o missing/x
golden_record refused
expect_files $only_these
