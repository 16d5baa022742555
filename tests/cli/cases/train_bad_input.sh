# Invalid configurations and data: the message states what was expected and found, with the right exit status.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_shards
printf '[model]\nlayers = 1\nwidth = 16\nffn_dim = 16\n[attention]\nheads = 2\n[train]\nbatch.sequence_length = 16\nbatch.tokens = 64\nlength = "4u"\n' > c.toml
record_refused() { record "$1" mh-train --config c.toml --train t.mhs --out run "${@:2}"; [ ! -d run ] || fail "expected no output folder after an error; found one"; }
record_refused 2 --set train.lrr=1
record_refused 2 --set model.layers=two
record_refused 2 --set model.layers=0
record_refused 2 --set model.width=4611686018427387904
record_refused 2 --set train.lr=inf
record_refused 2 --set attention.heads=3
record_refused 2 --set train.length=300
record_refused 2 --set train.batch.tokens=8
record_refused 2 --set train.validation.min_improvement=0.2
record_refused 2 --set attention.mixer=nnoe
record_refused 2 --set train.lr=fast
record_refused 2 --set model.final_norm=1
record_refused 2 --set model.norm=3
record_refused 2 --set model.norm=post --set model.residual=parallel
record_refused 2 --set model.norm=output --set model.residual=parallel-shared
record_refused 2 --set train.optimizer.betas=0.9
record_refused 2 --set attention.heads=0 --set attention.key_value_heads=2
record_refused 2 --set 'attention.transform=["rotary", "rotary"]'
record_refused 2 --set train.length=0u
expect 2 mh-train --config c.toml --train t.mhs --out run --set $'train.lr=1\nb = 2'
expect 2 mh-train --config c.toml --train t.mhs --out run --set $'model.norm=\xff'
expect 2 mh-train --config c.toml --train $'\xff.mhs' --out run
printf 'include = 3\n' > include.toml
record_refused 2 --config include.toml
record_refused 3 --set data.train=missing.mhs
expect 3 mh-train --config c.toml --train t.mhs --out run --set data.train=text
expect 2 env WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 mh-train --config - --train t.mhs --out run < c.toml; expect_stderr "a file in a job of several processes"
expect 3 mh-train --config c.toml --train t.mhs --out run --valid other.mhs
record_refused 3 --config missing.toml
# Numbers on the command line are decimal; none is read as octal or hexadecimal, or truncated to 64 bits.
for n in 010 0x10 1e3 +7 -1 9223372036854775808; do record_refused 2 --seed "$n"; done
record_refused 2 --threads 010
# A missing GPU, missing and unknown options, a broken configuration file, and resumes with other settings or data.
[ -e /dev/nvidiactl ] || expect 4 mh-train --config c.toml --train t.mhs --out run --device cuda
record 2 mh-train --config c.toml --train t.mhs
record 2 mh-train --out run --cnofig c.toml
printf '[model\n' > bad.toml
[ ! -d run ] || fail "expected no output folder after an error; found one"
expect 2 mh-train --config bad.toml --train t.mhs --out run; expect_stderr "bad.toml:1"
expect 0 mh-train --config c.toml --train t.mhs --out run
record 2 mh-train --resume --out run --set model.layers=2
expect 2 mh-train --resume --out run --train other.mhs
# Checkpoints truncated at each sixteenth of their size.
for at in $(seq 0 15); do
  size=$(stat -c %s run/last.safetensors)
  head -c $((size * at / 16)) run/last.safetensors > cut.safetensors
  expect 3 mh-eval cut.safetensors t.mhs
done
# Metadata with valid checksums and invalid values.
while IFS='|' read -r key value words; do
  python3 -B - "$ROOT/tests/cli" "$key" "$value" <<'P'
import sys
sys.path.insert(0, sys.argv[1])
import checkpoint_header
tensors, metadata, data = checkpoint_header.read("run/last.safetensors")
checkpoint_header.write("changed.safetensors", tensors, {**metadata, sys.argv[2]: sys.argv[3]}, data)
P
  expect 3 mh-eval changed.safetensors t.mhs; expect_stderr "$words"
done <<'T'
multihead.format|2|expected a checkpoint of format 1; found format 2
multihead.tokenizer|!|multihead.tokenizer: expected base64
multihead.vocabulary|0123|multihead.vocabulary: expected the fingerprint of the stored tokenizer
T
# mh-eval with files of other formats, another vocabulary, no data, or a context as long as a block.
record 3 mh-eval text t.mhs
expect 3 mh-eval run/last.safetensors other.mhs
expect 3 mh-eval run/last.safetensors text
record 2 mh-eval run/last.safetensors
record 2 mh-eval --context 16 run/last.safetensors t.mhs
golden_record refused
# A diverged run keeps its last state with a finite loss.
expect 1 mh-train --config c.toml --train t.mhs --out nan --set train.lr=1e30 --set train.length=20u
[ -f nan/last.safetensors ] || fail "expected nan/last.safetensors, the last state with a finite loss; found none"
# Dry runs with a configuration from standard input, and without data.
expect 2 mh-train --dry-run --config - <<< 'train.lenght = "1u"'
expect_stderr "standard input:1"
expect 2 mh-train --dry-run --config c.toml
# Keys that contradict each other, or need a validation shard, another model or a GPU.
expect_refused() { expect 2 mh-train --config c.toml --train t.mhs --out no "$@"; [ ! -d no ] || fail "expected no output folder after an error; found one"; }
expect_refused --set train.batch.micro_tokens=8
expect_refused --set train.batch.micro_tokens=32 --set train.batch.long_sequence_length=64 --set train.batch.long_from=2u
expect_refused --set 'train.optimizer.betas=[0.9]'
expect_refused --set 'train.optimizer.betas=[0.9, 1]'
expect_refused --set train.schedule.rule=cyclic-cosine
expect_refused --set "train.groups.g.match=['*']" --set train.groups.g.lr=1 --set train.groups.g.lr_factor=2
expect_refused --set train.validation.patience=2
expect_refused --set train.checkpoint.retain_by=best --set train.checkpoint.retain=2
expect_refused --set train.batch.rows=4
expect_refused --set train.batch.bucket_updates=4
expect_refused --set train.batch.long_sequence_length=32 --set train.batch.long_from=2u
expect_refused --valid t.mhs --set train.validation.metric=accuracy
expect_refused --device cpu --set train.cuda_graph=true
# A missing shard, paths that are not UTF-8, and output folders that cannot be made or locked.
expect 2 mh-train --config c.toml --out no
mkdir $'folder\xff'
(cd $'folder\xff' && cp ../t.mhs . && expect 2 mh-train --config ../c.toml --train t.mhs --out ../no)
touch file
expect 1 mh-train --config c.toml --train t.mhs --out file/run
mkdir -p locked/lock
expect 1 mh-train --config c.toml --train t.mhs --out locked
