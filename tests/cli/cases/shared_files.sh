# Tools that use the same files at the same time: a run folder has one writer, an output is always whole.
make_shards
# Two writers of an output: it is the old file, then always one of the whole new ones.
mh-prep lm --vocab v text -o a.mhs 2>/dev/null
mh-prep lm --vocab v2 text -o b.mhs 2>/dev/null
cp a.mhs shared.mhs
for _ in 1 2 3 4 5; do
  mh-prep lm -q --vocab v text -o shared.mhs & mh-prep lm -q --vocab v2 text -o shared.mhs &
  while [ -n "$(jobs -r)" ]; do
    cp shared.mhs seen.mhs
    cmp -s seen.mhs a.mhs || cmp -s seen.mhs b.mhs || fail "a reader saw neither file"
  done
  wait
done
[ -z "$(find . -name 'shared.mhs.part*')" ] || fail "a temporary file is left"
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
# A second training in a run folder names the first one.
mh-train -q --train t.mhs --valid t.mhs --out run --set model.layers=1 --set model.width=16 --set model.ffn=16 --set attention.heads=2 --set train.batch.block=16 \
  --set train.batch.tokens=64 --set train.length=100000u --set train.validation.every=50000u 2>/dev/null &
pid=$!
for _ in $(seq 200); do [ -s run/lock ] && break; sleep 0.05; done
expect 1 mh-train -q --train t.mhs --out run --set train.length=1u
said "process $pid on $(hostname)"
kill -9 "$pid"; wait "$pid" 2>/dev/null || true
# The lock of a killed run does not block the next one.
rm -rf run/*.safetensors run/checkpoints
expect 0 mh-train -q --train t.mhs --out run --set model.layers=1 --set model.width=16 --set model.ffn=16 --set attention.heads=2 \
  --set train.batch.block=16 --set train.batch.tokens=64 --set train.length=1u
