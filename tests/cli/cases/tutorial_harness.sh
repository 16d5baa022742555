# tutorial.py accepts a page whose commands print what the page shows, and reports every other page; each page of docs/tutorial-*.md has a case.
check_page() { expect "$1" python3 -B "$ROOT/tests/cli/tutorial.py" --page page.md; }
# show LINE…: writes a page whose commands print a table, with the lines of a text block.
show() {
  { printf '%s\n' '# A page' '```sh' 'name=run1' "printf 'run\\tloss\\tupdates\\n'; printf '%s\\t%.3f\\t%d\\n' \$name 4.25 100" 'for i in 1 2 3; do echo line $i; done' 'echo "1,234 tokens in 3s" >&2' '```'
    printf '%s\n' "$@" '```'; } > page.md
}
table='run   loss  updates'
show '```text' "$table" 'run1  4.250  100' 'line 1' 'line 2' 'line 3'; check_page 0
show '```text' "$table" 'run1  4.1  100' '...'; check_page 0
show '```text' '...' 'line 2' '...'; check_page 0
show '```text form' "$table" 'run1  9.1  7' '...' 'line 8'; check_page 0
show '```text messages' '9 tokens in 1m8s'; check_page 0
show '```text sample' 'another text'; check_page 0

show '```text' 'run   nll  updates' '...'; check_page 1; expect_stdout "page.md:9: expected the line: run   nll  updates"
show '```text' "$table" 'run1  3.7  100' '...'; check_page 1; expect_stdout "page.md:10: expected the line: run1  3.7  100"
show '```text' "$table" 'run1  4.25  101' '...'; check_page 1; expect_stdout "page.md:10:"
show '```text' "$table" 'run2  4.25  100' '...'; check_page 1; expect_stdout "page.md:10:"
show '```text' "$table" 'run1  nan  100' '...'; check_page 1; expect_stdout "page.md:10:"
show '```text form' "$table" 'run1  4.25  none' '...'; check_page 1; expect_stdout "page.md:10:"
show '```text' "$table" 'run1  4.25  100'; check_page 1; expect_stdout "page.md:11: expected the end of the output"
show '```text' '...' 'line 3' 'line 4'; check_page 1; expect_stdout "page.md:11: expected the line: line 4"
show '```text messages' '9 words in 3s'; check_page 1; expect_stdout "page.md:9:"
show '```text roughly' "$table"; check_page 1; expect_stdout "page.md:8: expected \`\`\`text form|messages|sample"
printf '%s\n' '```sh' 'echo first' 'false' 'echo second' '```' > page.md; check_page 1; expect_stdout "page.md:2: expected exit status 0; found 1"
printf '%s\n' '```sh' 'echo' '```' '```text sample' 'a text' '```' > page.md; check_page 1; expect_stdout "page.md:5: expected the line: a text"
printf '%s\n' '```sh' 'exit 0' '```' '```sh' 'echo 1' '```' '```text' 2 '```' > page.md; check_page 1; expect_stdout "page.md:5: expected commands that run after the blocks before"
printf '%s\n' '```sh' 'echo 1' '```' '- item' '  ```text' '  2' '  ```' > page.md; check_page 1; expect_stdout "page.md:5: expected \`\`\` without an indentation"
printf '%s\n' '```sh' 'echo 1' '```' '```console' '```text' 2 '```' > page.md; check_page 1; expect_stdout "page.md:5: expected \`\`\` without an indentation"
printf '%s\n' '```text' first '```' > page.md; check_page 1; expect_stdout "page.md:1: expected"
echo text > page.md; check_page 1; expect_stdout "expected \`\`\`sh blocks; found none"
# Later blocks see the variables and the folder of earlier ones; other languages are not run; the path of the page is the checkout.
printf '%s\n' '```sh' 'multihead=/path/to/multihead; mkdir a; cd a' '```' '```console' 'false' '```' '```sh' 'pwd | sed "s|.*/||"; test -f $multihead/README.md' '```' '```text' a '```' > page.md
check_page 0

expect 77 env MH_DATA="$PWD" python3 -B "$ROOT/tests/cli/tutorial.py" language-model no-corpus/train.txt
expect_stdout "docs/tutorial-language-model.md needs no-corpus/train.txt in MH_DATA"

for page in "$ROOT"/docs/tutorial-*.md; do
  [ -e "$page" ] || continue
  name=${page##*/tutorial-}
  name=${name%.md}
  case=$ROOT/tests/cli/cases/tutorial_${name//-/_}.sh
  grep -qs "tutorial.py\" $name\b" "$case" || fail "expected a case ${case#"$ROOT/"} that runs tutorial.py with $name; found none"
done
