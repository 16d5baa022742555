# Training on the fused path of attention loses what it loses on the composed one, in every stage that it takes.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_shards
python3 -B "$ROOT/tests/cli/fused_losses.py" t.mhs
