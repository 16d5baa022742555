# Programs that use the same files at the same time: the download cache and a run folder have at most one writer, and an
# output file is complete at any time.
make_shards
# While two processes write shared.mhs, it is the complete old file or one of the two complete new files; in the end it is
# one of the new files.
mh-prep lm --vocab v text -o a.mhs 2>/dev/null
mh-prep lm --vocab v2 text -o b.mhs 2>/dev/null
# expect_one_of FILE…: fails unless the output equals one of the FILEs.
expect_one_of() {
  local name
  cat shared.mhs > seen.mhs  # not cp, which fails on a file that is replaced between its stat and its open
  for name in "$@"; do ! cmp -s seen.mhs "$name" || return 0; done
  fail "expected one of the files $*; found another"
}
for _ in 1 2 3 4 5; do
  printf old > old.mhs; cp old.mhs shared.mhs
  mh-prep lm -q --vocab v text -o shared.mhs & first=$!
  mh-prep lm -q --vocab v2 text -o shared.mhs & second=$!
  while [ -n "$(jobs -r)" ]; do expect_one_of old.mhs a.mhs b.mhs; done
  wait "$first"; wait "$second"
  expect_one_of a.mhs b.mhs  # the loop may have read nothing after the last rename
done
[ -z "$(find . -name 'shared.mhs.part*')" ] || fail "a temporary file is left"
# ./run waits while another clone of the repository downloads into the cache, then uses the downloaded files.
mkdir -p clone cache/multihead
cp "$ROOT/run" clone
exec 9>cache/multihead/lock
flock 9
env -u MH_TORCH XDG_CACHE_HOME="$PWD/cache" clone/run build > clone.log 2>&1 9>&- &
pid=$!
sleep 1
kill -0 "$pid" || fail "expected ./run to wait for the lock of the cache; found: $(cat clone.log)"
mkdir cache/multihead/torch-2.11.0 cache/multihead/peer-2.11.0
flock -u 9
exec 9>&-
wait "$pid" && fail "expected a build without sources to fail"
grep -q downloads clone.log && fail "expected no second download; found: $(cat clone.log)"
grep -q "meson failed" clone.log || fail "expected an error of meson; found: $(cat clone.log)"
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
# A second training in the same run folder is refused; the error has the process ID of the first training.
mh-train -q --train t.mhs --valid t.mhs --out run --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=16 \
  --set train.batch.tokens=64 --set train.length=100000u --set train.validation.every=50000u 2>/dev/null &
pid=$!
for _ in $(seq 200); do [ -s run/lock ] && break; sleep 0.05; done
expect 1 mh-train -q --train t.mhs --out run --set train.length=1u
expect_stderr "process $pid on $(hostname)"
kill -9 "$pid"; wait "$pid" 2>/dev/null || true
# The lock of a killed run does not block the next run in the folder.
rm -rf run/*.safetensors run/checkpoints
expect 0 mh-train -q --train t.mhs --out run --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 \
  --set train.batch.sequence_length=16 --set train.batch.tokens=64 --set train.length=1u
# A second mh-finetune --seeds in the same folder is refused, also with --resume; the error has the process ID of the first.
[ -n "$(command -v mh-finetune || true)" ] || skip "mh-finetune is not built"
go="--init run/last.safetensors --train t.mhs --out seeds --seeds 2 --set train.batch.sequence_length=16 --set train.batch.tokens=64"
mh-finetune -q $go --set train.length=100000u 2>/dev/null &
pid=$!
for _ in $(seq 200); do [ -s seeds/lock ] && break; sleep 0.05; done
expect 1 mh-finetune -q $go
expect_stderr "process $pid on $(hostname)"
expect 1 mh-finetune -q $go --resume
expect_stderr "process $pid on $(hostname)"
kill -9 "$pid"; wait "$pid" 2>/dev/null || true
# Of two processes that write one folder, the first to finish wins; the other ends with exit status 1 and leaves no file.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
mh-prep vocab -q --type byte-bpe --size 262 text -o pieces
mh-prep lm -q --vocab pieces text -o pieces.mhs
mh-train -q --train pieces.mhs --out gpt2 --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set model.positions=learned \
  --set model.max_positions=16 --set model.scale_embedding=false --set model.activation=gelu-tanh --set train.batch.sequence_length=8 --set train.batch.tokens=32 --set train.length=1u
convert="mh-convert -q --to huggingface gpt2/last.safetensors folder"
start_with_fault rename:1:STOP $convert 2> stderr  # stops while it writes its temporary folder
until grep -qs '^State:.T' /proc/$pid/status; do kill -0 "$pid" || fail "expected a stopped mh-convert; found: $(cat stderr)"; sleep 0.05; done
expect 0 $convert
cp -r folder first
kill -CONT "$pid"
status=0; wait "$pid" || status=$?
[ "$status" -eq 1 ] || fail "expected exit status 1 of the second writer; found $status: $(cat stderr)"
record_error "$status" stderr "$convert"
diff -r folder first
[ -z "$(find . -name 'folder.part*')" ] || fail "a temporary folder is left"
