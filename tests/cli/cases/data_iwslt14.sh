# data_scripts/iwslt14 makes fairseq's files of IWSLT14 from made archives: text of the kept tags, dropped pairs, every 23rd pair, order of the test
# files; broken archives are refused, and a second call continues.
scripts=$ROOT/data_scripts
[ -d "$scripts" ] || skip "no data_scripts here"
data=${MH_DATA:-$ROOT/../shared/data}
export MH_TEST_SUMS=none MH_DATA=
iwslt14() { "$scripts/iwslt14" "$@"; }
make_archive() { python3 -B "$ROOT/tests/cli/iwslt14_archive.py" "$@"; }
make_archive de-en.tgz de-en
expect 2 iwslt14 it
expect 2 iwslt14 it fr-en de-en.tgz
expect 1 iwslt14 it de-en "file://$PWD/none.tgz"
head -c $(($(wc -c < de-en.tgz) / 2)) de-en.tgz > cut.tgz
expect 1 iwslt14 it de-en cut.tgz; expect_stderr "cut.tgz: expected a complete zip or tar archive"
expect 1 iwslt14 other es-en de-en.tgz; expect_stderr "expected the member es-en/train.tags.es-en.es"
[ -z "$(find other ! -name pair -type f)" ] || fail "expected no files after an error; found $(find other -type f)"
expect 1 iwslt14 it es-en de-en.tgz; expect_stderr "found files of de-en in it"
needs_peers
printf 'x\n' | "$scripts/moses" tokenize --language de > /dev/null 2>&1 || skip "sacremoses 0.2.0 is not installed and PyPI is not reachable"
# A full disk while one side is tokenized: no incomplete file remains, and a second call continues.
(ulimit -f 8; iwslt14 it de-en de-en.tgz) 2> err && fail "expected an error of a file of more than 8 KiB"
expect_stderr "expected a writable file; found: File too large; free disk space or write to another folder"
expect_stderr "tokens.de: expected the complete output of tokenize_training; found an error"
[ -z "$(find it -name '*.part*' -o -name 'tokens.*')" ] || fail "expected no incomplete files; found $(find it -name '*.part*' -o -name 'tokens.*')"
expect 0 iwslt14 it de-en de-en.tgz; expect_stderr "pairs of train.de: expected 160239; found 62"
grep "dropped for" err | cut -d' ' -f2- > reasons
printf '%s\n' '1 dropped for a ratio above 1.5' '1 dropped for an empty source or target' '2 dropped for more than 175 words' | cmp - reasons
printf '%s\n' 'über autos' 'ted &#124; gespräch' 'zwei wörter &#124; hier' 'er mag r &amp; amp ; d .' 'in der e.u .' $'σ οσ \xef\xbb\xbf ’' 'satz nummer 0 , haus0 .' > first
printf '%s\n' 'about cars' 'ted &#124; talk' 'two words &#124; here' 'he likes r &amp; amp ; d .' 'in the e.u .' "σ οσ it ’ s" 'sentence number 0 , house0 .' > first.en
head -n 7 it/train.de | cmp - first
head -n 7 it/train.en | cmp - first.en
printf '%s\n' 'satz nummer 16 , haus2 .' 'satz nummer 39 , haus4 .' | cmp - it/valid.de  # pairs 23 and 46 of 64
[ "$(wc -l < it/train.en) $(wc -l < it/valid.en)" = "62 2" ] || fail "expected 62 and 2 lines; found $(wc -l it/*.en)"
for test in ted.dev2010 tedx.dev2012 ted.tst2010 ted.tst2011 ted.tst2012; do printf '%s\n' "$test says : r &amp; amp ; d &apos;s u.s ." '&lt; b &gt; here'; done | cmp - it/test.en
# mh-prep's shards have all pairs; the vocabularies share the merges.
mh-prep cat it/train.mhs | cmp - <(paste it/train.de it/train.en)
cmp <(mh-prep codes it/de.vocab) <(mh-prep codes it/en.vocab)
# A second call makes nothing again; a call after the loss of a file makes that file and the files that depend on it.
cp -r it whole
rm it/valid.en it/parts/clean.de
expect 0 iwslt14 it de-en de-en.tgz
diff -r it whole
expect 0 iwslt14 it de-en de-en.tgz; ! grep -q "mh-prep\|clean-pairs" err || fail "expected no second call of mh-prep and clean-pairs; found $(cat err)"
# A full disk may leave an empty file of the pair, after which a second call continues.
: > it/parts/pair
expect 0 iwslt14 it de-en de-en.tgz
[ "$(cat it/parts/pair)" = de-en ] || fail "expected the pair; found $(cat it/parts/pair)"
expect 1 iwslt14 it es-en de-en.tgz
# English to German has the same pairs in the other direction, from a URL.
expect 0 iwslt14 "it en-de" en-de "file://$PWD/de-en.tgz"
for file in {train,valid,test}.{de,en} {joint,de,en}.vocab; do cmp "it/$file" "it en-de/$file"; done
mh-prep cat "it en-de/train.mhs" | cmp - <(paste it/train.en it/train.de)
# Spanish: without the TEDX talks.
make_archive es-en.tgz es-en
expect 0 iwslt14 es es-en es-en.tgz; expect_stderr "pairs of test.es: 8; no count of es-en is published"
[ "$(cut -d' ' -f1 es/test.en | grep ted | paste -sd ' ')" = "ted.dev2010 ted.tst2010 ted.tst2011 ted.tst2012" ] || fail "the test files have another order: $(cat es/test.en)"
# Without MH_TEST_SUMS counts that differ from the publication end the script before shards are made.
expect 1 env -u MH_TEST_SUMS "$scripts/iwslt14" counted de-en de-en.tgz; expect_stderr "expected the count of the published corpus"
[ ! -e counted/train.mhs ] || fail "expected no shards from a corpus with other counts"
# 1,000 pairs of the talks: the bytes of mosesdecoder's scripts, and lines of fairseq's valid set.
[ -d "$data/iwslt14/raw-1k" ] || { echo "without IWSLT14 (MH_DATA)"; exit 0; }
for l in de en; do zstd -dcq "$data/iwslt14/raw-1k/train.$l.zst" > "raw.$l"; zstd -dcq "$data/iwslt14/valid.$l.zst" > "valid.$l"; done
make_archive raw.tgz de-en raw.de raw.en
expect 0 iwslt14 raw de-en raw.tgz; expect_stderr "960 of 1000 pairs kept"
sha256sum --quiet -c - << 'SUMS'
d53f048704ec49c0aefa3a9b144cd37a44d45efaec12c47c304a8e7b4dd2e615  raw/parts/tokens.de
fa2815d799b2ebc5d394ff4845d85784785f50ccf35d163b7587b624570e84ba  raw/parts/tokens.en
c95c617ed0abf6f48577efa39268dbccc9204a14eaa353ac7cbd3d49323f2158  raw/parts/clean.de
be7d27f6faafdf163fa3ea64afc2858e48075f033c98a47815a58b4760f39e0c  raw/parts/clean.en
ccf4455181fe1e0f6a2f2ce6c8a3605602f9262ef96a7e201453637181967c26  raw/parts/lower.de
a5f28bb6874832b88c4099be3daea4223d2c2844624fb5b399538c5d98b3060d  raw/parts/lower.en
SUMS
# The talks of this sample begin at another pair than fairseq's, so pairs 17, 40, 63 … are in its valid set.
paste valid.de valid.en | sed -n '4479,4486p' > published
paste raw/parts/lower.de raw/parts/lower.en | awk 'NR <= 178 && NR % 23 == 17' | cmp - published
