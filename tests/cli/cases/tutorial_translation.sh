# The commands of docs/tutorial-translation.md run and print the output that the page shows.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
python3 -B "$ROOT/tests/cli/tutorial.py" translation multi30k/train.de
