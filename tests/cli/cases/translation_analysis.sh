# Analyses and edits a translation model separately for each kind of attention; refuses data of the wrong kind.
[ -n "$(command -v mh-spectrum || true)" ] || skip "mh-spectrum is not built"
make_text 90 > s
sed 's/w/v/g; s/v1 /v1 v2 /g' s > t
mh-prep vocab s > vs 2>/dev/null
mh-prep vocab t > vt 2>/dev/null
mh-prep translation --source-vocab vs --target-vocab vt s t -o p.mhs 2>/dev/null
mh-prep lm --vocab vt t -o t.mhs 2>/dev/null
mh-prep translation --source-vocab vt --target-vocab vs t s -o other.mhs 2>/dev/null
cat > c.toml <<'C'
[model]
backbone = "encoder-decoder"
encoder-decoder.encoder_layers = 3
layers = 2
width = 16
ffn_dim = 16
[attention]
heads = 4
[train]
batch.sequence_length = 40
batch.tokens = 400
length = "8u"
lr = 0.01
C
mh-train -q --config c.toml --train p.mhs --out run
mh-train -q --config c.toml --train p.mhs --out mixed --set 'attention.mixer="mixhead-a"' --set 'attention.combiner="mae"' \
  --set attention.mae.hidden=8 --set 'attention.encoder.self.mae.mean="full"'
mh-train -q --train t.mhs --out lm --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=4 \
  --set train.batch.sequence_length=16 --set train.batch.tokens=64 --set train.length=2u
m=run/last.safetensors mixed=mixed/last.safetensors lm=lm/last.safetensors

# mh-prune scan, rank and curve treat each kind of attention separately, or together.
expect 0 mh-eval --format json $m p.mhs
cp out full.json
expect 0 mh-prune scan --format json $m p.mhs
cp out scan.json
expect 0 mh-prune scan --format json --kind decoder.cross --layers $m p.mhs
cp out cross.json
expect 0 mh-prune scan --format json --summary $m $mixed p.mhs
cp out summary.json
expect 0 mh-prune rank --by taylor,confidence --format json $m p.mhs
cp out rank.json
expect 0 mh-prune curve --by entropy --kind decoder.cross,encoder.self --step 50% --format json $m p.mhs
cp out curve.json
cat p.mhs | mh-prune scan -q --kind decoder.self $m - > piped
mh-prune scan -q --kind decoder.self $m p.mhs > plain
cmp piped plain
with_tolerance - <<'P'
import json, tolerance
def rows(name): return [json.loads(line) for line in open(name)]
layers = {"encoder.self": 3, "decoder.self": 2, "decoder.cross": 2}
heads = {(kind, layer, head) for kind in layers for layer in range(layers[kind]) for head in range(4)}
full, scan = rows("full.json")[0], rows("scan.json")
bound = tolerance.mean_nll_bound(full, "run/last.safetensors", 25)  # a target has at most 24 words
assert scan[0]["kind"] == "" and abs(scan[0]["nll"] - full["nll"]) <= bound and scan[0]["tokens"] == full["tokens"]
assert {row["protocol"] for row in scan} == {"sentences"}
assert {(r["kind"], r["layer"], r["head"]) for r in scan[1:]} == heads and len(scan) == 29
cross = rows("cross.json")
assert {row["kind"] for row in cross[1:]} == {"decoder.cross"} and len(cross) == 1 + 8 + 2
nll_of = {(r["kind"], r["layer"], r["head"]): r["nll"] for r in scan}
assert all(abs(nll_of[r["kind"], r["layer"], r["head"]] - r["nll"]) <= bound for r in cross if r["mode"] == "head")
assert [(r["kind"], r["layer"]) for r in rows("summary.json")[::2]] == [(k, i) for k in layers for i in range(layers[k])]
for measure in ("taylor", "confidence"):
    ranked = [r for r in rows("rank.json") if r["measure"] == measure]
    assert {(r["kind"], r["layer"], r["head"]) for r in ranked} == heads and [r["rank"] for r in ranked] == list(range(1, 29))
assert [r["heads_gone"] for r in rows("curve.json")] == [0, 10, 20]
P
# A pruned model has the loss of the complete model with the head ablated, and can be analysed like any model.
expect 0 mh-prune cut $m --heads encoder.self:0:1,decoder.cross:1:0,decoder.cross:1:1,decoder.cross:1:2,decoder.cross:1:3 -o cut.safetensors
expect_stderr "encoder.self: heads per layer 4 4 4 -> 3 4 4"
expect_stderr "decoder.cross: heads per layer 4 4 -> 4 0"
expect 0 mh-prune cut $m --by confidence --kind decoder.cross --count 1 --data p.mhs -o one.safetensors
expect_stderr "decoder.cross: heads"
expect 0 mh-eval --format json one.safetensors p.mhs
with_tolerance - <<'P'
import json, tolerance
score = json.load(open("out"))
rank = [r for r in map(json.loads, open("rank.json")) if r["measure"] == "confidence" and r["kind"] == "decoder.cross"][0]
ablated_rows = [r for r in map(json.loads, open("scan.json")) if all(r[k] == rank[k] for k in ("kind", "layer", "head"))]
assert abs(ablated_rows[0]["nll"] - score["nll"]) <= tolerance.mean_nll_bound(score, "run/last.safetensors", 25), (ablated_rows, score)
P
expect 0 mh-prune scan --heads decoder.cross:0:1 cut.safetensors p.mhs
expect 0 mh-spectrum cut.safetensors p.mhs --blocks 5 --kind decoder.cross
[ "$(wc -l < out)" -eq 5 ] || fail "expected a header and the 4 heads of the only layer that has heads"
expect 0 mh-train -q --from cut.safetensors --train p.mhs --out cut-run --set train.length=2u --set train.batch.sequence_length=40 \
  --set train.batch.tokens=400
expect 0 mh-eval cut-run/last.safetensors p.mhs

# mh-swap exchanges heads within a kind of attention; exchanging twice restores the checkpoint.
pairs=encoder.self:0.1-2.3,decoder.cross:0.0-1.2
expect 0 mh-swap $m --pairs $pairs -o once.safetensors
expect 0 mh-swap once.safetensors --pairs $pairs -o twice.safetensors
cmp twice.safetensors $m
expect 0 mh-swap $m --mode hard --k 2 --data p.mhs --dry-run --format json
cp out hard.json
expect 0 mh-swap $m --mode soft --k 1 --by received --kind decoder.cross --data p.mhs --dry-run
[ "$(wc -l < out)" -eq 2 ] || fail "expected a header and one pair of decoder.cross"
expect 0 mh-swap report $m once.safetensors p.mhs --format json
with_tolerance - <<'P'
import json, tolerance
hard = [json.loads(line) for line in open("hard.json")]
assert [r["kind"] for r in hard] == ["encoder.self"] * 2 + ["decoder.self"] * 2 + ["decoder.cross"] * 2
assert all(r["pair"].startswith(r["kind"] + ":") and r["score"] >= r["other_score"] for r in hard)
rows = [json.loads(line) for line in open("out")]
assert len(rows) == 2 * 7 * 2 and {r["kind"] for r in rows} == {"encoder.self", "decoder.self", "decoder.cross"}
bound = tolerance.chain_bound(tolerance.pass_roundings("run/last.safetensors", 25), 100)  # rounding errors of a pass, in percent
changed = {(r["kind"], r["layer"]) for r in rows[14:] if abs(r["euclidean_change"]) > bound}
assert ("encoder.self", 0) in changed and ("decoder.cross", 0) in changed
P

# mh-spectrum prints spectra for each kind of attention and layer.
expect 0 mh-spectrum $m p.mhs --blocks 20 --curves curves.tsv
cp out spectrum.tsv
expect 0 mh-spectrum $m $mixed p.mhs --blocks 20 --summary --format json
cp out summary.json
with_tolerance - <<'P'
import csv, json, tolerance
rows = list(csv.DictReader(open("spectrum.tsv"), delimiter="\t"))
assert len(rows) == 28 and all(row["matrices"] == "20" for row in rows)
curve_bound, rank_bound = tolerance.spectrum_mean_bounds(25, 20)
for row in rows:
    # A sum that includes σ_1² is at least σ_1², even after rounding, so a stable rank is at least 1.
    assert 1 <= float(row["stable_rank"]) <= float(row["effective_rank"]) + rank_bound <= float(row["n"]) + 2 * rank_bound
    assert 0 < float(row["rank_share"]) <= 1 + rank_bound and 0 < float(row["area"]) <= 1 + curve_bound
    parts = [float(row[f"c_{i}"]) for i in range(10, 100, 10)]
    assert parts == sorted(parts) and float(row["c_first"]) > 0
curves = list(csv.DictReader(open("curves.tsv"), delimiter="\t"))
assert len(curves) == 28 * 100 and [row["k"] for row in curves[:3]] == ["0.01", "0.02", "0.03"]
assert all(abs(float(row["mean"]) - 1) <= curve_bound for row in curves[99::100])
summary = [json.loads(line) for line in open("summary.json")]
assert sorted((r["kind"], r["layers"]) for r in summary[:3]) == [("decoder.cross", 2), ("decoder.self", 2), ("encoder.self", 3)]
assert len(summary) == 6
cross_areas = [float(r["area"]) for r in rows if r["kind"] == "decoder.cross"]
# The mean over 2 layers of the means over 4 heads takes at most 2 + 4 additions and as many divisions.
assert abs(sum(cross_areas) / 8 - [r for r in summary if r["kind"] == "decoder.cross"][0]["area"]) \
    <= tolerance.chain_bound(12, 1, tolerance.FP64)
P
for matrices in before-mixing mixing logits; do
  expect 0 mh-spectrum $mixed p.mhs --blocks 5 --of $matrices
  expect_stdout "decoder.cross"
done
expect 0 mh-spectrum $m --of output-value --kind encoder.self
[ "$(wc -l < out)" -eq 13 ] || fail "expected a header and one line per head of the encoder"
expect 0 mh-spectrum experts $mixed p.mhs --blocks 0 --format json
cp out experts.json
expect 0 mh-spectrum experts $mixed p.mhs --blocks 0 --show tokens --least 1 --format json
cp out tokens.json
expect 0 mh-spectrum experts $mixed p.mhs --blocks 0 --show scores --kind encoder.self --random 2
expect_stdout "specialised"
with_tolerance - <<'P'
import json, tolerance
rows = [json.loads(line) for line in open("experts.json")]
assert len(rows) == 7 * 4
for kind, unit in (("encoder.self", "row"), ("decoder.self", "position"), ("decoder.cross", "position")):
    kind_rows = [r for r in rows if r["kind"] == kind]
    assert {r["unit"] for r in kind_rows} == {unit}
    entropies = [r["entropy"] for r in kind_rows[::4]]
    assert all(abs(r["entropy_of_kind"] - sum(entropies) / len(entropies)) <= tolerance.mean_bound(entropies) for r in kind_rows)
tokens = [json.loads(line) for line in open("tokens.json")]
assert tokens and all(r["side"] == "source" and r["piece"].startswith(("w", "<unk>")) for r in tokens), tokens[:3]
P

# Errors; no result is printed before them.
# expect_refused STATUS COMMAND…: the command must exit with STATUS and print no result.
expect_refused() {
  expect "$@"
  [ ! -s out ] || fail "expected no output before the error"
}
for tool in "mh-prune scan" "mh-prune rank --by taylor" mh-spectrum "mh-swap report"; do
  expect_refused 3 $tool $m t.mhs
  expect_stderr "mh-prep translation"
  expect_refused 3 $tool $lm p.mhs
  expect_stderr "mh-prep lm"
  expect_refused 3 $tool $m other.mhs
  expect_stderr "the target vocabulary"
  for option in "--sequence-length 8" "--context 4" "--memory 4" "--streams 2" "--begin block"; do
    expect_refused 2 $tool $option $m p.mhs
    expect_stderr "only a text supports this option"
  done
done
expect_refused 3 mh-prune cut $m --by taylor --count 1 --data t.mhs -o x
expect_refused 3 mh-swap $m --mode hard --data t.mhs -o x
expect_refused 3 mh-prune curve --by taylor --rank-data t.mhs $m p.mhs
expect_refused 3 mh-spectrum experts $mixed t.mhs
expect_stderr "mh-prep translation"
expect_refused 2 mh-prune scan --blocks 1000 $m p.mhs
expect_stderr "the number of sentence pairs or examples"
expect_refused 2 mh-prune scan --heads 0:1 $m p.mhs
expect_stderr "a model with several kinds of attention"
expect_refused 2 mh-prune scan --heads encoder.self:2:4 $m p.mhs
expect_refused 2 mh-prune scan --kind encoder.cross $m p.mhs
expect_refused 2 mh-prune scan --kind encoder.self --heads decoder.self:0:1 $m p.mhs
expect_refused 2 mh-prune rank --by taylor --kind encoder.self $lm t.mhs
expect_stderr "kinds of attention that the model has: decoder.self"
expect_refused 2 mh-spectrum --kind decoder.crss $m p.mhs
expect_stderr "did you mean"
expect_refused 2 mh-spectrum $m --of weight:encoder.layers.0.self.query.weight --kind encoder.self
expect_stderr "which names a single matrix"
expect_refused 2 mh-spectrum $m p.mhs --blocks 5 --dump x
expect_stderr "a text, whose attention matrices have equal sizes"
expect_refused 2 mh-spectrum experts $m p.mhs
expect_refused 2 mh-swap $m --pairs encoder.self:0.0-decoder.self:1.0 -o x
expect_refused 2 mh-swap $m --pairs encoder.self:0.0-3.0 -o x
expect_refused 2 mh-swap $m --mode hard --k 5 --data p.mhs -o x
expect_stderr "at most 4 pairs of heads in decoder.self"
expect_refused 2 mh-train -q --config c.toml --train p.mhs --out x --set train.procedures.skip-retain.until=0u
expect_stderr "a model that can skip layers"
[ ! -e x ] || fail "expected no output file after an error; found one"
needs_peers
command -v gnuplot >/dev/null || skip "gnuplot is not installed"
expect 0 mh-prune rank --by confidence --plot heads.svg $m p.mhs
for kind in encoder.self decoder.self decoder.cross; do
  grep -q "$kind" heads.svg || fail "no heat map of $kind"
done
expect 0 mh-spectrum $m $mixed p.mhs --blocks 5 --plot spectra.svg
grep -q "mixed: attention, decoder.cross" spectra.svg || fail "no chart of cross-attention"
