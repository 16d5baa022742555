# Options without effect are refused before any file is read, also with their default values.
for tool in mh-eval mh-finetune mh-prune mh-spectrum mh-swap mh-train; do [ -n "$(command -v $tool || true)" ] || skip "$tool is not built"; done
# Dry runs print a table, and compute and write nothing.
expect 2 mh-train --train t.mhs --out run --format table
expect 2 mh-train --dry-run --out run
expect 2 mh-train --dry-run --threads 0
expect 2 mh-finetune --init m --dry-run --seeds 1
expect 2 mh-finetune --init m --train t.mhs --out run --format json
# Seeds without a sample or other random numbers.
expect 2 mh-prune scan m d --seed 1
expect 2 mh-prune rank --by taylor,ablation --blocks 0 --seed 1 m d
expect 2 mh-prune curve --by taylor --seed 1 m d
expect 2 mh-prune cut m --by taylor --data d --count 1 --seed 1 -o x
# Options of a table in whose place a plot is drawn, or of another table.
expect 2 mh-prune rank --by taylor --plot - --format table m d
expect 2 mh-prune rank --by taylor --plot - --per-layer m d
expect 2 mh-prune curve --by taylor --plot - --format json m d
[ ! -e x ] && [ ! -e run ] || fail "expected no output after an error; found one"
