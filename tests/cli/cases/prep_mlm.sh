# Converts documents to a shard and back: empty lines and file ends separate documents; the shard does not depend on the
# number of threads; checks errors.
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' one two three '##s' . A > vocab.txt
printf 'one two.\n\nthree.\n\n\n \t\nTwos A!\n\x01\nthree three\n' > first
printf '\ntwo' > second
expect 0 mh-prep mlm --wordpiece vocab.txt first second -o x.mhs
expect_stderr "4 documents, 5 sentences, 12 tokens, 2 unknown"; expect_stderr "dropped 1 line without a token"
expect 0 mh-prep cat x.mhs
printf 'one two .\n\nthree .\n\ntwos [UNK] [UNK]\nthree three\n\ntwo\n' > expected
cmp out expected
mh-prep cat --ids - < x.mhs > ids
printf '5 6 9\n\n7 9\n\n6 8 1 1\n7 7\n\n6\n\n' | cmp - ids
expect 0 mh-prep info --format json x.mhs
expect_stdout '"kind":"documents"'; expect_stdout '"documents":4,"sentences":5'; expect_stdout '"tokens":12'
expect_stdout '"wordpiece":"vocab.txt"'
# A single document, cased text, a vocabulary of this project, options that exclude each other, other types of vocabularies, and text without
# words, with CR LF or with bytes that are not UTF-8.
record 0 mh-prep mlm --wordpiece vocab.txt --cased second -o one.mhs
mh-prep vocab -q --type wordpiece --cased --from vocab.txt > v
record 0 mh-prep mlm --vocab v first second -o y.mhs
mh-prep cat y.mhs | grep -q 'A \[UNK\]' || fail "expected the upper-case piece A in the shard"
record 2 mh-prep mlm first
record 2 mh-prep mlm --vocab v --wordpiece vocab.txt first
record 2 mh-prep mlm --vocab v --cased first
record 2 mh-prep mlm --vocab v --strip-accents no first
record 2 mh-prep mlm --vocab v first -o first
record 3 mh-prep mlm --vocab vocab.txt first
printf 'one two\n' | mh-prep vocab -q - > words
record 3 mh-prep mlm --vocab words first
record 3 mh-prep mlm --vocab x.mhs first
printf '\n \n' > blank
record 3 mh-prep mlm --vocab v blank -o z.mhs
printf 'one\r\n\r\ntwo\r\n' > crlf
record 3 mh-prep mlm --vocab v crlf -o z.mhs
record 0 mh-prep mlm --vocab v --crlf normalise crlf -o z.mhs
printf 'one\n\xff\n' > bad8
record 3 mh-prep mlm --vocab v bad8 -o none.mhs
golden_record refused
# The shard of a text with several batches does not depend on the number of threads.
make_text 90000 | awk '{ print } NR % 37 == 0 { print "" }' > large
mh-prep mlm --wordpiece vocab.txt --threads 1 large -o a.mhs 2>/dev/null
mh-prep mlm --wordpiece vocab.txt --threads 3 large -o b.mhs 2>/dev/null
cmp a.mhs b.mhs
# A truncated shard is refused.
size=$(stat -c %s x.mhs)
for i in $(seq 0 9); do
  head -c $((size * i / 10)) x.mhs > cut.mhs
  expect 3 mh-prep cat cut.mhs
done
[ ! -e none.mhs ] || fail "a partial shard remains after an error"
