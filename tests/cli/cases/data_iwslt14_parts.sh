# data_scripts/iwslt14-long, iwslt14-wmt and iwslt14-part: long sentences join consecutive pairs, each once; the fractions of the training pairs contain
# each other; a second call writes nothing again; missing files are named with the script that writes them.
scripts=$ROOT/data_scripts
[ -d "$scripts" ] || skip "no data_scripts here"
[ -n "$(command -v mh-prep || true)" ] || skip "mh-prep is not built"
mkdir "my iwslt" wmt
for split in train valid test; do
  seq 1 60 | awk '{ print "ein wort " $1 }' > "my iwslt/$split.de"
  seq 1 60 | awk '{ print "a word " $1 " more" }' > "my iwslt/$split.en"
done
mh-prep vocab -q --type subword-nmt --merges 50 "my iwslt"/train.* > joint.vocab
for l in de en; do mh-prep vocab -q --type subword-nmt --codes joint.vocab "my iwslt/train.$l" > "my iwslt/$l.vocab"; done
mh-prep vocab -q --type subword-nmt --codes joint.vocab "my iwslt"/train.?? > wmt/joint.vocab
cp wmt/joint.vocab "my iwslt/joint.copy"

expect 0 "$scripts/iwslt14-long" long "my iwslt"; expect_stderr "train: 60 pairs joined to"
tr '\n' ' ' < "my iwslt/train.de" | sed 's/ $//' > words
tr '\n' ' ' < long/train.de | sed 's/ $//' | cmp - words || fail "$(cat long/train.de)"
[ "$(wc -l < long/train.de)" -lt 60 ] || fail "expected joined pairs; found $(cat long/train.de)"
longest() { mh-prep lm -q --vocab "my iwslt/$1.vocab" "long/train.$1" | mh-prep cat --ids - | awk 'NF - 1 > n { n = NF - 1 } END { print n }'; }
for l in de en; do [ "$(longest "$l")" -le 240 ] || fail "expected at most 240 tokens in $l; found $(longest "$l")"; done
expect 0 "$scripts/iwslt14-long" long "my iwslt"; expect_stderr "train.mhs: present, not written again"
expect 1 "$scripts/iwslt14-long" long none; expect_stderr "none/de.vocab: expected a file of IWSLT14; found no such file; run data_scripts/iwslt14 'none' de-en"
expect 2 "$scripts/iwslt14-long" long
# A vocabulary that cannot encode the text leaves no joined pairs.
cp -r "my iwslt" damaged; cp damaged/train.de damaged/de.vocab
status=0; "$scripts/iwslt14-long" lost damaged 2> err || status=$?
[ "$status" = 1 ] && grep -qF 'expected the complete output of translation_lengths' err || fail "expected status 1; found $status"
[ -z "$(find lost -type f)" ] || fail "expected no files after an error; found $(find lost -type f)"
# A signal that ends a script ends the processes of both languages.
mkdir fake; printf '#!/bin/sh\n' > fake/moses; chmod +x fake/moses
interrupted() {
  exec bash -euo pipefail -c 'source "$1/corpus.sh"; source "$1/translation.sh"; translation_scripts=fake
    late() { touch "started.$1"; sleep 1; cat /dev/null; touch "late.$1"; }
    work() { corpus_make "made.$1" -- late "$1"; }
    translation_sides work de en' corpus.sh "$scripts"
}
interrupted 2> err &
script=$!
for _ in $(seq 100); do [ ! -f started.de ] || [ ! -f started.en ] || break; sleep 0.1; done
kill "$script"; wait "$script" || true
sleep 1.5
[ "$(ls started.* late.* made.* 2> /dev/null | paste -sd ' ')" = "started.de started.en" ] || fail "expected no process of an ended script; found $(ls)"

expect 0 "$scripts/iwslt14-wmt" transfer "my iwslt" wmt; expect_stderr "train-5.mhs: 3 of 60 pairs"
sort transfer/drawn | cmp - <(paste "my iwslt"/train.en "my iwslt"/train.de | sort) || fail "expected each pair once"
mh-prep cat transfer/train-5.mhs > small; mh-prep cat transfer/train-75.mhs > large
head -n "$(wc -l < small)" large | cmp - small || fail "expected the smaller fraction at the start of the larger one"
[ "$(mh-prep info transfer/valid-5.mhs | sed -n 's/^records\t//p')" = 60 ] || fail "expected the whole validation set beside a fraction"
expect 1 "$scripts/iwslt14-wmt" transfer "my iwslt" none; expect_stderr "none: expected a vocabulary; found no such file; run data_scripts/wmt14-en-de FOLDER ARCHIVE"
expect 1 "$scripts/iwslt14-wmt" transfer none wmt; expect_stderr "none/train.en: expected a file of IWSLT14; found no such file"

expect 0 "$scripts/iwslt14-part" part wmt/joint.vocab "my iwslt"
cat part/train.de part/valid.de | cmp - "my iwslt/valid.de"
[ "$(mh-prep info part/train.mhs | sed -n 's/^records\t//p')" = 30 ] || fail "expected 30 pairs; found $(mh-prep info part/train.mhs)"
# Another vocabulary, older than the shards, encodes them again.
expect 0 "$scripts/iwslt14-part" part wmt/joint.vocab "my iwslt"; expect_stderr "train.mhs: present, not written again"
expect 0 "$scripts/iwslt14-part" part "my iwslt/joint.copy" "my iwslt"; ! grep -q "train.mhs: present" err || fail "expected shards of the other vocabulary; found $(cat err)"
expect 1 "$scripts/iwslt14-part" part none; expect_stderr "none: expected a vocabulary; found no such file; run data_scripts/multi30k FOLDER"
data=${MH_DATA:-$ROOT/../shared/data}
if [ -f "$data/iwslt14/valid.de.zst" ]; then
  expect 0 env MH_DATA="$data" "$scripts/iwslt14-part" mirrored wmt/joint.vocab
  [ "$(wc -l < mirrored/train.de) $(wc -l < mirrored/valid.en) $(wc -l < mirrored/test.en)" = "6283 1000 1000" ] || fail "$(wc -l mirrored/*)"
fi
