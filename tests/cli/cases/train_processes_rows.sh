# Several processes compute the losses of one process without micro-batches, although the processes pad their rows to different lengths:
# dropout does not depend on the padding, and the gates of MAE compute batch statistics over the rows of all processes.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
. "$ROOT/tests/cli/processes.sh"
statuses=()  # set by wait_for_processes
make_character_shards 300
print_small_model > c.toml
cat >> c.toml <<'T'
dropout_embedding = 0.1
dropout_attention = 0.1
dropout_activation = 0.1
dropout_ffn = 0.1
dropout_output = 0.1
[attention]
heads = 4
dropout = 0.1
[train]
length = "24u"
batch.sequence_length = 16
batch.tokens = 160
lr = 0.003
log_every = "4u"
timeout = 60
T
train=(mh-train --threads 1 -q --config c.toml)
pairs=("${train[@]}" --train p.mhs --set model.backbone=encoder-decoder --set train.batch.sequence_length=64 --set train.batch.tokens=600)
texts=("${train[@]}" --train t.mhs --config "$ROOT/configs/methods/mae.toml" --set attention.mae.hidden=8)

expect 0 "${pairs[@]}" --out one
in_processes 0 2 "${pairs[@]}" --out two
in_processes 0 3 "${pairs[@]}" --attention composed --set train.batch.micro_tokens=100 --out three
same_losses one two 6
same_losses one three 6
# If dropout draws by the index in the padded batch, as in earlier versions, several processes drop other elements than one process.
in_processes 0 2 "${pairs[@]}" --set train.dropout_index=padded --out padded
if (same_losses one padded 6) 2>/dev/null >&2; then fail "expected other losses with train.dropout_index=padded"; fi

expect 0 "${texts[@]}" --out one-mae
in_processes 0 2 "${texts[@]}" --out two-mae
in_processes 0 3 "${texts[@]}" --out three-mae
same_losses one-mae two-mae 6
same_losses one-mae three-mae 6
# Two rows for three processes: the third computes a row without targets.
expect 0 "${texts[@]}" --set train.batch.tokens=32 --out two-rows
in_processes 0 3 "${texts[@]}" --set train.batch.tokens=32 --out three-of-two-rows
same_losses two-rows three-of-two-rows 6
# Five streams with a memory, in micro-batches of two, for two processes: the second process computes a filler in place of a third
# micro-batch. A resume within an epoch, here with recomputed activations, restores the memories of the streams and none of the filler.
streams=("${texts[@]}" --set model.backbone=transformer-xl --set model.positions=none --set model.transformer-xl.memory=16 --set attention.score=relative
  --set train.batch.order=streams --set train.batch.tokens=80 --set train.batch.micro_tokens=32)
in_processes 0 2 "${streams[@]}" --out streams
in_processes 0 2 "${streams[@]}" --set train.length=6u --out streams-resumed
in_processes 0 2 mh-train --threads 1 -q --resume --out streams-resumed --set train.length=24u --set train.recompute=true
same_tensors streams/last.safetensors streams-resumed/last.safetensors

# A dry run prints the number of rows of a process, exact for a text and for examples, and the mean over an epoch for pairs.
dry_run=(mh-train --dry-run --format json --config c.toml --set train.length=1e)
expect 0 "${dry_run[@]}" --processes 3 --train t.mhs; expect_stdout '"rows_per_process":4,'
expect 0 "${dry_run[@]}" --processes 3 --set model.backbone=bert --set model.vocabulary_rows=30 --set train.batch.rows=7; expect_stdout '"rows_per_process":3,'
expect 0 "${dry_run[@]}" --processes 2 --train p.mhs --set model.backbone=encoder-decoder --set train.batch.sequence_length=64 --set train.batch.tokens=600
python3 - <<'P' || fail "expected the mean number of pairs of an update, divided by 2; found $(cat out)"
import json

report = json.load(open("out"))
assert report["approximate_rows_per_process"] == round(100 * 300 / (2 * report["updates"])) / 100, report
assert "rows_per_process" not in report
P
