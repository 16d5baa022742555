# mh-spectrum: tables, curves, plots, dumped matrices and expert reports; errors are reported before any computation.
[ -n "$(command -v mh-spectrum || true)" ] || skip "mh-spectrum is not built"
make_text 200 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
small=(--config "$ROOT/configs/recipes/wikitext2-small.toml" --train t.mhs --valid t.mhs -q --set model.layers=2
  --set model.width=16 --set attention.heads=2 --set train.batch.sequence_length=32 --set train.batch.tokens=128 --set train.length=4u)
mh-train "${small[@]}" --out run
mh-train "${small[@]}" --out mixed --set 'attention.mixer="mixhead-a"' --set 'attention.combiner="mae"' --set attention.mae.hidden=8
model=run/best.safetensors mixed=mixed/best.safetensors
expect 0 mh-spectrum $model t.mhs --blocks 8 --curves curves.tsv --plot picture.svg --dump p.safetensors
mv out spectrum.tsv
expect 0 mh-spectrum --format json $model t.mhs --blocks 8
cp out spectrum.json
cat t.mhs | mh-spectrum --format json $model - --blocks 8 --batch 3 > piped.json
mh-spectrum --format json $model t.mhs --blocks 8 --batch 1 > single.json
grep -q '<svg' picture.svg || fail "no plot"
with_tolerance - <<'P'
import csv, json, math, tolerance
rows = list(csv.DictReader(open("spectrum.tsv"), delimiter="\t"))
assert len(rows) == 4, rows
curve_bound, rank_bound = tolerance.spectrum_mean_bounds(32, 8)
for row in rows:
    parts = [float(row["c_first"])] + [float(row[f"c_{i}"]) for i in range(10, 100, 10)]
    assert parts == sorted(parts) and 0 < parts[0] and parts[-1] <= 1
    assert row["matrices"] == "8" and row["n"] == "32" and row["blocks"] == "8" and row["seed"] == "1"
    assert 1 <= float(row["stable_rank"]) <= float(row["effective_rank"]) + rank_bound <= 32
    # A causal query t has t + 1 visible keys; attention after 4 updates is nearly uniform over these keys.
    # A term has 3 roundings: the error of the logarithm, one unit in the last place of fp32, counts as two, and the product as one.
    assert float(row["entropy"]) <= sum(math.log(t) for t in range(1, 33)) / 32 + tolerance.chain_bound(3, math.log(32))
    assert 0.5 < float(row["entropy_share"]) <= 1 + tolerance.chain_bound(3, 1)
# The bound on the difference of two runs follows from how much a result changes if blocks are computed one at a time (single.json).
def json_rows(name): return [json.loads(line) for line in open(name)]
assert len(json_rows("spectrum.json")) == len(json_rows("piped.json")) == len(json_rows("single.json")) == 4
for a, b, single in zip(json_rows("spectrum.json"), json_rows("piped.json"), json_rows("single.json")):
    assert all(abs(a[k] - b[k]) <= tolerance.fused_bound(abs(a[k] - single[k]), a[k])
               if isinstance(a[k], float) else a[k] == b[k] for k in a), (a, b)
curves = list(csv.DictReader(open("curves.tsv"), delimiter="\t"))
assert len(curves) == 4 * 32
for row in curves:
    assert float(row["p10"]) <= float(row["p50"]) <= float(row["p90"]) and 0 < float(row["mean"]) <= 1 + curve_bound
first = [row for row in curves if row["name"] == rows[0]["name"] and row["head"] == "0"]
assert abs(sum(float(row["mean"]) for row in first) / 32 - float(rows[0]["area"])) <= curve_bound
assert abs(float(first[0]["mean"]) - float(rows[0]["c_first"])) <= tolerance.chain_bound(8, 1, tolerance.FP64)  # two sums over 8 matrices
for name, k in (("c_10", 4), ("c_50", 16), ("c_90", 29)):
    assert first[k - 1]["mean"] == rows[0][name], name
P
expect 0 mh-spectrum $model $mixed t.mhs --blocks 8 --summary --plot both.svg
[ "$(wc -l < out)" -eq 3 ] || fail "expected a header and one line per model"
grep -q 'mixed: attention' both.svg || fail "no title"
expect 0 mh-spectrum $mixed t.mhs --blocks 8 --of before-mixing
expect_stdout "attention-before-mixing"
expect 0 mh-spectrum $mixed t.mhs --blocks 8 --of logits --plot -
! grep -q effective_rank out || fail "a table was printed with the plot"
expect_stdout "layer 1"
expect 0 mh-spectrum $mixed t.mhs --of mixing --blocks 8 --format json
expect_stdout '"head":null'
expect 0 mh-spectrum $model $mixed --of output-value
[ "$(wc -l < out)" -eq 9 ] || fail "expected a header and one line per layer and head of both models"
expect 0 mh-spectrum $mixed --of alphas --plot heat.svg
expect_stdout "decoder.layers.1.self.mixer"
grep -q '<svg' heat.svg || fail "no heat map"
expect 0 mh-spectrum $mixed --of weight:decoder.layers.0.self.query.weight --format json
expect_stdout '"n":16'
expect 0 mh-spectrum experts $mixed t.mhs --blocks 8
[ "$(wc -l < out)" -eq 5 ] || fail "expected a header and one line per layer and expert"
expect 0 mh-spectrum experts --help
expect_stdout "--blocks"
expect 0 mh-spectrum experts $mixed t.mhs --blocks 8 --show tokens --least 2 --tokens 3
expect_stdout "piece"
expect 0 mh-spectrum experts $mixed t.mhs --blocks 8 --show scores --random 2
expect_stdout "specialised"
mkdir kept
mv spectrum.tsv spectrum.json piped.json curves.tsv picture.svg both.svg heat.svg kept

# Errors leave no file.
mkdir no
# expect_refused STATUS MESSAGE ARGUMENTS…: mh-spectrum fails with MESSAGE, prints no result and writes no file to `no`.
expect_refused() {
  local status=$1 message=$2
  shift 2
  expect "$status" mh-spectrum "$@"
  expect_stderr "$message"
  [ ! -s out ] || fail "expected no output before the error: $*"
  [ -z "$(ls no)" ] || fail "expected no file after the error; found $(ls no)"
}
expect_refused 2 "then the data" $model
expect_refused 2 "did you mean 'attention'" $model t.mhs --of attentoin
expect_refused 2 "did you mean 'decoder.layers.0.self.query.weight'" $model --of weight:decoder.layers.0.self.query.weigth
expect_refused 2 "weight:NAME" $model --of weight
expect_refused 2 "a parameter with 2 or 3 axes" $model --of weight:decoder.layers.0.self.query.bias
expect_refused 2 "a model with head mixing" $model t.mhs --of before-mixing --blocks 8
expect_refused 2 "matrices across heads" $model --of alphas
expect_refused 2 "leave the data out" $mixed t.mhs --of alphas
expect_refused 2 "--blocks: expected --of attention, before-mixing, logits or mixing, which read data" $mixed --of alphas --blocks 3
expect_refused 2 "for example" $model --of weight:nothing.like.it
expect_refused 2 "mh-spectrum experts --help" experts $mixed
expect_refused 2 "a model with head mixing" $model t.mhs --of mixing --blocks 8
expect_refused 2 "full blocks" $model t.mhs --blocks 100000
expect_refused 2 ".svg, .png or .pdf" $model t.mhs --plot no/picture.gif
expect_refused 2 "an output that is not an input" $model t.mhs --curves $model
expect_refused 2 "a file" $model t.mhs --curves -
expect_refused 2 "no other option writes" $model t.mhs --curves no/x.svg --plot no/x.svg
expect_refused 2 "one model" $model $mixed t.mhs --dump no/p.safetensors
expect_refused 2 "one model" $model t.mhs --of logits --dump no/p.safetensors
expect_refused 2 "one model" $model t.mhs --blocks 0 --dump no/p.safetensors
expect_refused 3 "nowhere" $model nowhere.mhs --curves no/c
expect_refused 3 "nowhere" nowhere.safetensors t.mhs --curves no/c
expect_refused 2 "a mixture of attentive experts" experts $model t.mhs
expect_refused 2 "expected no --summary together with experts" experts $mixed t.mhs --summary
expect_refused 2 "--show tokens with this option" experts $mixed t.mhs --least 3
expect_refused 2 "--show scores with this option" experts $mixed t.mhs --show tokens --random 3
sed 's/w/x/g' text > other
mh-prep vocab other > v2 2>/dev/null
mh-prep lm --vocab v2 other -o t2.mhs 2>/dev/null
expect_refused 3 "the vocabulary" $model t2.mhs --curves no/c
expect_refused 3 "the vocabulary" experts $mixed t2.mhs
expect 1 env PATH=/nowhere "$(command -v mh-spectrum)" $model t.mhs --plot no/picture.svg
expect_stderr "gnuplot"
[ -z "$(ls no)" ] || fail "expected no plot after an error; found one"

needs_peers
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import numpy, safetensors' 2>/dev/null || skip "Python lacks safetensors and numpy"
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} with_tolerance - <<'P'
import csv
import math
import numpy
import tolerance
from safetensors.numpy import load_file

matrices = load_file("p.safetensors")
n = 32
# The error of a singular value is at most one rounding of the largest singular value in fp32; the difference from numpy is at most
# twice this error. Values below 2^-24 of the largest are 0 (analysis/spectrum.h).
error = 2 * tolerance.FP32
for row in csv.DictReader(open("kept/spectrum.tsv"), delimiter="\t"):
    p = matrices[row["name"]][:, int(row["head"])].astype(numpy.float64)
    assert p.shape == (8, 32, 32)
    values = numpy.linalg.svd(p, compute_uv=False)
    share = values / values.sum(-1, keepdims=True)
    curve = share.cumsum(-1)
    largest_share = share[:, 0].max()
    # A point of the curve is a quotient of sums of at most n values; the errors in the mean of n points are independent.
    assert abs(curve.mean() - float(row["area"])) <= tolerance.chain_bound(n, largest_share)
    effective = numpy.exp(-(share * numpy.log(numpy.maximum(share, 1e-300))).sum(-1)).mean()
    # With respect to a fraction s, the derivative of the entropy is at most |ln s| + 1; the derivative of its exponential is `effective` times as large.
    assert abs(effective - float(row["effective_rank"])) <= effective * n * error * largest_share * (1 - math.log(tolerance.FP32))
    stable = ((values ** 2).sum(-1) / values[:, 0] ** 2).mean()
    # With respect to σ and to σ_1, Σ σ² / σ_1² has the derivatives 2 σ / σ_1² and -2 Σ σ² / σ_1³.
    assert abs(stable - float(row["stable_rank"])) <= 2 * error * (1 / share[:, 0].min() + stable)
    entropy = -(p * numpy.log(numpy.maximum(p, 1e-300))).sum(-1)
    # A sum of at most n terms, each with a logarithm and a product.
    assert abs(entropy.mean() - float(row["entropy"])) <= tolerance.chain_bound(n + 2, math.log(n))
    log_num_keys = numpy.log(numpy.arange(2, 33))
    assert abs((entropy[:, 1:] / log_num_keys).mean() - float(row["entropy_share"])) <= tolerance.chain_bound(n + 3, 1)  # also divided by ln of the number of keys
    curves = [c for c in csv.DictReader(open("kept/curves.tsv"), delimiter="\t") if (c["name"], c["head"]) == (row["name"], row["head"])]
    for name, percentile in (("p10", 10), ("p50", 50), ("p90", 90)):
        assert abs(numpy.percentile(curve, percentile, axis=0) - [float(c[name]) for c in curves]).max() <= 2 * n * error * largest_share
P
