# The outputs of every subcommand of mh-prep on small inputs match the golden files: vocabularies, and shards as text,
# ids and tables.
cat > en <<'T'
the cat sat on the mat .
a small cat saw the other cat
dogs do not sit on mats !
the mat is red , the cat is not
T
cat > de <<'T'
die katze saß auf der matte .
eine kleine katze sah die andere katze
hunde sitzen nicht auf matten !
die matte ist rot , die katze nicht
T
# record_shard NAME COMMAND…: makes the shard NAME.mhs with COMMAND and compares the messages of COMMAND and the content of the
# shard with NAME.record.
record_shard() {
  local file=$1.mhs
  record 0 "${@:2}" -o "$file"
  record 0 mh-prep info "$file"
  record 0 mh-prep info --format json "$file"
  record 0 mh-prep cat "$file"
  record 0 mh-prep cat --ids "$file"
  golden_record "$1"
}
# Every vocabulary type that mh-prep learns without SentencePiece.
for type in word char byte; do
  golden --stderr "vocab-$type" 0 mh-prep vocab --type $type en; mv out "$type.vocab"
done
golden --stderr vocab-min-count 0 mh-prep vocab --min-count 2 en
golden --stderr vocab-size 0 mh-prep vocab --size 8 en
golden --stderr vocab-subword-nmt 0 mh-prep vocab --type subword-nmt --merges 12 de en; mv out joint.vocab
golden --stderr vocab-wordpiece 0 mh-prep vocab --type wordpiece --size 40 en; mv out wordpiece.vocab
golden codes-subword-nmt 0 mh-prep codes joint.vocab
golden codes-wordpiece 0 mh-prep codes wordpiece.vocab
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' one two three '##s' '?' . who won the team > vocab.txt
golden --stderr vocab-wordpiece-from 0 mh-prep vocab --type wordpiece --from vocab.txt
golden --stderr vocab-wordpiece-cased 0 mh-prep vocab --type wordpiece --cased --from vocab.txt
# Shards of text for language models.
for type in word char byte joint wordpiece; do
  record_shard "lm-$type" mh-prep lm --vocab $type.vocab en
done
record_shard lm-unknown mh-prep lm --vocab word.vocab de
record 0 mh-prep info lm-word.mhs lm-unknown.mhs
record 0 mh-prep cat lm-word.mhs lm-unknown.mhs
golden_record lm-two-shards
printf 'the cat\r\nthe mat\r\n' > crlf
record_shard lm-crlf mh-prep lm --vocab word.vocab --crlf normalise crlf
# Shards of sentence pairs.
record_shard translation mh-prep translation --vocab joint.vocab de en
mh-prep vocab -q de > de.vocab
record_shard translation-two mh-prep translation --source-vocab de.vocab --target-vocab word.vocab de en
printf 'the cat\n\na\nthe cat sat on the mat\n' > s
printf 'the mat\nthe\nthe cat sat on the mat\nthe cat sat on\n' > t
record_shard translation-dropped mh-prep translation --vocab word.vocab --empty drop --max-length 5 --max-ratio 2 s t
# Shards of examples from GLUE and other files, of SQuAD questions, and of documents.
printf 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tOne two.\tthree\n0\t9\t9\ttwo\tfour\n' > mrpc.tsv
record_shard glue-mrpc mh-prep glue --task mrpc --wordpiece vocab.txt mrpc.tsv
printf 'gj04\t1\t\tOne two.\ngj04\t0\t*\tTwo one.\n' > cola.tsv
record_shard glue-cola mh-prep glue --task cola --wordpiece vocab.txt cola.tsv
printf 'index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n0\tg\tf\ty\t1\ts\ts\tone\ttwo\t3.800\n' > stsb.tsv
record_shard glue-stsb mh-prep glue --task stsb --wordpiece vocab.txt stsb.tsv
printf 'stars\treview\n4.5\tone two\n1\ttwo\n' > reviews.tsv
record_shard examples mh-prep examples --text review --label stars --number 1,5 --name reviews --wordpiece vocab.txt reviews.tsv
cat > squad.json <<'J'
{"version": "2.0", "data": [{"title": "T", "paragraphs": [{"context": "The team won three.", "qas": [
  {"id": "q1", "question": "Who won?", "is_impossible": false, "answers": [{"text": "The team", "answer_start": 0}, {"text": "team", "answer_start": 4}]},
  {"id": "q2", "question": "Who?", "is_impossible": true, "answers": []}]}]}]}
J
record_shard squad mh-prep squad --wordpiece vocab.txt --unanswerable keep squad.json
printf 'one two.\n\nthree.\n\n\nTwos!\nthree three\n' > documents
record_shard mlm mh-prep mlm --wordpiece vocab.txt documents
# Each of the following commands must fail; the golden file refused.record has its message.
: > empty
printf 'good\nb\xffd\n' > bad8
printf 'a\tx\na\tx\ty\n' > two_tabs
printf '{"data": []}' > none.json
record 2 mh-prep vocab --type wrod en
record 2 mh-prep vocab --type bpe en
record 3 mh-prep vocab empty
record 3 mh-prep codes word.vocab
record 3 mh-prep lm --vocab word.vocab bad8
record 3 mh-prep lm --vocab en en
record 2 mh-prep lm en
record 2 mh-prep translation --vocab word.vocab --min-length 9 --max-length 8 de en
record 3 mh-prep translation --vocab word.vocab two_tabs
record 2 mh-prep glue --task snli --wordpiece vocab.txt mrpc.tsv
record 3 mh-prep glue --task sst2 --wordpiece vocab.txt mrpc.tsv
record 2 mh-prep examples --wordpiece vocab.txt reviews.tsv
record 3 mh-prep squad --wordpiece vocab.txt squad.json
record 3 mh-prep squad --wordpiece vocab.txt none.json
record 3 mh-prep mlm --wordpiece vocab.txt empty
record 3 mh-prep info en
record 3 mh-prep cat missing.mhs
golden_record refused
