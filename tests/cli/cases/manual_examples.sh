# The first example of each manual page runs unchanged in an empty folder, and its standard output is the texts after `# prints`, if it has
# such comments; the example of a tool has at most eight lines.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
command -v zstd >/dev/null || skip "zstd is not installed"
for page in "$ROOT"/man/*.[157]; do
  name=${page##*/}
  awk '/^\.Ed$/ && on { exit } on { print } /^\.Bd -literal$/ { on = 1 }' "$page" | sed 's/^\\&//; s/\\e/\\/g' > example
  [ -s example ] || fail "expected an example between .Bd -literal and .Ed in man/$name; found none"
  [[ $name != *.1 || $(wc -l < example) -le 8 ]] || fail "expected at most 8 lines in the example of man/$name; found $(wc -l < example)"
  mkdir "$name"
  expect 0 env --chdir="$name" bash -euo pipefail "$PWD/example"
  ! grep -q ' # prints ' example || diff <(sed -n 's/.* # prints //p' example) out || fail "expected the output that the example of man/$name states; found $(cat out)"
done
