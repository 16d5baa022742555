# ./run study: the rows, grids and lists of overrides of a TOML file run once for each seed, and the table compares them with the baseline;
# faults of the file are refused with the key and advice before the first run.
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
mkdir "a study" "a study/shards"
cd "a study" || exit
make_text 200 > text
mh-prep vocab -q text -o v
for split in train valid; do mh-prep lm -q --vocab v text -o shards/$split.mhs; done
cat > tiny.toml <<'S'
[model]
layers = 1
width = 16
ffn_dim = 16
[attention]
heads = 2
[train]
length = "4u"
batch.sequence_length = 32
batch.tokens = 256
schedule.warmup = "1u"
validation.every = "2u"
checkpoint.every = "2u"
S
cat > base.toml <<'S'
data = "./shards"
config = ["tiny.toml"]
seeds = [3, 5]
baseline = "plain"
grid = { "train.lr" = [1e-3, 2e-3] }
[rows.plain]
[rows.mixed]
config = ["configs/methods/mixhead-b.toml"]
set = { "attention.heads" = 4 }
[[scores]]
column = "dev perplexity"
split = "valid"
measure = "perplexity"
S
study() { expect "$1" python3 -B "$ROOT/configs/experiments" study --threads 1 "${@:2}"; }
command -v gnuplot > /dev/null || skip "gnuplot is not installed"
study 0 base.toml --plot rows.svg
rows="plain@train.lr=0.001 plain@train.lr=0.002 mixed@train.lr=0.001 mixed@train.lr=0.002 "
[ "$(grep -v '^#' out | tail -n +2 | cut -f 1 | tr '\n' ' ')" = "$rows" ] || fail "$(cat out)"
[ "$(awk -F '\t' '$1 == "mixed@train.lr=0.002" { print $7 }' out)" = plain@train.lr=0.002 ] || fail "$(cat out)"
expect_stdout "# seeds: 3, 5"
expect_stdout "--set attention.heads=4 --set train.lr=0.001"
grep -q '^heads = 4' study-base/mixed@train.lr=0.001/seed3/config.toml || fail "expected the override in the run"
grep -q '<svg' rows.svg || fail "expected a picture"
# A list of overrides has a row for each entry; the finished runs of another study are not repeated.
sed 's/^grid.*/list = [{ "train.lr" = 1e-3 }, { "train.lr" = 3e-3, "attention.heads" = 1 }]/' base.toml > listed.toml
study 0 listed.toml --out study-base --seeds 3,5
expect_stderr "plain@train.lr=0.003@attention.heads=1, seed 3: run 2 of 8"
! grep -q "plain@train.lr=0.001, seed 3: run" err || fail "a finished run was repeated"
# A list of one seed is that seed.
sed 's/^seeds.*/seeds = [4]/' base.toml > one-seed.toml
study 0 one-seed.toml --print
[ "$(grep -c -- '--seed 4 ' out)" -eq 4 ] && [ "$(wc -l < out)" -eq 4 ] || fail "$(cat out)"
# Another configuration in the same folder is refused.
sed 's/^width = 16/width = 32/' tiny.toml > wider.toml
sed 's/tiny.toml/wider.toml/' base.toml > wider-study.toml
study 1 wider-study.toml --out study-base; expect_stderr "expected a run with this configuration; found a run with another configuration; remove the folder, or use another --out"
# Faults of the file.
refused() { sed "$1" base.toml > faulty.toml; study 2 faulty.toml; shift; for text in "$@"; do expect_stderr "$text"; done; }
refused 's/^seeds.*/seeds = /' "faulty.toml: expected a configuration in TOML" "correct the file"
refused 's/^grid/grids/' "expected a key of a study" "found grids; write grid"
refused 's/^baseline.*/baseline = "plan"/' "baseline: expected a row" "found plan; write plain"
refused 's/tiny.toml/tinny.toml/' "expected a file relative to the study or to the checkout; found tinny.toml"
refused 's/^data.*/data = "wikitext"/' "expected a data set" "found wikitext; write wikitext2"
refused 's/^seeds.*/seeds = 0/' "--seeds: expected a positive number of seeds"
refused 's/^baseline.*/program = "score"/' "rows.plain: expected an earlier row in \`init\`, whose model the program score scores; found none"
refused 's/^config = ."configs.*/recipe = "mixhead\/table2-vanila"/' "expected a recipe of mixhead" "write table2-vanilla"
refused 's/^.rows.plain.$/rows = 3/' "expected a configuration in TOML"
refused 's/^grid.*/grid = { "train.lr" = 1e-3 }/' "grid.train.lr: expected a list of values; found 0.001"
study 2 missing.toml; expect_stderr "missing.toml: expected a configuration in TOML; found no readable file (No such file or directory); correct the path"
sed 's/"perplexity"/"perplex"/' base.toml > faulty.toml
study 1 faulty.toml; expect_stderr "expected the score perplex; found the scores"
# A folder that cannot be made is named.
study 1 base.toml --out text/runs; expect_stderr "found: Not a directory; free disk space, or correct the path"
echo 'layers = ' >> tiny.toml
study 2 base.toml; expect_stderr "tiny.toml: expected a configuration in TOML"
