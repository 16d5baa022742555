# A run that is killed by SIGKILL several times and resumed ends with the same weights, bit for bit, as an uninterrupted
# run.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_text 600 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
cat > c.toml <<'T'
[model]
layers = 2
width = 64
ffn_dim = 128
dropout_embedding = 0.1
dropout_attention = 0.1
dropout_activation = 0.1
dropout_ffn = 0.1
[attention]
heads = 4
dropout = 0.1
[train]
length = "400u"
batch.sequence_length = 16
batch.tokens = 256
batch.micro_tokens = 128
lr = 0.003
optimizer.clip_norm = 1.0
validation.every = "1e"
checkpoint.every = "10u"
log_every = "4u"
checkpoint.retain = 2
[train.procedures.head-rotation]
mode = "soft"
k = 2
frequency = 2
rest = 1
swap_optimizer_state = true
T
check_killed_run 0.6 head-rotation mh-train --threads 1 --config c.toml --train t.mhs --valid t.mhs -q --out
[ "$(ls killed/checkpoints | wc -l)" -eq 2 ] || fail "expected two retained checkpoints, as checkpoint.retain = 2 sets"
expect 0 mh-train --threads 1 --resume --out whole
expect_stderr "the run is finished"
cp whole/config.toml finished.toml
expect 0 mh-train --threads 1 --resume --out whole --set train.lr=0.5
expect_stderr "the run is finished, so the changed keys have no effect"
cmp whole/config.toml finished.toml
expect 0 mh-train --threads 1 --resume --out whole --set train.length=410u
expect_stderr "changed by this resume: train.length"
[ -z "$(find killed -name '*.part*')" ] || fail "expected no partial file; found one"
