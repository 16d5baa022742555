# Configuration keys of earlier versions are translated. A warning names the current key if the user wrote the old key;
# stored files cause no warning.
make_shards
cat > old.toml <<'C'
[model]
layers = 1
width = 16
ffn = 16
[attention]
heads = 2
[train]
block = 16
batch_tokens = 64
optimizer = "adamw"
length = "2u"
C
expect 0 mh-train --threads 1 --config old.toml --train t.mhs --out run --set train.clip=1.0 --set train.dropout_index=padded
expect_stderr 'old.toml:8: train.block = 16 is a setting of an earlier version of multihead; write train.batch.sequence_length = 16 instead'
expect_stderr 'old.toml:4: model.ffn = 16 is a setting of an earlier version of multihead; write model.ffn_dim = 16 instead'
expect_stderr 'train.optimizer.rule = "adamw" and train.optimizer.decay_norms_and_biases = false'
expect_stderr '--set train.clip: train.clip = 1.0 is a setting of an earlier version of multihead; write train.optimizer.clip_norm = 1.0 instead'
[ "$(grep -c 'earlier version' err)" -eq 5 ] || fail "expected one warning for each of 5 old keys"
! grep -q '^clip = ' run/config.toml || fail "the run's configuration has an old key"
# A run begun by an earlier version resumes to the same weights, without a warning.
mkdir before
{ cat old.toml; echo 'clip = 1.0'; sed -n '/^\[data\]/,$p' run/config.toml; } > before/config.toml
expect 0 mh-train --threads 1 --out before --resume
! grep -q "earlier version" err || fail "expected no warning about a stored file; found $(cat err)"
cmp run/last.safetensors before/last.safetensors || fail "the weights differ"
# An empty section of an earlier version is accepted.
{ cat old.toml; echo '[train.decode]'; } > empty.toml
expect 0 mh-train --dry-run --config empty.toml --train t.mhs
# The value adam of earlier versions is refused under the current key.
expect 2 mh-train --dry-run --config old.toml --train t.mhs --set train.optimizer.rule=adam
# Each earlier spelling of an option of a stage, regulariser or procedure is accepted with a warning that names the current spelling.
cat > new.toml <<'C'
[model]
layers = 1
width = 16
ffn_dim = 16
[attention]
heads = 2
[train]
length = "2u"
[train.batch]
sequence_length = 16
tokens = 64
C
expect_converted() {  # OLD-ASSIGNMENT NEW-ASSIGNMENT OPTION...
  local old=$1 new=$2
  shift 2
  expect 0 mh-train --dry-run --config new.toml --train t.mhs "$@" --set "$old"
  expect_stderr "write $new instead"
}
expect_converted attention.mixhead-a.dropout=before 'attention.mixhead-a.dropout_before_mixing = true' --set attention.mixer=mixhead-a
expect_converted attention.mixhead-b.on=logits 'attention.mixhead-b.mixer_input = "logits"' --set attention.mixer=mixhead-b
expect_converted attention.talking-heads.inside=3 'attention.talking-heads.inner_heads = 3' --set attention.mixer=talking-heads
expect_converted attention.mae.drop=1 'attention.mae.omitted_heads = 1' --set attention.combiner=mae
expect_converted attention.mixture-of-heads.chosen=1 'attention.mixture-of-heads.chosen_heads = 1' --set attention.combiner=mixture-of-heads \
  --set attention.mixture-of-heads.shared_heads=1
expect_converted train.procedures.block-coordinate.first=1 'train.procedures.block-coordinate.first_gate_epoch = 1' --set attention.combiner=mae
expect_converted train.regularisers.disagreement.of=positions 'train.regularisers.disagreement.property = "positions"'
expect_converted train.regularisers.columns.of=columns 'train.regularisers.columns.subspace = "columns"' \
  --set train.regularisers.columns.type=subspace-overlap
expect_converted train.batch.block=8 'train.batch.sequence_length = 8'
expect_converted train.validation.block=8 'train.validation.sequence_length = 8' --valid t.mhs
# The error for an option of an earlier version names the current option.
for command in "mh-eval --block 8" "mh-eval --block=8" "mh-prune scan --block 8" "mh-spectrum --block 8" "mh-swap report --block 8"; do
  expect 2 $command run/last.safetensors t.mhs
  expect_stderr "found --block, the name of an option in earlier versions; write --sequence-length"
done
