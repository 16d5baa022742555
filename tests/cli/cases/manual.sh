# Every option of --help is in its page and the other way round; the pages are clean.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
python3 "$ROOT/tests/cli/manual.py" "$(dirname "$(command -v mh-train)")" "$ROOT/man"
command -v mandoc >/dev/null || skip "mandoc is not installed"
mandoc -T lint -W warning "$ROOT"/man/*
