# WordPiece: BERT's vocab.txt unchanged, learnt vocabularies, and errors.
printf '%s\n' '[PAD]' '[unused0]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' . un '##aff' '##able' caf caf '##é' E | awk '!seen[$0]++' > vocab.txt
printf 'Unaffable.\n\n[SEP] café un unaffx\n' > text
expect 0 mh-prep vocab --type wordpiece --from vocab.txt -o lower; expect_stderr "13 entries"
grep -q '^lowercase yes$' lower && grep -q '^strip_accents yes$' lower || fail "settings of the normaliser: $(sed -n 1,6p lower)"
mh-prep lm --vocab lower text -o t.mhs 2>err
expect_stderr "3 lines, 13 tokens, 5 unknown"
mh-prep cat --ids t.mhs > out
[ "$(cat out)" = "$(printf '7 8 9 6 4\n4\n2 2 2 2 7 2 4')" ] || fail "expected the ids of un, ##aff, ##able and . in line 1; found $(cat out)"
[ "$(mh-prep cat t.mhs)" = "$(printf 'unaffable .\n\n[UNK] [UNK] [UNK] [UNK] un [UNK]')" ] || fail "mh-prep cat printed the wrong text $(mh-prep cat t.mhs)"
expect 0 mh-prep info t.mhs; expect_stdout "tokenizer	wordpiece"
mh-prep codes lower | cmp - vocab.txt
# mh-prep can keep case, accents, or both.
for way in "--cased no no" "--cased,--strip-accents,yes no yes" "--strip-accents,no yes no"; do
  read -r options lowercase accents <<< "$way"
  IFS=, read -ra options <<< "$options"
  mh-prep vocab --type wordpiece --from vocab.txt "${options[@]}" > way.vocab 2>/dev/null
  grep -q "^lowercase $lowercase\$" way.vocab && grep -q "^strip_accents $accents\$" way.vocab || fail "$way: $(sed -n 1,6p way.vocab)"
  cp way.vocab "way$lowercase$accents"
done
echo 'É E café' > accents
print_ids() { mh-prep lm -q --vocab "$1" accents | mh-prep cat --ids -; }
[ "$(print_ids wayyesno)" = "2 2 10 11 4" ] || fail "wrong token ids in lower case with accents: $(print_ids wayyesno)"
[ "$(print_ids waynoyes)" = "12 12 2 4" ] || fail "wrong token ids with case and without accents: $(print_ids waynoyes)"
[ "$(print_ids waynono)" = "2 12 10 11 4" ] || fail "wrong token ids with case and accents: $(print_ids waynono)"
# A learnt vocabulary has special pieces, characters, then merged pieces, each with its count in the encoded text.
printf 'ab abc\nab AB, b\n' > learn
expect 0 mh-prep vocab --type wordpiece --size 30 learn -o learnt; expect_stderr "no pair of pieces occurs --min-count times"
[ "$(mh-prep codes learnt | tail -n +6 | tr '\n' ' ')" = ", a b c ##b ##c ab abc " ] || fail "wrong pieces in the learnt vocabulary: $(cat learnt)"
[ "$(tail -n 3 learnt | tr '\t\n' '  ')" = "##c 0 ab 3 abc 1 " ] || fail "wrong counts in the learnt vocabulary: $(cat learnt)"
grep -qF "[SEP]	2" learnt || fail "expected the count 2 of [SEP], one per line: $(cat learnt)"
mh-prep vocab --type wordpiece --size 30 - < learn | cmp - learnt
mh-prep vocab -q --type wordpiece --size 12 learn | grep -q '^entries 12$' || fail "expected the number of entries that --size names"
[ "$(mh-prep vocab -q --type wordpiece --size 30 --min-count 4 learn | mh-prep codes - | tail -n 1)" = "ab" ] || fail "expected no piece below --min-count"
[ "$(mh-prep vocab -q --type wordpiece --size 30 --alphabet 2 learn | mh-prep codes - | tail -n +6 | tr '\n' ' ')" = "a b ##b ab " ] || fail "expected the pieces of the two characters that --alphabet keeps"
expect 0 mh-prep vocab --type wordpiece --size 30 --alphabet 2 learn -o few.vocab; expect_stderr "2 of "
expect_stderr "characters (--alphabet)"
rm few.vocab
[ "$(mh-prep vocab -q --type wordpiece --size 30 --cased learn | mh-prep codes - | sed -n 7p)" = "A" ] || fail "expected the upper-case piece A with --cased"
# Each of the following commands must fail because of its options or files.
record 2 mh-prep vocab --type wordpiece learn
record 2 mh-prep vocab --type wordpiece --size 9 --from vocab.txt
record 2 mh-prep vocab --type wordpiece --size 9
record 2 mh-prep vocab
record 2 mh-prep vocab --type wordpiece --from vocab.txt learn
record 2 mh-prep vocab --type wordpiece --size 7 learn
record 2 mh-prep vocab --type word --from vocab.txt learn
record 2 mh-prep vocab --type bpe --size 50 --cased learn
record 2 mh-prep vocab --type char --strip-accents no learn
record 2 mh-prep vocab --type word --alphabet 5 learn
record 2 mh-prep vocab --type wordpiece --from vocab.txt --alphabet 5
record 2 mh-prep vocab --type wordpiece --from vocab.txt --min-count 5
record 2 mh-prep vocab --type wordpiece --size 50 --merges 5 learn
record 2 mh-prep vocab --type wordpiece --from vocab.txt -o vocab.txt
record 3 mh-prep vocab --type wordpiece --from missing -o y
record 3 mh-prep vocab --type wordpiece --from lower -o y
record 3 mh-prep lm --vocab vocab.txt text -o y
# expect_vocabulary_refused MESSAGE: fails unless a vocab.txt with the content of standard input is refused with MESSAGE.
expect_vocabulary_refused() {
  cat > bad.txt
  expect 3 mh-prep vocab --type wordpiece --from bad.txt -o y; expect_stderr "$1"
}
expect_vocabulary_refused "an empty file" < /dev/null
expect_vocabulary_refused "bad.txt:14" < <(cat vocab.txt; echo)
expect_vocabulary_refused "which is already in line 8" < <(cat vocab.txt; echo un)
expect_vocabulary_refused "UTF-8" < <(cat vocab.txt; printf 'a\xff\n')
for special in PAD UNK CLS SEP MASK; do expect_vocabulary_refused "[$special]" < <(grep -vF "[$special]" vocab.txt); done
: > empty
record 3 mh-prep vocab --type wordpiece --size 30 empty -o y
printf '\xff\n' > bytes
record 3 mh-prep vocab --type wordpiece --size 30 bytes -o y
record 3 mh-prep lm --vocab lower bytes -o y
printf 'a\0b\n' > nul
record 3 mh-prep lm --vocab lower nul -o y
sed 's/^lowercase yes/lowercase perhaps/' lower > odd
record 3 mh-prep lm --vocab odd text -o y
golden_record refused
[ ! -e y ] || fail "expected no file after an error; found one"
# If the package `tokenizers` is installed, it gives the same tokens.
needs_peers
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import tokenizers' 2>/dev/null || skip "Python lacks tokenizers"
PYTHONPATH=$MH_CHECK_PYTHONPATH python3 -B "$ROOT/tests/cli/wordpiece_parity.py" "$(dirname "$(command -v mh-prep)")/../tests" --few
