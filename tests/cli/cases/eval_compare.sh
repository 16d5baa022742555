# mh-eval bleu --compare: scores and counts are those of each system alone, tests depend on the seed only, and agree with sacrebleu.
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
fixed_text 60 > ref
awk '{ if (NR % 3 == 0) $2 = "x"; print }' ref > first
awk '{ if (NR % 4 == 0) $1 = "y"; print }' ref > second
cp first same
compare() { expect "$1" mh-eval bleu --format json "${@:2}" first ref --compare second --compare same; }
compare 0 --draws 500 --chrf
mv out rows
compare 0 --draws 500 --chrf --seed 12345; cmp out rows
compare 0 --draws 500 --chrf --seed 7; cp out other
for system in first second same; do mh-eval bleu --format json --chrf $system ref; done > alone
python3 - <<'P'
import json
rows, other, alone = ([json.loads(line) for line in open(name)] for name in ("rows", "other", "alone"))
assert [row["system"] for row in rows] == ["first", "second", "same"], rows
for row, single, reseeded in zip(rows, alone, other):
    assert {key: row[key] for key in single} == single, (row, single)
    assert row["score"] == reseeded["score"] and row["mean"] != reseeded["mean"]
    assert row["draws"] == 500 and row["seed"] == 12345 and reseeded["seed"] == 7
    assert abs(row["mean"] - row["score"]) < row["interval"] and abs(row["chrf_mean"] - row["chrf"]) < row["chrf_interval"]
first, second, same = rows
assert first["difference"] == 0 and first["p_bootstrap"] is None and first["chrf_p_randomisation"] is None, first
assert second["difference"] == second["score"] - first["score"] and 0 < second["p_bootstrap"] < 1, second
# Equal hypotheses have the smallest p-value, as in sacrebleu.
assert same["difference"] == 0 and same["p_bootstrap"] == same["p_randomisation"] == 1 / 501, same
P
expect 0 mh-eval bleu --draws 1 - ref --compare second < first; [ "$(wc -l < out)" -eq 3 ] || fail "expected a header and two systems; found $(cat out)"
[ "$(cut -f1 out | tr '\n' ' ')" = 'system standard\x20input second ' ] || fail "expected the systems standard input and second; found $(cut -f1 out)"

# Refuses files of other lengths and missing files before it prints a row, and options without effect.
head -5 second > short
record 3 mh-eval bleu first ref --compare short
record 3 mh-eval bleu first ref --compare missing
record 2 mh-eval bleu first ref --compare second --sentence
record 2 mh-eval bleu first ref --draws 100
record 2 mh-eval bleu first ref --seed 1
record 2 mh-eval bleu first ref --compare second --draws 0
record 2 mh-eval bleu - ref --compare - < first
golden_record refused

needs_peers
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import sacrebleu' 2>/dev/null || skip "Python lacks sacrebleu"
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -B "$ROOT/tests/cli/paired_tests_parity.py"
