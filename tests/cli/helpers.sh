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
