# Tokens and segments of all GLUE files of the mirror, with BERT's vocabulary, equal the results of the tokenizers of
# transformers.
data=${MH_DATA:-$ROOT/../shared/data}
[ -f "$data/bert-base-uncased/vocab.txt.zst" ] || skip "no vocabulary of BERT and no GLUE (MH_DATA)"
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import transformers' 2>/dev/null || skip "Python lacks transformers"
zstd -dcq "$data/bert-base-uncased/vocab.txt.zst" > vocab.txt
for file in "$data"/glue/*/*.zst; do
  folder=glue/$(basename "$(dirname "$file")")
  mkdir -p "$folder"
  zstd -dcq "$file" > "$folder/$(basename "$file" .zst)"
done
PYTHONPATH=$MH_CHECK_PYTHONPATH python3 -B "$ROOT/tests/cli/examples_parity.py" "$(dirname "$(command -v mh-prep)")/../tests" vocab.txt glue
