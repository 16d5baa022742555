# Converts models that the newest transformers saved (with tokenizer.json as the only tokenizer file), and converts them
# back; the oldest supported transformers reads the result too.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
path=${MH_NEWEST_PYTHONPATH:-} other=${MH_CHECK_PYTHONPATH:-}
[ -n "$path" ] && PYTHONPATH=$path python3 -c 'import torch, transformers' 2>/dev/null || skip "without transformers 5.24.0 and PyTorch"
source "$ROOT/tests/cli/huggingface_parity.sh"
[ ! -e gpt2/vocab.json ] && [ ! -e bert/vocab.txt ] || fail "expected a folder of this version to have only tokenizer.json"
