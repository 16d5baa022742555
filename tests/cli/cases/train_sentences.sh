# Training and scoring in sentences: each line of a text is a row of its own, so scores do not depend on the order of lines.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
. "$ROOT/tests/cli/processes.sh"
statuses=()  # set by wait_for_processes
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
# The validation of training scores sentences, too; best.safetensors is the model of the validation with the lowest loss.
valid_nll = min(line["valid_nll"] for line in map(json.loads, open("run/log.jsonl")) if "valid_nll" in line)
assert abs(a["nll"] - valid_nll) <= bound, (a, valid_nll)
P
# The other tools read blocks of a text, and warn about a model that was trained on sentences.
mv out blocks.json
warning="run/best.safetensors: trained on sentences (train.batch.order = sentences), scored in blocks of 16 tokens across ends of lines"
expect 0 mh-prune scan --format json run/best.safetensors t.mhs; expect_stderr "$warning"
with_tolerance - <<'P'
import json
blocks = json.load(open("blocks.json"))
rows = [json.loads(line) for line in open("out")]
assert all(row["protocol"] == "independent-blocks" and row["block"] == 16 for row in rows), rows
assert rows[0]["mode"] == "full" and abs(rows[0]["perplexity"] / blocks["perplexity"] - 1) <= 1e-4, (rows[0], blocks)
P
expect 0 mh-prune rank --by taylor run/best.safetensors t.mhs; expect_stderr "$warning"
expect 0 mh-spectrum --blocks 0 run/best.safetensors t.mhs; expect_stderr "$warning"
expect 0 mh-swap report run/best.safetensors run/last.safetensors t.mhs; expect_stderr "$warning"
expect 0 mh-eval --text-rows blocks run/best.safetensors t.mhs; expect_stderr "$warning"
expect 0 mh-eval --context 4 run/best.safetensors t.mhs; expect_stderr "$warning"
expect 0 mh-eval run/best.safetensors t.mhs; ! grep -q "trained on sentences" err || fail "expected no warning about sentences"
# A run that is resumed has the batches of an uninterrupted run.
expect 0 mh-train -q --threads 1 --train t.mhs --valid t.mhs --out parts "${small[@]}" --set train.length=3u
expect 0 mh-train -q --threads 1 --resume --out parts --set train.length=6u
same_tensors run/last.safetensors parts/last.safetensors
# Several processes share the sentences of an update, which may be fewer than the processes, and the sentences of an evaluation.
shared=(mh-train -q --threads 1 --train t.mhs "${small[@]}" --set train.batch.tokens=24 --set model.dropout_ffn=0.1 --set train.log_every=1u)
expect 0 "${shared[@]}" --out one
in_processes 0 3 "${shared[@]}" --out three
same_losses one three 6
expect 0 mh-eval -q --threads 1 --format json --batch 2 run/best.safetensors t.mhs
mv out one.json
in_processes 0 2 mh-eval -q --threads 1 --format json --batch 2 run/best.safetensors t.mhs
cmp one.json out.0
record 2 mh-eval --text-rows sentences --context 4 run/best.safetensors t.mhs
record 2 mh-eval --text-rows sentences --memory 4 run/best.safetensors t.mhs
record 2 mh-eval --text-rows sentences --streams 4 run/best.safetensors t.mhs
record 2 mh-train -q --train t.mhs --out x "${small[@]}" --set model.backbone=transformer-xl --set model.positions=none --set attention.score=relative --set model.transformer-xl.memory=8
golden_record refused
