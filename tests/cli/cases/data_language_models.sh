# data_scripts of language models read small archives of the form of the public ones: the texts, vocabularies and shards have the tokens of the
# published protocols; other archives, cut archives and full disks leave no incomplete file, and a second call continues.
scripts=$ROOT/data_scripts
[ -d "$scripts" ] || skip "no data_scripts here"
data=${MH_DATA:-$ROOT/../shared/data}
export MH_DATA='' MH_TEST_SUMS=none PYTHONDONTWRITEBYTECODE=1
. "$ROOT/tests/cli/archives.sh"
# expect_info SHARD FIELD NUMBER: fails unless mh-prep info prints NUMBER for FIELD.
expect_info() { mh-prep info "$1" | grep -qx "$2	$3" || fail "expected $2 $3 of $1; found $(mh-prep info "$1" | grep "^$2")"; }
# expect_empty FOLDER: fails unless FOLDER has no files.
expect_empty() { [ -z "$(find "$1" -type f 2>/dev/null)" ] || fail "expected no files in $1; found $(find "$1" -type f)"; }

# WikiText-103: words, an end token for each line, empty lines included; the raw archive is refused.
mkdir -p words/wikitext-103
for split in train valid test; do printf ' \n = A title = \n \n word <unk> @-@ %s \n' $split > words/wikitext-103/wiki.$split.tokens; done
pack wikitext-103-v1.zip words
expect 0 "$scripts/wikitext-103" 'wiki 103' "file://$PWD/wikitext-103-v1.zip"
for text in "train.txt: lines: expected 1801350; found 4" "train.txt: tokens: expected 103227021; found 12" "word.vocab: entries: expected 267735; found 8" \
  "test.mhs: tokens: expected 245569; found 12" "counts differ from the published corpus"; do expect_stderr "$text"; done
cmp 'wiki 103/valid.txt' words/wikitext-103/wiki.valid.tokens
expect 0 mh-prep cat 'wiki 103/train.mhs'; printf '\n= A title =\n\nword <unk> @-@ train\n' | cmp - out
expect_info 'wiki 103/train.mhs' tokens 12; expect_info 'wiki 103/valid.mhs' vocabulary 8
# A second call reads and writes nothing again; after a change of a split, only its shard is new.
touch -d 2001-01-01 'wiki 103'/train.txt 'wiki 103'/valid.txt 'wiki 103'/test.txt; touch -d 2002-01-01 'wiki 103/word.vocab'; touch -d 2003-01-01 'wiki 103'/*.mhs
echo > 'wiki 103/valid.txt'
expect 0 "$scripts/wikitext-103" 'wiki 103' file:///none; expect_stderr "wikitext-103-v1.zip: present"; expect_stderr "train.mhs: present"
[ "$(date -r 'wiki 103/train.mhs' +%Y) $(date -r 'wiki 103/test.mhs' +%Y)" = "2003 2003" ] || fail "expected the shards of the first call; found $(ls -l 'wiki 103')"
[ "$(date -r 'wiki 103/valid.mhs' +%Y)" != 2003 ] || fail "expected a new shard of the changed valid.txt; found $(ls -l 'wiki 103')"
mkdir -p raw/wikitext-103-raw; cp words/wikitext-103/wiki.train.tokens raw/wikitext-103-raw/wiki.train.raw; pack raw.zip raw; cp raw.zip other.zip
expect 1 "$scripts/wikitext-103" new "file://$PWD/raw.zip"
expect 1 "$scripts/wikitext-103" new "file://$PWD/other.zip"
rm -r new
expect 1 env -u MH_TEST_SUMS "$scripts/wikitext-103" new "file://$PWD/wikitext-103-v1.zip"
expect 1 env -u MH_TEST_SUMS "$scripts/wikitext-103" new "file://$PWD/none.zip"
expect_empty new
expect 2 "$scripts/wikitext-103"
# Without mh-prep the texts are complete. A line end of CR LF is refused.
mkdir bin; for tool in bash env awk cat dirname grep head mkdir mv rm sed tail tr wc; do ln -s "$(type -P $tool)" bin/; done
ln -s "$(python3 -c 'import sys; print(sys.executable)')" bin/python3
expect 0 env PATH="$PWD/bin" "$scripts/wikitext-103" texts "file://$PWD/wikitext-103-v1.zip"; expect_stderr "mh-prep is not on the PATH"
[ "$(ls texts | paste -sd ' ')" = "test.txt train.txt valid.txt wikitext-103-v1.zip" ] || fail "expected three texts and the archive; found $(ls texts)"
sed -i 's/$/\r/' words/wikitext-103/wiki.train.tokens; pack crlf.zip words
expect 1 "$scripts/wikitext-103" crlf "file://$PWD/crlf.zip"
[ -z "$(find crlf -name '*.mhs*' -o -name '*.vocab*')" ] || fail "expected no vocabulary and no shard; found $(ls crlf)"

# With a mirror of WikiText-2, whose held-out texts are those of WikiText-103: the counts of the publication.
if [ -f "$data/wikitext-2/train.txt.zst" ]; then
  mkdir -p two/wikitext-103
  for split in train valid test; do zstd -dcq "$data/wikitext-2/$split.txt.zst" > two/wikitext-103/wiki.$split.tokens; done
  pack two.zip two
  expect 0 "$scripts/wikitext-103" two103 "file://$PWD/two.zip"; expect_stderr "word.vocab: entries: expected 267735; found 33278"
  for text in "valid.txt: lines: expected 3760; found 3760" "valid.txt: tokens: expected 217646; found 217646" "test.txt: lines: expected 4358; found 4358" \
    "test.txt: tokens: expected 245569; found 245569" "test.mhs: tokens: expected 245569; found 245569"; do expect_stderr "$text"; done
fi

# Penn Treebank: a folder of the three texts, and the original archive.
mkdir -p ptb/simple-examples/data
for split in train valid test; do printf ' the <unk> N %s \n' $split > ptb/simple-examples/data/ptb.$split.txt; done
expect 0 "$scripts/ptb" 'a treebank' "file://$PWD/ptb/simple-examples/data"; expect_stderr "train.txt: tokens: expected 929589; found 5"
expect_stderr "word.vocab: entries: expected 10000; found 5"
mkdir 'my files'; pack 'my files/simple-examples.tgz' ptb
expect 0 "$scripts/ptb" treebank "file://$PWD/my files/simple-examples.tgz"; expect_stderr "simple-examples.tgz: sha256"
for split in train valid test; do cmp treebank/$split.txt 'a treebank'/$split.txt; expect_info treebank/$split.mhs tokens 5; done
expect 1 env -u MH_TEST_SUMS "$scripts/ptb" new "file://$PWD/ptb/simple-examples/data"; expect_stderr "expected sha256 fcea"
expect_empty new

# enwik8: 200 bytes split into 180, 10 and 10, in the middle of a character; both protocols. text8: letters and spaces.
mkdir bytes letters
for i in $(seq 20); do printf 'line %02d\303\251\n' "$i"; done > bytes/enwik8
python3 -c 'import sys; text = sys.stdin.buffer.read(); sys.stdout.buffer.write(text[:179] + text[180:190] + text[179:180] + text[190:])' < bytes/enwik8 > moved; mv moved bytes/enwik8
pack enwik8.zip bytes
expect 0 "$scripts/enwik8" enwik8 "file://$PWD/enwik8.zip"; expect_stderr "enwik8: bytes: expected 100000000; found 200"
cat enwik8/train.txt enwik8/valid.txt enwik8/test.txt | cmp - bytes/enwik8
[ "$(wc -c < enwik8/train.txt) $(wc -c < enwik8/valid.txt) $(wc -c < enwik8/test.txt)" = "180 10 10" ] || fail "expected 180, 10 and 10 bytes; found $(wc -c enwik8/*.txt)"
for split in train valid test; do
  expect_info enwik8/$split.mhs tokens "$(tr -d '\n' < enwik8/$split.txt | wc -c)"
  expect_info enwik8/$split-whole.mhs tokens "$(wc -c < enwik8/$split.txt)"
done
for i in $(seq 20); do printf ' anarchism'; done > letters/text8
pack text8.zip letters
expect 0 "$scripts/text8" text8 "file://$PWD/text8.zip"; expect_stderr "text8: byte values: expected 27; found 9"
expect_info text8/train.mhs tokens 180; expect_info text8/test.mhs tokens 10
expect 1 "$scripts/text8" new "file://$PWD/enwik8.zip"
expect 1 "$scripts/enwik8" new "file://$PWD/text8.zip"
# A full disk: no incomplete text. The next call continues.
rm -r new
head -c 20000 /dev/zero | tr '\0' 'a' > letters/text8; pack text8.zip letters
small_disk_text8() { (ulimit -f 19; exec "$scripts/text8" new "file://$PWD/text8.zip"); }
expect 1 small_disk_text8
[ "$(ls new)" = text8.zip ] || fail "expected only the archive; found $(ls new)"
expect 0 "$scripts/text8" new file:///none
expect_info new/valid.mhs tokens 1000

# LM1B: training files in their order without file 00000 and leftovers, words with a count of at least 3, held-out files.
name=1-billion-word-language-modeling-benchmark-r13output
training=lm/$name/training-monolingual.tokenized.shuffled held_out=lm/$name/heldout-monolingual.tokenized.shuffled
mkdir -p "$training" "$held_out"
echo decoy decoy decoy > "$training/news.en-00000-of-00100"; echo left over > "$training/._news.en-00001-of-00100"
echo 'one one one two two' > "$training/news.en-00001-of-00100"; make_text 1000 > "$training/news.en-00010-of-00100"; echo 'one last' > "$training/news.en-00099-of-00100"
echo 'one two' > "$held_out/news.en.heldout-00000-of-00050"; echo 'one three' > "$held_out/news.en.heldout-00001-of-00050"; echo one > "$held_out/news.en.heldout-00049-of-00050"
pack lm.tar.gz lm
expect 0 "$scripts/lm1b" lm1b "file://$PWD/lm.tar.gz"; expect_stderr "train: files: expected 99; found 3"
expect_stderr "heldout: lines: expected 306688; found 3"; expect_stderr "test.txt: tokens: expected 159658; found 3"
expect 0 mh-prep cat lm1b/train.mhs; sed -n 1p out | grep -qx 'one one one <unk> <unk>' || fail "expected file 00001 first; found $(sed -n 1p out)"
[ "$(tail -n 1 out) $(wc -l < out)" = "one <unk> 1002" ] || fail "expected 1002 lines and file 00099 last; found $(wc -l < out) and $(tail -n 1 out)"
awk '{ for (i = 1; i <= NF; i++) count[$i]++ } END { for (word in count) if (count[word] >= 3) n++; print n + 2 }' "$training"/news.en-000{01,10,99}-of-00100 > entries
expect_info lm1b/train.mhs vocabulary "$(cat entries)"  # with <eos> and <unk>
expect 0 mh-prep cat lm1b/valid.mhs; expect_stdout "one <unk>"
expect 0 mh-prep cat lm1b/test.mhs; expect_stdout "one <unk>"
expect 0 "$scripts/lm1b" lm1b file:///none pieces 30; expect_stderr "train.mhs: present"
expect 0 mh-prep cat lm1b/train-pieces.mhs; sed -n 1p out | grep -qx 'one one one UNK UNK' || fail "expected UNK for rare words; found $(sed -n 1p out)"
expect_info lm1b/test-pieces.mhs records 3; expect_info lm1b/valid-pieces.mhs records 1
expect 0 "$scripts/lm1b" lm1b file:///none pieces 30; expect_stderr "pieces.model: present"
expect 0 "$scripts/lm1b" lm1b file:///none pieces 28; ! grep -q "pieces.model: present" err || fail "expected a new model of 28 pieces; found $(cat err)"
expect_info lm1b/test-pieces.mhs vocabulary 28
expect 2 "$scripts/lm1b" new2 none bytes
expect 2 "$scripts/lm1b" new2 none pieces many
rm -r "$training"; pack lm.tar.gz lm
expect 1 "$scripts/lm1b" new2 "file://$PWD/lm.tar.gz"
