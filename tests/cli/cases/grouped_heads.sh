# Models with grouped-query attention: scan, rank, cut and swap by head and by group.
[ -n "$(command -v mh-prune || true)" ] || skip "mh-prune is not built"
make_shards
mh-train -q --train t.mhs --valid t.mhs --out run --set model.layers=2 --set model.width=32 --set model.ffn_dim=32 --set attention.heads=6 \
  --set attention.head_size=8 --set attention.key_value_heads=2 --set train.batch.sequence_length=32 --set train.batch.tokens=128 --set train.length=8u \
  --set train.lr=0.01
model=run/best.safetensors

# A scan and a ranking have one row for each group; the score of a group is the sum over its heads.
expect 0 mh-prune scan --unit group $model t.mhs --format json
[ "$(grep -c '"mode":"group"' out)" -eq 4 ] || fail "expected a row for each of 4 groups"
cp out groups.json
expect 0 mh-prune rank --by weight-norm --unit group $model t.mhs --format json
cp out group_ranks.json
expect 0 mh-prune rank --by weight-norm $model t.mhs --format json
with_tolerance - <<'P'
import json, tolerance
groups, heads = ([json.loads(line) for line in open(name)] for name in ("group_ranks.json", "out"))
assert len(groups) == 4 and len(heads) == 12, (groups, heads)
for g in groups:
    total = sum(h["score"] for h in heads if h["layer"] == g["layer"] and h["head"] // 3 == g["head"])
    assert abs(total - g["score"]) <= tolerance.chain_bound(3, total, tolerance.FP64), (g, total)
P
# A curve ablates whole groups.
expect 0 mh-prune curve --by weight-norm --unit group --step 25% $model t.mhs --format json
[ "$(grep -o '"heads_gone":[0-9]*' out | tr '\n' ' ')" = '"heads_gone":0 "heads_gone":3 "heads_gone":6 "heads_gone":9 "heads_gone":12 ' ] ||
  fail "expected a group of 3 heads more in each step"
expect 2 mh-prune curve --by weight-norm --unit group --side value $model t.mhs
expect 2 mh-prune scan --unit group --side value $model t.mhs
expect 2 mh-prune scan --unit group --heads 0:2 $model t.mhs

# A model without a group has the loss that the scan prints for this group, and a smaller number of key/value heads.
expect 0 mh-prune cut --unit group --heads 0:1 $model -o small.safetensors
expect_stderr "key/value heads per layer 2 2 -> 1 2"
expect_stderr "heads per layer 6 6 -> 3 6"
expect 0 mh-eval --format json small.safetensors t.mhs
with_tolerance - <<'P'
import json, tolerance
scan = [json.loads(line) for line in open("groups.json")]
row, = [r for r in scan if r["layer"] == 0 and r["head"] == 1]
score = json.load(open("out"))
assert abs(row["nll"] - score["nll"]) <= tolerance.mean_nll_bound(score, "run/best.safetensors", 32), (row["nll"], score["nll"])
P
expect 0 mh-prune cut --unit group --by weight-norm --data t.mhs --count 1 $model -o by.safetensors
expect_stderr "pruned heads"

# A query head is pruned without its key/value head, which the other heads of the group still read.
expect 0 mh-prune cut --heads 0:0,1:5 $model -o head.safetensors
expect_stderr "key/value heads per layer 2 2 -> 2 2"
for pruned in small head; do
  expect 0 mh-prune scan $pruned.safetensors t.mhs
  expect 0 mh-spectrum --blocks 4 $pruned.safetensors t.mhs
  expect 0 mh-eval generate $pruned.safetensors --length 5
  expect 0 mh-train -q --from $pruned.safetensors --train t.mhs --valid t.mhs --out trained --set train.length=2u
  rm -r trained
done

# A model computes the same after two groups of a layer, or two heads of a group, have exchanged all their parameters. A
# second swap restores the file.
expect 0 mh-eval --format json $model t.mhs
mv out before.json
for swap in "--unit group --pairs decoder.self:0.0-0.1" "--pairs decoder.self:0.3-0.5"; do
  expect 0 mh-swap $model $swap --with output,stages -o swapped.safetensors
  ! cmp -s swapped.safetensors $model || fail "expected the exchange to change the file"
  expect 0 mh-eval --format json swapped.safetensors t.mhs
  with_tolerance - <<'P'
import json, tolerance
a, b = json.load(open("before.json")), json.load(open("out"))
assert abs(a["nll"] - b["nll"]) <= tolerance.mean_nll_bound(a, "run/best.safetensors", 32), (a["nll"], b["nll"])
P
  mh-swap -q swapped.safetensors $swap --with output,stages -o back.safetensors
  cmp back.safetensors $model
done
expect 2 mh-swap head.safetensors --unit group --pairs decoder.self:0.0-0.1 -o x.safetensors
expect 2 mh-swap $model --unit group --mode random -o x.safetensors
