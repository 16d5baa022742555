# A translation model from the same weights has the gradient that it has in PyTorch, and 100 updates lose as much.
peer=${MH_PEER_PYTHONPATH:-${XDG_CACHE_HOME:-$HOME/.cache}/multihead/peer-2.11.0}
status=0
PYTHONPATH=$peer python3 -B "$ROOT/tests/bench/translation_equality.py" --tools "$(dirname "$(command -v mh-train)")" || status=$?
exit $status
