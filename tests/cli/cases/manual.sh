# The manual pages and METHOD.md agree with the tools and the sources, and mandoc finds no fault in the pages.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
python3 "$ROOT/tests/cli/manual.py" "$(dirname "$(command -v mh-train)")" "$ROOT/man"
python3 "$ROOT/tests/cli/method_pages.py" "$(dirname "$(command -v mh-train)")"
command -v mandoc >/dev/null || skip "mandoc is not installed"
mandoc -T lint -W warning "$ROOT"/man/*
