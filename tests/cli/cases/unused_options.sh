# Options without effect are refused before any file is read, also with their default values.
for tool in mh-eval mh-finetune mh-prune mh-spectrum mh-swap mh-train; do [ -n "$(command -v $tool || true)" ] || skip "$tool is not built"; done
# Dry runs print a table, and compute and write nothing.
expect 2 mh-train --train t.mhs --out run --format table
expect 2 mh-train --dry-run --out run
expect 2 mh-train --dry-run --threads 0
expect 2 mh-finetune --init m --dry-run --seeds 1
expect 2 mh-finetune --init m --train t.mhs --out run --format json
# Options of the choice of heads, and of passes of the model.
expect 2 mh-swap m --mode hard --unit head --data d -o x
expect 2 mh-swap m --mode random --t-max 0 -o x
expect 2 mh-swap m --pairs decoder.self:0.0-1.0 --precision fp32 -o x
expect 2 mh-swap m --pairs decoder.self:0.0-1.0 --attention auto --dry-run
for option in "--precision fp32" "--attention auto" "--set model.norm_epsilon=1e-5"; do expect 2 mh-spectrum m --of alphas $option; done
# Seeds without a sample or other random numbers.
expect 2 mh-swap m --mode hard --data d --seed 1 -o x
expect 2 mh-swap report m d --seed 1
expect 2 mh-prune scan m d --seed 1
expect 2 mh-prune rank --by taylor,ablation --blocks 0 --seed 1 m d
expect 2 mh-prune curve --by taylor --seed 1 m d
expect 2 mh-prune cut m --by taylor --data d --count 1 --seed 1 -o x
expect 2 mh-spectrum m d --blocks 0 --seed 1
expect 2 mh-spectrum experts m d --blocks 0 --seed 1
# Options of a table in whose place a plot is drawn, or of another table.
expect 2 mh-prune scan --plot - --format json m d
expect 2 mh-prune scan --plot - --layers m d
expect 2 mh-prune scan --plot - --summary m d
expect 2 mh-prune rank --by taylor --plot - --format table m d
expect 2 mh-prune rank --by taylor --plot - --per-layer m d
expect 2 mh-prune curve --by taylor --plot - --format json m d
expect 2 mh-spectrum m d --plot - --format table
expect 2 mh-spectrum m d --plot - --summary
expect 2 mh-spectrum experts m d --metric perplexity
# Options of sampling without random numbers, of scores in whose place predictions are printed, and of smoothing without a value.
expect 2 mh-eval generate m --temperature 0 --seed 1
expect 2 mh-eval generate m --temperature 0 --top-k 0
expect 2 mh-eval translate m text --samples 2 --temperature 0 --top-k 5
expect 2 mh-eval m d --predictions - --format table
expect 2 mh-eval m d --best-answers - --format json
expect 2 mh-eval m d --smooth-value 0
expect 2 mh-eval bleu hyp ref --smooth none --smooth-value 0
expect 2 mh-prune scan --metric bleu --smooth-value 0 m d
# Options of the type or the source of a vocabulary, and of files with labels.
printf 'a\n' > text
mh-prep vocab -q --type byte text -o byte.v
expect 2 mh-prep vocab --type word --strip-accents auto text
expect 2 mh-prep vocab --type bpe --size 50 --min-count 1 text
expect 2 mh-prep vocab --type byte --crlf refuse text
expect 2 mh-prep vocab --type wordpiece --from vocab.txt --min-count 1
expect 2 mh-prep vocab --type wordpiece --from vocab.txt --crlf normalise
expect 2 mh-prep lm --vocab byte.v --crlf refuse text
expect 2 mh-prep mlm --vocab v --strip-accents auto text
expect 2 mh-prep examples --vocab v --text a --labels no,yes --malformed drop f
[ ! -e x ] && [ ! -e run ] || fail "expected no output after an error; found one"
