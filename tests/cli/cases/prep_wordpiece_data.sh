# Token ids and character offsets of all texts of GLUE and SQuAD in the mirror, with BERT's vocabulary, equal the results
# of the package `tokenizers`.
data=${MH_DATA:-$ROOT/../shared/data}
[ -f "$data/bert-base-uncased/vocab.txt.zst" ] || skip "no vocabulary of BERT and no GLUE (MH_DATA)"
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import tokenizers' 2>/dev/null || skip "Python lacks tokenizers"
zstd -dcq "$data/bert-base-uncased/vocab.txt.zst" > vocab.txt
mkdir texts
for file in "$data"/glue/*/*.zst; do
  name=$(basename "$(dirname "$file")")-$(basename "$file" .zst)
  zstd -dcq "$file" > "texts/$name"
done
for part in dev train-part; do
  zstd -dcq "$data/squad-1.1/$part.json.zst" | python3 -c 'import json, sys
for article in json.load(sys.stdin)["data"]:
    for paragraph in article["paragraphs"]:
        for text in [paragraph["context"], *(a for q in paragraph["qas"] for a in (q["question"], *(b["text"] for b in q["answers"])))]:
            print(" ".join(text.split("\n")))' > "texts/squad-$part"
done
PYTHONPATH=$MH_CHECK_PYTHONPATH python3 -B "$ROOT/tests/cli/wordpiece_parity.py" "$(dirname "$(command -v mh-prep)")/../tests" vocab.txt texts/*
