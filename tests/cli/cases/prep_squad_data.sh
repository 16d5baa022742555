# The published SQuAD files: number of records, scores of the gold answers after tokenisation, and windows, target spans,
# answers and scores compared with transformers.
data=${MH_DATA:-$ROOT/../shared/data}
[ -f "$data/squad-1.1/dev.json.zst" ] || skip "no SQuAD (MH_DATA)"
programs=$(dirname "$(command -v mh-prep)")/../tests
zstd -dcq "$data/bert-base-uncased/vocab.txt.zst" > vocab.txt
for part in dev train-part; do
  zstd -dcq "$data/squad-1.1/$part.json.zst" > "$part.json"
  expect 0 mh-prep squad --wordpiece vocab.txt "$part.json" -o "$part.mhs"
  case $part in
    dev) expect_stderr "10,570 questions on 2,067 paragraphs, 132,823 + 329,916 tokens" ;;
    *) expect_stderr "11,877 questions on 2,430 paragraphs, 149,009 + 324,652 tokens" ;;
  esac
  # Predicting the gold answers scores below 100 because some answers end inside a piece or have more than 30 tokens.
  "$programs/squad-print" truth "$part.mhs" > truth.json 2>/dev/null
  "$programs/squad-print" score "$part.mhs" truth.json | sed -n 1p >> scores
done
printf '99.6972563860 99.7592236774 10570\n98.9475456765 99.0062714776 11877\n' | diff - scores
export PYTHONPATH=${MH_CHECK_PYTHONPATH:-}
python3 -c 'import numpy, transformers' 2>/dev/null || skip "Python lacks transformers; the counts and the scores of the gold answers are as expected"
python3 -B "$ROOT/tests/cli/squad_parity.py" "$programs" vocab.txt dev.mhs dev.json 300
python3 -B "$ROOT/tests/cli/squad_parity.py" "$programs" vocab.txt train-part.mhs train-part.json 100
