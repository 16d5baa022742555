# --attention fused: each tool refuses a forward pass that would be composed, and names the reason; auto logs each
# reason once per kind of layer.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_text 200 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
printf '[model]\nlayers = 2\nwidth = 32\nffn_dim = 16\n[attention]\nheads = 2\n[train]\nbatch.sequence_length = 16\nbatch.tokens = 64\nlength = "1u"\n' > c.toml
train() { mh-train -q --config c.toml --train t.mhs --out "$1" "${@:2}"; }
train plain
train mixed --set attention.mixer=mixhead-a
train logits --set attention.mixer=talking-heads
train relative --set attention.score=relative --set model.positions=none
plain=plain/last.safetensors mixed=mixed/last.safetensors relative=relative/last.safetensors
expect_refused() { expect 2 "${@:2}" --attention fused; expect_stderr "$1"; [ ! -e none ] || fail "a file is left"; }

# Every command that attaches an observer of probabilities is refused.
observed="a forward pass that meets the constraints of the fused path; found unmet constraints: an observer reads the probabilities"
expect_refused "$observed" mh-spectrum --blocks 2 $plain t.mhs
expect_refused "$observed" mh-swap --mode soft --k 1 --data t.mhs $plain -o none
expect_refused "$observed" mh-swap report --blocks 2 $plain t.mhs
expect_refused "$observed" mh-prune rank --by confidence $plain t.mhs
expect_refused "$observed" mh-prune cut $plain --by confidence --data t.mhs --fraction 50% -o none
# Score-head scales are refused; the kernel applies value-head scales.
expect_refused "scale factors of score heads act on probabilities, which the fused path does not store" \
  mh-prune scan --side score $mixed t.mhs
expect 0 mh-prune scan --side value --attention fused $mixed t.mhs
# With relative positions and few queries, the fused and the composed path give the same scores and generate the same
# text.
for path in fused composed auto; do expect 0 mh-eval --format json --sequence-length 8 --batch 1 --attention $path $relative t.mhs; cp out $path; done
with_tolerance - <<'P'
import json, tolerance
fused, composed, auto = (json.load(open(path)) for path in ("fused", "composed", "auto"))
assert auto["nll"] == composed["nll"] and abs(fused["nll"] - composed["nll"]) \
    <= tolerance.mean_nll_bound(composed, "relative/last.safetensors", 8), (fused, composed, auto)
P
train segments --config "$ROOT/configs/backbones/transformer-xl.toml" --set model.transformer-xl.memory=8
for model in $relative segments/last.safetensors; do
  for path in fused composed; do expect 0 mh-eval generate --length 12 --seed 3 --attention $path $model; cp out $path; done
  cmp fused composed || fail "$model generates another text on the fused path"
done
# Reasons that depend on the layer are reported before all others.
expect_refused "the mixer mixes logits" mh-eval logits/last.safetensors t.mhs

# With --attention auto, the following passes take the composed path, and the reason is logged once for both layers.
expect_logged_once() { expect 0 "${@:2}"; [ "$(grep -c "attention: decoder.self: composed: $1" err)" -eq 1 ] || fail "expected one log line for the reason: $1"; }
expect_logged_once "an observer" mh-spectrum --blocks 2 $plain t.mhs
expect_logged_once "scale factors of score heads" mh-prune scan -v --side score $mixed t.mhs
expect_logged_once "relative positions with fewer queries" mh-eval --sequence-length 8 --batch 1 $relative t.mhs
