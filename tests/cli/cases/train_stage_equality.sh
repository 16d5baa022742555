# Every stage gives the log-probabilities of its PyTorch reference; needs the complete PyTorch.
peer=${MH_PEER_PYTHONPATH:-${XDG_CACHE_HOME:-$HOME/.cache}/multihead/peer-2.11.0}
status=0
PYTHONPATH=$peer python3 -B "$ROOT/tests/bench/stage_equality.py" --tools "$(dirname "$(command -v mh-train)")" || status=$?
exit $status
