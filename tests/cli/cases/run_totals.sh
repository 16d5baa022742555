# `./run test` adds up the totals of the programs that it starts, also in the background, and of the programs that these programs start.
# Its functions between the two comments below are read here without the commands of `run`.
run_script=$ROOT/run
sed -n '/^# The totals of all tests/,/^# Sets MH_DATA/p' "$run_script" > totals.sh
grep -q '^add_background_totals()' totals.sh || fail "expected the functions that count tests in $run_script"
cat > program <<'PROGRAM'
#!/bin/sh
# program PASSED FAILED SKIPPED STATUS
[ "$2" -eq 0 ] || echo "failed: case of $*"
echo "mh-tests: $1 passed, $2 failed, $3 skipped"
exit "$4"
PROGRAM
chmod +x program
# totals COMMAND…: prints the totals after COMMAND.
totals() {
  bash -c 'set -euo pipefail; say() { :; }; . ./totals.sh
    inner() { run_counted ./program 1 1 1 1; }
    outer() { start_in_background inner; run_counted ./program 10 0 0 0; add_background_totals; }
    ends_early() { run_counted ./program 5 0 0 0; exit 0; }
    "$@" > output
    echo "$num_passed $num_failed $num_skipped"; [ "$num_failed" -eq 0 ] || printf "%s\n" "${failures[@]}"' - "$@"
}
cat >> totals.sh <<'FUNCTIONS'
in_background() { start_in_background "$@"; run_counted ./program 100 0 2 0; add_background_totals; }
FUNCTIONS
same() { [ "$1" = "$2" ] || fail "expected '$2'; found '$1'"; }
same "$(totals run_counted ./program 3 0 1 0)" "3 0 1"
same "$(totals run_counted ./program 3 1 1 1)" "3 1 1
failed: case of 3 1 1 1"
same "$(totals run_counted ./program 3 0 1 7)" "3 1 1
failed: ./program 3 0 1 7 (exit status 7)"
same "$(totals run_counted echo)" "0 1 0
failed: echo (ended without the line 'mh-tests: …')"
same "$(totals in_background inner)" "101 1 3
failed: case of 1 1 1 1"
same "$(totals in_background outer)" "111 1 3
failed: case of 1 1 1 1"
same "$(totals in_background ends_early)" "100 1 2
failed: tests in the background (ended early)"
