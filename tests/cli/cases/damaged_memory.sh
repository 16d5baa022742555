# A hostile file costs at most the memory that SECURITY.md promises.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
[ -z "${ASAN_OPTIONS:-}" ] || skip "sanitizers take memory of their own"
python3 -B "$ROOT/tests/cli/damaged_memory.py" "$(dirname "$(command -v mh-prep)")" --mib 8
