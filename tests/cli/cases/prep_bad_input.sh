# Each error of mh-prep states the expected and the found input, has the right exit status, and leaves no file.
printf 'one two\nthree\n' > text
mh-prep vocab --type word text > v
: > empty
record 3 mh-prep vocab empty
record 3 mh-prep lm --vocab v empty -o x.mhs
printf 'good\nb\xffd\n' > bad8
record 3 mh-prep lm --vocab v bad8 -o x.mhs
printf 'a\0b\n' > nul
record 3 mh-prep vocab nul -o x
printf 'one\r\ntwo\r\n' > crlf
record 3 mh-prep lm --vocab v crlf -o x.mhs
expect 0 mh-prep lm --vocab v --crlf normalise crlf; expect_stderr "2 lines ended in CR LF"
record 3 mh-prep lm --vocab v missing -o x.mhs
record 3 mh-prep lm --vocab v . -o x.mhs
record 3 mh-prep lm --vocab empty text -o x.mhs
record 3 mh-prep lm --vocab text text -o x.mhs
record 2 mh-prep lm --vocab v text -o text
record 2 mh-prep vocab --type wrod text
record 2 mh-prep vocab --tpye word text
record 2 mh-prep vocab --type bpe text
expect 2 mh-prep
expect 2 mh-prep vocba --type word text; expect_stderr "did you mean 'vocab'?"
expect 1 mh-prep lm --vocab v text -o /dev/full
record 1 mh-prep vocab text -o none/x
expect 0 mh-prep --help;                            expect_stdout "Examples"
expect 0 mh-prep --version;                         expect_stdout "mh-prep "
sed 's/two/tvo/' v > v2
record 3 mh-prep lm --vocab v2 text -o x.mhs
head -c 40 v > v3
record 3 mh-prep lm --vocab v3 text -o x.mhs
golden_record refused
status=0
mh-prep lm --vocab v text >/dev/full 2>err || status=$?
[ "$status" -eq 1 ] || fail "expected exit status 1 if stdout is /dev/full; found $status"
record_error 1 err "mh-prep lm --vocab v text > /dev/full"

# Messages name standard input, not "-", for every reader.
for arguments in "lm --vocab v -" "lm --vocab - text" "mlm --wordpiece - text" "squad --wordpiece - text" "translation --vocab v - text" \
  "vocab --type wordpiece --from -" "vocab --type subword-nmt --codes - text" "codes -" "info -" "cat -"; do
  expect 3 mh-prep $arguments < empty
  expect_stderr "standard input"
done
expect_files text v empty bad8 nul crlf v2 v3
