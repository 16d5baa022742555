# Runs the data preparation commands of configs/recipes/README.md on generated text; BLEU is computed on words.
page=$ROOT/configs/recipes/README.md
[ -f "$page" ] || skip "no recipes here"
scripts=$ROOT/data_scripts
# print_commands SECTION FIRST LAST: prints the commands of a section of the page, from the first match of FIRST to the first
# match of LAST. print_command SECTION PATTERN: prints the commands of a section that match PATTERN.
print_commands() { sed -n "/^## $1\$/,/^## /p" "$page" | sed -n 's/^    //p' | sed -n "/$2/,/$3/p"; }
print_command() { sed -n "/^## $1\$/,/^## /p" "$page" | sed -n 's/^    //p' | grep -- "$2"; }
print_pieces() { mh-prep lm -q --vocab "$1" "$2" | mh-prep cat --ids - | awk '{ NF--; print }'; }

# clean-pairs: one pair for each reason to drop a pair, and three pairs that stay.
{ printf 'one|x two\302\240three\302\240  four\tfive\n'; echo; seq -s ' ' 6; echo a b c; echo a b; printf 'x%.0s' {1..1001}; echo; echo last line; } > s
{ echo un deux trois quatre; echo vide; seq -s ' ' 6; echo a b c d; echo a b c d; echo y; echo " derniere  ligne "; } > t
clean_pairs() { "$scripts/clean-pairs" "$@"; }
record 0 clean_pairs 1.5 1 5 s t s.clean t.clean
printf 'one|x two three four five\na b c\nlast line\n' | cmp - s.clean  # the first pair contains |, so every | stays
printf 'un deux trois quatre\na b c d\nderniere ligne\n' | cmp - t.clean  # the ratios 5 / 4 and 4 / 3 are at most 1.5
printf 'a b\nc|d e\n|\nf\n' > s2; printf 'a b\nc d e f\ng h\ni j\n' > t2
record 0 clean_pairs 2 2 9 s2 t2 s.clean t.clean
printf 'a b\ncd e\n' | cmp - s.clean  # 4 / 2 is not above 2
rm s2 t2 s.clean t.clean
printf '\357\273\277a b\n' > marked; printf 'a b\n' > plain
record 0 clean_pairs 2 1 9 marked plain s.clean t.clean
cmp s.clean t.clean
rm s.clean t.clean
record 2 clean_pairs 2 5 2 marked plain s.clean t.clean
head -n 3 t > short; printf 'a\nb\303\nc\n' > latin; printf 'a\nb\nc\n' > three
record 3 clean_pairs 2 1 9 s short s.clean t.clean
record 3 clean_pairs 2 1 9 latin three s.clean t.clean
record 3 clean_pairs 2 1 9 none t s.clean t.clean
record 3 clean_pairs 2 1 9 $'no\n\e[1m' t s.clean t.clean
record 2 clean_pairs 2 1 9 s t s t.clean
record 2 clean_pairs 2 one 9 s t s.clean t.clean
record 2 clean_pairs 2 1
golden_record clean-pairs
rm marked plain short latin three
expect_files s t

# The cases data_iwslt14 and data_iwslt14_parts test the scripts of IWSLT14.
print_commands Translation 'data_scripts.iwslt14' 'mh-eval bleu out.en' | grep -q 'iwslt14/test.mhs' || fail "the page has no route for IWSLT14"
# Each script of a paper's data is a route of the page.
for script in $(cut -f2 "$ROOT/configs/experiments/data.tsv" | sed '1,/^script$/d' | sort -u); do
  case $script in wikitext-2* | tinyshakespeare | multi30k) continue ;; esac
  grep -q "data_scripts/${script}[ \`]" "$page" || fail "expected data_scripts/$script on the page; found none"
done

# WMT14: an archive of segmented text. Undoing the segmentation and segmenting again gives the same pieces.
mkdir wmt; cd wmt || exit
for s in train newstest2013 newstest2014; do
  case $s in train) n=300 ;; newstest2013) n=20 ;; *) n=31 ;; esac
  make_text $n | sed 's/^ *//; s/ *$//; s/w1/\&apos;s co-op/g; s/w/lower/g' > $s.tok.en
  sed 's/lower/niedriger/g' $s.tok.en > $s.tok.de
done
mh-prep vocab -q --type subword-nmt --merges 30 train.tok.en train.tok.de > all
mh-prep codes all > bpe.32000
# print_segmented VOCABULARY FILE: prints the pieces of FILE in the format of subword-nmt.
print_segmented() {
  print_pieces "$1" "$2" | awk '
    NR == FNR { if ($0 ~ /^$/ && !body) { body = 1; next } if (body) piece[n++] = $1; next }
    { line = ""; for (i = 1; i <= NF; i++) line = line (i > 1 ? " " : "") piece[$i]; print line }' "$1" -
}
for l in en de; do print_segmented all train.tok.$l > train.tok.clean.bpe.32000.$l; done
grep -q '@@ ' train.tok.clean.bpe.32000.en || fail "expected at least one segmented word in the archive"
for type in word "subword-nmt --merges 9"; do
  expect 0 mh-prep vocab --type $type train.tok.clean.bpe.32000.en
  grep "@@" err | sed 's/has [0-9,]* words ([0-9]* distinct)/has N words/' >> warnings
  expect 0 mh-prep vocab --type $type train.tok.en; ! grep -q '@@' err || fail "words are reported as pieces"
done
[ "$(wc -l < warnings)" -eq 2 ] || fail "expected a warning for each type of vocabulary; found $(cat warnings)"
golden segmented-text 0 sort -u warnings
entries=$(sed -n 's/^entries //p' all)
tar -czf archive.tgz bpe.32000 train.tok.clean.bpe.32000.{en,de} newstest201{3,4}.tok.{en,de}
print_command Translation 'data_scripts.wmt14-en-de' | sed "s|data_scripts/wmt14-en-de wmt14 wmt16_en_de.tar.gz|MH_TEST_SUMS=none $scripts/wmt14-en-de wmt14 archive.tgz|" > route
grep -q 'archive.tgz' route || fail "the page has no route for WMT14"
bash -euo pipefail route 2> log || fail "the commands for WMT14 failed: $(cat log)"
for l in en de; do
  cmp wmt14/train.$l train.tok.$l
  print_segmented wmt14/joint.vocab wmt14/train.$l | cmp - train.tok.clean.bpe.32000.$l
done
mh-prep info wmt14/train.mhs | grep -qx "records	300" || fail "pairs are lost"
# A word vocabulary of the segmented text would have the same entries in the same order, but BLEU would be computed on
# pieces.
mh-prep vocab -q --type word train.tok.clean.bpe.32000.en train.tok.clean.bpe.32000.de > words
diff <(sed '1,/^$/d' wmt14/joint.vocab | head -n "$entries" | cut -f 1) <(sed '1,/^$/d' words | cut -f 1) || fail "the entries differ"
mh-prep cat wmt14/test.mhs | cmp - <(paste newstest2014.tok.en newstest2014.tok.de)
mh-prep cat wmt14/train.mhs | cmp - <(paste train.tok.en train.tok.de)
# A vocabulary truncated by --size: rare pieces become unknown, as in fairseq.
expect 0 mh-prep vocab --type subword-nmt --codes bpe.32000 --size $((entries - 5)) wmt14/train.en wmt14/train.de -o small
grep -qx "entries $((entries - 5))" small || fail "expected the number of entries that --size names"
# A codes file without its version line is refused.
sed 1d bpe.32000 > old
expect 3 mh-prep vocab --type subword-nmt --codes old wmt14/train.en -o none
# BLEU is computed on words, both for a translated text and for the hypotheses of a model.
cp newstest2014.tok.de out.de
print_command Translation 'mh-eval bleu out.de' | sed 's/mh-eval bleu/& --format json/' > score
bash -euo pipefail score > bleu
words=$(sed 's/\([^ ]\)-\([^ ]\)/\1 - \2/g' newstest2014.tok.de | wc -w)
grep -q "\"reference_tokens\":$words," bleu || fail "expected $words words of reference; found $(cat bleu)"
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
expect 0 mh-train -q --train wmt14/train.mhs --valid wmt14/valid.mhs --out run --threads 1 --set model.backbone=encoder-decoder --set model.layers=1 --set model.width=16 \
  --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=512 --set train.batch.tokens=4096 --set train.lr=0.01 --set train.length=30u \
  --set train.validation.metric=bleu --set train.validation.decode.tokenize=none --set train.validation.decode.smooth=none
print_command Translation 'mh-eval run.avg.safetensors wmt14' | sed 's|run/avg|run/last|; s/mh-eval/& --format json --tokenize none --smooth none --compound-split/' > scored
grep -q -- '--length-penalty 0.6' scored || fail "the page scores WMT14 without its length penalty"
bash -euo pipefail scored > scores 2> log || fail "$(cat log)"
! grep -q '@@' out.de || fail "expected hypotheses of words; found pieces: $(grep '@@' out.de | head -1)"
bash -euo pipefail score > bleu
grep -q "\"reference_tokens\":$words," bleu || fail "expected $words words of reference; found $(cat bleu)"
ratio=$(grep -o '"length_ratio":[^,]*' bleu)  # the references of the shard have as many words as the file
grep -qF "$ratio," scores || fail "expected $ratio; found $(cat scores)"
cd ..
