# The corpus of a fuzz target keeps the inputs that libFuzzer has added to it, and receives the seeds and the inputs that once failed. Processes
# of different targets do not disturb each other.
make_corpus() { python3 -B "$ROOT/tests/fuzz/corpus.py" "$(command -v mh-prep)" corpus "$@"; }
make_corpus pickle & first=$!
make_corpus codes & second=$!
wait "$first"; wait "$second"
[ "$(ls corpus | tr '\n' ' ')" = "codes pickle " ] || fail "expected the folders codes and pickle; found $(ls corpus)"
found=memo-of-long-text  # an input of tests/fuzz/found/pickle
cmp corpus/pickle/$found "$ROOT/tests/fuzz/found/pickle/$found"
echo grown > corpus/pickle/grown
rm corpus/pickle/$found  # as in a corpus from before the input was found
make_corpus codes
[ ! -e corpus/pickle/$found ] || fail "expected no change of the other corpus; found $found"
make_corpus pickle
[ "$(cat corpus/pickle/grown)" = grown ] || fail "expected the input that was added; found another"
cmp corpus/pickle/$found "$ROOT/tests/fuzz/found/pickle/$found"
[ "$(ls -d corpus*)" = corpus ] || fail "expected no temporary folder; found $(ls -d corpus*)"
