# mh-train and PyTorch give the same gradient and the same losses of 100 updates of a translation model from the same
# weights; needs the complete PyTorch.
peer=${MH_PEER_PYTHONPATH:-${XDG_CACHE_HOME:-$HOME/.cache}/multihead/peer-2.11.0}
status=0
PYTHONPATH=$peer python3 -B "$ROOT/tests/bench/translation_equality.py" --tools "$(dirname "$(command -v mh-train)")" || status=$?
exit $status
