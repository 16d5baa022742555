# Processes that divide the optimiser state (train.shard) compute the same bits as processes that each hold the complete state, also after a
# resume with another number of processes or without train.shard.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
. "$ROOT/tests/cli/processes.sh"
statuses=()  # set by wait_for_processes
make_text 300 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
print_small_model > c.toml
cat >> c.toml <<'T'
dropout_ffn = 0.1
[attention]
heads = 4
[train]
length = "12u"
batch.sequence_length = 16
batch.tokens = 96
lr = 0.003
optimizer.clip_norm = 1.0
optimizer.weight_decay = 0.01
validation.every = "4u"
checkpoint.every = "4u"
log_every = "2u"
timeout = 60
[train.groups.late]
match = ["decoder.layers.1.ffn.*"]
freeze_until = "3u"
[train.groups.other]
match = ["decoder.layers.0.self.*"]
rule = "sgd"
lr = 0.1
T
sharded=(--set train.shard=optimizer)
train=(mh-train --threads 1 -q --config c.toml --train t.mhs --valid t.mhs)
resume=(mh-train --threads 1 --resume)
same_run() { expect 0 python3 "$ROOT/tests/cli/same_run.py" "$1" "$2"; }

# Trains with two processes, then resumes with three, then with one.
in_processes 0 2 "${train[@]}" --set train.length=4u --out whole
in_processes 0 3 "${resume[@]}" -q --set train.length=8u --out whole
expect 0 "${resume[@]}" -q --set train.length=12u --out whole
in_processes 0 2 "${train[@]}" "${sharded[@]}" --set train.length=4u --out sharded
in_processes 0 3 "${resume[@]}" --set train.length=8u --out sharded
grep -q "the moments of .* parameters are divided among 3 processes" err.0 || fail "expected the number of divided moments in the log; found $(cat err.0)"
expect 0 "${resume[@]}" --set train.length=12u --out sharded
expect_stderr "train.shard=optimizer has no effect in a run of one process"
same_run whole sharded

# In bf16 the fp32 masters are divided, too. The run continues without train.shard.
bf16=(--set train.precision=bf16 --set train.optimizer.rule=nag)
in_processes 0 2 "${train[@]}" "${bf16[@]}" --set train.length=8u --out whole-bf16
in_processes 0 2 "${train[@]}" "${bf16[@]}" "${sharded[@]}" --set train.length=4u --out sharded-bf16
in_processes 0 2 "${resume[@]}" --set train.length=8u --out sharded-bf16
grep -q "the fp32 masters of .* parameters are divided among 2 processes; each process holds .* others, in .* tensors" err.0 || fail "expected the number of divided masters in the log; found $(cat err.0)"
same_run whole-bf16 sharded-bf16
for folder in whole-bf16 sharded-bf16; do in_processes 0 2 "${resume[@]}" -q --set train.length=10u --set train.shard=none --out "$folder"; done
same_run whole-bf16 sharded-bf16

# A dry run reports the bytes of the all-gather of weights and the smaller memory of each process.
python3 - <<'P' || fail "expected other properties in the dry run"
import json
import subprocess

def report(*settings):
    command = ["mh-train", "--dry-run", "--format", "json", "--config", "c.toml", "--train", "t.mhs", "--processes", "3"]
    return json.loads(subprocess.run(command + [x for s in settings for x in ("--set", s)], check=True, capture_output=True).stdout)

whole, sharded = report(), report("train.shard=optimizer")
n = whole["trained_parameters"]
assert whole["bytes_sent_per_update"] == 2 * 4 * n * 2 // 3, whole
assert sharded["bytes_sent_per_update"] == 3 * 4 * n * 2 // 3, sharded
bf16 = report("train.shard=optimizer", "train.precision=bf16")["bytes_sent_per_update"]
assert (2 * 4 + 2) * n * 2 // 3 < bf16 < 3 * 4 * n * 2 // 3, (bf16, n)
large = ("model.width=512", "model.ffn_dim=2048", "model.layers=6")
saved = report(*large)["memory_bytes"] - report(*large, "train.shard=optimizer")["memory_bytes"]
m = report(*large)["trained_parameters"]
assert 8 * m * 2 // 3 - (25 << 20) - 8 <= saved <= 8 * m * 2 // 3, (saved, m)
# The composed path keeps attention probabilities, which the fused path does not.
assert report("train.attention_path=composed")["memory_bytes"] > whole["memory_bytes"]
P

# Head rotation moves weights and moments between layers, so it excludes a sharded optimiser in a job of several processes,
# each of which lacks moments.
dry=(mh-train --dry-run --config c.toml --train t.mhs --set train.procedures.head-rotation.mode=random --set train.procedures.head-rotation.k=1)
expect 0 "${dry[@]}" "${sharded[@]}"
expect 2 "${dry[@]}" "${sharded[@]}" --processes 2
expect_stderr "train.procedures.head-rotation"
