# mh-prune and mh-spectrum experts with --metric bleu report the same BLEU as mh-eval for the same models.
[ -n "$(command -v mh-spectrum || true)" ] || skip "mh-spectrum is not built"
make_text 100 | awk 'NF' > s
sed 's/w/v/g' s > t
mh-prep vocab s t > v 2>/dev/null
mh-prep translation -q --vocab v s t -o p.mhs
printf '[model]\nbackbone = "encoder-decoder"\nlayers = 1\nwidth = 32\nffn_dim = 32\n[attention]\nheads = 4\n[train]\nbatch.sequence_length = 16\n' > c.toml
printf 'batch.tokens = 1000\nlr = 0.01\nlength = "60u"\n' >> c.toml
train() { mh-train -q --threads 1 --config c.toml --train p.mhs --valid p.mhs --out "$@"; }
train mt
train mae --set attention.combiner=mae
m=mt/best.safetensors mae=mae/best.safetensors
how=(--beam 2 --max-length-b 20 --tokenize none)
bleu_of() { mh-eval -q --format json "$1" p.mhs "${how[@]}" | python3 -c 'import json, sys; print(json.load(sys.stdin)["bleu"])'; }
expect 0 mh-prune curve --by taylor --step 25% --metric bleu "${how[@]}" --format json $m p.mhs; mv out curve
for part in 25 50 75; do mh-prune cut -q $m --by taylor --data p.mhs --fraction $part% -o cut$part; done
python3 - "$(bleu_of $m)" "$(bleu_of cut25)" "$(bleu_of cut50)" "$(bleu_of cut75)" <<'P'
import json, sys
rows = [json.loads(line) for line in open("curve")]
expected = [float(a) for a in sys.argv[1:]]
assert expected[0] > 1 and len(set(expected)) > 1, expected
assert [r["bleu"] for r in rows[:4]] == expected, ([r["bleu"] for r in rows], expected)
assert all(r["bleu_difference"] == r["bleu"] - expected[0] for r in rows)
assert rows[0]["beam"] == 2 and rows[0]["max_length_b"] == 20 and "tok:none" in rows[0]["signature"]
P
expect 0 mh-prune curve --by taylor --step 25% $m p.mhs; ! grep -q bleu out || fail "expected no BLEU columns without --metric bleu"
expect_experts() { expect "$1" mh-spectrum experts --show scores --random 2 --blocks 0 --format json "${@:2}"; }
expect_experts 0 $mae p.mhs --metric bleu "${how[@]}"; mv out scores
expect_experts 0 $mae p.mhs --metric bleu "${how[@]}"; cmp out scores
python3 - "$(bleu_of $mae)" <<'P'
import json, sys
rows = {r["gates"]: r for r in map(json.loads, open("scores"))}
assert list(rows) == ["own", "specialised", "random"]
assert rows["own"]["bleu"] == float(sys.argv[1]), (rows, sys.argv)
assert rows["own"]["bleu"] != rows["specialised"]["bleu"], rows
assert rows["random"]["runs"] == 2 and rows["random"]["deviation"] is not None and "perplexity" not in rows["own"]
P
# Refuses options of BLEU without --metric bleu, --blocks with --metric bleu, invalid options of BLEU, an unknown metric, --metric bleu for a
# language model, and --metric bleu of experts without --show scores.
record 2 mh-prune curve --by taylor --beam 3 $m p.mhs
record 2 mh-prune curve --by taylor --metric bleu --blocks 3 $m p.mhs
expect 2 mh-prune curve --by taylor --metric bleu --beam 999 $m p.mhs
record 2 mh-prune curve --by taylor --metric bleu --smooth-value 1 $m p.mhs
record 2 mh-prune curve --by taylor --metric chrf $m p.mhs
mh-prep lm -q --vocab v t -o t.mhs
mh-train -q --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=16 \
  --set train.batch.tokens=64 --set train.length=2u --train t.mhs --out lm
record 2 mh-prune curve --by taylor --metric bleu lm/last.safetensors t.mhs
record 2 mh-spectrum experts $mae p.mhs --metric bleu
record 2 mh-spectrum experts $mae p.mhs --blocks 0 --show scores --no-unknown
golden_record refused
expect 2 mh-spectrum experts $mae p.mhs --show scores --metric bleu
