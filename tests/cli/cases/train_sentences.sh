# Training and scoring in sentences: each line of a text is a row of its own, so scores do not depend on the order of lines.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_text 120 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
tac text | mh-prep lm --vocab v - -o reversed.mhs 2>/dev/null
small=(--set model.layers=2 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=4 --set train.batch.sequence_length=16
  --set train.batch.tokens=64 --set train.length=6u --set train.lr=0.01 --set train.batch.order=sentences)
expect 0 mh-train -q --threads 1 --train t.mhs --valid t.mhs --out run "${small[@]}"
words=$(awk '{ n += NF + 1 } END { print n }' text)
# The default rows of mh-eval are those of training. The vocabulary has words, so word_perplexity is perplexity.
expect 0 mh-eval --format json --words "$words" run/best.safetensors t.mhs
expect_stdout '"protocol":"sentences"'
mv out sentences
expect 0 mh-eval --format json --text-rows sentences run/best.safetensors reversed.mhs
mv out reversed
expect 0 mh-eval --format json --text-rows blocks run/best.safetensors t.mhs
expect_stdout '"protocol":"independent-blocks"'
with_tolerance - <<'P'
import json, math, tolerance
a, b, blocks = [json.load(open(name)) for name in ("sentences", "reversed", "out")]
bound = tolerance.mean_nll_bound(a, "run/best.safetensors", 16)
assert a["tokens"] == b["tokens"] == blocks["tokens"]
assert abs(a["nll"] - b["nll"]) <= bound, (a, b)
assert abs(a["word_perplexity"] / a["perplexity"] - 1) < 1e-9, a
assert abs(a["nll"] - blocks["nll"]) > bound, "blocks have context across lines"
assert "word_perplexity" not in b
P
# A run that is resumed has the batches of an uninterrupted run.
expect 0 mh-train -q --threads 1 --train t.mhs --valid t.mhs --out parts "${small[@]}" --set train.length=3u
expect 0 mh-train -q --threads 1 --resume --out parts --set train.length=6u
cmp run/last.safetensors parts/last.safetensors || python3 - <<'P'
import json, struct
def tensors(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]] for name, t in header.items() if name != "__metadata__"}
assert tensors("run/last.safetensors") == tensors("parts/last.safetensors"), "the resumed run has other weights"
P
record 2 mh-eval --text-rows sentences --context 4 run/best.safetensors t.mhs
record 2 mh-eval --text-rows sentences --memory 4 run/best.safetensors t.mhs
record 2 mh-eval --text-rows sentences --streams 4 run/best.safetensors t.mhs
record 2 mh-train -q --train t.mhs --out x "${small[@]}" --set model.backbone=transformer-xl --set model.positions=none --set attention.score=relative --set model.transformer-xl.memory=8
golden_record refused
