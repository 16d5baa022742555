# mh-train --from starts a new run with the model and weights of a checkpoint, a new optimizer state and a complete
# configuration file.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_shards
printf '[model]\nlayers = 2\nwidth = 16\nffn_dim = 16\n[attention]\nheads = 4\nmixer = "mixhead-a"\n[train]\nbatch.sequence_length = 16\nbatch.tokens = 64\nlr = 0.01\n' > c.toml
mh-train -q --config c.toml --train t.mhs --out first --set train.length=6u
m=first/last.safetensors
cp $m plain.safetensors
if command -v mh-swap >/dev/null; then mh-swap -q $m --pairs decoder.self:0.1-1.2 -o plain.safetensors; fi
go="--train t.mhs --set train.batch.sequence_length=16 --set train.batch.tokens=64 --set train.length=4u --set train.lr=0.01"

# The run starts from the weights of the checkpoint: with a learning rate of nearly 0, its validation loss equals the
# loss from mh-eval.
expect 0 mh-train --from plain.safetensors $go --valid t.mhs --out still --set train.lr=1e-30 --set train.length=1u
expect_stderr "starts from the weights of plain.safetensors"
mh-eval -q --format json plain.safetensors t.mhs > score.json
with_tolerance - <<'P'
import json, tolerance
lines = [json.loads(line) for line in open("still/log.jsonl")]
assert lines[0]["from"] == "plain.safetensors" and lines[0]["update"] == 0
assert any("valid_nll" in line for line in lines)
score = json.load(open("score.json"))
bound = tolerance.mean_nll_bound(score, "plain.safetensors", 16)
assert all(abs(line["valid_nll"] - score["nll"]) <= bound for line in lines if "valid_nll" in line)
P
# A run that is resumed halfway has the same scores as an uninterrupted run.
expect 0 mh-train -q --from plain.safetensors $go --out whole --set model.dropout_ffn=0.1
grep -q 'mixer = "mixhead-a"' whole/config.toml || fail "the model is not in config.toml"
grep -q 'dropout_ffn = 0.1' whole/config.toml || fail "--set is not in config.toml"
expect 0 mh-train -q --from plain.safetensors $go --out halves --set model.dropout_ffn=0.1 --set train.length=2u
rm plain.safetensors
expect 0 mh-train -q --resume --out halves --set train.length=4u
mh-eval -q --format json whole/last.safetensors t.mhs | sed 's/whole//' > a
mh-eval -q --format json halves/last.safetensors t.mhs | sed 's/halves//' > b
cmp a b
# Reads the checkpoint from a pipe; a dry run needs no data.
cat $m | mh-train -q --from - $go --out piped
# A run that is killed between its first state and config.toml starts again by the same command, and has nothing to resume.
expect 137 with_fault rename:2:KILL mh-train -q --from $m $go --out killed
[ -f killed/last.safetensors ] && [ ! -f killed/config.toml ] || fail "expected a state without config.toml; found $(ls killed)"
expect 3 mh-train -q --resume --out killed
expect 0 mh-train -q --from $m $go --out killed
cmp killed/last.safetensors piped/last.safetensors
# A state of a completed update without config.toml is not replaced.
rm killed/config.toml
expect 2 mh-train -q --from $m $go --out killed
expect 3 mh-train -q --resume --out killed
cmp killed/last.safetensors piped/last.safetensors
expect 0 mh-train --dry-run --format json --from $m
expect_stdout '"parameters":'
mv out dry
expect 0 mh-train --dry-run --format json --config c.toml --train t.mhs
python3 - <<'P'
import json
assert json.load(open("dry"))["parameters"] == json.load(open("out"))["parameters"]
P
# Lengths are reported in updates if the data determine the updates per epoch.
expect 0 mh-train --dry-run --format json --config c.toml --train t.mhs --set train.length=5e --set train.schedule.length=10e --set train.schedule.warmup_ratio=0.1
python3 - <<'P'
import json
properties = json.load(open("out"))
assert properties["epochs"] == 5 and properties["warmup_updates"] * 5 == properties["updates"], properties
P
# expect_refused STATUS MESSAGE ARGUMENT…: mh-train --from must exit with STATUS and MESSAGE and leave no folder.
expect_refused() { expect "$1" mh-train --from $m $go --out run "${@:3}"; expect_stderr "$2"; [ ! -d run ] || fail "expected no output folder after an error; found one"; }
expect_refused 2 "decoder.layers.2" --set model.layers=3
expect_refused 2 "decoder.layers.0.self.mixer.matrix" --set attention.mixer=none
expect_refused 2 "with 4 heads" --set attention.heads=2
expect_refused 2 "--resume" --resume
expect_refused 2 "did you mean" --set model.layer=2
expect_refused 3 "the vocabulary" --set data.train=other.mhs
expect_refused 3 "the vocabulary" --valid other.mhs
record 3 mh-train --from missing $go --out run
record 3 mh-train --from text $go --out run
expect 3 mh-train --dry-run --from $m --train other.mhs
record 2 mh-train --dry-run --from $m --set attention.heads=2
golden_record refused
