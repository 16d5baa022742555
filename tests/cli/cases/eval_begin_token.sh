# The begin token in evaluation: with --begin document and block, mh-eval scores the tokens that Python lists, with the log-probabilities
# that the same inputs have in shards of one document or one row. Bits per byte, the other tools, the default and refusals.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
# The tokens of the vocabulary are the bytes, two line feeds, <|begin|> and <|end|>.
python3 - <<'P'
import json, os
printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
others = [b for b in range(256) if b not in printed]
letters = {**{b: chr(b) for b in printed}, **{b: chr(256 + i) for i, b in enumerate(others)}}
pieces = [letters[b] for b in range(256)] + [2 * letters[10]]
tokenizer = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                     for i, c in ((257, "<|begin|>"), (258, "<|end|>"))],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": r"\s+|\S+"}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                       "pair": [], "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [257], "tokens": ["<|begin|>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "ignore_merges": True, "vocab": {p: i for i, p in enumerate(pieces)}, "merges": [[letters[10], letters[10]]]}}
os.mkdir("f")
json.dump(tokenizer, open("f/tokenizer.json", "w"))
json.dump(["the cat", "a", "on the mat with the hat", "sat here", "the dog on the log"], open("texts.json", "w"))
open("documents", "w").write("".join(json.dumps({"text": text}) + "\n" for text in json.load(open("texts.json"))))
P
tiny=(--set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set model.layers=2 --set train.batch.sequence_length=16
  --set train.batch.tokens=32 --set train.length=20u --set train.lr=0.01)
mh-prep lm -q --vocab f --document jsonl documents -o d.mhs
mh-train -q "${tiny[@]}" --train d.mhs --out lm
m=lm/last.safetensors
with_tolerance - <<'P'
import json, math, subprocess, tolerance

BEGIN, MODEL = 257, "lm/last.safetensors"
texts = json.load(open("texts.json"))
tokens, begins = [], []  # tokens of the shard d.mhs; first token of each document
for text in texts:
    begins.append(len(tokens))
    tokens += [*text.encode(), BEGIN]
num_bytes = sum(map(len, texts))
roundings = tolerance.pass_roundings(MODEL, 16)


def evaluate(shard, begin, sequence_length, context):
    """Returns the scores of a shard, and {index: (token, log-probability)} of its tokens."""
    command = f"mh-eval -q --format json --per-token tokens.tsv --begin {begin} --sequence-length {sequence_length} --context {context} {MODEL} {shard}"
    score = json.loads(subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout)
    assert score["begin"] == begin, score
    rows = [line.split("\t") for line in open("tokens.tsv").read().splitlines()[1:]]
    assert [row[0] for row in rows] == sorted({row[0] for row in rows}, key=int)
    assert score["tokens"] == len(rows)
    return score, {int(index): (int(token), float(log_p)) for index, token, _, log_p in rows}


def make_shard(unit, text):
    subprocess.run(f"mh-prep lm -q --vocab f --document {unit} - -o one.mhs", shell=True, check=True, input=text, text=True)
    return "one.mhs"


def check(score, scored, expected):
    """expected: {index: log-probability} of the tokens that --begin scores, which are all tokens but the begin token."""
    assert sorted(expected) == [i for i, token in enumerate(tokens) if token != BEGIN]
    assert list(scored) == sorted(expected), (list(scored), sorted(expected))
    for i, (token, log_p) in scored.items():
        assert token == tokens[i]
        assert abs(log_p - expected[i]) <= tolerance.chain_bound(roundings, max(1, abs(log_p))), (i, log_p, expected[i])
    nll = -sum(log_p for _, log_p in scored.values())
    for key, value in ("nll", nll / len(scored)), ("bits_per_byte", nll / math.log(2) / num_bytes):
        assert abs(score[key] - value) <= tolerance.chain_bound(len(scored) + 2, value, tolerance.FP64), (key, score, value)


for context in 0, 3:
    # Without a begin token a document that is the whole shard has the rows of --begin document, and its end is scored too.
    expected = {}
    for text, begin in zip(texts, begins):
        _, alone = evaluate(make_shard("jsonl", json.dumps({"text": text})), "none", 8, context)
        assert alone.pop(len(text))[0] == BEGIN
        expected |= {begin + i: log_p for i, (_, log_p) in alone.items()}
    check(*evaluate("d.mhs", "document", 8, context), expected)

# A row of --begin block has the inputs of a shard of lines, whose first token is predicted from the begin token and whose line ends
# are begin tokens.
expected, sequence_length, context = {}, 8, 3
for scored_begin in range(0, len(tokens), sequence_length - context):
    row_begin = max(0, scored_begin - context)
    row = tokens[row_begin:scored_begin + sequence_length - context]
    lines = "".join("\n" if token == BEGIN else chr(token) for token in row).removesuffix("\n") + "\n"
    _, alone = evaluate(make_shard("line", lines), "none", sequence_length + 1, 0)
    expected |= {i: alone[i - row_begin][1] for i in range(scored_begin, row_begin + len(row)) if tokens[i] != BEGIN}
check(*evaluate("d.mhs", "block", sequence_length, context), expected)
P
# The default is printed. A shard of lines is one document.
expect 0 mh-eval -q --format json --sequence-length 8 $m d.mhs; expect_stdout '"begin":"block"'
mh-eval -q --format json --sequence-length 8 --begin block $m d.mhs | cmp - out
mh-prep lm -q --vocab f <(printf 'one\ntwo three\n') -o lines.mhs
expect 0 mh-eval --format json --sequence-length 8 --begin document --per-token tokens.tsv $m lines.mhs; expect_stdout '"tokens":12,'
[ "$(cut -f 1 tokens.tsv | tr '\n' ' ')" = "index 0 1 2 4 5 6 7 8 9 10 11 12 " ] || fail "expected all tokens but the line ends"
# The other tools. The first row of a scan is the full model.
mh-eval -q --format json --sequence-length 8 --begin document $m d.mhs > document
mh-prune scan -q --format json --sequence-length 8 --begin document $m d.mhs > scan
mh-prune rank -q --format json --by entropy --blocks 2 --sequence-length 8 --begin document $m d.mhs > rank
mh-spectrum -q --format json --blocks 2 --sequence-length 8 --begin document $m d.mhs > spectrum
mh-swap -q --format json --mode hard --k 1 --data d.mhs --dry-run --begin document $m > swap
with_tolerance - <<'P'
import json, tolerance
rows = {name: [json.loads(line) for line in open(name)] for name in ("document", "scan", "rank", "spectrum", "swap")}
assert all(row["begin"] == "document" for tool_rows in rows.values() for row in tool_rows)
assert [row["blocks"] for row in (rows["rank"][0], rows["spectrum"][0], rows["swap"][0])] == [2, 2, 0]
score, full = rows["document"][0], rows["scan"][0]
assert full["tokens"] == score["tokens"]
assert abs(full["nll"] - score["nll"]) <= tolerance.mean_nll_bound(score, "lm/last.safetensors", 8)
P
expect 0 mh-swap --mode hard --k 1 --data d.mhs -o swapped --begin block $m; expect_stderr ", all of them; seed 1, --begin block"
# The 5 documents have 2 + 2 full blocks of 9 tokens.
expect 2 mh-prune rank --by entropy --blocks 5 --sequence-length 9 --begin document $m d.mhs; expect_stderr "at most 4, "
# A prompt begins with one begin token, and its line feeds are text.
expect 0 mh-eval generate --length 2 --prompt $'a\n\nb' $m; expect_stderr "the prompt has 4 tokens, of which the first is the begin token <|begin|> (257)"
head -3 out | cmp -n 4 - <(printf 'a\n\nb')
expect 0 mh-eval generate --length 2 --prompt '<|begin|>' $m; expect_stderr "the prompt has 10 tokens"
expect 0 mh-eval generate --length 2 $m; expect_stderr "the prompt has 1 token,"
# With --stop-at-end a text ends at the token that ends a text, which differs from the begin token, at the begin token, and at the tokens of
# generation_config.json. The end token is printed as a line end.
cp -r f ends; echo '{"eos_token": "t"}' > ends/tokenizer_config.json
mh-prep lm -q --vocab ends --document jsonl documents -o ends.mhs
mh-train -q "${tiny[@]}" --train ends.mhs --out ends-lm
python3 -B - "$ROOT/tests/cli" <<'P'
import sys
sys.path.insert(0, sys.argv[1])
import checkpoint_header
tensors, metadata, data = checkpoint_header.read("ends-lm/last.safetensors")
for name, ids in ("listed", "[104, 97]"), ("wrong", '"</s>"'):
    metadata["multihead.huggingface"] = '{"generation_config.json": {"eos_token_id": %s}}' % ids
    checkpoint_header.write(name, tensors, metadata, data)
P
for case in "ends-lm/last.safetensors t" "listed tha"; do
  model=${case% *}
  mh-eval generate -q --format json --length 60 --samples 40 $model > long
  mh-eval generate -q --format json --length 60 --samples 40 --stop-at-end $model > stopped
  python3 - "${case#* }" <<'P'
import json, sys
ends = set()
for long, stopped in zip(*([json.loads(line)["text"] for line in open(name)] for name in ("long", "stopped"))):
    if stopped == long:  # no end token, or the last one
        assert not set(long[:-1]) & set(sys.argv[1]), long
        continue
    assert stopped[-1] == "\n" and long.startswith(stopped[:-1]) and not set(stopped) & set(sys.argv[1]), (long, stopped)
    ends.add(long[len(stopped) - 1])
assert ends <= set(sys.argv[1] + "\n") and len(ends & set(sys.argv[1])) >= min(2, len(sys.argv[1])), ends
P
done
expect 3 mh-eval generate --stop-at-end wrong; expect_stderr "eos_token_id: expected the id of a token"
# A model with a memory has no begin token by default, and a vocabulary without one has no column. Positions that contradict the model or the
# vocabulary are refused.
mh-train -q "${tiny[@]}" --set model.backbone=transformer-xl --set model.positions=none --set model.transformer-xl.memory=8 \
  --set attention.score=relative --set train.batch.order=streams --train d.mhs --out xl
mh-eval -q --format json --sequence-length 8 $m xl/last.safetensors d.mhs | grep -o '"begin":"[a-z]*"' | cmp - <(printf '"begin":"block"\n"begin":"none"\n')
expect 0 mh-eval --sequence-length 8 --memory 0 --begin document xl/last.safetensors d.mhs
expect 2 mh-eval --sequence-length 8 --begin block xl/last.safetensors d.mhs
printf 'one two\nthree\n' > text
mh-prep vocab -q text -o words
mh-prep lm -q --vocab words text -o w.mhs
mh-train -q "${tiny[@]}" --set train.batch.tokens=16 --set train.length=1u --train w.mhs --out words-lm
expect 0 mh-eval words-lm/last.safetensors w.mhs
! grep -q begin out || fail "expected no column begin"
expect 2 mh-eval --begin document words-lm/last.safetensors w.mhs
expect 2 mh-eval --begin page $m d.mhs
