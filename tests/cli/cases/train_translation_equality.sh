# From the same weights a translation model has the gradient of PyTorch, and 100 updates give the same losses.
peer=${MH_PEER_PYTHONPATH:-${XDG_CACHE_HOME:-$HOME/.cache}/multihead/peer-2.11.0}
status=0
PYTHONPATH=$peer python3 -B "$ROOT/tests/bench/translation_equality.py" --tools "$(dirname "$(command -v mh-train)")" || status=$?
exit $status
