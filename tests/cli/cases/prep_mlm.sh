# Documents to a shard and back: blank lines and files part them; any number of threads gives the same; what is refused.
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' one two three '##s' . A > vocab.txt
printf 'one two.\n\nthree.\n\n\n \t\nTwos A!\n\x01\nthree three\n' > first
printf '\ntwo' > second
expect 0 mh-prep mlm --wordpiece vocab.txt first second -o x.mhs
said "4 documents, 5 sentences, 12 tokens, 2 unknown"; said "1 lines without a token"
expect 0 mh-prep cat x.mhs
printf 'one two .\n\nthree .\n\ntwos [UNK] [UNK]\nthree three\n\ntwo\n' > wanted
cmp out wanted
mh-prep cat --ids - < x.mhs > ids
printf '5 6 9\n\n7 9\n\n6 8 1 1\n7 7\n\n6\n\n' | cmp - ids
expect 0 mh-prep info --format json x.mhs
printed '"kind":"documents"'; printed '"documents":4,"sentences":5'; printed '"tokens":12'; printed '"wordpiece":"vocab.txt"'
# One document alone; case kept; a vocabulary of ours, and what goes with no other.
expect 0 mh-prep mlm --wordpiece vocab.txt --cased second -o one.mhs;  said "next-sentence prediction needs another"
mh-prep vocab -q --type wordpiece --cased --from vocab.txt > v
expect 0 mh-prep mlm --vocab v first second -o y.mhs;                  said "11 tokens, 2 unknown"
mh-prep cat y.mhs | grep -q 'A \[UNK\]' || fail "case is not kept"
expect 2 mh-prep mlm first;                                            said "--wordpiece"
expect 2 mh-prep mlm --vocab v --wordpiece vocab.txt first;            said "both"
expect 2 mh-prep mlm --vocab v --cased first;                          said "only with --wordpiece"
expect 2 mh-prep mlm --vocab v --strip-accents no first;               said "only with --wordpiece"
expect 2 mh-prep mlm --vocab v first -o first;                         said "itself"
expect 3 mh-prep mlm --vocab vocab.txt first;                          said "--from"
printf 'one two\n' | mh-prep vocab -q - > words
expect 3 mh-prep mlm --vocab words first;                              said "the type wordpiece"
expect 3 mh-prep mlm --vocab x.mhs first
printf '\n \n' > blank
expect 3 mh-prep mlm --vocab v blank -o z.mhs;                         said "sentences, one a line"
printf 'one\r\n\r\ntwo\r\n' > crlf
expect 3 mh-prep mlm --vocab v crlf -o z.mhs;                          said "--crlf normalise"
expect 0 mh-prep mlm --vocab v --crlf normalise crlf -o z.mhs;         said "2 documents, 2 sentences"
printf 'one\n\xff\n' > bad8
expect 3 mh-prep mlm --vocab v bad8 -o none.mhs;                       said "bad8:2"
# Large enough for several batches: the same with any number of threads.
make_text 90000 | awk '{ print } NR % 37 == 0 { print "" }' > large
mh-prep mlm --wordpiece vocab.txt --threads 1 large -o a.mhs 2>/dev/null
mh-prep mlm --wordpiece vocab.txt --threads 3 large -o b.mhs 2>/dev/null
cmp a.mhs b.mhs
# Broken anywhere, it is refused.
size=$(stat -c %s x.mhs)
for i in $(seq 0 9); do
  head -c $((size * i / 10)) x.mhs > cut.mhs
  expect 3 mh-prep cat cut.mhs
done
[ ! -e none.mhs ] || fail "half a shard was left"
