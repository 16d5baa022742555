# The metric alone on plain text: closed scores, every way of giving the files, and what is refused.
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
printf 'the cat sat on the mat\nThe end .\n' > hyp
printf 'the cat is on the mat\nthe end.\n' > ref
golden --rounded json 0 mh-eval bleu hyp ref --format json
printed '"length_ratio":1.0,'
mv out first
mh-eval bleu - ref --format json < hyp | cmp - first
mh-eval --format json bleu hyp - < ref | cmp - first
golden --rounded two-references 0 mh-eval bleu ref hyp ref --lowercase --chrf --chrf-words 2
golden --rounded sentence 0 mh-eval bleu --sentence --tokenize none hyp ref
printf 'a well-known cat\n' > whole
printf 'a well-fed cat\n' > other
golden --rounded compound-split 0 mh-eval bleu --tokenize none --smooth none --compound-split --format json whole other
printed '"precisions":[80.0,50.0,33.333'
golden --rounded whole-words 0 mh-eval bleu --tokenize intl --smooth add-k --format json whole other
golden --rounded sentence-json 0 mh-eval bleu --sentence --chrf --tokenize char --smooth floor --format json whole other
printf 'the end .' > unended
printf 'the end .\n' | mh-eval bleu unended - > out
printed "100"

# Refused.
head -1 ref > short
expect 3 mh-eval bleu hyp ref short; said "short: expected a line for each of the 2 of hyp"; said "1 lines; line 2 of hyp lacks its other"
expect 3 mh-eval bleu short ref; said "ref: expected a line for each of the 1 of short"; said "2 lines; line 2 of ref lacks its other"
[ ! -s out ] || fail "a score of half the lines"
: > empty
expect 3 mh-eval bleu hyp empty; said "empty"; said "no lines"
expect 3 mh-eval bleu empty empty; said "no lines"
printf 'fine\nb\xffd\n' > bytes
expect 3 mh-eval bleu hyp bytes; said "bytes:2: byte 6 of the file: expected UTF-8 text"
printf 'fine\nbad\r\n' > crlf
expect 3 mh-eval bleu crlf hyp; said "crlf:2: expected lines that end in LF"; said "CR LF"
expect 3 mh-eval bleu hyp missing; said "missing"
expect 3 mh-eval bleu . hyp
expect 2 mh-eval bleu - - < hyp; said "standard input"
expect 2 mh-eval bleu hyp; said "references"
expect 2 mh-eval bleu hyp ref --tokenize 13b; said "13a, intl, char, none"
expect 2 mh-eval bleu hyp ref --smooth-value 0.5; said "floor or add-k"
expect 2 mh-eval bleu hyp ref --smooth floor --smooth-value -1; said "--smooth-value"
expect 2 mh-eval bleu hyp ref --tokenize char --compound-split; said "compound_split"
expect 2 mh-eval bleu hyp ref --chrf-words 2; said "--chrf"
expect 2 mh-eval bleu hyp ref --chrf --chrf-words 3; said "from 0 to 2"
for option in "--block 3" "--device cpu" "--threads 2" "--set model.layers=1" "--per-token t"; do
  # shellcheck disable=SC2086
  expect 2 mh-eval $option bleu hyp ref; said "${option%% *}"
done

PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import sacrebleu' 2>/dev/null || skip "Python lacks sacrebleu"
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -B "$ROOT/tests/cli/bleu_parity.py" --few
