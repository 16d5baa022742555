# ./run reproduce: trains and scores the rows of a table, resumes stopped runs, compares directions with the published numbers, and draws
# figures; every form of the table names commit, data, seeds and commands; bad names, data and tools are refused with advice.
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
here=$PWD
make_text 200 > text
cp -r "$ROOT/configs" configs
table=configs/experiments/small.tsv
sed -i 's/"1000u"/"4u"/; s/"250u"/"2u"/; s/"100u"/"1u"/; s/^width = 128/width = 16/; s/^ffn_dim = 512/ffn_dim = 16/; s/^layers = 4/layers = 1/' configs/small/wikitext2.toml
sed -i 's/"300u"/"2u"/; s/"1e"/"3u"/; s/^width = 256/width = 16/; s/^ffn_dim = 1024/ffn_dim = 16/; s/^layers = 3/layers = 1/' configs/recipes/multi30k-small.toml
sed -i 's/\t1000u\t/\t4u\t/; s/\t12e\t/\t6u\t/' "$table"
reproduce() { expect "$1" env XDG_CACHE_HOME="$PWD/cache" python3 -B configs/experiments reproduce --threads 1 --out runs "${@:2}"; }
small() { reproduce "$1" --scale small --seeds 2 "${@:2}"; }
# Without tools, the list has all tables, and the rows of one table with the recipe that `expand` writes.
PATH=/usr/bin:/bin reproduce 0 --list --scale small
[ "$(grep -c '^mixhead/' out)" -eq 16 ] || fail "$(cat out)"
grep -q $'^mae/figure3\t3 of 3\tmulti30k\tunmeasured\t0\t' out || fail "$(cat out)"
PATH=/usr/bin:/bin reproduce 0 --list mixhead table2 --format markdown
expect_stdout "| vanilla-mixhead-b | mixhead/table2-vanilla-mixhead-b | wikitext2-words | 20000 | unmeasured | 0 | vanilla |"
[ ! -e runs ] || fail "expected a list without files; found $(find runs)"
# The first published row that each line of small.tsv applies to builds, and has the small length.
for recipe in mixhead/table3-baevski-mixhead-b mixhead/table9-length64 skip-cross-head/table5-both fixhead/figure1-baseline-width320 rotation/table5-hard \
  mae/table7-ftg mae/table7-scratch rotation/figure3-de-en-alphas-without-growth rotation/figure6-de-en-cosine-loss rotation/text-de-en-alphas-decoder-self \
  mixhead/figure2-heads4-mixhead-a mixhead/text-orthogonal-1e-3-mixhead-b; do
  configs/recipes/expand "$recipe" small > small.toml
  expect 0 mh-train --dry-run --config small.toml --set model.vocabulary_rows=20000
done
! configs/recipes/expand mixhead/text-long small > unknown.toml 2> err || fail "expected an error for a recipe without a small form"
expect_stderr "expected a small form in configs/experiments/small.tsv"
# Data that cannot be made are named, with the script that was expected.
small 1 mixhead table2 --rows vanilla
expect_stderr "data wikitext2: expected the script"; expect_stderr "name their folder by --data"
mkdir "my data"
mh-prep vocab -q text -o v
for split in train valid test; do mh-prep lm -q --vocab v text -o "my data/$split.mhs"; done
# Two rows: the second is compared with the first, and their direction with the paper's.
rows=(mixhead table2 --rows 'vanilla,vanilla-mixhead-b' --data "my data")
small 0 "${rows[@]}"
expect_stderr "vanilla-mixhead-b, seed 2: run 4 of 4, 0 more to do"
[ "$(grep -v '^#' out | cut -f 1,2,4,9 | tr '\t\n' '  ')" = "row data seeds compared with vanilla wikitext2 2 - vanilla-mixhead-b wikitext2 2 vanilla " ] || fail "$(cat out)"
head -n 1 out | grep -q "published (other data, other size).direction$" || fail "$(cat out)"
grep -q "perplexity, dev / test: 92.57 / 82.93.published +, found [-+0]: " out || fail "$(cat out)"
expect_stdout "# configurations: commit unknown"
expect_stdout "# data: wikitext2, train.mhs, checksum "
expect_stdout "# seeds: 1, 2"
expect_stdout "mh-train --config <($PWD/configs/recipes/expand mixhead/table2-vanilla-mixhead-b small) --train 'my data/train.mhs'"
python3 - <<'P'
import json, math, statistics
scores = {row: [json.load(open(f"runs/small/mixhead/table2-{row}/seed{seed}/result.json"))["scores"]["test perplexity"] for seed in (1, 2)]
          for row in ("vanilla", "vanilla-mixhead-b")}
differences = [b - a for a, b in zip(*scores.values())]
half = 12.706 * statistics.stdev(differences) / math.sqrt(2)
fields = next(line for line in open("out") if line.startswith("vanilla-mixhead-b\t")).split("\t")
found = [float(field) for field in fields[9:12]]
expected = [statistics.mean(differences) + sign * half for sign in (0, -1, 1)]
assert all(abs(a - b) < 1e-4 for a, b in zip(found, expected)), (found, expected)
P
grep -v '^#' out > first
# Finished runs are not repeated; a stopped run is resumed; broken results are named.
rm runs/small/mixhead/table2-vanilla/seed2/result.json
small 0 "${rows[@]}"
expect_stderr "vanilla, seed 2: run 3 of 4, 0 more to do"
grep -v '^#' out | cut -f 1-13 | cmp - <(cut -f 1-13 first) || fail "$(cat out)"
small 0 "${rows[@]}" --table --format latex; expect_stdout '\begin{tabular}'; expect_stdout 'vanilla-mixhead-b & wikitext2'
small 0 "${rows[@]}" --table --format markdown; expect_stdout "| vanilla-mixhead-b | wikitext2 |"; expect_stdout "- seeds: 1, 2"
small 1 "${rows[@]}" --table --out nowhere; expect_stderr "expected finished runs in nowhere; found none"
echo '{"scores": ' > runs/small/mixhead/table2-vanilla/seed1/result.json
small 1 "${rows[@]}" --table; expect_stderr "seed1/result.json: expected the result of a run"
rm runs/small/mixhead/table2-vanilla/seed1/result.json
# A driver waits for another one that runs the same job.
mkdir -p both/small/mixhead/table2-vanilla
exec 9> both/small/mixhead/table2-vanilla/seed1.lock
flock 9
env XDG_CACHE_HOME="$PWD/cache" python3 -B configs/experiments reproduce --threads 1 --out both --scale small --seeds 1 mixhead table2 --rows vanilla --data "my data" \
  > other 2> waiting 9>&- & other=$!
for _ in $(seq 300); do ! grep -q "vanilla, seed 1: waits for another process" waiting || break; sleep 0.1; done
grep -q "waits for another process, which runs it in both/small" waiting || fail "expected a driver that waits; found $(cat waiting)"
[ ! -e both/small/mixhead/table2-vanilla/seed1 ] || fail "expected no run of the driver that waits"
exec 9>&-
wait $other || fail "expected a table; found $(cat waiting)"
grep -q '^vanilla' other || fail "$(cat other)"
# A folder without shards is refused; no script writes to it.
mkdir empty
small 1 mixhead table2 --rows vanilla --data empty; expect_stderr "expected the shards train.mhs, valid.mhs, test.mhs in empty; found none"
rmdir empty
# The printed commands run in any folder, and a job of an array is one of their lines; the driver then only scores what is missing.
small 0 "${rows[@]}" --grid train.lr=1e-3,2e-3 --print
[ "$(wc -l < out)" -eq 8 ] || fail "$(cat out)"
head -n 1 out > line
(cd / && bash "$here/line") > scores 2> err || fail "expected a command that runs: $(cat line)"
[ "$(grep -c perplexity scores)" -ge 2 ] || fail "$(cat scores)"
small 0 "${rows[@]}" --grid train.lr=1e-3,2e-3 --job 1
[ -s "runs/small/mixhead/table2-vanilla@train.lr=1e-3/seed1/result.json" ] || fail "expected a result of job 1"
small 2 "${rows[@]}" --job 9; expect_stderr "--job: expected a number from 1 to 4; found 9"
small 0 "${rows[@]}" --grid train.lr=1e-3,2e-3 --table
[ "$(grep -v '^#' out | tail -n +2 | cut -f 1)" = "vanilla@train.lr=1e-3" ] || fail "$(cat out)"
# The figure of learning curves, with generated pairs.
data=runs/data-multi30k
mkdir "$data"
for split in train valid test; do make_text 60 | awk 'NF' > "$data/$split.de"; sed 's/w/v/g' "$data/$split.de" > "$data/$split.en"; done
mh-prep vocab -q "$data"/train.* -o joint
for split in train valid test; do mh-prep translation -q --vocab joint "$data/$split.de" "$data/$split.en" -o "$data/$split.mhs"; done
if command -v gnuplot > /dev/null; then
  small 0 mae figure3 --seeds 1 --rows base,mae-7
  grep -q '<svg' runs/mae-figure3-small-seed1.svg || fail "expected a picture"
  grep -q $'^mae-7\t1\t' runs/mae-figure3-small-seed1.tsv || fail "expected the losses of mae-7"
  small 2 mae figure3 --rows base --plot curves.txt; expect_stderr "expected a file that ends in .svg, .pdf or .png; found .txt"
fi
mkdir no-gnuplot; for tool in mh-prep mh-train mh-finetune mh-eval mh-convert mh-spectrum mh-prune mh-swap; do ln -s "$(command -v $tool)" no-gnuplot/$tool; done
python=$(command -v python3)
expect 1 env PATH="$PWD/no-gnuplot" "$python" -B configs/experiments reproduce mae figure3 --scale small --out runs; expect_stderr "expected gnuplot on the PATH; found none"
expect 1 env PATH="$PWD/none" "$python" -B configs/experiments reproduce "${rows[@]}" --scale small --out fresh; expect_stderr "expected mh-prep on the PATH; found none"
# Measured speeds give the hours of the list.
reproduce 0 --list mixhead table2 --rows vanilla --scale small --measure
expect_stderr "measures vanilla"
awk -F '\t' '$1 == "vanilla" && $5 + 0 > 0 { found = 1 } END { exit !found }' out || fail "$(cat out)"
reproduce 0 --list mixhead table2 --rows vanilla --scale small --measure
! grep -q "measures vanilla" err || fail "expected the stored speed; found a second measurement"
# A recipe that does not fit into the free memory is measured with smaller updates, about which the list has a note, or it is left out.
cat > fit.py <<'P'
import argparse, pathlib, sys
sys.path.insert(0, "configs/experiments")
import reproduce, speed
from tables import find_table
options = argparse.Namespace(scale="small", out=pathlib.Path("fit"), data=None, rows="vanilla")
row = reproduce.rows_of(find_table("mixhead", "table2"), options, pathlib.Path("fit"))[0][0]
properties, added = speed.properties_of(row)
file = pathlib.Path("fit/measured.toml")
def tokens_with(free):
    speed.free_memory = lambda: free
    return speed.write_measured(row, file, properties, added)
whole = tokens_with(1 << 50)
needed = speed.dry_run([file], {})["memory_bytes"]
assert whole == (1024, 0), whole
smaller, _ = tokens_with(needed - 1)
assert 0 < smaller < 1024, smaller
tokens, least = tokens_with(0)
assert tokens == 0 and 0 < least < needed, (tokens, least, needed)
P
python3 -B fit.py
sed -i 's/"measured_tokens": [0-9]*/"measured_tokens": 64/' cache/multihead/speeds.json
reproduce 0 --list mixhead table2 --rows vanilla --scale small
expect_stdout "vanilla: measured with updates of 64 tokens, since more did not fit into the free memory"
# Misspelt names are refused with the nearest name.
small 2 mixhed table2; expect_stderr "expected a paper"; expect_stderr "found mixhed; write mixhead"
small 2 mixhead tabel2; expect_stderr "found tabel2; write table2"
small 2 mixhead table2 --rows vanila; expect_stderr "found vanila; write vanilla"
small 2 mixhead; expect_stderr "expected a paper and a table, such as mixhead table2; found mixhead"
small 2 mixhead text --rows long; expect_stderr "leaves out long, which has no small form: it joins sentences"; expect_stderr "expected a row that can be trained"
small 2 mixhead table5 --rows cola; expect_stderr "--init: expected a model, which the runs fine-tune; found none"
small 2 mixhead table2 --set train.lr; expect_stderr "override: expected KEY=VALUE"
