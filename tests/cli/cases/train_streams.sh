# Transformer-XL on ordered streams with Skip-Retain: a run that is killed by SIGKILL and resumed has the memory and the
# phases of Skip-Retain of an uninterrupted run. The model is then evaluated with memories of other lengths.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
. "$ROOT/tests/cli/processes.sh"
make_text 600 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
make_text 60 > text2
mh-prep lm --vocab v text2 -o v.mhs 2>/dev/null
cat > c.toml <<T2
include = ["$ROOT/configs/backbones/transformer-xl.toml"]
[model]
layers = 3
width = 32
ffn_dim = 64
transformer-xl.memory = 24
dropout_ffn = 0.1
[attention]
heads = 4
[train]
batch.order = "streams"
length = "300u"
batch.sequence_length = 16
batch.tokens = 128
batch.micro_tokens = 64
lr = 0.003
optimizer.clip_norm = 0.25
validation.sequence_length = 8
validation.every = "15u"
checkpoint.every = "9u"
log_every = "4u"
[train.procedures.skip-retain]
rate = 0.3
until = "150u"
T2
# A dry run prints the expected context, 2 * 24 * (0 + 1/6 + 0) tokens, and the mean age of each layer's memory.
expect 0 mh-train --dry-run --format json --config c.toml --train t.mhs
expect_stdout '"expected_context":8.0,"memory_ages":[1.0,1.2,1.0]'
check_killed_run 0.9 returned_to mh-train --threads 1 --config c.toml --train t.mhs --valid v.mhs -q --out
python3 - <<'P'
import json, struct
data = open("whole/last.safetensors", "rb").read()
header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
assert json.loads(header["__metadata__"]["multihead.training"])["memory"] is True
assert header["memory.layers.2.inputs"]["shape"] == [8, 24, 32] and header["memory.seen"]["dtype"] == "I64"
assert sum("returned_to" in json.loads(line) for line in open("whole/log.jsonl")) == 1
P
# mh-eval uses streams with the memory length of training by default; it accepts other lengths, and settings that change
# no parameter.
m=whole/best.safetensors
expect 0 mh-eval --format json $m v.mhs
expect_stdout '"memory":24,"streams":10'; expect_stdout '"protocol":"streams"'; expect_stdout '"unknown":'
mv out first
tokens=$(awk '{n += NF + 1} END {print n}' text2)
grep -q "\"tokens\":$tokens," first || fail "expected $tokens tokens; found $(cat first)"
expect 0 mh-eval --format json --batch 3 --per-token pt.tsv $m v.mhs
with_tolerance - <<'P'
import json, math, tolerance
a, b = json.load(open("first")), json.load(open("out"))
bound = tolerance.mean_nll_bound(a, "whole/best.safetensors", 16 + 24)  # a block and the memory
assert abs(a["nll"] - b["nll"]) <= bound
rows = [l.rstrip("\n").split("\t") for l in open("pt.tsv")][1:]
assert [int(r[0]) for r in rows] == list(range(a["tokens"]))
assert abs(-sum(float(r[3]) for r in rows) / len(rows) - a["nll"]) <= bound
log = [json.loads(l) for l in open("whole/log.jsonl")]
best = min(l["valid_nll"] for l in log if "valid_nll" in l)
open("best", "w").write(repr(best))
P
expect 0 mh-eval --format json --sequence-length 8 --memory 32 $m v.mhs
with_tolerance - <<'P'
import json, tolerance
score = json.load(open("out"))
assert abs(score["nll"] - float(open("best").read())) <= tolerance.mean_nll_bound(score, "whole/best.safetensors", 8 + 32)
P
expect 0 mh-eval --format json --memory 100 --streams 3 --set model.transformer-xl.same_length=true --set attention.relative.clamp=50 $m v.mhs
expect_stdout '"set":"model.transformer-xl.same_length=true attention.relative.clamp=50"'; expect_stdout '"streams":3'
expect 0 mh-eval --context 8 $m v.mhs;           expect_stdout "context-window"
expect 0 mh-eval --memory 0 $m v.mhs;            expect_stdout "independent-blocks"
# mh-eval refuses options that contradict each other or the model, and keys that change parameters or training or do not exist.
expect 2 mh-eval --memory 9 --context 8 $m v.mhs; expect_stderr "0 if --memory is above 0"
expect 2 mh-eval --memory 0 --streams 4 $m v.mhs
expect 2 mh-eval --set model.layers=4 $m v.mhs
expect 2 mh-eval --set train.lr=4 $m v.mhs
expect 2 mh-eval --set model.mem=4 $m v.mhs
mh-train -q --train t.mhs --out plain --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 \
  --set train.batch.sequence_length=16 --set train.batch.tokens=64 --set train.length=1u
expect 2 mh-eval --memory 9 plain/last.safetensors v.mhs; expect_stderr "0 for a model without a memory"
# With sentence-streams, a run that stops after 30 of the 35 updates of an epoch and resumes equals an uninterrupted run, bit for bit.
train_sentences() { mh-train -q --threads 1 --config c.toml --train t.mhs --valid v.mhs --set train.batch.order=sentence-streams --set train.procedures.skip-retain.until=20u "$@"; }
train_sentences --out sentences --set train.length=40u
train_sentences --out halves --set train.length=30u
expect 0 mh-train -q --resume --threads 1 --out halves --set train.length=40u
same_tensors sentences/last.safetensors halves/last.safetensors
# mh-train refuses options that contradict streams, memories or Skip-Retain.
expect_refused() { expect 2 mh-train --config c.toml --train t.mhs --out new "${@:2}"; expect_stderr "$1"; [ ! -d new ] || fail "expected no output folder after an error; found one"; }
expect_refused "train.batch.order" --valid v.mhs --set train.batch.order=blocks
expect_refused "streams, the number of tokens in the text" --valid v.mhs --set train.batch.tokens=1000000
expect_refused "train.validation.sequence_length" --valid v.mhs --set train.validation.sequence_length=100
expect_refused "train.validation.memory" --valid v.mhs --set model.transformer-xl.memory=0 --set train.validation.memory=4
expect_refused "no --valid"
expect_refused "no validation up to update" --valid v.mhs --set train.validation.every=200u
expect_refused "skip layers" --valid v.mhs --set model.backbone=decoder --set model.transformer-xl.memory=0 --set model.output_bias=false --set attention.score=dot-product
expect 2 mh-train --resume --out whole --set train.length=310u --set train.validation.sequence_length=4
expect 2 mh-train --resume --out whole --set train.length=310u --set train.batch.order=blocks --set model.transformer-xl.memory=0
