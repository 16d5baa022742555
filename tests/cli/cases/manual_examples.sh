# The first example of each manual page runs unchanged: the example of mh-train(1) in an empty folder, then the examples
# of the other pages in the same folder.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
command -v zstd >/dev/null || skip "zstd is not installed"
example() { awk '/^\.\\" example$/ { on = 1; next } /^\.\\" end of example$/ { on = 0 } on && !/^\.(Bd|Ed)/' "$1" | sed 's/^\\&//; s/\\e/\\/g'; }
pages=("$ROOT"/man/mh-train.1)
for page in "$ROOT"/man/*.[157]; do [ "$page" = "${pages[0]}" ] || pages+=("$page"); done
for page in "${pages[@]}"; do
  example "$page" > example
  [ -s example ] || fail "expected an example in man/${page##*/}, between the lines '.\\\" example' and '.\\\" end of example'; found none"
  expect 0 bash -euo pipefail example
done
