# Every option of --help is in its page and the other way round; generated lists and METHOD.md pages agree with the tools; the pages are clean.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
python3 "$ROOT/tests/cli/manual.py" "$(dirname "$(command -v mh-train)")" "$ROOT/man"
python3 "$ROOT/tests/cli/method_pages.py" "$(dirname "$(command -v mh-train)")"
command -v mandoc >/dev/null || skip "mandoc is not installed"
mandoc -T lint -W warning "$ROOT"/man/*
