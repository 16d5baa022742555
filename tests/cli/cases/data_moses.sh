# data_scripts/moses gives the bytes of mosesdecoder's Perl scripts (commit 34452895f), whose SHA-256 are below; wrong arguments and text that is
# not UTF-8 are refused.
moses=$ROOT/data_scripts/moses
[ -f "$moses" ] || skip "no data_scripts here"
expect 2 "$moses" tokenize; expect_stderr "usage:"
expect 2 "$moses" stem --language de
expect 2 "$moses" tokenize --language tlh
expect 2 "$moses" tokenize --language de --final-dot keep
expect 2 "$moses" lowercase --language de --aggressive
expect 2 "$moses" lowercase --language de --final-dot attach
expect 0 "$moses" --help; expect_stdout "--final-dot attach"
# Lower case by character: a final sigma stays σ, as in Perl.
printf 'ΣΑΣ İ\n\nÉ' | "$moses" lowercase --language en > lower
printf 'σασ i\xcc\x87\n\né\n' | cmp - lower
printf 'a\nb\303\n' > latin
refuse_latin() { "$moses" lowercase --language de < latin; }
expect 3 refuse_latin
if [ -c /dev/full ]; then
  write_full() { "$moses" lowercase --language de < lower > /dev/full; }
  expect 1 write_full
fi
# Without the packages and without PyPI, the error states how to install them.
status=0
env PYTHONPATH= XDG_CACHE_HOME="$PWD/cache" PIP_NO_INDEX=1 PIP_FIND_LINKS= "$moses" tokenize --language de < lower > out 2> err || status=$?
[ "$status" -eq 1 ] && [ ! -s out ] || fail "expected exit status 1 and no output; found $status"
expect_stderr "moses: expected the Python packages sacremoses==0.2.0 from PyPI"
needs_peers
printf 'x\n' | "$moses" tokenize --language de > /dev/null 2>&1 || skip "sacremoses 0.2.0 is not installed and PyPI is not reachable"
# moses_lines STEP LANGUAGE OPTION… prints the results of the lines of stdin, joined by |.
moses_lines() { "$moses" "$1" --language "$2" "${@:3}" | paste -sd '|'; }
expect_line() { [ "$1" = "$2" ] || fail "expected $1; found $2"; }
expect_line "Ist das Dr. Art ? &amp; R &amp; amp ; D .|Art .|葱你 .|  |a &apos; b|.. ." "$(printf '%s\n' 'Ist das Dr. Art? & R&amp;D.' 'Art.' '葱你.' '  ' "a'b" '.. .' | moses_lines tokenize de)"
expect_line "the E.U.|don &apos;t" "$(printf '%s\n' 'the E.U.' "don't" | moses_lines tokenize en --final-dot attach)"
expect_line "co @-@ op" "$(echo co-op | moses_lines tokenize en --aggressive)"
expect_line '„a".|"b", c' "$(printf '%s\n' '„„a."' '"b," c' | moses_lines normalize de | sed 's/^"*/„/')"
expect_line 'a b' "$(printf 'a\001b\n' | moses_lines normalize en --remove-control)"
expect_line "Don't (co-op)." "$(printf 'Don &apos;t ( co @-@ op ) .\n' | moses_lines detokenize en)"
data=${MH_DATA:-$ROOT/../shared/data}
[ -d "$data/iwslt14/raw-1k" ] && [ -d "$data/multi30k/tok" ] || { echo "without IWSLT14 and Multi30k (MH_DATA)"; exit 0; }
# expect_sum SUM COMMAND…: compares the SHA-256 of the output.
expect_sum() {
  local sum
  sum=$("${@:2}" | sha256sum | cut -d' ' -f1)
  [ "$sum" = "$1" ] || fail "expected sha256 $1; found $sum: ${*:2}"
}
from() { zstd -dcq "$data/$1" | "$moses" "${@:2}"; }
for step in "de d53f048704ec49c0aefa3a9b144cd37a44d45efaec12c47c304a8e7b4dd2e615" "en fa2815d799b2ebc5d394ff4845d85784785f50ccf35d163b7587b624570e84ba" \
  "de 9fedae45c3665ea2015c6b376fd5e4716ac55fd3729097966044888e9f1f5d8b --aggressive" "en 5b1cde78ea4f57769722a3031ed1575bd21a828d0949b26dece715b9ee5d1da3 --aggressive"; do
  read -r l sum option <<< "$step"
  expect_sum "$sum" from "iwslt14/raw-1k/train.$l.zst" tokenize --language "$l" ${option:+"$option"}
done
expect_sum f0654f067ac8c098e8e6f3218170196736a78857ea695432ffba4de7ca0f319b from iwslt14/raw-1k/train.de.zst normalize --language de
for l in de en; do from "iwslt14/raw-1k/train.$l.zst" tokenize --language "$l" > "tokens.$l"; done
expect_sum 24834de9ddd2658a1d8a84b55dc508b658edc30334a4342abae20deff2dd91e6 "$moses" detokenize --language de < tokens.de
expect_sum 7c3ccd719b0e4cac29006afbdb018d0bb0d4a0f57791f04dc71811d294d2bf68 "$moses" detokenize --language en < tokens.en
# Multi30k's own tokens were made before mosesdecoder separated every final dot.
for l in de en; do
  from "multi30k/val.$l.zst" lowercase --language "$l" | "$moses" normalize --language "$l" | "$moses" tokenize --language "$l" --final-dot attach |
    cmp - <(zstd -dcq "$data/multi30k/tok/val.lc.norm.tok.$l.zst") || fail "expected the tokens of Multi30k's val.$l; found others"
done
