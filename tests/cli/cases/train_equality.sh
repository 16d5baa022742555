# mh-train and PyTorch give the same losses for 200 updates from the same weights and batches; needs the complete
# PyTorch.
command -v zstd > /dev/null || skip "zstd is not installed"
peer=${MH_PEER_PYTHONPATH:-${XDG_CACHE_HOME:-$HOME/.cache}/multihead/peer-2.11.0}
status=0
PYTHONPATH=$peer python3 -B "$ROOT/tests/bench/equality.py" --tools "$(dirname "$(command -v mh-train)")" || status=$?
exit $status
