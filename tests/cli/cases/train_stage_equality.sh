# Every attention stage gives the same log-probabilities as its reference in PyTorch; needs the complete PyTorch. A stage
# without a reference is skipped by name.
peer=${MH_PEER_PYTHONPATH:-${XDG_CACHE_HOME:-$HOME/.cache}/multihead/peer-2.11.0}
status=0
PYTHONPATH=$peer python3 -B "$ROOT/tests/bench/stage_equality.py" --tools "$(dirname "$(command -v mh-train)")" || status=$?
exit $status
