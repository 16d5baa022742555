# Training on several shards that are mixed by weight: a run that is killed by SIGKILL and resumed ends with the same
# weights, bit for bit, as an uninterrupted run; two processes draw the same rows as one process; the log has the epochs of
# each shard.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
. "$ROOT/tests/cli/processes.sh"
make_shards
make_text 200 | rev > reversed
mh-prep lm --vocab v reversed -o b.mhs 2>/dev/null
make_text 40 | tac > backwards
mh-prep lm --vocab v backwards -o c.mhs 2>/dev/null
cat > c.toml <<'T'
[model]
layers = 2
width = 64
ffn_dim = 128
dropout_ffn = 0.1
[attention]
heads = 4
[train]
length = "400u"
batch.sequence_length = 16
batch.tokens = 256
batch.micro_tokens = 128
lr = 0.003
optimizer.clip_norm = 1.0
validation.every = "50u"
checkpoint.every = "10u"
log_every = "4u"
T
shards=(t.mhs b.mhs c.mhs)
check_killed_run 0.6 shard_epochs mh-train --threads 1 --config c.toml --train "${shards[@]}" --set 'data.weights=[5, 3, 2]' --valid t.mhs -q --out
with_tolerance - "$(mh-prep info --format json "${shards[@]}")" <<'P'
import json, math, re, sys, tolerance
tokens = [int(n) for n in re.findall(r'"tokens": ?(\d+)', sys.argv[1])]
lines = [json.loads(line) for line in open("whole/log.jsonl")]
assert lines[0]["shard_shares"] == [0.5, 0.3, 0.2], lines[0]
update_lines = [line for line in lines if "nll" in line]
assert len(tokens) == 3 and update_lines[-1]["update"] == 400, (tokens, update_lines[-1])
for line in update_lines:
    for share, count, epochs in zip([0.5, 0.3, 0.2], tokens, line["shard_epochs"]):
        blocks = math.ceil(count / 16)  # an update has 16 rows, each a block of 16 tokens
        # The rule of the draws bounds the deviation of three shards by one draw; the log has four decimals.
        assert abs(epochs * blocks - share * 16 * line["update"]) < 1 + tolerance.print_bound(4) * blocks, (line, share, blocks)
        assert epochs == round(epochs, 4)
P
grep -q '^weights = \[5.0, 3.0, 2.0\]$' whole/config.toml || fail "expected the weights in config.toml"
grep -q "^train = \[\"$PWD/t.mhs\", \"$PWD/b.mhs\", \"$PWD/c.mhs\"\]\$" whole/config.toml || fail "expected the shards in config.toml"
# Two processes give the same bits as one process with two micro-batches.
train=(mh-train --threads 1 -q --config c.toml --train "${shards[@]}" --valid t.mhs --set train.length=12u)
memory=(--set model.backbone=transformer-xl --set model.transformer-xl.memory=16 --set model.positions=none --set attention.score=relative)
for order in blocks streams memory; do
  options=(--set "train.batch.order=${order/memory/streams}")
  [ "$order" != memory ] || options+=("${memory[@]}")
  expect 0 "${train[@]}" "${options[@]}" --out one-$order
  in_processes 0 2 "${train[@]}" "${options[@]}" --set train.batch.micro_tokens=0 --out two-$order
  expect 0 python3 "$ROOT/tests/cli/same_run.py" one-$order two-$order shard_epochs
done
# A resume continues with the memory of the streams.
streams=(mh-train --threads 1 -q --config c.toml --train "${shards[@]}" "${options[@]}")
expect 0 "${streams[@]}" --set train.length=12u --out whole-memory
expect 0 "${streams[@]}" --set train.length=7u --out part-memory
expect 0 mh-train --threads 1 -q --resume --out part-memory --set train.length=12u
same_tensors whole-memory/last.safetensors part-memory/last.safetensors
# Without data.weights, shards are weighted by their numbers of tokens, and the log states this.
expect 0 mh-train --threads 1 --config c.toml --train "${shards[@]}" --set train.length=2u --out tokens
expect_stderr "t.mhs with weight 0."; expect_stderr "c.mhs with weight 0."; expect_stderr "data.weights is not set"
! grep -q '^weights' tokens/config.toml || fail "expected no weights in config.toml"
expect 0 mh-train --dry-run --config c.toml --train "${shards[@]}"; expect_stdout "epochs"; expect_stderr "data.weights is not set"
# One shard in a list, or with one weight, is a run on this shard: the configuration is the same, byte for byte.
small="--threads 1 -q --config c.toml --set train.length=2u --set train.checkpoint.every=1u"
expect 0 mh-train $small --train t.mhs --out alone
expect 0 mh-train $small --set 'data.train=["t.mhs"]' --set 'data.weights=[3]' --out listed
cmp alone/config.toml listed/config.toml
cmp alone/last.safetensors listed/last.safetensors
! grep -q shard_ alone/log.jsonl || fail "expected no log field of several shards in a run on one shard"
# A resume accepts other names of the shards, and refuses other weights, another order and other shards.
mkdir moved; mv b.mhs moved
expect 3 mh-train --threads 1 --resume --out tokens --set train.length=3u
expect 0 mh-train --threads 1 --resume --out tokens --set train.length=3u --train t.mhs moved/b.mhs c.mhs
expect_stderr "changed by this resume: data.train"
mv moved/b.mhs b.mhs
expect 2 mh-train --resume --out tokens --set train.length=4u --train b.mhs t.mhs c.mhs; expect_stderr "data.train_checksum"
expect 2 mh-train --resume --out tokens --set train.length=4u --train "${shards[@]}" --set 'data.weights=[1, 1, 1]'; expect_stderr "data.weights: default ->"
expect 2 mh-train --resume --out alone --set train.length=4u --train t.mhs b.mhs; expect_stderr "data.train_checksum"
# Training on sentence pairs and fine-tuning also mix several shards by weight.
mh-prep translation --vocab v text reversed -o p.mhs 2>/dev/null
head -n 50 text > text50; head -n 50 reversed > reversed50
mh-prep translation --vocab v text50 reversed50 -o q.mhs 2>/dev/null
expect 0 mh-train $small --set model.backbone=encoder-decoder --set train.batch.sequence_length=32 \
  --set train.log_every=1u --set train.length=4u --set 'data.weights=[1, 1]' --train p.mhs q.mhs --out pairs
[ "$(grep -c shard_epochs pairs/log.jsonl)" -eq 4 ] || fail "expected 4 lines with shard_epochs; found $(cat pairs/log.jsonl)"
expect 0 mh-finetune --threads 1 --init alone/last.safetensors --set train.batch.sequence_length=16 --set train.batch.tokens=64 --set train.length=2u \
  --train t.mhs b.mhs --set 'data.weights=[1, 3]' --out tuned
expect_stderr "b.mhs with weight 0.7500"
# Errors leave no folder.
expect_refused() { expect "$1" mh-train --config c.toml --out no "${@:2}"; [ ! -d no ] || fail "expected no output folder after an error; found one"; }
expect_refused 2 --train t.mhs b.mhs --set 'data.weights=[0.5]'
expect_refused 2 --train t.mhs --set 'data.weights=[0.5, 0.5]'
expect_refused 2 --train t.mhs b.mhs --set 'data.weights=[0.5, 0]'
expect_refused 2 --train t.mhs b.mhs --set 'data.weights=[0.5, inf]'
expect_refused 2 --train t.mhs b.mhs --set 'data.weights=[1, 1e-11]'; expect_stderr "1e-11 of shard 2"
expect_refused 2 --train t.mhs b.mhs --set data.weights=1
expect_refused 2 --set data.train=1
expect_refused 2 --set 'data.train=[]'
expect_refused 2 --train t.mhs $'\xff.mhs'
expect_refused 3 --train t.mhs other.mhs; expect_stderr "other.mhs"; expect_stderr "t.mhs"
expect_refused 3 --train t.mhs p.mhs
expect_refused 2 --train t.mhs b.mhs --set train.batch.order=streams --set 'data.weights=[1, 99]'; expect_stderr "0.0100 for t.mhs in 16 streams"
expect_refused 2 --train t.mhs c.mhs --set train.batch.order=streams --set train.batch.tokens=65536 --set train.batch.micro_tokens=0 --set 'data.weights=[1, 99]'
expect_refused 2 --train t.mhs c.mhs --set train.batch.order=sentence-streams

