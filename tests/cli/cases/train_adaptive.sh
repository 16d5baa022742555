# A model with adaptive input and output trains, resumes bit for bit although some updates have no token of a band, is
# scored and generates text; errors.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_text 300 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
for backbone in decoder transformer-xl; do
  positions=sinusoidal factor=4 head=false
  [ $backbone = decoder ] || { positions=none; factor=2; head=true; }
  cat > $backbone.toml <<T
[model]
backbone = "$backbone"
positions = "$positions"
layers = 1
width = 32
ffn_dim = 16
input_cutoffs = [8, 48]
output_cutoffs = [8, 48]
cutoff_factor = $factor
tied_projections = true
first_band_projection = $head
output_bias = $head
dropout_tail = 0.2
[attention]
heads = 2
[train]
length = "24u"
batch.sequence_length = 4
batch.tokens = 16
batch.micro_tokens = 8
checkpoint.every = "12u"
T
  expect 0 mh-train --threads 1 --config $backbone.toml --train t.mhs --out whole-$backbone
  expect 0 mh-train --threads 1 --config $backbone.toml --train t.mhs --out parts-$backbone --set train.length=11u
  expect 0 mh-train --threads 1 --resume --out parts-$backbone --set train.length=24u
  python3 - whole-$backbone parts-$backbone <<'P'
import json, struct, sys
def read(path):
    b = open(path + "/last.safetensors", "rb").read()
    n = struct.unpack("<Q", b[:8])[0]
    header = json.loads(b[8:8 + n])
    training = header.pop("__metadata__")["multihead.training"]
    return {k: b[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in header.items()}, json.loads(training)
(a, left), (b, right) = map(read, sys.argv[1:])
assert a.keys() == b.keys()
assert all(a[k] == b[k] for k in a), [k for k in a if a[k] != b[k]]
steps = left["steps"]
assert steps == right["steps"]
table = "decoder.embedding.bands.%d.weight"
assert steps[table % 0] == 24 and 0 < steps[table % 2] < 24, steps
P
  expect 0 mh-eval whole-$backbone/last.safetensors t.mhs
  expect_stdout "perplexity"
  expect 0 mh-eval generate whole-$backbone/last.safetensors --prompt "w1 w2" --length 12 --seed 3
done
expect 0 mh-train --config decoder.toml --train t.mhs --out bf16 --set train.precision=bf16
expect_refused() { expect 2 mh-train --config decoder.toml --train t.mhs --out run "${@:2}"; expect_stderr "$1"; [ ! -d run ] || fail "expected no output folder after an error; found one"; }
expect_refused "model.input_cutoffs: expected ascending" --set 'model.input_cutoffs=[48, 8]'
expect_refused "model.output_cutoffs: expected cutoffs below 61, the size of the vocabulary" --set 'model.output_cutoffs=[8, 4800]'
expect_refused "model.tied: expected equal model.input_cutoffs" --set 'model.output_cutoffs=[8]'
expect_refused "model.tied_projections: expected equal model.input_cutoffs" --set 'model.output_cutoffs=[8]' --set model.tied=false
expect_refused "model.tied_projections: expected an adaptive softmax" --set model.cutoff_factor=1
expect_refused "model.cutoff_factor: expected a factor that leaves the last band" --set model.cutoff_factor=16
expect_refused "model.first_band_projection: expected an adaptive softmax" --set model.cutoff_factor=1 --set model.tied_projections=false \
  --set model.first_band_projection=true
expect_refused "model.dropout_tail: expected an adaptive softmax" --set 'model.output_cutoffs=[]' --set model.tied=false \
  --set model.tied_projections=false
expect_refused "model.output_soft_cap: expected a full softmax" --set model.output_soft_cap=30
expect_refused "train.label_smoothing: expected 0" --set train.label_smoothing=0.1
expect_refused "model.transformer-xl.memory: expected model.backbone='transformer-xl'" --set model.transformer-xl.memory=4 --set train.batch.order=streams
expect_refused "model.transformer-xl.same_length: expected model.backbone='transformer-xl'" --set model.transformer-xl.same_length=true
