# ./run reproduce: tables of analyses run their commands on the trained models once, and print and store the results; a row that starts from another row's
# model trains that row first; data that a script cannot make are named with the script, the mirror and --data. The tools are stubs, which train nothing.
mkdir bin data_scripts
for tool in mh-prep mh-train mh-finetune mh-eval mh-convert mh-spectrum mh-prune mh-swap gnuplot; do ln -s "$ROOT/tests/cli/stub_tools.py" bin/$tool; done
export PATH=$PWD/bin:$PATH PYTHONDONTWRITEBYTECODE=1
cp -r "$ROOT/configs" configs
make_data() { mkdir -p "$1"; for split in train valid test test-gold valid-mm train-5 valid-5 test-5; do echo shard > "$1/$split.mhs"; done; }
reproduce() { expect "$1" python3 configs/experiments reproduce --out "my runs" --threads 1 "${@:2}"; }
small() { reproduce "$1" --scale small --seeds 2 "${@:2}"; }
# Every recipe is a row of a table, with data and a protocol at the scale of the paper, and has a small form or a reason.
PYTHONPATH=configs/experiments python3 - <<'P' || fail "expected complete tables"
from data import data_named
from tables import matching, papers, recipes_of, scores_of, tables_of
import configurations, pathlib

for paper in papers():
    tables = tables_of(paper).values()
    rows = {recipe["recipe"] for table in tables for recipe in table.recipes()}
    assert all(table.recipes() for table in tables), [table.title for table in tables if not table.recipes()]
    for recipe in recipes_of(paper):
        name = f"{paper}/{recipe['recipe']}"
        assert recipe["recipe"] in rows, f"{name} is in no table"
        for data in matching("training.tsv", name)[0]["data"].split():
            found = data_named(data, pathlib.Path("none"))
            columns = scores_of(name) or scores_of(f"data/{data}")
            assert found.script and [score for score in columns if score.split in found.splits], name
        form = configurations.small_form(name)
        assert scores_of(f"data/{form['data']}") if form else matching("small.tsv", name)[0]["reason"], name
P
# The driver and `expand` write the same configuration of a recipe.
for paper in mixhead mae skip-cross-head fixhead rotation; do
  recipe=$paper/$(awk -F '\t' 'NR > 1 && $4 != "" { print $1; exit }' configs/recipes/$paper.tsv)
  PYTHONPATH=configs/experiments python3 -c "import pathlib, study, sys; print(study.recipe_file('$recipe', pathlib.Path('expanded'), 'test').read_text(), end='')" > driver.toml
  configs/recipes/expand "$recipe" | diff driver.toml - || fail "expected one configuration of $recipe"
done
# One call for each seed, with the models of all rows; the table names row and seed.
make_data "my runs/data-wikitext2-words"
small 0 mixhead figure1
[ "$(grep -c '^# analysis: mh-spectrum --summary --blocks 64 --plot' out)" -eq 2 ] || fail "$(cat out)"
[ "$(grep $'\t0\t' out | cut -f 1,2 | tail -n 6 | tr '\t\n' '  ')" = "table1-baevski 1 table1-baevski-mixhead-a 1 table1-baevski-mixhead-b 1 table1-baevski 2 table1-baevski-mixhead-a 2 table1-baevski-mixhead-b 2 " ] ||
  fail "$(cat out)"
[ -s "my runs/mixhead-figure1-small-seed2.svg" ] || fail "expected a picture of each seed"
expect_stderr "analysis: mh-spectrum"
# A second call uses the stored results, unless a model has changed; --table runs nothing.
small 0 mixhead figure1
! grep -q "analysis: mh-spectrum" err || fail "expected the stored analysis; found another run"
small 0 mixhead figure1 --table --format markdown; expect_stdout "| table1-baevski | 1 | 0 |"
echo changed >> "my runs/small/mixhead/table1-baevski/seed2/best.safetensors"
small 0 mixhead figure1 --table; expect_stderr "leaves out my runs/mixhead-figure1-small-seed2.tsv, which is not stored"
small 0 mixhead figure1
[ "$(grep -c '^experiments: analysis: mh-spectrum' err)" -eq 1 ] || fail "expected the analysis of one seed; found $(cat err)"
# A direction that the seeds do not tell from chance is stated as such.
PYTHONPATH=configs/experiments python3 - <<'P' || fail "expected directions with reservations"
from types import SimpleNamespace
from report import direction

row, baseline = (SimpleNamespace(published=f"perplexity, dev / test: 90 / {test}") for test in (82.9, 84.0))
assert direction(row, baseline, 0.5, 0.1, 0.9) == "published +, found +: agrees"
assert direction(row, baseline, 0.5, -0.1, 1.1) == "published +, found +: agrees, interval includes 0"
assert direction(row, baseline, -0.5, None, None) == "published +, found -: differs, one seed"
P
# One call for each run, of the mean of its checkpoints; pictures of one model; logs in place of models.
make_data "my runs/data-multi30k"
small 0 mae table5 --rows mae-7,nobcd --seeds 1
[ "$(grep -c '^# analysis: mh-spectrum experts --show scores .*average.safetensors' out)" -eq 2 ] || fail "$(cat out)"
small 0 rotation figure4 --seeds 1
[ -s "my runs/rotation-figure4-small-table3-de-en-heads8-alphas-seed1.svg" ] || fail "expected a picture; found $(ls "my runs")"
small 0 mixhead figure2 --rows 'heads4*' --seeds 1
expect_stdout "mh-eval curves --x epochs --plot"; expect_stdout $'heads4-mixhead-b\t1\t0\t'
small 0 rotation figure6 --seeds 1; expect_stdout "# analysis: mh-swap report --plot"
# The protocol of the table is that of its scores.
make_data "my runs/data-wikitext103"
reproduce 0 skip-cross-head table3 --print
[ "$(grep -c '^mh-train' out)" -eq 2 ] || fail "$(cat out)"
grep -q "^# analysis: mh-prune scan --summary --sequence-length 128 --set attention.relative.clamp=800 .*--memory 640 .*table5-sch/seed1/best.safetensors.* .*/test.mhs' --threads 1" out || fail "$(cat out)"
# Fine-tuning trains the row of the initial model first, which the table does not list unless it is a row.
make_data "my runs/data-iwslt14-part"
small 0 mae table7 --seeds 1 --rows ftg,noft
expect_stderr "table2-mae-7, seed 1: run 1 of 3"
[ "$(grep -v '^#' out | tail -n +2 | cut -f 1 | tr '\n' ' ')" = "ftg noft " ] || fail "$(cat out)"
grep -q -- "--from my runs/small/mae/table2-mae-7/seed1/average.safetensors" "my runs/small/mae/table7-ftg/seed1/best.safetensors" || fail "expected the mean of the checkpoints"
# The footer has the commands of training and scoring; a row that only scores has no training and no data of training.
grep "^# command of ftg: ls -v 'my runs/small/mae/table2-mae-7/seed1'/checkpoints" out | grep -q " && mh-train --from .* && mh-eval .* --references 'my runs/data-iwslt14-part/valid.en' " || fail "$(cat out)"
grep "^# command of noft: " out | grep -q "average.safetensors && mh-eval [^&]*average.safetensors' [^&]* && mh-eval " || fail "$(cat out)"
[ "$(grep -c '^# data: ' out)" -eq 2 ] || fail "$(cat out)"
# SIGTERM to the driver alone stops the training, which saves before the driver ends.
MH_STUB_STOP=$PWD/state python3 configs/experiments reproduce --out stopped --threads 1 --scale small --data "my runs/data-iwslt14-part" mixhead table2 --rows vanilla 2> err &
driver=$!
for _ in $(seq 100); do [ ! -s state ] || break; sleep 0.1; done
kill -TERM "$driver"
status=0
wait "$driver" || status=$?
[ "$status $(cat state)" = "143 saved" ] || fail "expected status 143 after the training saved; found $status, $(cat state)"
expect_stderr "experiments: stopped; the same command continues from the last checkpoint"
# Rows without a run are named, and runs with different data of one name are refused.
small 0 mae table7 --rows ftg --seeds 2 --table; expect_stdout "# not run: ftg: 1 of 2 runs"
make_data others
echo other > others/train.mhs
small 1 mae table7 --seeds 2 --rows ftg --data others
expect_stderr "data iwslt14-part, train.mhs: expected the same shard in all runs; found checksum "; expect_stderr "remove the runs of the other data, or use another --out"
[ ! -e "my runs/small/mae/table7-noft/seed1/best.safetensors" ] || fail "expected no training without fine-tuning"
for data in wikipedia squad mnli; do make_data "my runs/data-$data"; done
reproduce 0 fixhead table1 --rows heads8-squad,heads8-mnli --print
grep -q "^mh-train .*table1-heads8/seed1" <(head -n 1 out) || fail "$(cat out)"
[ "$(grep -c -- '--init .*table1-heads8/seed1/best.safetensors' out)" -eq 2 ] || fail "$(cat out)"
# Fractions of the data have a row each.
make_data "my runs/data-iwslt14-wmt"
make_data "my runs/data-wmt14-en-de"
reproduce 0 mae figure2 --list
[ "$(awk -F '\t' '$1 ~ /^ftg-plus@/ && $7 == "ftall@" $3' out | wc -l)" -eq 5 ] || fail "$(cat out)"
# The list counts rows at the scale, those left out too, and sums the hours only if a row that trains is measured.
XDG_CACHE_HOME=$PWD/cache reproduce 0 --list mae
expect_stdout $'mae/table5\t3 of 3\twmt14-en-de\tunmeasured\t0\tone expert for each layer, WMT14 En-De\tmh-spectrum experts'
grep -q $'^mae/table7\t5 of 5\t[^\t]*\tunmeasured\t' out || fail "$(cat out)"
grep -q $'^mae/figure2\t10 of 10\t' out || fail "$(cat out)"
XDG_CACHE_HOME=$PWD/cache small 0 --list mae; expect_stdout $'mae/figure2\t0 of 2\t-\t-\t0\t'
# The gold test set of MRPC is a column, and the published BERT comes from its script at the scale of the paper.
make_data "my runs/data-mrpc"
printf '#!/bin/bash\necho "{\\"score\\": 1}" > "$1/bert.safetensors"\n' > data_scripts/bert-base-uncased
chmod +x data_scripts/bert-base-uncased
reproduce 0 mixhead table5 --rows 'mrpc*'
head -n 1 out | grep -q $'dev F1\tsd\ttest accuracy\tsd\ttest F1' || fail "$(cat out)"
grep -q -- "--init my runs/data-bert-base-uncased/bert.safetensors" "my runs/paper/mixhead/table5-mrpc/seed1/best.safetensors" || fail "expected the published model"
small 2 mixhead table5 --rows mrpc; expect_stderr "such as bert.safetensors of data_scripts/bert-base-uncased FOLDER"
# Data that only a public host has.
refused() { reproduce 1 "${@:2}"; expect_stderr "$1"; expect_stderr "or name a folder of shards by --data"; }
printf '#!/bin/bash\n# usage: data_scripts/wikitext-103 FOLDER [URL]\necho "no host" >&2\nexit 1\n' > data_scripts/wikitext-103
chmod +x data_scripts/wikitext-103
rm -r "my runs/data-wikitext103"
refused "put wikitext-103/wikitext-103-v1.zip (also .zst) into the folder MH_DATA" mixhead table7 --rows baseline
expect_stderr "no host"
expect_stderr "data wikitext103: expected the files train.mhs, valid.mhs, test.mhs in my runs/data-wikitext103; found none, because of the error above (exit status 1)"
expect_stderr "run data_scripts/wikitext-103 FOLDER [URL] with a copy of the files, where FOLDER is my runs/data-wikitext103"
printf '#!/bin/bash\n# usage: data_scripts/wmt14-en-de FOLDER [ARCHIVE]\n' > data_scripts/wmt14-en-de
chmod +x data_scripts/wmt14-en-de
rm -r "my runs/data-wmt14-en-de"
refused "found none after wmt14-en-de; put wmt14/wmt16_en_de.tar.gz (also .zst) into the folder MH_DATA" mae table2 --rows base
