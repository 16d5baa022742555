# Converts models that transformers 4.57.1 saved, and converts them back; the newest transformers reads the result too.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
path=${MH_CHECK_PYTHONPATH:-} other=${MH_NEWEST_PYTHONPATH:-}
PYTHONPATH=$path python3 -c 'import torch, transformers' 2>/dev/null || skip "without transformers 4.57.1 and PyTorch"
source "$ROOT/tests/cli/huggingface_parity.sh"
mh-convert -q gpt2 | cmp - gpt2.safetensors
expect 0 mh-convert bert-base --seed 2 -o another
! cmp -s another bert-base.safetensors || fail "another seed gives the same task head"
[ -n "$other" ] || echo "without transformers 5.24.0"
