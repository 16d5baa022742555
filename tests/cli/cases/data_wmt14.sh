# data_scripts/wmt14-en-de reads Google's preprocessed archive of WMT14, and data_scripts/wmt14-en-de-raw the archives of statmt.org. The archives
# are made; broken ones are refused.
scripts=$ROOT/data_scripts
[ -d "$scripts" ] || skip "no data_scripts here"
export MH_TEST_SUMS=none MH_DATA=
wmt14() { "$scripts/wmt14-en-de" "$@"; }
raw() { "$scripts/wmt14-en-de-raw" "$@"; }
make_archives() { python3 -B "$ROOT/tests/cli/wmt14_archives.py" "$@"; }
make_archives google "an archive.tar.gz"
expect 2 wmt14
expect 1 wmt14 google
expect 1 wmt14 google none.tar.gz
make_archives google-old old.tar.gz
expect 1 wmt14 old old.tar.gz; expect_stderr "bpe.32000: expected merges that begin with '#version: 0.2'; found 'e r</w>'"
[ ! -e old/train.mhs ] || fail "expected no shards with merges of the older format"
expect 1 env -u MH_TEST_SUMS "$scripts/wmt14-en-de" other old.tar.gz; expect_stderr "expected md5:874ab6bbfe9c21ec987ed1b9347f95ec; found md5:$(md5sum < old.tar.gz | cut -d' ' -f1)"
head -c $(($(wc -c < "an archive.tar.gz") / 2)) "an archive.tar.gz" > cut.tar.gz
expect 1 wmt14 cut cut.tar.gz
[ -z "$(find cut -name '*.part*' -o -name '*.mhs')" ] || fail "expected no incomplete files; found $(find cut -type f)"
# The same subwords as in the archive, and words in the text and in decoded shards.
expect 0 wmt14 "to google" "an archive.tar.gz"; expect_stderr "pairs of train.en: expected 4500966; found 20"
mv err "to google/err"; cd "to google" || exit
head -n 2 train.en | cmp - <(printf '%s\n' 'low low low low low' 'lower &apos;s co-op . low')
! grep -q '@@' train.en train.de || fail "expected words in the training text; found subwords"
for s in train valid; do mh-prep cat $s.mhs | cmp - <(paste $s.en $s.de); done
for l in en de; do
  expect_stderr "tokens of train.$l: expected $([ $l = en ] && echo 132886171 || echo 137628246); found $(($(wc -w < parts/segmented.$l) + 20))"
  mh-prep lm -q --vocab joint.vocab train.$l | mh-prep cat --ids - | awk '{ NF--; print }' |
    awk 'NR == FNR { if ($0 == "" && !body) { body = 1; next } if (body) piece[n++] = $1; next }
      { line = ""; for (i = 1; i <= NF; i++) line = line (i > 1 ? " " : "") piece[$i]; print line }' joint.vocab - | cmp - parts/segmented.$l
done
rm err; cd .. || exit
expect 0 wmt14 "to google" "an archive.tar.gz"; ! grep -q 'mh-prep' err || fail "expected no second call of mh-prep; found $(cat err)"
expect 2 raw statmt
expect 2 raw statmt google
expect 1 raw none rebuilt "file://$PWD/none"
needs_peers
printf 'x\n' | "$scripts/moses" tokenize --language de > /dev/null 2>&1 || skip "sacremoses 0.2.0 is not installed and PyPI is not reachable"
mkdir statmt
make_archives raw statmt
# fairseq's route: split hyphens, normalised quotes, line 100 in valid, pairs of ratios above 1.5 dropped after the merges.
expect 0 raw fairseq fairseq "file://$PWD/statmt"; expect_stderr "pairs of test.en: expected 3003; found 2"
printf '%s\n' '&quot; Well @-@ known &quot; law' 'It &apos;s R &amp; D ( Mr. X )' one | cmp - <(head -n 3 fairseq/parts/train.en)
printf '%s\n' '&quot; Wohl @-@ bekannt &quot; Recht' 'Es ist F &amp; E ( Hr . X )' 'eins zwei drei vier' | cmp - <(head -n 3 fairseq/parts/train.de)
printf '%s\n' 'Line 9 of News .' | cmp - fairseq/parts/valid.en
printf '%s\n' 'It &apos;s well @-@ known' 'R &amp; amp ; D in the U.S .' | cmp - fairseq/test.en
paste fairseq/train.en fairseq/train.de > kept
! grep -q '^one' kept || fail "expected no pair of 1 and 4 subwords"
grep -q '^Line 5 of Crawl \.	Zeile 5 von Crawl \.$' kept || fail "a pair of equal lengths is lost"
mh-prep cat fairseq/train.mhs | cmp - kept
# The rebuilt set: hyphens and quotes stay, cased; the dot of U.S. stays at its word; newstest2013 is valid.
expect 0 raw rebuilt rebuilt "file://$PWD/statmt"; expect_stderr "pairs of valid.de: expected 3000; found 4"
printf '%s\n' '“ Well-known ” law' "It ’ s R &amp; D ( Mr. X )" one 'Line 3 of Europarl .' | cmp - <(head -n 4 rebuilt/train.en)
printf '%s\n' "It ’ s well-known" 'R &amp; amp ; D in the U.S.' | cmp - rebuilt/test.en
mh-prep cat rebuilt/rebuilt-train.mhs | cmp - <(paste rebuilt/train.en rebuilt/train.de)
[ ! -e rebuilt/train.mhs ] || fail "expected the name rebuilt in the shards"
expect 1 raw rebuilt fairseq "file://$PWD/statmt"
rm statmt/dev.tgz
expect 1 raw lost rebuilt "file://$PWD/statmt"
expect 1 env -u MH_TEST_SUMS "$scripts/wmt14-en-de-raw" sums fairseq "file://$PWD/statmt"
