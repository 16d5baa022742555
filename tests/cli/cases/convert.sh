# mh-convert averages checkpoints, folds combiners, and does both at once, with files and pipes; checks errors.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
make_text 200 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
make_text 300 | mh-prep vocab --min-count 2 - > v2 2>/dev/null
mh-prep lm --vocab v2 text -o other.mhs 2>/dev/null
# train FOLDER SHARD OPTION…: trains a small model on SHARD in FOLDER.
train() {
  mh-train -q --train "$2" --valid "$2" --out "$1" --set model.layers=2 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=4 \
    --set train.batch.sequence_length=16 --set train.batch.tokens=64 --set train.length=6u --set train.lr=0.01 "${@:3}"
}
train run t.mhs --set attention.combiner=alphas --set attention.mixer=mixhead-a --set train.checkpoint.every=2u --set train.checkpoint.retain=3
[ "$(find run/checkpoints -name '*.safetensors' | wc -l)" -eq 3 ] || fail "expected 3 retained checkpoints of the run"

expect 0 bash -c 'mh-convert --average run/checkpoints/*.safetensors > average'
expect_stderr "averaged 3 checkpoints"
expect 0 mh-convert --average run/checkpoints/*.safetensors -o again
cmp average again
# Each number is the mean in double precision, rounded once to fp32. The average of training states has only their
# weights.
cat run/last.safetensors | mh-convert -q --average run/best.safetensors - > states
python3 - <<'P'
import json, struct
def read(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    meta = header.pop("__metadata__")
    return {k: struct.unpack(f"<{(v['data_offsets'][1] - v['data_offsets'][0]) // 4}f", data[slice(*v["data_offsets"])])
            for k, v in header.items() if not k.startswith("optimizer.")}, meta
import glob
names = sorted(glob.glob("run/checkpoints/*"))
files = [read(name)[0] for name in names]
mean, meta = read("average")
assert mean.keys() == files[0].keys()
for name, values in mean.items():
    for i, value in enumerate(values):
        assert value == struct.unpack("<f", struct.pack("<f", sum(f[name][i] for f in files) / 3))[0], name
assert json.loads(meta["multihead.origin"]) == [{"average": names}], meta["multihead.origin"]
assert "multihead.training" not in meta
states, meta = read("states")
assert not any(name.startswith("optimizer.") for name in states)
assert json.loads(meta["multihead.origin"]) == [{"average": ["run/best.safetensors", "standard input"]}], meta["multihead.origin"]
P

# A folded model gives the same scores and cannot be folded again.
expect 0 mh-convert --fold run/best.safetensors -o folded
expect_stderr "folded the combiners of 2 layers"
cat run/best.safetensors | mh-convert -q --fold - | cmp - folded
mh-eval -q --format json run/best.safetensors folded t.mhs > scores
with_tolerance - <<'P'
import json, tolerance
a, b = [json.loads(line) for line in open("scores")]
# The model before folding has the longer chain of roundings.
assert abs(a["nll"] - b["nll"]) <= tolerance.mean_nll_bound(a, "run/best.safetensors", 16), (a, b)
P
record 2 mh-convert --fold folded -o x

# Checkpoints are refused if their metadata contains deeply nested JSON, which would exhaust the stack, an origin that is no list, or another
# number of heads than the tensors have.
python3 -B - "$ROOT/tests/cli" <<'P'
import sys
sys.path.insert(0, sys.argv[1])
import checkpoint_header
tensors, metadata, data = checkpoint_header.read("run/best.safetensors")
metadata["multihead.origin"] = "[" * 300000 + "]" * 300000
checkpoint_header.write("nested.safetensors", tensors, metadata, data)
metadata["multihead.origin"] = "{}"
checkpoint_header.write("object.safetensors", tensors, metadata, data)
metadata["multihead.config"] = metadata["multihead.config"].replace("heads = 4", "heads = 3", 1)
checkpoint_header.write("heads.safetensors", tensors, metadata, data)
P
record 3 mh-convert --average nested.safetensors -o x
expect 3 mh-convert --average object.safetensors -o x
expect 3 mh-convert --fold heads.safetensors -o x; expect_stderr "the checkpoint is damaged or was edited"
# A model with padded heads gives the same scores; a head size below the size of a head is refused.
expect 0 mh-convert --head-size 9 run/best.safetensors -o padded
expect_stderr "padded the heads of 2 layers to 9 elements"
cat run/best.safetensors | mh-convert -q --head-size 9 - | cmp - padded
mh-eval -q --format json run/best.safetensors padded t.mhs > scores
with_tolerance - <<'P'
import json, tolerance
a, b = [json.loads(line) for line in open("scores")]
assert abs(a["nll"] - b["nll"]) <= tolerance.mean_nll_bound(a, "padded", 16), (a, b)
P
record 2 mh-convert --head-size 3 run/best.safetensors -o x
record 2 mh-convert --head-size 4 run/best.safetensors -o x
record 2 mh-convert --head-size 0 run/best.safetensors -o x
record 2 mh-convert --head-size 9 . -o x
record 2 mh-convert --to huggingface --head-size 9 run/best.safetensors new
# A folded model can be trained further, with the plain combiner.
expect 0 mh-train --dry-run --from folded --format json
expect 0 mh-train -q --from folded --train t.mhs --out on --set train.batch.sequence_length=16 --set train.batch.tokens=64 --set train.length=2u
grep -q 'combiner = "concatenate"' on/config.toml || fail "expected the combiner concatenate in the configuration of the folded model"
# mh-convert --average --fold gives the same checkpoint as --average followed by --fold.
mh-convert -q --average --fold run/checkpoints/*.safetensors > both
mh-convert -q --fold average > one_by_one
cmp both one_by_one
grep -qaF 'decoder.layers.0.self' both
mh-eval -q both t.mhs > /dev/null
# A pruned model can be folded.
mh-prune -q cut run/best.safetensors --heads 0:1,1:0,1:2 --side output -o cut
expect 0 mh-convert --fold cut -o cut_folded
mh-eval -q --format json cut cut_folded t.mhs > scores
with_tolerance - <<'P'
import json, tolerance
a, b = [json.loads(line) for line in open("scores")]
assert abs(a["nll"] - b["nll"]) <= tolerance.mean_nll_bound(a, "cut", 16), (a, b)
P
# mh-convert reports that it also averages tensors that are not trained, such as statistics of batch norms.
train gated t.mhs --set attention.combiner=mae --set attention.mae.hidden=8
expect 0 mh-convert --average gated/best.safetensors gated/last.safetensors -o gates
expect_stderr "averaged 4 non-trainable tensors as well"
record 2 mh-convert --fold gates -o x
# The combiners after the last combiner without a matrix fold, also after pruning.
train listed t.mhs --set 'attention.combiner=["mae","gates"]' --set attention.mae.hidden=8
grep -q 'combiner = \["mae", "gates"\]' listed/config.toml || fail "expected both combiners in the configuration of the run"
mh-prune -q cut listed/best.safetensors --heads 0:1,1:2 -o listed_cut
expect 0 mh-convert --fold listed_cut -o listed_folded
expect_stderr "folded the combiners of 2 layers"
mh-eval -q --format json listed_cut listed_folded t.mhs > scores
with_tolerance - <<'P'
import json, tolerance
a, b = [json.loads(line) for line in open("scores")]
assert abs(a["nll"] - b["nll"]) <= tolerance.mean_nll_bound(a, "listed_cut", 16), (a, b)
P
expect 0 mh-train -q --from listed_folded --train t.mhs --out listed_on --set train.batch.sequence_length=16 --set train.batch.tokens=64 --set train.length=2u
grep -q 'combiner = "mae"' listed_on/config.toml || fail "expected the combiner mae in the configuration of the folded model"

# Errors are reported before any file is written.
# record_refused STATUS ARGUMENT…: records the error of mh-convert, which must exit with STATUS and leave no file.
record_refused() { record "$1" mh-convert "${@:2}" -o x; [ ! -e x ] || fail "expected no output file after an error; found one"; }
m=run/best.safetensors
train words other.mhs --set attention.combiner=alphas --set attention.mixer=mixhead-a
train deep t.mhs --set attention.combiner=alphas --set attention.mixer=mixhead-a --set model.layers=3
record_refused 2 $m
record_refused 2 --average
record_refused 2 --fold $m average
record_refused 2 --average - -
record_refused 3 --average $m gated/best.safetensors
record_refused 3 --average $m deep/best.safetensors
expect 3 mh-convert --average $m words/best.safetensors -o x; expect_stderr "of $m"
record_refused 3 --average $m missing
record_refused 3 --fold text
head -c 3000 $m > torn
expect 3 mh-convert --average $m torn -o x; [ ! -e x ] || fail "expected no output file after an error; found one"
record 2 mh-convert --average $m average -o average
python3 -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(["mh-convert", "--average", sys.argv[1]])))' $m > terminal && fail "a checkpoint was printed to a terminal"
grep -qF "a terminal" terminal || fail "the error does not mention the terminal"
record 2 mh-convert --averge $m
expect 2 mh-convert --to huggingface $m folder --padded-vocabulary
expect 2 mh-convert --to huggingface $m folder --seed 1
golden_record refused
