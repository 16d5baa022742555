# docs/tutorial-open-weights.md: its commands run and print the output that the page shows.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
python3 -B "$ROOT/tests/cli/tutorial.py" open-weights
