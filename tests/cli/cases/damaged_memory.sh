# A hostile file costs at most the memory that SECURITY.md promises.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
[ -z "${ASAN_OPTIONS:-}" ] || skip "sanitizers take memory of their own"
python3 -B "$ROOT/tests/cli/damaged_memory.py" "$(dirname "$(command -v mh-prep)")" --mib 8
# Files of 8 MiB take less than the constant part of the limit; the factor of the binary formats needs larger files.
[ -n "${MH_FULL:-}" ] || exit 0
mkdir large
cd large || exit
python3 -B "$ROOT/tests/cli/damaged_memory.py" "$(dirname "$(command -v mh-prep)")" --mib 64 --binary
