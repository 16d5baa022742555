# --resume compares configuration and data with the saved training state; a refused resume changes no file.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_text 200 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
make_text 300 | tail -n 200 > other
mh-prep lm --vocab v other -o o.mhs 2>/dev/null
printf '[model]\nlayers = 1\nwidth = 16\nffn_dim = 16\n[attention]\nheads = 2\n[train]\nbatch.sequence_length = 16\nbatch.tokens = 64\nlength = "6u"\n' > c.toml
expect 0 mh-train --config c.toml --train t.mhs --valid t.mhs --out run
cp run/config.toml config
for edit in 's/^heads = 2/heads = 4/' 's/^seed = 1/seed = 9/' 's/^tokens = 64/tokens = 128/'; do
  sed -i "$edit" run/config.toml
  cmp -s config run/config.toml && fail "the edit changed nothing: $edit"
  expect 2 mh-train --resume --out run --set train.length=9u
  cp config run/config.toml
done
expect 2 mh-train --resume --out run --set train.length=3u; expect_stderr "at least 6u"
expect 3 mh-train --config c.toml --train - --out new < t.mhs
expect 2 mh-train --resume --out run --valid o.mhs
cp run/last.safetensors good
head -c 3000 good > run/last.safetensors
expect 3 mh-train --resume --out run --set train.lr=0.5
cmp config run/config.toml
rm run/last.safetensors
expect 3 mh-train --resume --out run
cp good run/last.safetensors
# Resumes from another working folder, and with another attention path, which is reported.
mkdir elsewhere
( cd elsewhere && expect 0 mh-train --resume --out ../run --set train.length=8u --attention composed && expect_stderr "changed by this resume: train.attention_path" && expect_stderr "composed, as requested" )
# A run that cannot start leaves no folder.
expect 2 mh-train --config c.toml --train t.mhs --out new --set model.positions=learned --set model.max_positions=8
expect 2 mh-train --config c.toml --train t.mhs --out new --attention fused --set attention.dropout=0.1 --set attention.head_size=8; expect_stderr "dropout of the probabilities with head_size 8"
expect 0 mh-train --config c.toml --train t.mhs --out brief --set train.length=2u --set train.schedule.warmup=5u; expect_stderr "within its warm-up of 5"; rm -r brief
expect 2 mh-train --config c.toml --train t.mhs --out new --set train.length=9000000000000000000e; expect_stderr "fewer than 2^63 updates"
expect 2 mh-train --resume --dry-run
expect 3 mh-train --config c.toml --train <(cat t.mhs) --out new
expect 2 mh-train --config c.toml --train $'t\xff.mhs' --out new; expect_stderr "UTF-8"
[ ! -d new ] || fail "expected no output folder after an error; found one"
# A warning about a first update with learning rate 0 is printed only once. The same holds for the warning about a state of
# an earlier version, in which update n used the learning rate at n completed updates instead of n - 1.
decay='--set train.schedule.rule=linear --set train.schedule.warmup=2u --set train.schedule.warmup_lr=0 --set train.schedule.length=9u'
expect 0 mh-train --config c.toml --train t.mhs --out decays $decay; expect_stderr "the first update has learning rate 0"
cp decays/last.safetensors new.safetensors
sed -i 's/schedule_rule/schedule_old_/' decays/last.safetensors
expect 3 mh-train --resume --out decays --set train.length=7u  # the error states the checksum of the edited header
mapfile -t sums < <(grep -oE '[0-9a-f]{16}' err)
sed -i "s/${sums[0]}/${sums[1]}/" decays/last.safetensors
expect 0 mh-train --resume --out decays --set train.length=7u; expect_stderr "from update 7 on, update n uses the learning rate at n - 1 completed updates"
expect 0 mh-train --resume --out decays --set train.length=8u
if grep -q "uses the learning rate" err || grep -q "has learning rate 0" err; then fail "the warning is repeated"; fi
# A diverged run keeps its last good state and resumes from it.
cp -r run nan
expect 1 mh-train --resume --out nan --set train.length=20u --set train.lr=1e38
cmp run/last.safetensors nan/last.safetensors
[ -f nan/diverged.safetensors ] || fail "expected nan/diverged.safetensors; found none"
expect 0 mh-train --resume --out nan --set train.length=20u --set train.lr=1e-3
# A resume refuses an invalid state of a procedure, and a memory that the model does not have.
mh-train -q --config c.toml --train t.mhs --out rotated --set model.layers=2 --set train.procedures.head-rotation.mode=random --set train.procedures.head-rotation.k=1
xl="--set model.backbone=transformer-xl --set model.positions=none --set attention.score=relative --set model.layers=2"
mh-train -q --config c.toml --train t.mhs --out skipped $xl --set train.procedures.skip-retain.rate=0.5
cp -r rotated unpaired
python3 -B - "$ROOT/tests/cli" <<'P'
import json, sys
sys.path.insert(0, sys.argv[1])
import checkpoint_header
def edit(run, change):
    path = f"{run}/last.safetensors"
    tensors, metadata, data = checkpoint_header.read(path)
    state = json.loads(metadata["multihead.training"])
    change(state)
    metadata["multihead.training"] = json.dumps(state)
    checkpoint_header.write(path, tensors, metadata, data)
edit("run", lambda state: state.update(memory=True))
edit("rotated", lambda state: state["procedures"].update({"head-rotation": "[]"}))
edit("unpaired", lambda state: state["procedures"].update({"head-rotation": '{"begun": 1, "swapped_at": 0, "active": ["x"], "planned": []}'}))
edit("skipped", lambda state: state["procedures"].update({"skip-retain": "[]"}))
P
for run in run rotated unpaired skipped; do expect 3 mh-train --resume --out $run --set train.length=9u; done
# Skip-Retain fails if no validation has a finite loss, since its phase 2 starts from the best weights.
expect 1 mh-train --config c.toml --train t.mhs --valid t.mhs --out wild $xl --set train.procedures.skip-retain.until=1u --set train.validation.every=1u --set train.lr=1e30
# train.length in tokens counts tokens, although the last row and batch of an epoch are short.
tokens=$(mh-prep info --format json t.mhs | python3 -c 'import json, sys; print(json.load(sys.stdin)["tokens"])')
expect 0 mh-train --config c.toml --train t.mhs --out counted --set train.batch.tokens=4096 --set "train.length=$((3 * tokens))t"
grep -q "\"update\":$(( 3 * ((tokens + 4095) / 4096) )),.*\"tokens\":$((3 * tokens))," counted/log.jsonl || fail "tokens: $(tail -1 counted/log.jsonl)"
# A closed pipe ends a listing silently; a full device is an error.
mh-train --list keys 2>err | head -1 > out; [ "${PIPESTATUS[0]}" -eq 0 ] || fail "expected exit status 0 for --list keys into head"
[ ! -s err ] || fail "expected no message from --list keys into head"
expect 2 mh-train --list keys --format json
expect 2 mh-train --list keys --config c.toml
for options in "--list keys" "--version" "--help"; do expect 1 bash -c "mh-train $options >/dev/full"; done
