# BPE of subword-nmt: merges learned jointly on two languages, one vocabulary per language, and merges from a codes file.
make_text 400 | sed 's/^ *//; s/ *$//; s/w/lower/g' > en
sed 's/lower/niedriger/g' en > de
expect 0 mh-prep vocab --type subword-nmt --merges 12 de en -o joint.vocab
expect 0 mh-prep codes joint.vocab
[ "$(head -1 out)" = "#version: 0.2" ] && [ "$(wc -l < out)" -eq 13 ] || fail "expected a header and 12 merges from mh-prep codes; found $(cat out)"
cp out codes
mh-prep codes codes | cmp - codes
mh-prep vocab --type subword-nmt --codes codes de en | cmp - joint.vocab
mh-prep vocab --type subword-nmt --codes joint.vocab de > de.vocab
mh-prep vocab --type subword-nmt --codes codes en > en.vocab
for v in de en; do mh-prep codes $v.vocab | cmp - codes; done
mh-prep vocab --type subword-nmt --codes codes --size 6 de > six.vocab
[ "$(sed 1,6d six.vocab | head -6)" = "$(sed 1,6d de.vocab | head -6)" ] || fail "expected the number of entries that --size names"
grep -q '^entries 6$' six.vocab || fail "expected the number of entries that --size names"
expect 0 mh-prep translation --source-vocab de.vocab --target-vocab en.vocab de en -o x.mhs; expect_stderr " 0 + 0 unknown"
mh-prep cat x.mhs | cmp - <(paste de en)
expect 0 mh-prep info x.mhs; expect_stdout "source_tokenizer	subword-nmt"
mh-prep lm --vocab joint.vocab en | mh-prep cat - | cmp - en
expect 0 mh-prep vocab --type subword-nmt --merges 100000 en -o all.vocab; expect_stderr "no pair of symbols occurs twice"
# Each of the following commands must fail because of its options or files.
record 2 mh-prep vocab --type subword-nmt en
record 2 mh-prep vocab --type subword-nmt --merges 5 --codes codes en
record 2 mh-prep vocab --type word --merges 5 en
record 2 mh-prep vocab --type bpe --size 50 --codes codes en
record 2 mh-prep vocab --type subword-nmt --merges 5 --byte-fallback en
record 2 mh-prep vocab --type subword-nmt --codes codes en -o codes
expect 3 mh-prep vocab --type subword-nmt --codes en en -o y;            expect_stderr "#version: 0.2"
record 3 mh-prep vocab --type subword-nmt --codes none en -o y
mh-prep vocab en > words
record 3 mh-prep codes words
printf '#version: 0.2\na b\nab\n' > bad
record 3 mh-prep vocab --type subword-nmt --codes bad en -o y
sed 's/^merges 12/merges 13/' joint.vocab > longer
expect 3 mh-prep lm --vocab longer en -o y;                                expect_stderr "13 merges"
sed '$d' joint.vocab > shorter
expect 3 mh-prep lm --vocab shorter en -o y;                                expect_stderr "checksum"
sed '/^merges/d' joint.vocab > none
expect 3 mh-prep lm --vocab none en -o y;                                expect_stderr "merges"
# Carriage returns inside words: the vocabulary contains them; mh-prep codes refuses merges that readers of a codes file
# would not preserve.
for i in 1 2 3; do printf 'x\ry a\rb ab\r\r\tc\n'; done > returns
expect 0 mh-prep vocab --type subword-nmt --merges 50 returns -o returns.vocab
mh-prep vocab --type subword-nmt --codes returns.vocab returns | cmp - returns.vocab
mh-prep lm --vocab returns.vocab returns | mh-prep cat - | cmp - returns
record 3 mh-prep codes returns.vocab
for i in 1 2 3; do printf 'x\ry x\ry\n'; done | mh-prep vocab --type subword-nmt --merges 1 - > one.vocab
record 3 mh-prep codes one.vocab
golden_record refused
# Options that do not apply to the type of vocabulary are refused.
expect 2 mh-prep vocab --type subword-nmt --merges 5 --character-coverage 0.99 en -o y
expect 2 mh-prep vocab --type word --threads 2 en -o y
expect 2 mh-prep vocab --type bpe --size 50 --min-count 5 en -o y
expect 2 mh-prep vocab --type byte-bpe --from en --min-count 5 -o y
# Text without words. A vocabulary of characters needs a line, and a vocabulary of bytes a byte.
printf '\n \n' > blank
: > empty
for type in word "subword-nmt --merges 5" "wordpiece --size 30"; do
  # shellcheck disable=SC2086
  expect 3 mh-prep vocab --type $type blank -o y
done
for type in char byte; do expect 3 mh-prep vocab --type $type empty -o y; done
# Vocabularies with a valid checksum and a damaged last line: a merge or an added token.
# replace_last_line VOCABULARY LINE: makes the file `damaged`, VOCABULARY with the last line LINE and its checksum.
replace_last_line() {
  python3 -B - "$ROOT/tests/cli" "$@" <<'P'
import sys
sys.path.insert(0, sys.argv[1])
import checkpoint_header
head, body = open(sys.argv[2]).read().split("\n\n", 1)
body = "\n".join(body.split("\n")[:-2] + [sys.argv[3], ""])
open("damaged", "w").write(head[:head.index("xxh64 ")] + "xxh64 " + checkpoint_header.xxh64(body.encode()) + "\n\n" + body)
P
}
replace_last_line joint.vocab low
expect 3 mh-prep lm --vocab damaged en -o y; expect_stderr "two symbols separated by a space; found 'low'"
mh-prep vocab -q --type wordpiece --size 60 en > pieces
sed 's/^xxh64 /added_tokens 1\n&/; $s/$/\n-/' pieces > added
replace_last_line added '0 special='
expect 3 mh-prep lm --vocab damaged en -o y; expect_stderr "the attributes of the added token"
# A vocabulary file above the size limit is refused.
truncate -s 257M large
expect 3 mh-prep lm --vocab large en -o y; expect_stderr "a vocabulary of at most 268435456 bytes"
rm large
[ ! -e y ] || fail "expected no file after an error; found one"
# If the Python package `subword-nmt` is installed, it learns the same merges and gives the same pieces.
needs_peers
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import subword_nmt' 2>/dev/null || skip "Python lacks subword-nmt"
export PYTHONPATH=${MH_CHECK_PYTHONPATH:-}
python3 -B -m subword_nmt.learn_bpe -s 12 < <(cat de en) 2>/dev/null | cmp - codes
# check_same_pieces CODES VOCABULARY TEXT: fails unless mh-prep and subword-nmt split TEXT into the same pieces.
check_same_pieces() {
  python3 -B -m subword_nmt.apply_bpe -c "$1" < "$3" > expected_pieces
  mh-prep lm --vocab "$2" "$3" | mh-prep cat --ids - | awk '
    NR == FNR { if ($0 ~ /^$/ && !body) { body = 1; next } if (body) piece[n++] = $1; next }
    { line = ""; for (i = 1; i < NF; i++) line = line (i > 1 ? " " : "") piece[$i]; print line }' "$2" - | cmp - expected_pieces
}
check_same_pieces codes de.vocab de
check_same_pieces codes en.vocab en
data=${MH_DATA:-$ROOT/../shared/data}/multi30k/tok
[ -f "$data/val.lc.norm.tok.de.zst" ] || exit 0
for l in de en; do zstd -dcq "$data/val.lc.norm.tok.$l.zst" > val.$l; done
mh-prep vocab --type subword-nmt --merges 1500 val.de val.en > val.vocab
mh-prep codes val.vocab > val.codes
cat val.de val.en | python3 -B -m subword_nmt.learn_bpe -s 1500 2>/dev/null | cmp - val.codes
check_same_pieces val.codes val.vocab val.de
check_same_pieces val.codes val.vocab val.en
