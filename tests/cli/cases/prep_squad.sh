# Converts SQuAD questions to a shard and back; the shard does not depend on the number of threads; checks errors.
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' who won '?' the team of cafe '##s' . > vocab.txt
cat > a.json <<'JSON'
{"version": "1.1", "data": [
 {"paragraphs": [{"qas": [
   {"id": "q1", "question": "Who won?", "answers": [{"text": "The team", "answer_start": 0}, {"text": "team of Cafés", "answer_start": 4}]},
   {"id": "q2", "question": "who?", "answers": [{"text": "Cafés", "answer_start": 12}]}],
  "context": "The team of Cafés won."}], "title": "T"}]}
JSON
expect 0 mh-prep squad --wordpiece vocab.txt a.json -o x.mhs
expect_stderr "2 questions on 1 paragraph, 5 + 7 tokens, 0 + 0 unknown"
mh-prep squad -q --threads 3 --wordpiece vocab.txt - < a.json > y.mhs
[ "$(zstd -dcq x.mhs | sha256sum)" = "$(zstd -dcq y.mhs | sha256sum)" ] || fail "expected the same shard from a pipe with 3 threads"
expect 0 mh-prep cat x.mhs
printf 'q1\twho won ?\tthe team of cafes won .\nq2\twho ?\tthe team of cafes won .\n' | cmp - out
expect 0 mh-prep cat --ids x.mhs
expect_stdout "5 6 7	8 9 10 11 12 6 13	0 4 9 12 17 19 22	3 8 11 17 18 22 23	84 104 101"
expect 0 mh-prep info --format json x.mhs
expect_stdout '"kind":"questions"'; expect_stdout '"paragraphs":1,"answers":3,"missing_answers":0,"impossible":0'
expect_stdout '"unanswerable":false'; expect_stdout '"wordpiece":"vocab.txt"'
# vocab.txt converted to a vocabulary of this project gives the same shard.
mh-prep vocab -q --type wordpiece --from vocab.txt > v
mh-prep squad -q --vocab v a.json | zstd -dcq | cmp - <(zstd -dcq x.mhs)
# Answers that are not at the stated position are refused if their share exceeds --missing-fraction.
sed 's/"answer_start": 12/"answer_start": 13/' a.json > moved.json
record 3 mh-prep squad --vocab v moved.json -o z.mhs
record 0 mh-prep squad --vocab v --missing-fraction 0.4 moved.json -o moved.mhs
mh-prep info moved.mhs | grep -q 'missing_answers	1' || fail "expected missing_answers 1 in the shard"
# SQuAD 2.0: a file with unanswerable questions is refused without --unanswerable keep.
sed 's/"answers": \[{"text": "Cafés", "answer_start": 12}\]/"answers": [], "is_impossible": true, "plausible_answers": [{"text": "x", "answer_start": 0}]/' a.json > two.json
record 3 mh-prep squad --vocab v two.json -o z.mhs
record 0 mh-prep squad --vocab v --unanswerable keep two.json -o two.mhs
mh-prep info two.mhs | grep -q '"unanswerable":true' || fail "expected '\"unanswerable\":true' in the header of the shard; found none"
# Errors about files name the file, and the byte of damaged JSON. No error leaves a partial file.
record 3 mh-prep squad --vocab v a.json a.json -o z.mhs
head -c 300 a.json > cut.json
expect 3 mh-prep squad --vocab v cut.json -o z.mhs;       expect_stderr "cut.json: byte 300:"
sed 's/"answer_start": 12/"answer_start": 99/' a.json > far.json
record 3 mh-prep squad --vocab v far.json -o z.mhs
printf 'who won\n' > text
expect 3 mh-prep squad --vocab v text -o z.mhs;           expect_stderr "byte 0"
expect 3 mh-prep squad --vocab v x.mhs -o z.mhs
printf '{"data": []}' > none.json
record 3 mh-prep squad --vocab v none.json -o z.mhs
record 3 mh-prep squad --vocab v missing.json -o z.mhs
record 2 mh-prep squad a.json
record 2 mh-prep squad --vocab v a.json -o a.json
record 2 mh-prep squad --vocab v --unanswerable drop a.json
record 2 mh-prep squad --vocab v --missing-fraction 2 a.json
record 2 mh-prep squad --vocab v --missing-share 0.4 a.json
python3 -c 'import json; json.dump({"data": [{"paragraphs": [{"context": "team", "qas": [
  {"id": "q" * (1 << 20), "question": "who", "answers": [{"text": "team", "answer_start": 0}]}]}]}]}, open("wide.json", "w"))'
expect 3 mh-prep squad --vocab v wide.json -o z.mhs; expect_stderr "at most 1048576 bytes for the id and the answers"
# Damaged JSON that common parsers accept: bytes after a NUL, duplicate keys.
{ cat a.json; printf '\0{"more": 1}'; } > nul.json
record 3 mh-prep squad --vocab v nul.json -o z.mhs
sed 's/"context": /"context": "Others won.", "context": /' a.json > doubled.json
record 3 mh-prep squad --vocab v doubled.json -o z.mhs
golden_record refused
# A truncated shard is refused.
head -c 400 x.mhs > cut.mhs
expect 3 mh-prep info cut.mhs
expect 3 mh-prep cat cut.mhs
[ ! -e z.mhs ] || fail "a refused run left z.mhs"
