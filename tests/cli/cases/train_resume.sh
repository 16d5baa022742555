# Killed with kill -9 at many moments and resumed, a run gives the same weights, bit for bit, as one never stopped.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_text 600 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
cat > c.toml <<'T'
[model]
layers = 2
width = 64
ffn = 128
dropout_embedding = 0.1
dropout_attention = 0.1
dropout_activation = 0.1
dropout_ffn = 0.1
[attention]
heads = 4
dropout = 0.1
[train]
length = "400u"
block = 16
batch_tokens = 256
micro_tokens = 128
lr = 0.003
clip = 1.0
validate_every = "1e"
save_every = "10u"
log_every = "4u"
keep = 2
[train.procedures.head-rotation]
mode = "soft"
k = 2
frequency = 2
rest = 1
swap_optimizer_state = true
T
mh-train --threads 1 --config c.toml --train t.mhs --valid t.mhs --out whole -q
mh-train --threads 1 --config c.toml --train t.mhs --valid t.mhs --out killed -q 2>/dev/null &
pid=$!
kills=0
for pause in 0.2 0.6 0.7 0.45 0.8 0.65 0.5 0.9; do
  sleep "$pause"
  kill -9 "$pid" 2>/dev/null && kills=$((kills + 1))
  wait "$pid" 2>/dev/null || true
  if [ -f killed/config.toml ]; then mh-train --threads 1 --resume --out killed -q 2>/dev/null & pid=$!
  else rm -rf killed; mh-train --threads 1 --config c.toml --train t.mhs --valid t.mhs --out killed -q 2>/dev/null & pid=$!; fi
done
wait "$pid" 2>/dev/null || true
expect 0 mh-train --threads 1 --resume --out killed
[ "$kills" -gt 1 ] || fail "only $kills kills"
python3 - <<'P'
import json, struct
def tensors(path):
    b = open(path, "rb").read()
    n = struct.unpack("<Q", b[:8])[0]
    header = json.loads(b[8:8 + n])
    header.pop("__metadata__")
    return {k: b[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in header.items()}
for name in ("last.safetensors", "best.safetensors"):
    a, b = tensors("whole/" + name), tensors("killed/" + name)
    assert a.keys() == b.keys()
    assert all(a[k] == b[k] for k in a), name + " differs"
def log(path):
    keep = ("update", "loss", "nll", "lr", "gradient_norm", "valid_nll", "head-rotation")
    lines = [json.loads(l) for l in open(path)]
    return [{k: v for k, v in l.items() if k in keep} for l in lines if "started" not in l]
assert any("head-rotation" in line for line in log("whole/log.jsonl")), "no heads changed places"
assert log("whole/log.jsonl") == log("killed/log.jsonl"), "the logs differ"
P
[ "$(ls killed/checkpoints | wc -l)" -eq 2 ] || fail "keep = 2"
expect 0 mh-train --threads 1 --resume --out whole
said "the run is finished"
expect 0 mh-train --threads 1 --resume --out whole --set train.length=410u
said "changed: train.length"
[ -z "$(find killed -name '*.part*')" ] || fail "a partial file is left"
