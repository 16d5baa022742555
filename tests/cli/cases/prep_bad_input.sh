# Each says what was expected and found, with the right status, and leaves no file behind.
printf 'one two\nthree\n' > text
mh-prep vocab --type word text > v
: > empty
expect 3 mh-prep vocab empty;                       said "text to count"
expect 3 mh-prep lm --vocab v empty -o x.mhs;       said "an empty input"
printf 'good\nb\xffd\n' > bad8
expect 3 mh-prep lm --vocab v bad8 -o x.mhs;        said "bad8:2: byte 6"; said "0xFF"
printf 'a\0b\n' > nul
expect 3 mh-prep vocab nul -o x;                    said "a NUL byte"
printf 'one\r\ntwo\r\n' > crlf
expect 3 mh-prep lm --vocab v crlf -o x.mhs;        said "--crlf normalise"
expect 0 mh-prep lm --vocab v --crlf normalise crlf; said "2 lines ended in CR LF"
expect 3 mh-prep lm --vocab v missing -o x.mhs;     said "missing"
expect 3 mh-prep lm --vocab v . -o x.mhs;           said "a folder"
expect 3 mh-prep lm --vocab empty text -o x.mhs;    said "an empty file"
expect 3 mh-prep lm --vocab text text -o x.mhs
expect 2 mh-prep lm --vocab v text -o text;         said "itself"
expect 2 mh-prep vocab --type wrod text;            said "did you mean 'word'?"
expect 2 mh-prep vocab --tpye word text;            said "--type"
expect 2 mh-prep vocab --type bpe text;             said "--size"
expect 2 mh-prep
expect 1 mh-prep lm --vocab v text -o /dev/full;    said "No space left"
expect 1 mh-prep vocab text -o none/x
expect 0 mh-prep --help;                            printed "Examples"
expect 0 mh-prep --version;                         printed "mh-prep "
sed 's/two/tvo/' v > v2
expect 3 mh-prep lm --vocab v2 text -o x.mhs;       said "checksum"
head -c 40 v > v3
expect 3 mh-prep lm --vocab v3 text -o x.mhs
status=0
mh-prep lm --vocab v text >/dev/full 2>err || status=$?
[ "$status" -eq 1 ] || fail "/dev/full on stdout: $status"
only text v empty bad8 nul crlf v2 v3
