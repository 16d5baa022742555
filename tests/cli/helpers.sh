# Functions for all command-line cases. The files out and err contain stdout and stderr of the last command of `expect`.

first_path=$PATH
case_folder=$PWD
fail_call=$(dirname "$(command -v mh-prep)")/../tests/libfail-call.so

# fail MESSAGE: prints MESSAGE and the last stderr, and ends the case as failed. skip REASON: ends the case as skipped.
fail() { echo "FAILED: $*"; [ ! -f err ] || { echo "--- stderr"; cat err; }; exit 1; }
skip() { echo "$*"; exit 77; }

# expect STATUS COMMAND…: runs COMMAND and fails unless its exit status is STATUS. Each expected error is
# recorded with its command, stderr and exit status (record_error).
expect() {
  local expected_status=$1 status=0
  shift
  "$@" >out 2>err || status=$?
  [ "$status" -eq "$expected_status" ] || fail "expected exit status $expected_status; found $status: $*"
  case $status in [1-4]) record_error "$status" err "${*//$'\n'/ }" ;; esac
}
# record_error STATUS FILE COMMAND: appends an expected error to a list that run.py compares with tests/cli/errors.txt: the text COMMAND, the
# message in FILE, and STATUS. `expect` calls this function; cases call it for a command that `expect` cannot run. It runs in a subshell with
# the original PATH, since some cases change PATH.
record_error() {
  (PATH=$first_path; { printf '$ %s\n' "$3"; cat "$2"; echo "exit status $1"; } | make_reproducible exact exact >> "$GOLDEN_WORK/errors")
}
# needs_peers: states that the following commands need Python packages, programs or data that a machine may lack. Even if the case then
# ends early, by `skip` or with a last line "without …", run.py compares the errors of the commands before the call of needs_peers.
needs_peers() { echo '-- with peers' >> "$GOLDEN_WORK/errors"; }
# expect_stderr TEXT: fails unless stderr of the last `expect` contains TEXT. expect_stdout TEXT: fails unless its stdout contains TEXT.
# run.py compares the messages of expected errors with errors.txt, so cases need `expect_stderr` only for the numbers in such a message,
# which run.py ignores, and for messages of cases that may end before this comparison.
expect_stderr() { grep -qF -- "$1" err || fail "expected in stderr: $1"; }
expect_stdout() { grep -qF -- "$1" out || fail "expected in stdout: $1"; }
# with_tolerance ARGUMENT…: runs Python, which can import tests/cli/tolerance.py.
with_tolerance() { PYTHONPATH="$ROOT/tests/cli${PYTHONPATH:+:$PYTHONPATH}" python3 -B "$@"; }

# golden [--stderr] [--layout] [--rounded | --masked | --near] NAME STATUS COMMAND…: runs COMMAND, checks its exit
# status, and compares stdout byte for byte with golden/CASE/NAME.stdout; a missing file means an empty output. With
# MH_RENEW=1 it writes the file instead.
#   --stderr   compare stderr too, with NAME.stderr
#   --layout   ignore columns, line breaks and the case of headings in help texts, which depend on the version of CLI11
#   --rounded  round numbers with a decimal point to 6 decimals: scores whose last digits depend on the C library
#   --masked   replace numbers with a decimal point by #: results of a trained model
#   --near     compare numbers with a decimal point with a tolerance (near.py): results of an untrained model
golden() {
  local streams=(out) layout=exact numbers=exact stream
  while [[ $1 == --* ]]; do
    case $1 in
      --stderr) streams=(out err) ;;
      --layout) layout=free ;;
      --rounded | --masked | --near) numbers=${1#--} ;;
      *) fail "golden: unknown option $1" ;;
    esac
    shift
  done
  expect "${@:2}"
  for stream in "${streams[@]}"; do
    make_reproducible "$layout" "${numbers/near/exact}" < "$stream" > "$GOLDEN_WORK/shown"
    compare_golden "$1.std$stream" "${*:3}" "$numbers"
  done
}
# record STATUS COMMAND…: runs COMMAND, checks its exit status, and appends the command, its stdout, its stderr and its
# exit status to the transcript of the case. For many short outputs, such as error messages.
record() {
  expect "$@"
  { printf '$ %s\n' "${*:2}"; cat out err; [ "$1" -eq 0 ] || echo "exit status $1"; } |
    make_reproducible exact exact >> "$GOLDEN_WORK/record"
}
# golden_record NAME: compares the transcript with golden/CASE/NAME.record and starts a new transcript.
golden_record() {
  mv "$GOLDEN_WORK/record" "$GOLDEN_WORK/shown"
  compare_golden "$1.record" "transcript $1"
}
# compare_golden FILE COMMAND [near]: compares $GOLDEN_WORK/shown with the golden file FILE of the case, or with MH_RENEW=1
# replaces the golden file. COMMAND is printed if the files differ; near: compares numbers with a tolerance (near.py).
compare_golden() {
  local expected_file=$GOLDEN/$1
  ! grep -qxF -- "$1" "$GOLDEN_WORK/compared" || fail "golden: expected each NAME once; found $1 twice"
  echo "$1" >> "$GOLDEN_WORK/compared"
  if [ -n "$GOLDEN_RENEW" ]; then
    rm -f "$expected_file"
    [ ! -s "$GOLDEN_WORK/shown" ] || { mkdir -p "$GOLDEN"; cp "$GOLDEN_WORK/shown" "$expected_file"; }
    return
  fi
  [ -e "$expected_file" ] || expected_file=/dev/null
  local compare=(diff -u --label "golden/${GOLDEN##*/}/$1" --label found)
  [ "${3-}" != near ] || compare=(python3 -B "$ROOT/tests/cli/near.py")
  "${compare[@]}" "$expected_file" "$GOLDEN_WORK/shown" || fail "the golden file $1 differs: $2
if the new output is correct, renew: MH_RENEW=1 python3 tests/cli/run.py $GOLDEN_TOOLS ${GOLDEN##*/}"
}
# make_reproducible LAYOUT NUMBERS: copies stdin to stdout and removes or replaces the current folder and the folder of the case, the
# version of the tools, durations and sizes of checkpoints. LAYOUT: exact or free; NUMBERS: exact, rounded or masked, as in `golden`.
make_reproducible() {
  local replacements=('s/(mh-[a-z]+) [0-9]+\.[0-9]+\.[0-9]+/\1 VERSION/g' 's/version:mh-[0-9.]+/version:mh-VERSION/g'
    "s|$PWD/||g" "s|$case_folder/||g" 's|in ([0-9]+[dhms])+ \([0-9.]+ [kMGT]?B/s\)|in TIME|' 's/(parameters [0-9,]+ -> [0-9,]+; )[0-9.]+ [kMG]?B$/\1SIZE/')
  if [ "$1" = free ]; then replacements+=(':a' '$!{N' 'ba' '}' 's/\n {20,}/ /g' 's/ +/ /g' 's/\n[A-Za-z]+:\n/\U&/g'); fi
  sed -E "$(printf '%s\n' "${replacements[@]}")" | if [ "$2" = exact ]; then cat; else
    awk -v numbers="$2" '{  # numbers in table fields and JSON values
      rest = $0; $0 = ""
      while (match(rest, /(^|[\t:,[])-?[0-9]+(\.[0-9]+(e[-+]?[0-9]+)?|e[-+]?[0-9]+)($|[]\t,}])/)) {
        first = RSTART + (substr(rest, RSTART, 1) !~ /[-0-9]/)
        end = RSTART + RLENGTH
        if (substr(rest, end - 1, 1) !~ /[0-9]/) end--
        number = substr(rest, first, end - first)
        number = numbers == "masked" ? "#" : sprintf("%.6f", number)
        sub(/0+$/, "", number); sub(/\.$/, ".0", number)
        $0 = $0 substr(rest, 1, first - 1) number
        rest = substr(rest, end)
      }
      print $0 rest
    }'
  fi
}

# with_fault FAULT COMMAND…: runs a tool in which one system call fails, or which receives a signal at this call (tests/faults/fail_call.cpp).
# start_with_fault FAULT COMMAND…: the same in the background; sets the variable pid.
with_fault() { LD_PRELOAD="$fail_call${LD_PRELOAD:+:$LD_PRELOAD}" MH_FAULT="$1" "${@:2}"; }
start_with_fault() { LD_PRELOAD="$fail_call${LD_PRELOAD:+:$LD_PRELOAD}" MH_FAULT="$1" "${@:2}" & pid=$!; }

# expect_files FILE…: fails unless the folder of the case contains exactly these files; out and err are ignored.
expect_files() {
  local files
  files=$(find . -type f ! -name out ! -name err | sed 's|^\./||' | sort | tr '\n' ' ')
  [ "$files" = "$(printf '%s\n' "$@" | sort | tr '\n' ' ')" ] || fail "expected the files $*; found $files"
}

# fixed_text LINES: prints LINES lines of text with repeated words, identical for every awk implementation. For golden
# outputs.
fixed_text() {
  awk -v lines="$1" 'function draw() { x = (x * 75 + 74) % 65537; return x }
    BEGIN { x = 7; for (i = 0; i < lines; i++) { n = 2 + draw() % 11; s = "w" draw() % 9
      for (k = 1; k < n; k++) s = s " w" int(draw() * draw() % 65537 / 1200); print s } }'
}

# make_text LINES: prints LINES lines of text with repeated words, identical on each call.
make_text() {
  awk -v lines="$1" 'BEGIN { srand(7); for (i = 0; i < lines; i++) { n = 1 + int(rand() * 12); s = "";
    for (k = 0; k < n; k++) s = s " w" int(rand() * rand() * 60); print s " " } }'
}

# make_shards: writes a text, its shard t.mhs with the vocabulary v, and its shard other.mhs with another vocabulary v2.
make_shards() {
  make_text 200 > text
  mh-prep vocab text > v 2>/dev/null
  mh-prep lm --vocab v text -o t.mhs 2>/dev/null
  make_text 300 | mh-prep vocab --min-count 2 - > v2 2>/dev/null
  mh-prep lm --vocab v2 text -o other.mhs 2>/dev/null
}

# check_killed_run PAUSE FIELD START…: runs the command START (mh-train … --out) without interruption in the folder `whole`.
# Then runs it in the folder `killed`, sends SIGKILL up to eight times, the second time after PAUSE seconds, and resumes
# after each kill. Fails unless both folders have bit-identical weights and the same logs, including the log field
# FIELD.
check_killed_run() {
  local pause pid kills=0 start=("${@:3}")
  "${start[@]}" whole
  "${start[@]}" killed 2>/dev/null &
  pid=$!
  for pause in 0.2 "$1" 0.7 0.45 0.8 0.65 0.5 0.9; do
    sleep "$pause"
    kill -9 "$pid" 2>/dev/null && kills=$((kills + 1))
    wait "$pid" 2>/dev/null || true
    if [ -f killed/config.toml ]; then mh-train --threads 1 --resume --out killed -q 2>/dev/null & pid=$!
    else "${start[@]}" killed 2>/dev/null & pid=$!; fi
  done
  wait "$pid" 2>/dev/null || true
  expect 0 mh-train --threads 1 --resume --out killed
  [ "$kills" -gt 1 ] || fail "expected at least 2 kills before the run ended; found $kills"
  expect 0 python3 "$ROOT/tests/cli/same_run.py" whole killed "$2"
}
