# mh-eval bleu on plain text: scores known in closed form, every way to pass the files, and errors.
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
printf 'the cat sat on the mat\nThe end .\n' > hyp
printf 'the cat is on the mat\nthe end.\n' > ref
golden --rounded json 0 mh-eval bleu hyp ref --format json
expect_stdout '"length_ratio":1.0,'
mv out first
mh-eval bleu - ref --format json < hyp | cmp - first
mh-eval --format json bleu hyp - < ref | cmp - first
golden --rounded two-references 0 mh-eval bleu ref hyp ref --lowercase --chrf --chrf-words 2
golden --rounded sentence 0 mh-eval bleu --sentence --tokenize none hyp ref
printf 'a well-known cat\n' > whole
printf 'a well-fed cat\n' > other
golden --rounded compound-split 0 mh-eval bleu --tokenize none --smooth none --compound-split --format json whole other
expect_stdout '"precisions":[80.0,50.0,33.333'
golden --rounded whole-words 0 mh-eval bleu --tokenize intl --smooth add-k --format json whole other
golden --rounded sentence-json 0 mh-eval bleu --sentence --chrf --tokenize char --smooth floor --format json whole other
printf 'the end .' > unended
printf 'the end .\n' | mh-eval bleu unended - > out
expect_stdout "100"

# Refuses files with different numbers of lines, empty, missing and damaged files, invalid values, options that exclude each other, and
# options that need a model.
head -1 ref > short
record 3 mh-eval bleu hyp ref short
record 3 mh-eval bleu short ref
[ ! -s out ] || fail "a score was printed for files of different lengths"
: > empty
record 3 mh-eval bleu hyp empty
record 3 mh-eval bleu empty empty
printf 'fine\nb\xffd\n' > bytes
record 3 mh-eval bleu hyp bytes
mh-prep vocab --type byte hyp > byte.vocab
mh-prep lm --vocab byte.vocab hyp > hyp.mhs
record 3 mh-eval bleu hyp hyp.mhs
printf 'fine\nbad\r\n' > crlf
record 3 mh-eval bleu crlf hyp
record 3 mh-eval bleu hyp missing
record 3 mh-eval bleu . hyp
record 2 mh-eval bleu - - < hyp
expect 2 mh-eval bleu hyp; expect_stderr "reference translations"
record 2 mh-eval bleu hyp ref --tokenize 13b
record 2 mh-eval bleu hyp ref --smooth-value 0.5
record 2 mh-eval bleu hyp ref --smooth floor --smooth-value -1
record 2 mh-eval bleu hyp ref --tokenize char --compound-split
record 2 mh-eval bleu hyp ref --chrf-words 0
record 2 mh-eval bleu hyp ref --chrf --chrf-words 3
golden_record refused
for option in "--sequence-length 3" "--device cpu" "--threads 2" "--set model.layers=1" "--per-token t"; do
  # shellcheck disable=SC2086
  expect 2 mh-eval $option bleu hyp ref; expect_stderr "${option%% *}"
done

needs_peers
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import sacrebleu' 2>/dev/null || skip "Python lacks sacrebleu"
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -B "$ROOT/tests/cli/bleu_parity.py" --few
