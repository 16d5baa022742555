# Tools refuse an output that is one of their inputs, fail if an output cannot be written completely, and leave no
# partial file after a signal. Also checks names of files, options and prompts.
make_text 200 > text
mh-prep vocab text > v 2>/dev/null
record 2 mh-prep lm --vocab v text -o v
expect 0 mh-prep lm --vocab v text -o t.mhs
cp t.mhs before
expect 2 bash -c 'mh-prep cat t.mhs >> t.mhs';     expect_stderr "itself"
expect 2 bash -c 'mh-prep info t.mhs >> t.mhs'
cmp before t.mhs
# Refuses missing and empty inputs, an empty output name, and options that do not apply to a type of vocabulary.
record 3 mh-prep vocab --type byte missing
expect 2 mh-prep vocab --type byte text -o ''
: > empty
record 3 mh-prep vocab --type byte empty
record 2 mh-prep vocab --type word --byte-fallback text
record 2 mh-prep vocab --type bpe --size 50 --min-count 5 text
record 2 mh-prep vocab --type byte --size 10 text
mh-prep vocab --type byte text > byte.v
record 2 mh-prep lm --vocab byte.v --crlf normalise text
golden_record refused-1
# File names with a line feed or with bytes that are not UTF-8, and a full device.
expect 2 mh-prep lm --vocab $'no\nsuch\xff' text;            expect_stderr "UTF-8"
expect 3 mh-prep lm --vocab $'no\nsuch' text;                  expect_stderr 'no\x0asuch: expected a file to read'
expect 1 bash -c 'mh-prep --help >/dev/full'
# mh-prep receives SIGTERM while it waits for input.
mkfifo slow
mh-prep lm --vocab v slow -o stopped.mhs 2>/dev/null &
pid=$!
exec 8>slow
for _ in $(seq 100); do [ -z "$(find . -name 'stopped.mhs.part*')" ] || break; sleep 0.05; done
[ -n "$(find . -name 'stopped.mhs.part*')" ] || fail "expected a temporary file before the signal; found none"
kill -TERM "$pid"
status=0; wait "$pid" || status=$?
exec 8>&-
[ "$status" -eq 143 ] || fail "expected exit status 143 after SIGTERM; found $status"
[ -z "$(find . -name 'stopped.mhs*')" ] || fail "expected no partial file; found one"
# If the output is a symbolic link, a tool replaces the content of the link's target, which keeps its permissions, and leaves the target
# unchanged after an error. A link without a target is replaced by the output file.
mkdir elsewhere
printf old > elsewhere/target
chmod 640 elsewhere/target
ln -s elsewhere/target link.mhs
expect_link() { [ "$(readlink link.mhs)" = elsewhere/target ] && [ "$(ls elsewhere)" = target ] || fail "expected a link to its target; found $(ls -l link.mhs elsewhere)"; }
expect 3 mh-prep lm --vocab v missing -o link.mhs
expect_link
[ "$(cat elsewhere/target)" = old ] || fail "expected the old target after an error; found another"
expect 0 mh-prep lm --vocab v text -o link.mhs
expect_link
cmp elsewhere/target before
[ "$(stat -c %a elsewhere/target)" = 640 ] || fail "expected the permissions 640 of the old target; found $(stat -c %a elsewhere/target)"
ln -s elsewhere/new dangling.mhs
expect 0 mh-prep lm --vocab v text -o dangling.mhs
[ ! -L dangling.mhs ] && [ ! -e elsewhere/new ] || fail "expected a file in place of the link without a target"
cmp dangling.mhs before
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
mh-train -q --train t.mhs --out run --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=16 \
  --set train.batch.tokens=64 --set train.length=2u
# mh-eval refuses a missing file, outputs that are inputs, and other misplaced arguments; names of models may have bytes that are not UTF-8.
m=run/last.safetensors
record 3 mh-eval $m missing.safetensors t.mhs
cp t.mhs pp.0
record 2 mh-eval --per-token pp $m $m pp.0
cmp before pp.0
expect 2 bash -c "mh-eval $m t.mhs >> t.mhs"
record 2 mh-eval --per-token - $m t.mhs
golden_record refused-2
expect 1 mh-eval --per-token >(true) $m t.mhs;     expect_stderr "a closed pipe"
expect 2 mh-eval --format json translate $m prompt; expect_stderr "--format"
expect 2 mh-eval t.mhs generate $m
cp $m $'n\xff.safetensors'
expect 0 mh-eval --format json $'n\xff.safetensors' t.mhs
# Tabs in tokens add no columns to the file of --per-token.
printf 'a\tb \\ c\n' > with_tabs
mh-prep vocab --type char with_tabs > char.v 2>/dev/null
mh-prep lm --vocab char.v with_tabs -o c.mhs 2>/dev/null
mh-train -q --train c.mhs --out chars --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=8 \
  --set train.batch.tokens=8 --set train.length=1u
expect 0 mh-eval --per-token pt.tsv chars/last.safetensors c.mhs
awk -F '\t' 'NF != 4 { exit 1 }' pt.tsv || fail "expected 4 columns in each row of --per-token"
# Prompts from a file and from standard input; refuses a prompt that is not UTF-8, and two prompts.
printf 'w1 w2\nw3' > prompt
expect 0 mh-eval generate $m --prompt-file prompt --length 3
expect 0 mh-eval generate $m --prompt-file - --length 3 < prompt
expect 3 mh-eval generate $m --prompt $'\xff'
expect 2 mh-eval generate $m --prompt a --prompt-file prompt
# A command whose standard output is a closed pipe still writes its output files.
closed_output() { python3 -c '
import os, subprocess, sys
reader, writer = os.pipe()
os.close(reader)
sys.exit(subprocess.run(sys.argv[1:], stdout=writer).returncode)' "$@"; }
mh-eval -q --per-token expected.0 $m t.mhs > out
expect 0 closed_output mh-eval --per-token pp $m $m t.mhs
for file in pp.0 pp.1; do cmp $file expected.0; done
if [ -n "$(command -v mh-spectrum || true)" ]; then
  mh-spectrum -q --of weight:decoder.layers.0.self.query.weight --curves expected.tsv $m > out
  expect 0 closed_output mh-spectrum --of weight:decoder.layers.0.self.query.weight --curves curves.tsv $m
  cmp curves.tsv expected.tsv
fi
