# Shared by all cases. Stdout and stderr of the last expect are in ./out and ./err.

fail() { echo "FAILED: $*"; [ ! -f err ] || { echo "--- stderr"; cat err; }; exit 1; }
skip() { echo "$*"; exit 77; }

# expect STATUS COMMAND…
expect() {
  local wanted=$1 status=0
  shift
  "$@" >out 2>err || status=$?
  [ "$status" -eq "$wanted" ] || fail "expected status $wanted, found $status: $*"
}
# What the last expect said on stderr, or printed.
said() { grep -qF -- "$1" err || fail "stderr lacks: $1"; }
printed() { grep -qF -- "$1" out || fail "stdout lacks: $1"; }
# No file but those named is in the folder.
only() {
  local found
  found=$(find . -type f ! -name out ! -name err | sed 's|^\./||' | sort | tr '\n' ' ')
  [ "$found" = "$(printf '%s\n' "$@" | sort | tr '\n' ' ')" ] || fail "files: $found"
}

# Text with words that repeat: synthetic, the same each time.
make_text() {  # LINES
  awk -v lines="$1" 'BEGIN { srand(7); for (i = 0; i < lines; i++) { n = 1 + int(rand() * 12); s = "";
    for (k = 0; k < n; k++) s = s " w" int(rand() * rand() * 60); print s " " } }'
}

# A small text and its shard, t.mhs with vocabulary v; and the same text with another vocabulary, other.mhs with v2.
make_shards() {
  make_text 200 > text
  mh-prep vocab text > v 2>/dev/null
  mh-prep lm --vocab v text -o t.mhs 2>/dev/null
  make_text 300 | mh-prep vocab --min-count 2 - > v2 2>/dev/null
  mh-prep lm --vocab v2 text -o other.mhs 2>/dev/null
}

# killed_run PAUSE FIELD START…: runs START (mh-train … --out) to its end in the folder whole; then in the folder killed
# under kill -9 at many moments, the second after PAUSE seconds, going on from what each leaves. Both must be the same, bit
# for bit, and so must their logs, FIELD included.
killed_run() {
  local pause pid kills=0 start=("${@:3}")
  "${start[@]}" whole
  "${start[@]}" killed 2>/dev/null &
  pid=$!
  for pause in 0.2 "$1" 0.7 0.45 0.8 0.65 0.5 0.9; do
    sleep "$pause"
    kill -9 "$pid" 2>/dev/null && kills=$((kills + 1))
    wait "$pid" 2>/dev/null || true
    if [ -f killed/config.toml ]; then mh-train --threads 1 --resume --out killed -q 2>/dev/null & pid=$!
    else rm -rf killed; "${start[@]}" killed 2>/dev/null & pid=$!; fi
  done
  wait "$pid" 2>/dev/null || true
  expect 0 mh-train --threads 1 --resume --out killed
  [ "$kills" -gt 1 ] || fail "only $kills kills"
  expect 0 python3 "$ROOT/tests/cli/same_run.py" whole killed "$2"
}
