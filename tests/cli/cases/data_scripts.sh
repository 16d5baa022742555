# data_scripts: a corpus is written completely and with the right SHA-256, from the mirror or a URL, or not at all.
scripts=$ROOT/data_scripts
[ -d "$scripts" ] || skip "no data_scripts here"
mkdir copy mirror
printf 'a line\nanother\n' > copy/input.txt
sum=sha256:$(sha256sum copy/input.txt | cut -d' ' -f1)
expect_fetch() { expect "$1" env "${@:6}" bash -euo pipefail -c 'source "$1"; shift; corpus_file "$@"' corpus.sh "$scripts/corpus.sh" "$2" "$3" "$4" "$5"; }
url=file://$PWD/copy/input.txt
expect_fetch 0 got "$sum" none "$url" MH_DATA=
cmp got copy/input.txt
expect_fetch 1 other sha256:99 none "$url" MH_DATA=; expect_stderr "corpus.sh: other: expected sha256"
expect_stderr "found ${sum#*:} in $url"
expect_fetch 1 other "$sum" none "$url.gone" MH_DATA=; expect_stderr "or from $url.gone; found: No such file or directory"
zstd -q copy/input.txt -o mirror/input.zst
expect_fetch 0 mirrored "$sum" input "$url.gone" MH_DATA="$PWD/mirror"
cmp mirrored copy/input.txt
expect_fetch 0 mirrored "$sum" none "$url.gone" MH_DATA=; expect_stderr "mirrored: present, not downloaded again"
gzip -c copy/input.txt > copy/input.gz
expect_fetch 0 unpacked "$sum" none "${url%.txt}.gz" MH_DATA=
cmp unpacked copy/input.txt
head -c 20 copy/input.gz > copy/cut.gz
expect_fetch 1 other "$sum" none "file://$PWD/copy/cut.gz" MH_DATA=
# A full disk is no fault of the mirror.
head -c 3000 /dev/zero > large; zstd -q large -o mirror/large.zst
(ulimit -f 2; expect_fetch 1 other "sha256:$(sha256sum < large | cut -d' ' -f1)" large none MH_DATA="$PWD/mirror"); expect_stderr "other.part: expected a writable file; found: File too large"
rm large copy/*.gz mirror/large.zst unpacked
# Two scripts that write the same folder: the second one ends.
mkdir busy
(exec 9< busy; flock 9; expect 1 env MH_DATA= "$scripts/wikitext-2" busy "file://$PWD/none" 9<&-)
rmdir busy
printf 'no zstd\n' > mirror/broken.zst
expect_fetch 1 other "$sum" broken "$url" MH_DATA="$PWD/mirror"; expect_stderr "expected a zstd file"
rm -f got; echo before > got
expect_fetch 1 got sha256:99 none "$url" MH_DATA=
[ "$(cat got)" = before ] || fail "a file with the wrong checksum replaced another"
expect_files got mirrored copy/input.txt mirror/input.zst mirror/broken.zst
# The scripts refuse a file with another SHA-256 and leave no file.
cp copy/input.txt copy/train.txt
expect 1 env MH_DATA= "$scripts/tinyshakespeare" tiny "$url"; expect_stderr "tinyshakespeare: input.txt: expected sha256 86c4"
expect_stderr "found ${sum#*:}"
expect 1 env MH_DATA= "$scripts/wikitext-2" wiki "file://$PWD/copy"; expect_stderr "wikitext-2: train.txt: expected sha256 9e9f"
expect 1 env MH_DATA= "$scripts/wikitext-2" wiki "file://$PWD/none"; expect_stderr "found: No such file or directory"
[ -z "$(find tiny wiki -type f)" ] || fail "expected no files after an error; found $(find tiny wiki -type f)"
# With a mirror of Tiny Shakespeare: the files train.txt, valid.txt and test.txt together are the text.
data=${MH_DATA:-$ROOT/../shared/data}
if [ -f "$data/tinyshakespeare/input.txt.zst" ]; then
  expect 0 env MH_DATA="$data" "$scripts/tinyshakespeare" tiny
  cat tiny/train.txt tiny/valid.txt tiny/test.txt | cmp - <(zstd -dcq "$data/tinyshakespeare/input.txt.zst")
  [ "$(wc -l < tiny/valid.txt) $(wc -l < tiny/test.txt)" = "2000 2000" ] || fail "expected 2000 lines in valid.txt and in test.txt; found $(wc -l tiny/*)"
fi
# With a mirror of WikiText-2: 629 training articles as sentences, without headings.
if [ -f "$data/wikitext-2/train.txt.zst" ]; then
  expect 0 env MH_DATA="$data" "$scripts/wikitext-2-sentences" sentences
  [ "$(ls sentences | paste -sd ' ')" = "test.txt train.txt valid.txt" ] || fail "$(ls sentences)"
  [ "$(grep -c '^$' sentences/train.txt) $(grep -c '^ =' sentences/train.txt)" = "629 0" ] || fail "expected 629 empty lines and no heading in sentences/train.txt"
fi
# Multi30k: writes pairs and shards; refuses a file that is compressed like the public file but has another SHA-256.
gzip -c copy/input.txt > copy/train.de.gz
expect 1 env MH_DATA= "$scripts/multi30k" multi "file://$PWD/copy"; expect_stderr "multi30k: train.de: expected sha256 2c2b"
expect_stderr "found ${sum#*:}"
[ -z "$(find multi -type f)" ] || fail "expected no files after an error; found $(find multi -type f)"
if [ -f "$data/multi30k/train.de.zst" ]; then
  make_text 50 > words
  mh-prep vocab --type char words > chars
  expect 0 env MH_DATA="$data" "$scripts/multi30k" multi none chars
  mh-prep info multi/test.mhs > info
  grep -q "^records	1000$" info || fail "expected 1000 pairs in multi/test.mhs; found $(cat info)"
  [ "$(wc -l < multi/train.de) $(wc -l < multi/valid.en)" = "29000 1014" ] || fail "expected 29000 lines in train.de and 1014 in valid.en; found $(wc -l multi/*)"
fi
# GLUE: makes shards from a folder with the files of GLUE (data_glue has the other sources); ROWS limits the training rows.
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' one two > pieces.txt
mh-prep vocab -q --type wordpiece --from pieces.txt > pieces
mkdir -p own/SST-2
printf 'sentence\tlabel\none\t1\ntwo\t0\none two\t1\n' > own/SST-2/train.tsv
printf 'sentence\tlabel\none\t1' > own/SST-2/dev.tsv
expect 0 "$scripts/glue" sst2 sst2 pieces own 2
expect 0 mh-prep cat sst2/train.mhs; printf 'one\t\t1\ntwo\t\t0\n' | cmp - out
expect 0 mh-prep cat sst2/valid.mhs; expect_stdout "one		1"
expect 1 "$scripts/glue" sst2 mrpc pieces own; expect_stderr "own/MRPC/train.tsv: expected a file of GLUE; found no such file"
expect 2 "$scripts/glue" sst2 sst pieces own; expect_stderr "expected one of the tasks all ax cola"
expect 2 "$scripts/glue" sst2 sst2 pieces own 0; expect_stderr "expected ROWS, a positive number of rows; found 0"
