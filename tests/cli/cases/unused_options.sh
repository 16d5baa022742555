# Options without effect are refused before any file is read, also with their default values.
for tool in mh-eval mh-finetune mh-prune mh-spectrum mh-swap mh-train; do [ -n "$(command -v $tool || true)" ] || skip "$tool is not built"; done
# Dry runs print a table, and compute and write nothing.
expect 2 mh-train --train t.mhs --out run --format table
expect 2 mh-train --dry-run --out run
expect 2 mh-train --dry-run --threads 0
expect 2 mh-finetune --init m --dry-run --seeds 1
expect 2 mh-finetune --init m --train t.mhs --out run --format json
[ ! -e x ] && [ ! -e run ] || fail "expected no output after an error; found one"
