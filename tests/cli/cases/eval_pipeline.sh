# From text to scores through pipes: every token is scored once, the same seed generates the same text, and Python reads
# the checkpoint.
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
make_text 200 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
tokens=$(awk '{n += NF + 1} END {print n}' text)
mh-train --config "$ROOT/configs/recipes/wikitext2-small.toml" --train t.mhs --valid t.mhs --out run -q --set model.layers=1 \
  --set model.width=16 --set attention.heads=2 --set train.batch.sequence_length=32 --set train.batch.tokens=128 --set train.length=6u
expect 0 mh-eval run/best.safetensors t.mhs
expect_stdout "perplexity"
expect_stdout "$tokens"
cat t.mhs | mh-eval --format json --context 24 run/best.safetensors - > a.json
cat run/best.safetensors | mh-eval --format json --context 24 --batch 1 - t.mhs > b.json
with_tolerance - "$tokens" <<'P'
import json, math, sys, tolerance
a, b = json.load(open("a.json")), json.load(open("b.json"))
assert a["tokens"] == int(sys.argv[1]) and abs(a["nll"] - b["nll"]) <= tolerance.mean_nll_bound(a, "run/best.safetensors", 24)
assert abs(math.exp(a["nll"]) - a["perplexity"]) <= tolerance.chain_bound(4, a["perplexity"], tolerance.FP64)  # exp errs by 2 roundings
P
expect 0 mh-eval --per-token tokens.tsv run/best.safetensors run/last.safetensors t.mhs
[ "$(wc -l < tokens.tsv.0)" -eq $((tokens + 1)) ] || fail "expected a header and one line per token in the file of --per-token"
[ "$(wc -l < out)" -eq 3 ] || fail "expected a header and one line per model"
expect 0 mh-eval generate run/best.safetensors --prompt "w1 w2" --length 12 --seed 3
mv out first
expect 0 mh-eval generate run/best.safetensors --prompt "w1 w2" --length 12 --seed 3
cmp out first
expect 0 mh-eval generate run/best.safetensors --length 5 --temperature 0 --samples 2
[ "$(head -1 out)" = "$(tail -1 out)" ] || fail "expected the same greedy text twice"
# Several prompts give the same texts as each prompt alone, in the order of the prompts, in batches of any size.
printf 'w1 w2\n\nw3\nw4 w1\n' > prompts
while read -r line; do mh-eval generate -q run/best.safetensors --prompt "$line" --length 9 --seed 3 --samples 3; done < prompts > expected
for batch in 1 2 16; do
  expect 0 mh-eval generate run/best.safetensors --prompts prompts --length 9 --seed 3 --samples 3 --batch $batch
  expect_stderr "batches of at most $batch text"
  cmp out expected
done
mh-eval generate -q run/best.safetensors --prompts - --length 9 --seed 3 --samples 3 < prompts | cmp - expected
mh-eval generate -q run/best.safetensors --prompt "w1 w2" --prompt "" --prompt w3 --prompt "w4 w1" --length 9 --seed 3 --samples 3 | cmp - expected
# With --format json, each text is an object with the numbers of its prompt and sample.
expect 0 mh-eval generate run/best.safetensors --prompts prompts --length 9 --seed 3 --samples 3 --format json
python3 - out expected <<'P'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [(row['prompt'], row['sample']) for row in rows] == [(p, s) for p in range(1, 5) for s in range(1, 4)], rows
assert all(list(row) == ['prompt', 'sample', 'text'] for row in rows), rows
assert ''.join(row['text'] + '\n' * (not row['text'].endswith('\n')) for row in rows) == open(sys.argv[2]).read(), rows
P
# With --stop-at-end a text is one line: the line of its prompt, with its continuation up to the first line end.
mh-eval generate -q run/best.safetensors --prompts prompts --length 30 > long
expect 0 mh-eval generate run/best.safetensors --prompts prompts --length 30 --stop-at-end
[ "$(wc -l < out)" -eq 4 ] || fail "expected one line for each prompt"
[ "$(wc -l < long)" -gt 4 ] || fail "expected line ends within the texts"
while read -r line; do grep -qxF -e "$line" long || fail "$line is not in the text without --stop-at-end"; done < out
expect 2 mh-eval generate - --prompts - < prompts; expect_stderr "standard input (-) for at most one file"
expect 2 mh-eval generate run/best.safetensors --promt w1; expect_stderr "found --promt; did you mean '--prompt'?"
expect 2 mh-eval generate run/best.safetensors --prompt w1 --prompts prompts
expect 2 mh-eval generate run/best.safetensors --prompts prompts --prompt-file prompts
expect 2 mh-eval generate run/best.safetensors --batch 0
printf 'w1\nw\000\n' > broken
expect 3 mh-eval generate run/best.safetensors --prompts broken; expect_stderr "broken:2: byte 4 of the file"
expect 3 mh-eval generate run/best.safetensors --prompts /dev/null
# A published recipe and every backbone of configs/ build.
expect 0 mh-train --dry-run --format json --config <("$ROOT/configs/recipes/expand" mixhead/table1-vanilla)
expect_stdout '"parameters":156000256'
for backbone in "$ROOT"/configs/backbones/*.toml; do expect 0 mh-train --dry-run --config "$backbone" --set model.vocabulary_rows=267744; done
# Refuses a prompt above 1 MiB, standard input as two files, and --predictions for a language model.
head -c 1048577 /dev/zero | tr '\0' w > long
expect 3 mh-eval generate run/best.safetensors --prompt-file long
expect 2 mh-eval - -
expect 2 mh-eval --predictions p run/best.safetensors t.mhs
expect 2 mh-eval --predictions p run/best.safetensors run/last.safetensors t.mhs
needs_peers
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import numpy, safetensors' 2>/dev/null || skip "Python lacks safetensors and numpy"
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 - <<'P'
from safetensors.numpy import load_file
t = load_file("run/best.safetensors")
assert t["decoder.layers.0.self.query.weight"].shape == (16, 16) and len(t) > 10
P
# Blocks and prompts that exceed the maximum length of the model are refused before the first result.
mh-train --train t.mhs --out short -q --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 \
  --set attention.score=synthesizer-random --set attention.synthesizer-random.length=20 --set train.batch.sequence_length=16 \
  --set train.batch.tokens=64 --set train.length=2u
m=short/last.safetensors
expect 0 mh-eval --sequence-length 20 $m t.mhs
expect 2 mh-eval --sequence-length 21 --per-token none.tsv $m t.mhs; expect_stderr "--sequence-length"
expect_stderr "at most attention.synthesizer-random.length, 20 tokens"
[ ! -s out ] && [ ! -e none.tsv ] || fail "scores were printed although the text is too long"
expect 0 mh-eval generate $m --prompt "w1 w2" --length 18  # 1 line end + 2 + 18 tokens; the last is never an input, so 20 positions suffice
expect 2 mh-eval generate $m --prompt "w1 w2" --length 19; expect_stderr "the prompt and --length together"; expect_stderr "20 tokens"
[ ! -s out ] || fail "expected no text before the error; found $(cat out)"
printf 'w1\nw1 w2\n' > two
expect 2 mh-eval generate $m --prompts two --length 19; expect_stderr "two:2 and --length together"
[ ! -s out ] || fail "expected no text before the error; found $(cat out)"
expect 2 mh-eval generate $m --prompt "$(yes w1 | head -30 | tr '\n' ' ')" --length 1
expect_stderr "at most attention.synthesizer-random.length"
