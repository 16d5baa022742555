# Unusual bytes in text: a line feed inside a character, byte order marks, and characters that other programs treat as
# line ends.
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' one two cafe au lait > vocab.txt
printf 'one two\ncaf\xc3\xa9 au lait\n' > text
cp text text2
for type in word char; do mh-prep vocab -q --type $type text > $type.vocab; done
mh-prep vocab -q --type wordpiece --from vocab.txt > wordpiece.vocab
mh-prep vocab -q --type bpe --size 24 --threads 1 text > bpe.vocab

# A line feed inside the bytes of a character is refused.
printf 'one\ncaf\xc3\n\xa9 au lait\n' > broken
expect_cut_character() { expect_stderr "broken:2: byte 7 of the file: expected UTF-8 text; found the byte 0xC3, the start of a character that the end of the line cuts off"; }
for type in "word" "char" "subword-nmt --merges 3" "wordpiece --size 50" "bpe --size 20" "unigram --size 20"; do
  # shellcheck disable=SC2086
  expect 3 mh-prep vocab --type $type broken -o none; expect_cut_character
done
for type in word char wordpiece bpe; do expect 3 mh-prep lm --vocab $type.vocab broken -o none; expect_cut_character; done
expect 3 mh-prep lm --vocab word.vocab --threads 3 text text2 broken -o none; expect_cut_character
expect 3 mh-prep translation --vocab word.vocab broken broken -o none; expect_cut_character
printf 'one\ntwo\none\n' > three
expect 3 mh-prep translation --vocab word.vocab three broken -o none; expect_cut_character
expect 3 mh-prep mlm --wordpiece vocab.txt broken -o none; expect_cut_character
sed 's/$/\t1/' broken > broken.tsv
record 3 mh-prep examples --no-header --text 1 --label 2 --labels 0,1 --wordpiece vocab.txt broken.tsv -o none
record 3 mh-prep glue --task sst2 --no-header --text 1 --label 2 --wordpiece vocab.txt broken.tsv -o none
printf '{"data":\n["caf\xc3\n\xa9"]}' > broken.json
record 3 mh-prep squad --wordpiece vocab.txt broken.json -o none
(cat vocab.txt; cat broken) > broken.txt
record 3 mh-prep vocab --type wordpiece --from broken.txt -o none
printf '#version: 0.2\na b\ncaf\xc3\n\xa9 b\n' > broken.codes
record 3 mh-prep vocab --type subword-nmt --codes broken.codes text -o none
record 3 mh-prep codes broken.codes
record 3 mh-prep lm --vocab word.vocab - -o none < broken
[ ! -e none ] || fail "expected no file after an error; found one"
# A byte vocabulary encodes bytes that are not UTF-8.
mh-prep vocab -q --type byte broken > byte.vocab
mh-prep lm -q --vocab byte.vocab broken | mh-prep cat - | cmp - broken

# A byte order mark is dropped and reported, in every file and on standard input.
byte_order_mark() { printf '\xef\xbb\xbf'; }
for f in text text2; do (byte_order_mark; cat $f) > marked.$f; done
dropped="the byte order mark at the start is dropped"
for type in "word" "char" "subword-nmt --merges 3" "wordpiece --size 50" "bpe --size 24 --threads 1"; do
  # shellcheck disable=SC2086
  mh-prep vocab -q --type $type text text2 > expected
  # shellcheck disable=SC2086
  expect 0 mh-prep vocab --type $type marked.text marked.text2
  cmp out expected
  expect_stderr "marked.text: $dropped"; expect_stderr "marked.text2: $dropped"; expect_stderr "2 files began with a byte order mark"
done
# print_shard SHARD: prints the tokens of a shard and its header without file names.
print_shard() { mh-prep cat --ids "$1"; mh-prep info --format json "$1" | sed 's/"file".*"kind"/"kind"/; s/"provenance".*//'; }
# check_same_shards SUBCOMMAND OPTIONS --: fails unless files with byte order marks give the same shard as files without.
check_same_shards() {
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  mh-prep -q "${options[@]}" text text2 -o expected.mhs
  expect 0 mh-prep "${options[@]}" marked.text marked.text2 -o x.mhs
  expect_stderr "marked.text: $dropped"; expect_stderr "marked.text2: $dropped"; expect_stderr "2 files began with"
  cmp <(print_shard x.mhs) <(print_shard expected.mhs)
}
for type in word char wordpiece bpe; do check_same_shards lm --vocab $type.vocab --; done
check_same_shards translation --vocab word.vocab --
check_same_shards mlm --wordpiece vocab.txt --
expect 0 mh-prep lm --vocab word.vocab - < marked.text; expect_stderr "standard input: $dropped"
mh-prep lm -q --vocab word.vocab text | mh-prep cat --ids - | cmp - <(mh-prep cat --ids - < out)
paste text text2 > pairs
(byte_order_mark; cat pairs) > marked.pairs
mh-prep translation -q --vocab word.vocab pairs -o expected.mhs
expect 0 mh-prep translation --vocab word.vocab marked.pairs -o x.mhs; expect_stderr "marked.pairs: $dropped"
cmp <(print_shard x.mhs) <(print_shard expected.mhs)
printf '\xef\xbb\xbfsentence\tlabel\none\t1\n' > marked.tsv
expect 0 mh-prep glue --task sst2 --wordpiece vocab.txt marked.tsv -o x.mhs; expect_stderr "marked.tsv: $dropped"
expect 0 mh-prep lm -q --vocab word.vocab marked.text -o x.mhs; [ ! -s err ] || fail "expected no message with --quiet; found $(cat err)"
(byte_order_mark; cat vocab.txt) > marked.txt
expect 0 mh-prep mlm --wordpiece marked.txt text -o x.mhs; expect_stderr "marked.txt: $dropped"
(byte_order_mark; cat word.vocab) > marked.vocab
expect 0 mh-prep lm --vocab marked.vocab text -o x.mhs; expect_stderr "marked.vocab: $dropped"
mh-prep lm -q --vocab word.vocab text -o expected.mhs
cmp <(print_shard x.mhs) <(print_shard expected.mhs)
printf '#version: 0.2\no n\non e</w>\n' > codes
(byte_order_mark; cat codes) > marked.codes
expect 0 mh-prep codes marked.codes; cmp out codes; expect_stderr "marked.codes: $dropped"
mh-prep vocab -q --type subword-nmt --codes codes text > expected
expect 0 mh-prep vocab --type subword-nmt --codes marked.codes text; cmp out expected; expect_stderr "marked.codes: $dropped"
printf '{"data":[{"paragraphs":[{"context":"one two","qas":[{"id":"1","question":"two","answers":[{"text":"one","answer_start":0}]}]}]}]}' > q.json
(byte_order_mark; cat q.json) > marked.json
mh-prep squad -q --wordpiece vocab.txt q.json -o expected.mhs
expect 0 mh-prep squad --wordpiece vocab.txt marked.json -o x.mhs; expect_stderr "marked.json: $dropped"
cmp <(print_shard x.mhs) <(print_shard expected.mhs)
# A file with only a byte order mark is empty; a mark inside a text is a character.
byte_order_mark > alone
record 3 mh-prep vocab alone -o none
golden_record refused
printf 'a\n\xef\xbb\xbfb\n' > inside
expect 0 mh-prep vocab inside; [ "$(tail -1 out | cut -f1)" = "$(printf '\xef\xbb\xbfb')" ] || fail "expected a token that begins with U+FEFF; found $(cat out)"
# A byte vocabulary keeps the byte order mark.
mh-prep lm -q --vocab byte.vocab marked.text | mh-prep cat - | cmp - marked.text
