# ./run study of a series: prints its order and hours, stops at the budget, continues where it stopped, and tests significance: only a difference
# outside its band that fresh seeds confirm is found. The statistics equal a naive enumeration. The tools are stubs, which train nothing.
mkdir bin
for tool in mh-prep mh-train mh-finetune mh-eval mh-convert mh-spectrum mh-prune mh-swap; do ln -s "$ROOT/tests/cli/stub_tools.py" bin/$tool; done
export PATH=$PWD/bin:$PATH PYTHONDONTWRITEBYTECODE=1
PYTHONPATH=$ROOT/configs/experiments python3 - <<'P' || fail "expected statistics equal to the enumeration"
import itertools, math, random, statistics
import effects, series

generator = random.Random(1)
for num_scores, num_seeds in ((6, 2), (6, 3), (5, 1)):
    scores = [generator.gauss(50, 1) for _ in range(num_scores)]
    # Each ordered choice of 2 n different runs has the first n in one mean and the others in the other; a set of n occurs n! times in each mean.
    naive = sorted(statistics.mean(order[:num_seeds]) - statistics.mean(order[num_seeds:]) for order in itertools.permutations(scores, 2 * num_seeds))
    naive = naive[:: math.factorial(num_seeds) ** 2]
    null = effects.null_distribution(scores, num_seeds)
    assert len(null) == len(naive) and all(math.isclose(a, b, abs_tol=1e-9) for a, b in zip(null, naive)), (null, naive)
    assert all(math.isclose(a, -b, abs_tol=1e-9) for a, b in zip(null, reversed(null)))
    for difference in (0.0, null[-1], null[-1] + 1, 0.3, null[len(null) // 3]):
        count = sum(abs(other) >= abs(difference) - 1e-12 for other in naive)
        assert effects.p_value(null, difference) == (count + 1) / (len(naive) + 1)
    for threshold in (0.5, 0.2, 0.05, 1e-9):
        half = effects.band(null, threshold)
        assert half == math.inf or effects.p_value(null, half) > threshold >= effects.p_value(null, half * (1 + 1e-6) + 1e-6), (half, threshold)
        assert half != math.inf or effects.p_value(null, 1e9) > threshold
# Holm's procedure is the closed test of all intersections by Bonferroni's.
for _ in range(50):
    p_values = {name: generator.choice((0.001, 0.01, 0.02, 0.04, generator.random())) for name in "abcde"}
    for name, (adjusted, threshold, rejected) in effects.holm(p_values, 0.05).items():
        subsets = [subset for size in range(1, 6) for subset in itertools.combinations("abcde", size) if name in subset]
        closed = max(min(1.0, len(subset) * min(p_values[other] for other in subset)) for subset in subsets)
        assert math.isclose(adjusted, closed) and rejected == (closed <= 0.05) == (p_values[name] <= threshold * (1 + 1e-9)), (p_values, name)
# The slope of a line is exact, and its scale is the deviation of a weighted sum.
weights = effects.slope_weights([0, 1, 2, 5])
assert math.isclose(sum(w * (3 + 0.5 * x) for w, x in zip(weights, (0, 1, 2, 5))), 0.5)
# Without effects, fewer than 10 of 100 studies of 5 rows report a finding; an effect of 5 deviations is found in each.
def study(effect):
    runs = {row: [generator.gauss(effect if row else 0, 1) for _ in range(15)] for row in range(6)}
    null = effects.null_distribution(runs[0][:10], 3)
    means = {row: statistics.mean(runs[row][:3]) - statistics.mean(runs[0][:3]) for row in range(1, 6)}
    outside = effects.holm({row: effects.p_value(null, value) for row, value in means.items()}, 0.05)
    results = []
    for row, value in means.items():
        fresh = series.difference(dict(enumerate(runs[row][10:])), dict(enumerate(runs[0][10:])))
        results.append(series.verdict(value, 1, outside[row][2], *fresh[:3]))
    return "found" in results
assert sum(study(0) for _ in range(100)) < 10
assert all(study(5) for _ in range(10))
P

# A series of two studies. Fine-tuned rows start from one model.
mkdir -p runs/data-wikitext2 "my shards"
for split in train valid test; do echo shard > runs/data-wikitext2/$split.mhs; echo shard > "my shards/$split.mhs"; done
echo "[train]" > base.toml; cp base.toml mixhead-b.toml; cp base.toml other.toml
cat > series.toml <<'T'
seeds = 3
null_seeds = 10
fresh_seeds = 5
[[studies]]
name = "first"
data = "wikitext2"
config = ["base.toml"]
minutes = 6
[studies.rows.plain]
[studies.rows.mixed]
config = ["mixhead-b.toml"]
[studies.rows.other]
config = ["other.toml"]
set = { "train.lr" = 1e-3 }
[studies.rows.wide]
baseline = ""
set = { "attention.heads" = 2 }
[studies.rows.wide-mixed]
baseline = "wide"
config = ["mixhead-b.toml"]
set = { "attention.heads" = 2 }
[[studies.trends]]
name = "mixing by heads"
rows = { mixed = 1, wide-mixed = 2 }
[[studies]]
name = "second"
data = "./my shards"
baseline = "all"
null = "all"
[studies.rows.trained]
baseline = ""
seeds = 1
config = ["base.toml"]
[studies.rows.all]
init = "trained"
init_seed = 1
config = ["other.toml"]
[studies.rows.gates]
init = "trained"
init_seed = 1
config = ["other.toml"]
set = { "train.lr" = 1e-3 }
[[studies.scores]]
column = "test BLEU"
split = "test"
measure = "bleu"
T
series() { expect "$1" python3 -B "$ROOT/configs/experiments" study series.toml --out runs --threads 1 "${@:2}"; }
series 0 --table
[ "$(grep -c 'not run$' out)" -eq 5 ] || fail "$(cat out)"
expect_stdout "# first: not run: plain: 10 of 10 runs"
# The driver accepts the run of a printed command.
expect 0 python3 -B "$ROOT/configs/experiments" study series.toml --out printed --threads 1 --print
mkdir -p printed/data-wikitext2
cp runs/data-wikitext2/* printed/data-wikitext2
head -n 1 out > line
bash line > /dev/null
expect 0 python3 -B "$ROOT/configs/experiments" study series.toml --out printed --threads 1 --budget 1s
# The plan has the stated minutes; a budget of half an hour ends after the runs whose estimates fit in it.
series 0 --budget 30m
expect_stdout $'1\tfirst\tplain\t0\t10\t1.00\t1.00\tno'
expect_stdout $'2\tfirst\tmixed\t0\t3\t0.30\t1.30\tno'
expect_stdout $'8\tsecond\tall\t0\t10\t'
first_runs=$(find runs -name result.json | wc -l)
[ "$first_runs" -gt 0 ] || fail "expected finished runs; found none"
# Runs of seconds take the place of the estimates, so the next calls do the rest; a stopped run counts in the time spent.
for _ in 1 2 3; do series 0 --budget 2h; done
grep -q "^# spent: 0.0. of 2.00 hours" out || fail "$(cat out)"
expect_stdout $'1\tfirst\tplain\t10\t0\t0.00'
[ "$(awk -F '\t' '$1 == "first" && $2 == "mixed" { print $NF }' out)" = found ] || fail "$(cat out)"
[ "$(awk -F '\t' '$1 == "first" && $2 == "wide-mixed" { print $NF }' out)" = found ] || fail "$(cat out)"
[ "$(awk -F '\t' '$1 == "first" && $2 == "other" { print $NF }' out)" = "inside the band" ] || fail "$(cat out)"
[ "$(awk -F '\t' '$2 == "trend: mixing by heads" { print $NF }' out)" = "inside the band" ] || fail "$(cat out)"
[ "$(awk -F '\t' '$1 == "second" && $2 == "gates" { print $NF }' out)" = "inside the band" ] || fail "$(cat out)"
! grep -q "not run" out || fail "$(cat out)"
# The footer has the commits, tools, data and seeds of the runs of each study.
expect_stdout "# first: seeds: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15"
[ "$(grep -c '^# first: data: wikitext2, [a-z]*.mhs, checksum' out)" -eq 2 ] || fail "$(cat out)"
[ "$(grep -c ': tools: mh-train stub ' out)" -eq 2 ] || fail "$(cat out)"
folders=(runs/first/mixed/seed*/)
[ "${#folders[@]}" -eq 8 ] || fail "expected three seeds and five fresh ones; found ${folders[*]}"
[ ! -d runs/first/other/seed11 ] || fail "expected no fresh seeds inside the band"
folders=(runs/second/trained/seed*/)
[ "${#folders[@]}" -eq 1 ] || fail "expected one initial model; found ${folders[*]}"
grep -q -- "--from .*second/trained/seed1/best.safetensors" runs/second/gates/seed2/best.safetensors || fail "expected the initial model in the command"
grep -v '^#' out | sed -n '/^study/,$p' > first
series 0 --table
grep -v '^#' out | cmp - first || fail "expected the same table from the finished runs"
# The fresh seeds alone give the reported difference.
python3 - <<'P' || fail "expected the mean of the fresh seeds; found $(cat out)"
import json, statistics
score = lambda row, seed: json.load(open(f"runs/first/{row}/seed{seed}/result.json"))["scores"]["test perplexity"]
line = next(line for line in open("out") if line.startswith("first\tmixed\t")).split("\t")
assert abs(float(line[9]) - statistics.mean(score("mixed", seed) - score("plain", seed) for seed in range(11, 16))) < 1e-3, line
assert abs(float(line[5]) - statistics.mean(score("mixed", seed) - score("plain", seed) for seed in range(1, 4))) < 1e-3, line
P
# Another machine continues the series with the file of the finished runs: it repeats no run, and its table is the same. A row that initialises unfinished
# runs is trained again.
series 0 --table --finished finished.jsonl
[ "$(wc -l < finished.jsonl)" -eq "$(find runs -name result.json | wc -l)" ] || fail "expected a line for each run; found $(cat finished.jsonl)"
elsewhere() { expect "$1" python3 -B "$ROOT/configs/experiments" study series.toml --out elsewhere --threads 1 "${@:2}"; }
mkdir -p elsewhere && cp -r runs/data-wikitext2 elsewhere
cp finished.jsonl copy.jsonl
MH_STUB_FAIL=seed elsewhere 0 --budget 2h --finished copy.jsonl
sed -n '/^study/,$p' out | grep -v '^#' | cmp - first || fail "expected the same table; found $(cat out)"
cmp finished.jsonl copy.jsonl
[ "$(find elsewhere -name '*.safetensors' | wc -l)" -eq 0 ] || fail "expected no new model; found $(find elsewhere -name '*.safetensors')"
rm -r elsewhere/first elsewhere/second elsewhere/spent.tsv
grep -v '"gates", "seed": 2' finished.jsonl > copy.jsonl
elsewhere 0 --budget 2h --finished copy.jsonl
[ "$(cd elsewhere && find . -name best.safetensors | sort | paste -s -d ' ')" = "./second/gates/seed2/best.safetensors ./second/trained/seed1/best.safetensors" ] ||
  fail "expected two new models; found $(find elsewhere -name best.safetensors)"
# Faults of the file.
rm -r elsewhere/first elsewhere/second elsewhere/spent.tsv
echo '{"study": "first"}' > copy.jsonl
elsewhere 1 --table --finished copy.jsonl; expect_stderr "copy.jsonl, line 1: expected a JSON object with study, row, seed"
sed 's/"row": "mixed"/"row": "mixd"/' finished.jsonl > copy.jsonl
elsewhere 1 --table --finished copy.jsonl; expect_stderr "expected a row of the series; found first, mixd"
sed 's/ train.lr=[^"]*"/ train.lr=1"/' finished.jsonl > copy.jsonl
elsewhere 1 --table --finished copy.jsonl; expect_stderr "expected a run of other with its present configuration"
elsewhere 2 --print --finished copy.jsonl; expect_stderr "leave --finished out"
[ -z "$(find elsewhere -name result.json)" ] || fail "expected no run of a refused file"
# A failed run is named, its time counts, and the next call continues.
rm -r runs/first/other/seed3 runs/first/other/seed3.configuration
MH_STUB_FAIL=first/other series 1 --budget 2h; expect_stderr "made failure"; expect_stderr "repeat the command, which continues from here"
tail -n 1 runs/spent.tsv | grep -q $'^first\tother\t3\t.*\tstopped$' || fail "$(tail -n 1 runs/spent.tsv)"
series 0 --budget 2h; expect_stderr "first, other, seed 3: "
# A driver waits for a training that a killed driver left; the time of the wait is not spent.
rm -r runs/first/other/seed3 runs/first/other/seed3.configuration
lines=$(wc -l < runs/spent.tsv)
MH_STUB_STOP=$PWD/state python3 -B "$ROOT/configs/experiments" study series.toml --out runs --threads 1 --budget 2h > other 2>&1 & killed=$!
for _ in $(seq 300); do [ ! -e state ] || break; sleep 0.1; done
[ -e state ] || fail "expected a training; found $(cat other)"
training=$(pgrep -P "$killed")
kill -KILL "$killed"
wait "$killed" 2> /dev/null || true
python3 -B "$ROOT/configs/experiments" study series.toml --out runs --threads 1 --budget 2h > other 2> waiting & waiting=$!
for _ in $(seq 300); do ! grep -q "other, seed 3: waits for another process" waiting || break; sleep 0.1; done
grep -q "other, seed 3: waits for another process" waiting || fail "expected a driver that waits; found $(cat waiting)"
sleep 2
kill -TERM "$training"
wait "$waiting" || fail "expected a table; found $(cat waiting)"
[ "$(wc -l < runs/spent.tsv)" -eq $((lines + 1)) ] || fail "expected one more run; found $(tail -n 2 runs/spent.tsv)"
[ "$(tail -n 1 runs/spent.tsv | cut -f 5)" = finished ] && [ "$(tail -n 1 runs/spent.tsv | cut -f 4 | cut -d . -f 1)" -lt 2 ] || fail "$(tail -n 1 runs/spent.tsv)"
# A driver that waited for a run of another configuration refuses it.
rm -r runs/first/other/seed3 runs/first/other/seed3.configuration
exec 9> runs/first/other/seed3.lock
flock 9
python3 -B "$ROOT/configs/experiments" study series.toml --out runs --threads 1 --budget 2h > other 2> waiting 9>&- & waiting=$!
for _ in $(seq 300); do ! grep -q "other, seed 3: waits for another process" waiting || break; sleep 0.1; done
[ ! -e runs/first/other/seed3.configuration ] || fail "expected no configuration of a driver that waits"
mkdir runs/first/other/seed3
echo "another configuration" > runs/first/other/seed3.configuration
exec 9>&-
! wait "$waiting" || fail "expected a refusal; found $(cat other)"
grep -q "expected a run with this configuration; found a run with another configuration" waiting || fail "$(cat waiting)"
rm -r runs/first/other/seed3 runs/first/other/seed3.configuration
series 0 --budget 2h
# A second driver of the series is refused; the table of the finished runs is printed.
exec {held}>runs/lock
flock "$held"
series 1 --budget 2h
expect_stderr "runs: expected a series that no other process runs; found a process that runs it"
series 0 --table
expect_stdout "# first: seeds: 1, 2, 3"
exec {held}>&-
# Faults of the file and of the options.
refused() { sed "$1" series.toml > faulty.toml; expect 2 python3 -B "$ROOT/configs/experiments" study faulty.toml --out runs; shift; for text in "$@"; do expect_stderr "$text"; done; }
refused 's/^null_seeds.*/null_seeds = 4/' "null_seeds of at least twice"
refused 's/^fresh_seeds/fresh_sedes/' "expected a key of a series" "write fresh_seeds"
refused 's/^baseline = "wide"/baseline = "wade"/' "baseline: expected a row" "write wide"
refused 's/^init = "trained"/init = "train"/' "init: expected an earlier row" "write trained"
refused 's/wide-mixed = 2/wide = 2/' "trends.rows: expected a row with a baseline"
refused 's/^name = "second"/name = "first"/' "studies.name: expected different names"
series 2 --budget soon; expect_stderr "--budget: expected a positive time such as 12h, 90m or 30s; found soon"
series 2 --seeds 2; expect_stderr "expected a series, which states its rows and seeds"
echo "first" > runs/spent.tsv
series 1 --table; expect_stderr "spent.tsv: expected lines of five columns"
# The series of this checkout states all of its rows.
expect 0 python3 -B "$ROOT/configs/experiments" study open --table --out none
grep -q $'^decoder\tcombined\tcross-head\t' out || fail "$(cat out)"
[ ! -e none ] || fail "expected a table without files"
