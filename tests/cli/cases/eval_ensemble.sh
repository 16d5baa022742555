# mh-eval --ensemble: probabilities are the mean over the models; an ensemble of a model with itself equals the model; refusals.
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
fixed_text 120 > s
sed 's/w/v/g' s > t
mh-prep vocab s t > v 2>/dev/null
mh-prep translation -q --vocab v s t -o p.mhs
printf '[model]\nbackbone = "encoder-decoder"\nlayers = 1\nwidth = 32\nffn_dim = 32\n[attention]\nheads = 4\n[train]\nbatch.sequence_length = 16\n' > c.toml
printf 'batch.tokens = 1000\nlr = 0.005\nlength = "60u"\n' >> c.toml
train() { mh-train -q --threads 1 --config c.toml --out "$@"; }
train one --train p.mhs
train two --train p.mhs --set train.seed=2 --set model.width=48 --set model.layers=2
one=one/last.safetensors two=two/last.safetensors
how=(--beam 3 --max-length-b 20)
expect 0 mh-eval $one $two p.mhs --per-token alone --hypotheses hyp "${how[@]}" --format json; mv out alone.json
expect 0 mh-eval $one $two p.mhs --ensemble --per-token both --hypotheses both.hyp "${how[@]}" --format json; mv out both.json
expect 0 mh-eval $one $one p.mhs --ensemble --per-token same --hypotheses same.hyp "${how[@]}" --format json; mv out same.json
with_tolerance - <<'P'
import json, math
def tokens(path):
    return [(line.split("\t")[:3], float(line.split("\t")[3])) for line in open(path).read().splitlines()[1:]]
def rows(path):
    return [json.loads(line) for line in open(path)]
one, two, both, same = map(tokens, ("alone.0", "alone.1", "both", "same"))
for (token, p), (_, q), (ensemble_token, mean) in zip(one, two, both, strict=True):
    expected = math.log((math.exp(p) + math.exp(q)) / 2)
    assert token == ensemble_token and abs(mean - expected) <= 1e-5 * max(1, abs(expected)), (token, p, q, mean)
for (_, p), (_, q) in zip(one, same, strict=True):
    assert abs(p - q) <= 1e-6 * max(1, abs(p)), (p, q)
(first, second), (ensemble,), (itself,) = map(rows, ("alone.json", "both.json", "same.json"))
assert ensemble["model"] == "one/last.safetensors+two/last.safetensors", ensemble["model"]
assert list(ensemble) == list(first) and ensemble["tokens"] == first["tokens"]
assert ensemble["nll"] <= (first["nll"] + second["nll"]) / 2, (first["nll"], second["nll"], ensemble["nll"])  # the logarithm is concave
assert abs(itself["nll"] - first["nll"]) <= 1e-6 * first["nll"] and itself["bleu"] == first["bleu"], (first, itself)
P
cmp same.hyp hyp.0
# The mean of two models does not depend on their order. A search by the first model alone would find hyp.0 and hyp.1.
! cmp -s hyp.0 hyp.1 || fail "expected different translations of the two models; found the same"
expect 0 mh-eval $two $one p.mhs --ensemble --hypotheses swapped.hyp "${how[@]}"; cmp swapped.hyp both.hyp
[ ! -e both.0 ] && [ ! -e both.hyp.0 ] || fail "expected output files of an ensemble without a number; found $(ls both*)"
# Plain text gives the translations of the shard.
expect 0 mh-eval translate $one --add-model $two s "${how[@]}"; cmp out both.hyp
expect 0 mh-eval translate $one --add-model $one s "${how[@]}"; cmp out hyp.0

# Refuses a single model, language models, other vocabularies and other data, before anything is written.
record_refused() { record "$1" mh-eval "${@:2}"; [ ! -s out ] || fail "expected no output before the error; found $(cat out)"; [ ! -e none ] || fail "expected no file after an error; found one"; }
record_refused 2 $one p.mhs --ensemble --hypotheses none
mh-prep vocab --size 9 s t > v2 2>/dev/null
mh-prep lm -q --vocab v2 t -o t.mhs
mh-train -q --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=16 \
  --set train.batch.tokens=64 --set train.length=2u --train t.mhs --out lm
record_refused 2 lm/last.safetensors lm/last.safetensors t.mhs --ensemble
record_refused 3 $one lm/last.safetensors p.mhs --ensemble --hypotheses none
# The kind of the model is reported, not its other vocabulary.
record_refused 2 translate $one --add-model lm/last.safetensors s
mh-prep translation -q --vocab v2 s t -o other.mhs
train other --train other.mhs --set train.length=1u
record_refused 3 $one other/last.safetensors p.mhs --ensemble --hypotheses none
record_refused 3 translate $one --add-model other/last.safetensors s
train start --train p.mhs --set train.length=1u --set model.encoder-decoder.start_token=3
record_refused 3 $one start/last.safetensors p.mhs --ensemble
record_refused 3 translate $one --add-model missing s
record_refused 2 translate $one --add-model - - < s
golden_record refused
