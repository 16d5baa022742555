# mh-finetune trains all or some parameters of a model on other data. Checks which tensors change and which settings are
# inherited; resume and errors.
[ -n "$(command -v mh-finetune || true)" ] || skip "mh-finetune is not built"
make_shards
make_text 60 | tac > new
mh-prep lm --vocab v new -o new.mhs 2>/dev/null
printf '[model]\nlayers = 2\nwidth = 16\nffn_dim = 16\n[attention]\nheads = 4\ncombiner = "mae"\n[attention.mae]\nhidden = 8\n
[train]\nbatch.sequence_length = 16\nbatch.tokens = 64\nlr = 0.01\nlength = "6u"\noptimizer.weight_decay = 0.5\n[train.procedures.block-coordinate]\nevery = 2\n
[train.groups.gates]\nmatch = ["*.gate.*"]\nrule = "sgd"\nlr = 1.0\nweight_decay = 0.0\n' > c.toml
mh-train -q --config c.toml --train t.mhs --out first
m=first/last.safetensors
small="--set train.batch.sequence_length=16 --set train.batch.tokens=64"
go="--train new.mhs $small --set train.length=20u --set train.lr=0.01 --threads 1"

# changed.py: prints the names of the tensors that differ between two checkpoints, without the prefix of the layer.
cat > changed.py <<'P'
import json, struct, sys
def read(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {k: data[slice(*v["data_offsets"])] for k, v in header.items() if not k.startswith(("__", "optimizer."))}
a, b = map(read, sys.argv[1:])
assert a.keys() == b.keys()
print("\n".join(sorted({name.split("self.")[-1] for name in a if a[name] != b[name]})))
P
list_changed() { python3 changed.py $m "$1/last.safetensors" > names; }

# Trains only the gates: the run inherits the parameter group of the gates and block-coordinate training, and omits the
# passes that train no gate.
expect 0 mh-finetune --init $m --train-only gates $go --valid new.mhs --out gates
expect_stderr "[train.groups.gates]"; expect_stderr "[train.procedures.block-coordinate]"; expect_stderr "are skipped"
expect_stderr "all others are frozen"
list_changed gates
[ "$(cut -d. -f1 names | sort -u)" = gate ] || fail "changed tensors: $(cat names)"
[ "$(wc -l < names)" -eq 8 ] || fail "changed tensors: $(cat names)"
grep -q 'trainable = \["gates"\]' gates/config.toml || fail "train.trainable is not in config.toml"
grep -q 'weight_decay = 0.5' gates/config.toml && fail "weight decay was inherited"
python3 - <<'P'
import json
lines = [json.loads(line) for line in open("gates/log.jsonl")]
assert lines[0]["started"].startswith("mh-finetune "), lines[0]["started"]
assert lines[0]["from"] == "first/last.safetensors"
P
# --train-only accepts several words, and patterns of names; without it, all parameters are trained.
expect 0 mh-finetune -q --init $m --train-only gates,output $go --out plus
list_changed plus
[ "$(grep -v '^gate\.' names | tr '\n' ' ')" = "output.bias output.weight " ] || fail "changed tensors: $(cat names)"
expect 0 mh-finetune --init $m $go --out all --set train.groups.gates.lr=0.5
! grep -qF "are skipped" err || fail "expected no message about omitted passes"
list_changed all
[ "$(wc -l < names)" -gt 20 ] || fail "changed tensors: $(cat names)"
grep -q 'lr = 0.5' all/config.toml || fail "--set does not override an inherited setting"
expect 0 mh-finetune -q --init $m --train-only 'decoder.norm.*,*.0.ffn.up.bias' $go --out names_
list_changed names_
[ "$(tr '\n' ' ' < names)" = "decoder.layers.0.ffn.up.bias decoder.norm.bias decoder.norm.weight " ] || fail "changed tensors: $(cat names)"

# Refuses --seeds without --out, and another combiner than the checkpoint has.
expect 2 mh-finetune --init $m --train new.mhs --seeds 2
expect 2 mh-finetune --init $m $go --out x --set attention.combiner=concatenate; [ ! -d x ] || fail "expected no output folder after an error; found one"

# A run that mh-finetune or mh-train resumes ends with the same weights, also if the model came from a pipe.
cat $m | mh-finetune -q --init - --train-only gates $go --out halves --set train.length=9u
expect 0 mh-finetune -q --resume --out halves --set train.length=15u --threads 1
expect 0 mh-train -q --resume --out halves --set train.length=20u --threads 1
python3 changed.py gates/last.safetensors halves/last.safetensors > names
[ ! -s names ] || [ "$(cat names)" = "" ] || fail "expected the weights of the uninterrupted run; found other tensors $(cat names)"
record 2 mh-finetune --resume --out halves --train-only output

# A dry run reports the number of trained parameters.
expect 0 mh-finetune --init $m --train-only gates --train new.mhs --dry-run --format json
mv out gates.json
expect 0 mh-finetune --init $m --dry-run --format json
python3 - <<'P'
import json
gates, whole = json.load(open("gates.json")), json.load(open("out"))
assert whole["trained_parameters"] == whole["parameters"] == gates["parameters"]
# parameters of the gates: 2 d + d hidden + hidden + hidden E + E, in each of 2 layers
assert gates["trained_parameters"] == 2 * (2 * 16 + 16 * 8 + 8 + 8 * 4 + 4), gates
P
# mh-train --from inherits only the model, not the training settings.
expect 0 mh-train -q --from $m $go --out model --set 'train.trainable=["gates"]'
! grep -q "train.groups.gates" model/config.toml || fail "a parameter group was inherited"

# record_refused STATUS ARGUMENT…: mh-finetune must exit with STATUS, with the recorded message, and leave no folder.
record_refused() {
  record "$1" mh-finetune "${@:2}"
  [ ! -d run ] || fail "expected no output folder after an error; found one"
}
record_refused 2 $go --out run
record_refused 2 --init $m --resume --out run
record_refused 2 --init $m $go
expect 0 mh-finetune --init $m --train new.mhs --out once $small --threads 1; expect_stderr "train.length is not set; using 1e"
grep -q '^length = "1e"$' once/config.toml || fail "$(cat once/config.toml)"
record_refused 2 --init $m --train-only gate $go --out run
record_refused 2 --init $m --train-only gates,mixing $go --out run
record_refused 2 --init $m --train-only '*.qurey.*' $go --out run
record_refused 2 --init $m --train-only '*.norm.variance' $go --out run
record_refused 2 --init $m $go --out run --set model.layers=3
record_refused 3 --init missing $go --out run
record_refused 3 --init text $go --out run
expect 3 mh-finetune --init $m --train other.mhs --out run $small --set train.length=2u  # names fingerprints, which run.py ignores
[ ! -d run ] || fail "expected no output folder after an error; found one"
record 2 mh-finetune --dry-run --init $m --train-only gate
golden_record refused
expect 3 mh-finetune --dry-run --init $m --train other.mhs
