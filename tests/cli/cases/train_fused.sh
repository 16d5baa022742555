# Training on the fused path gives the losses of the composed path, for every stage with a fused implementation.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_shards
python3 -B "$ROOT/tests/cli/fused_losses.py" t.mhs
