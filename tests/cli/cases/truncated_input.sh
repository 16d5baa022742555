# A file that another program truncates while a tool has it mapped: the tool names the file, ends with status 3 and leaves
# no output.
[ -n "$(command -v mh-prune || true)" ] || skip "mh-prune is not built"
make_text 200 > text
mh-prep vocab -q text > v
mh-prep lm -q --vocab v text -o t.mhs
mh-train -q --train t.mhs --out run --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=16 \
  --set train.batch.tokens=64 --set train.length=1u
m=run/last.safetensors
mkfifo input
# expect_truncated_refused WHOLE REST COMMAND…: runs COMMAND, which maps the file `short`, a copy of WHOLE, and then reads standard input.
# The test truncates `short` once the tool has mapped it, and passes the file REST as standard input only afterwards.
expect_truncated_refused() {
  local pid status=0
  cp "$1" short
  "${@:3}" < input > out 2> err &
  pid=$!
  exec 8> input
  for _ in $(seq 1200); do ! grep -qF "$PWD/short" "/proc/$pid/maps" || break; sleep 0.05; done
  grep -qF "$PWD/short" "/proc/$pid/maps" || fail "expected a tool that maps the file before it reads standard input: ${*:3}"
  truncate -s 0 short
  cat "$2" >&8 || true  # the tool may have ended
  exec 8>&-
  wait "$pid" || status=$?
  [ "$status" -eq 3 ] || fail "expected exit status 3; found $status: ${*:3}"
  expect_stderr "short: expected a file that keeps its size while the tool reads it; found a file that another program has shortened; restore the file"
  [ "$(wc -l < err)" -eq 1 ] || fail "expected one line on stderr: ${*:3}"
  record_error 3 err "${*:3}"
  [ ! -e none ] && [ "$(echo ./none.part*)" = './none.part*' ] || fail "expected no output: ${*:3}"
}
mh-convert -q --average $m --dtype bfloat16 -o narrow
expect_truncated_refused t.mhs $m mh-eval -q --per-token none - short
expect_truncated_refused $m t.mhs mh-prune scan -q short -
expect_truncated_refused $m t.mhs mh-spectrum -q --curves none short -
expect_truncated_refused $m t.mhs mh-swap -q short --mode hard --k 1 --data - -o none
expect_truncated_refused $m t.mhs mh-prune cut -q short --by ablation --data - --count 1 -o none
expect_truncated_refused $m $m mh-convert -q --average short - -o none
# In bf16 the parameters are pages of the mapped file, also while the model runs.
expect_truncated_refused narrow t.mhs mh-prune scan -q --precision bf16 short -
expect_truncated_refused narrow text mh-eval -q --precision bf16 generate short --prompt-file - --length 3
# A shard that is truncated while mh-train trains on it: the last state of the run stays intact, and the run continues once the shard is
# restored. The shard has more frames than its reader caches, so that training reads the file again and again.
seq 300000 > numbers
mh-prep vocab -q --type byte numbers > bytes
mh-prep lm -q --vocab bytes numbers -o long.mhs
cp long.mhs short
mh-train -q --train short --out cut --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=16 \
  --set train.batch.tokens=256 --set train.length=1000000u --set train.checkpoint.every=4u --set train.log_every=1u > out 2> err &
pid=$!
for _ in $(seq 1200); do ! grep -qs '"update":8,' cut/log.jsonl || break; sleep 0.05; done
truncate -s 0 short
status=0; wait "$pid" || status=$?
[ "$status" -eq 3 ] || fail "expected exit status 3 of mh-train; found $status"
expect_stderr "short: expected a file that keeps its size while the tool reads it; found a file that another program has shortened; restore the file"
[ -z "$(find cut -name '*.part*')" ] || fail "expected no temporary file; found one"
cat long.mhs > short
last=$(tail -n 1 cut/log.jsonl | grep -o '"update":[0-9]*')
expect 0 mh-train -q --resume --out cut --set train.length=$((${last#*:} + 4))u
