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
expect_stderr 'old.toml:8: train.block = 16 is a setting of an earlier version of multihead; write train.batch.block = 16 instead'
expect_stderr 'train.optimizer.rule = "adamw" and train.optimizer.decay_norms_and_biases = false'
expect_stderr '--set train.clip: train.clip = 1.0 is a setting of an earlier version of multihead; write train.optimizer.clip_norm = 1.0 instead'
[ "$(grep -c 'earlier version' err)" -eq 4 ] || fail "expected one warning for each of 4 old keys"
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
