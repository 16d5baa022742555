# Files of earlier versions can be read and give the same losses and scores.
expect 0 python3 "$ROOT/tests/compatibility/archive.py" check "$(dirname "$(command -v mh-train)")" "$ROOT/tests/data/archive.tar.xz" \
  ${MH_FULL:+--full}
expect_stdout " 0 differ"
