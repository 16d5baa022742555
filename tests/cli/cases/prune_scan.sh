# mh-prune scan, rank and curve: the loss of the complete model equals the loss from mh-eval; tables, summaries of two
# models, rankings and curves; errors.
[ -n "$(command -v mh-prune || true)" ] || skip "mh-prune is not built"
make_text 200 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
make_text 150 | sed 's/w1/v1/g' > other
mh-prep vocab other > v2 2>/dev/null
mh-prep lm --vocab v2 other -o other.mhs 2>/dev/null
printf '[model]\nlayers = 2\nwidth = 16\nffn_dim = 16\n[attention]\nheads = 4\n[train]\nbatch.sequence_length = 16\nbatch.tokens = 64\nlength = "8u"\nlr = 0.01\n' > c.toml
mh-train -q --config c.toml --train t.mhs --out run
mh-train -q --config c.toml --train t.mhs --out mixed --set attention.mixer=mixhead-a
a=run/last.safetensors b=mixed/last.safetensors
expect 0 mh-eval --format json $a t.mhs
cp out full.json
expect 0 mh-prune scan --format json --layers --all-but-one $a t.mhs
cp out scan.json
expect 0 mh-prune scan --format json --summary $a $b t.mhs
cp out summary.json
expect 0 mh-prune scan --format json --side score $b t.mhs
cp out score.json
with_tolerance - <<'P'
import json, math, statistics, tolerance
full = json.load(open("full.json"))
rows = [json.loads(line) for line in open("scan.json")]
nll_bound = tolerance.mean_nll_bound(full, "run/last.safetensors", 16)
assert rows[0]["mode"] == "full" and rows[0]["layer"] is None is rows[0]["head"] and rows[0]["difference"] == 0
assert abs(rows[0]["nll"] - full["nll"]) <= nll_bound and rows[0]["tokens"] == full["tokens"] and rows[0]["block"] == 16
modes = [row["mode"] for row in rows]
assert [modes.count(m) for m in ("head", "all-but-one", "layer")] == [8, 8, 2], modes
for row in rows:
    bound = tolerance.chain_bound(4, row["perplexity"], tolerance.FP64)  # exp errs by 2 roundings, the difference by 3
    assert abs(row["perplexity"] - math.exp(row["nll"])) <= bound
    assert abs(row["difference"] - row["perplexity"] + rows[0]["perplexity"]) <= bound
    assert abs(row["relative"] - 100 * row["difference"] / rows[0]["perplexity"]) \
        <= tolerance.chain_bound(4, 100 * row["perplexity"] / rows[0]["perplexity"], tolerance.FP64)
lines = [json.loads(line) for line in open("summary.json")]
assert [(line["layer"], line["model"].split("/")[0]) for line in lines] == [(0, "run"), (0, "mixed"), (1, "run"), (1, "mixed")]
for line in lines[::2]:
    heads = [row["perplexity"] for row in rows if row["mode"] == "head" and row["layer"] == line["layer"]]
    # The two scans have batches of different sizes, so their losses differ by rounding; d exp(nll) = exp(nll) d nll.
    bound = nll_bound * max(heads)
    assert abs(line["deviation"] - statistics.stdev(heads)) <= bound and line["change"] is None
    deviations = {row["layer_deviation"] for row in rows if row["mode"] == "head" and row["layer"] == line["layer"]}
    assert len(deviations) == 1 and abs(min(deviations) - line["deviation"]) <= bound, deviations
    assert abs(line["difference"] - statistics.mean(heads) + rows[0]["perplexity"]) <= bound
for first, second in zip(lines[::2], lines[1::2]):
    ratio = second["deviation"] / first["deviation"]
    assert abs(second["change"] - 100 * (ratio - 1)) <= tolerance.chain_bound(4, 100 * max(1, ratio), tolerance.FP64)
assert len(open("score.json").readlines()) == 9
P
expect 0 mh-prune scan --heads 0:1,decoder.self:1:3 $a t.mhs
[ "$(wc -l < out)" -eq 4 ] || fail "expected a header, the complete model and two heads"
[ "$(awk '{print NF}' out | sort -u | wc -l)" -eq 1 ] || fail "expected equally many fields in all lines"
cat t.mhs | mh-prune scan -q $a - > piped
mh-prune scan -q $a t.mhs > plain
cmp piped plain
cat $a | mh-prune scan -q - t.mhs > piped
[ "$(wc -l < piped)" -eq 10 ] || fail "expected 10 lines for a model from a pipe"
expect 0 mh-prune scan --blocks 5 --seed 3 --sequence-length 8 $a t.mhs
[ "$(awk 'NR == 2 {print $12}' out)" = 40 ] || fail "expected 40 tokens in five blocks of 8"
# mh-prune rank sorts the heads by importance; the scores by ablation follow from the losses of the scan.
expect 0 mh-prune rank --by ablation,random --format json $a t.mhs
with_tolerance - <<'P'
import json, tolerance
rows = [json.loads(line) for line in open("out")]
scan = {(r["layer"], r["head"]): r["nll"] for r in map(json.loads, open("scan.json")) if r["mode"] in ("full", "head")}
ablation, by_chance = rows[:8], rows[8:]
assert [row["rank"] for row in ablation] == list(range(1, 9)) == [row["rank"] for row in by_chance]
assert [row["score"] for row in ablation] == sorted(row["score"] for row in ablation)
bound = 2 * tolerance.mean_nll_bound(json.load(open("full.json")), "run/last.safetensors", 16)  # a difference of two losses
for row in ablation:
    assert abs(row["score"] - scan[row["layer"], row["head"]] + scan[None, None]) <= bound
assert sorted((row["layer"], row["head"]) for row in by_chance) == [(i, j) for i in range(2) for j in range(4)]
P
expect 0 mh-prune rank --by random --per-layer --normalise $a t.mhs
# Curves from all heads to no head.
expect 0 mh-prune curve --by ablation --step 25% --format json --rank-data t.mhs $a t.mhs
cp out curve.json
expect 0 mh-prune curve --by ablation --step 25% --rerank --per-layer --format json $a t.mhs
with_tolerance - <<'P'
import json, tolerance
full = json.load(open("full.json"))
for name in ("curve.json", "out"):
    rows = [json.loads(line) for line in open(name)]
    assert [row["heads_gone"] for row in rows] == [0, 2, 4, 6, 8] and [row["fraction"] for row in rows] == [0, .25, .5, .75, 1]
    assert abs(rows[0]["nll"] - full["nll"]) <= tolerance.mean_nll_bound(full, "run/last.safetensors", 16) and rows[-1]["difference"] != 0
P
# A missing number is printed as nan, so that the column stays numeric.
awk -F '\t' 'NR == 2 && ($3 != "nan" || $4 != "nan") {exit 1}' plain || fail "expected nan in the row of the full model"
rm -f ./*.json piped plain
# Errors are reported before any computation, and no file remains.
expect_refused() {
  expect "$@"
  [ ! -s out ] || fail "expected no output before the error"
}
expect_refused 2 mh-prune scan --heads 0:4 $a t.mhs
expect_stderr "a head from 0 to 3"
expect_refused 2 mh-prune scan --heads 2:0 $a t.mhs
expect_stderr "a layer from 0 to 1"
expect_refused 2 mh-prune scan --heads 0.1 $a t.mhs
expect_refused 2 mh-prune scan --heads encoder.self:0:1 $a t.mhs
expect_refused 2 mh-prune scan --side score $b $a t.mhs
expect_stderr "--side"
expect_refused 2 mh-prune scan --summary --layers $a t.mhs
expect_refused 2 mh-prune scan --plot heads.jpg $a t.mhs
expect_refused 2 mh-prune scan --plot $a $a t.mhs
expect_refused 2 mh-prune scan $a
expect_refused 2 mh-prune scan - -
expect_refused 2 mh-prune scan --blocks 100000 $a t.mhs
expect_refused 3 mh-prune scan $b $a other.mhs
expect_refused 3 mh-prune rank --by ablation $a none.mhs
expect_refused 3 mh-prune rank --by ablation text t.mhs
expect_refused 2 mh-prune rank --by ablatoin $a t.mhs
expect_refused 2 mh-prune rank $a t.mhs
expect_refused 2 mh-prune rank --by ablation --plot heads.jpg $a t.mhs
expect_stderr ".svg"
expect_refused 2 mh-prune curve --by ablation --step 10 $a t.mhs
expect_refused 2 mh-prune curve --by ablation --step 0% $a t.mhs
expect_refused 2 mh-prune curve --by ablation --plot $a $a t.mhs
expect_refused 3 mh-prune curve --by ablation --rank-data other.mhs $a t.mhs
mkdir empty
ln -s "$(command -v mh-prune)" empty/
PATH=$PWD/empty expect_refused 1 mh-prune rank --by random --plot heads.svg $a t.mhs
expect_stderr "gnuplot"
rm -r empty
expect_files c.toml text other v v2 t.mhs other.mhs run/config.toml run/last.safetensors run/log.jsonl run/lock mixed/config.toml \
  mixed/last.safetensors mixed/log.jsonl mixed/lock
# After a signal or a failure of gnuplot, a new plot has no file, and an old plot is unchanged.
mkdir bin
printf old > old.svg
# write_gnuplot COMMANDS: writes a stand-in for gnuplot that runs the shell COMMANDS. with_gnuplot COMMAND…: runs COMMAND with it.
write_gnuplot() { printf '#!/bin/sh\n%s\n' "$1" > bin/gnuplot; chmod +x bin/gnuplot; }
with_gnuplot() { PATH=$PWD/bin:$PATH "$@"; }
expect_plot_unchanged() { [ "$(cat old.svg)" = old ] && [ "$(echo ./*.svg*)" = ./old.svg ] || fail "$1: expected only the old plot; found $(ls ./*.svg*)"; }
# expect_terminated FILE COMMAND…: runs COMMAND and sends SIGTERM to it as soon as FILE, a pattern, exists.
expect_terminated() {
  local status=0 pid
  env PATH="$PWD/bin:$PATH" "${@:2}" > rows 2>/dev/null &  # not with_gnuplot, since $! must be the tool
  pid=$!
  for _ in $(seq 400); do ! compgen -G "$1" >/dev/null || break; sleep 0.05; done
  compgen -G "$1" >/dev/null || fail "expected the file $1 while the tool runs; found none"
  kill -TERM "$pid"
  wait "$pid" || status=$?
  [ "$status" -eq 143 ] || fail "expected exit status 143 after SIGTERM; found $status"
}
write_gnuplot 'exit 0'
expect_terminated 'curve.svg.part??????' mh-prune curve --by ablation --rerank --step 0.1% --plot curve.svg $a t.mhs
expect_plot_unchanged "SIGTERM during the computation"
write_gnuplot 'echo "<svg"; echo $$ > pid; mv pid started; exec sleep 100'
for plot in old.svg new.svg; do
  expect_terminated started mh-prune rank -q --by random --plot $plot $a t.mhs
  kill "$(cat started)"; rm started
  expect_plot_unchanged "SIGTERM while gnuplot draws $plot"
done
for commands in 'exit 3' 'echo "<svg"; exit 3' 'echo "<svg"; kill -9 $$' 'exit 0'; do
  write_gnuplot "$commands"
  for plot in old.svg new.svg; do
    with_gnuplot expect 1 mh-prune rank -q --by random --plot $plot $a t.mhs
    expect_plot_unchanged "a gnuplot of '$commands'"
  done
done
rm -r bin old.svg
needs_peers
command -v gnuplot >/dev/null || skip "gnuplot is not installed"
for plot in heads.svg heads.png heads.pdf; do
  expect 0 mh-prune rank --by ablation,random --plot $plot $a t.mhs
  [ -s $plot ] || fail "$plot is empty"
done
expect 0 mh-prune curve --by ablation,random --plot curve.svg $a $b t.mhs
grep -q "mixed/last.safetensors, random" curve.svg || fail "the plot lacks the legend"
# The heat map of a scan: in a file beside the same table, or in characters instead of the table.
mh-prune scan -q $a t.mhs > plain
expect 0 mh-prune scan --plot scan.svg $a t.mhs
cmp out plain
for text in "$a, decoder.self, head, difference of perplexity" layer head; do grep -qF "$text" scan.svg || fail "the heat map lacks '$text'"; done
expect 0 mh-prune scan --plot - $a t.mhs
expect_stdout "difference of perplexity"
! grep -q layer_deviation out || fail "a table was printed with the heat map"
awk -F '\t' '$6 == "head" {printf "%.3g\n", $9}' plain | while read -r cell; do grep -qF -- "$cell" out || fail "the heat map lacks the difference $cell"; done
expect 0 mh-prune scan --plot - --all-but-one --heads 1:1,1:3 $a t.mhs
expect_stdout "all-but-one, difference of perplexity"
expect 0 mh-prune scan --plot - --side value $a $b t.mhs
expect_stdout "$b, decoder.self"
expect 0 mh-prune curve --by random --plot - $a t.mhs
! grep -q heads_gone out || fail "a table was printed with the plot"
expect_stdout "ablated heads"
# The error on a misspelt measure names the nearest measure.
record 2 mh-prune rank --by taylro $a t.mhs
# The error on a missing --by names the help text; the error on a measure that is undefined for the model suggests
# another measure.
expect 2 mh-prune rank $a t.mhs
expect_stderr "mh-prune rank --help"
record 2 mh-prune rank --by gate $a t.mhs
# A checkpoint in place of the data is refused.
record 3 mh-prune scan $a $b
golden_record refused
