# data_scripts/bert-base-uncased and data_scripts/squad: small files of the form of the public ones become a model and shards; other sums, other versions
# and missing files are refused, and an error leaves no shard. Nothing is downloaded.
scripts=$ROOT/data_scripts
[ -d "$scripts" ] || skip "no data_scripts here"
data=${MH_DATA:-$ROOT/../shared/data}
export MH_DATA=
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' who was where mary paris in . > pieces.txt
mh-prep vocab -q --type wordpiece --from pieces.txt > pieces

# SQuAD: two versions of the same article, with an astral character before the answer; 2.0 has a question without an answer.
mkdir dataset
python3 - <<'PYTHON'
import json

context = "\U0001f600 Mary was in Paris."
answerable = {"id": "q1", "question": "Where was Mary?", "answers": [{"text": "Paris", "answer_start": context.index("Paris")}]}
impossible = {"id": "q2", "question": "Who was in Paris?", "answers": [], "plausible_answers": [], "is_impossible": True}
for version, questions in (("1.1", [answerable]), ("2.0", [dict(answerable, is_impossible=False), impossible])):
    for split in ("train", "dev"):
        data = [{"title": "Mary", "paragraphs": [{"context": context, "qas": questions}]}]
        written = {"version": "v2.0", "data": data} if version == "2.0" else {"data": data, "version": "1.1"}
        with open(f"dataset/{split}-v{version}.json", "w", encoding="utf-8") as file:
            json.dump(written, file)
PYTHON
url=file://$PWD/dataset
expect 0 env MH_TEST_SUMS=none "$scripts/squad" "one one" 1.1 pieces "$url"; expect_stderr "questions in valid.mhs: expected 10570; found 1"
expect 0 mh-prep cat "one one/train.mhs"; grep -q '^q1	where was mary \[UNK\]	\[UNK\] mary was in paris .$' out || fail "expected the question q1; found $(cat out)"
expect 0 env MH_TEST_SUMS=none "$scripts/squad" two 2.0 pieces "$url"; expect_stderr "questions in train.mhs: expected 130319; found 2"
mh-prep info two/valid.mhs | grep -q '^impossible	1$' || fail "expected a question without an answer; found $(mh-prep info two/valid.mhs)"
mv dataset away
expect 0 env MH_TEST_SUMS=none "$scripts/squad" two 2.0 pieces "$url"  # a second call reads the files of the first
mv away dataset
expect 0 "$scripts/squad" own 1.1 pieces dataset/train-v1.1.json dataset/dev-v1.1.json; expect_stderr "train.mhs: 1 questions; the published training set has 87599"
expect 0 "$scripts/squad" single 1.1 pieces dataset/dev-v1.1.json; expect_stderr "without training files, train.mhs is not written"
expect 1 "$scripts/squad" new 1.1 pieces "$url"; expect_stderr "squad: train-v1.1.json: expected bytes 30288272; found"
expect 2 "$scripts/squad" new 3 pieces; expect_stderr "expected the version 1.1 or 2.0; found 3"
expect 1 "$scripts/squad" new 2.0 pieces dataset/dev-v1.1.json; expect_stderr 'expected version 2.0 of SQuAD; found "version": "1.1"'
expect 1 "$scripts/squad" new 1.1 pieces dataset/none.json; expect_stderr "dataset/none.json: expected a JSON file of SQuAD; found no such file"
head -c 100 dataset/dev-v1.1.json > cut.json
expect 3 "$scripts/squad" new 1.1 pieces cut.json; expect_stderr "cut.json"
[ -z "$(find new -type f)" ] || fail "expected no files after an error; found $(ls new)"

# The model: a folder with the three files of the public one becomes a checkpoint.
[ -n "$(command -v mh-convert || true)" ] || { echo "without mh-convert"; exit 0; }
. "$ROOT/tests/cli/huggingface_recorded.sh"
cp -r "$ROOT/tests/cli/recorded/bert-4" .
huggingface_recorded weights bert-4
mkdir "a copy"
cp bert-4/{config.json,vocab.txt} "a copy"
echo '[ADDED]' >> "a copy/vocab.txt"  # the recorded model has an entry outside vocab.txt
url="file://$PWD/a copy"
expect 1 "$scripts/bert-base-uncased" bert "$url"; expect_stderr "bert-base-uncased: config.json: expected bytes 570; found"
[ -z "$(find bert -type f)" ] || fail "expected no files after an error; found $(ls bert)"
expect 1 env MH_TEST_SUMS=none "$scripts/bert-base-uncased" bert "$url"; expect_stderr "model.safetensors: expected"
[ "$(ls bert | paste -sd ' ')" = "config.json vocab.txt" ] || fail "expected the files of the first call to remain; found $(ls bert)"
head -c 1000 bert-4/model.safetensors > "a copy/model.safetensors"
expect 3 env MH_TEST_SUMS=none "$scripts/bert-base-uncased" cut "$url"
[ ! -f cut/bert.safetensors ] || fail "expected no checkpoint of a cut file"
cp bert-4/model.safetensors "a copy"
expect 0 env MH_TEST_SUMS=none "$scripts/bert-base-uncased" bert "$url"
expect 0 mh-prep vocab --type wordpiece --from bert -o bert.v
cmp <(mh-prep lm --vocab bert/bert.safetensors pieces.txt 2>/dev/null | mh-prep cat --ids -) <(mh-prep lm --vocab bert.v pieces.txt 2>/dev/null | mh-prep cat --ids -)
expect 0 env MH_TEST_SUMS=none "$scripts/squad" converted 1.1 bert/bert.safetensors "file://$PWD/dataset"

# With the mirror: the development set of SQuAD 1.1 and the vocabulary have the published sums.
[ -f "$data/squad-1.1/dev.json.zst" ] || { echo "without the mirror of SQuAD"; exit 0; }
zstd -dcq "$data/squad-1.1/dev.json.zst" > dev.json
zstd -dcq "$data/bert-base-uncased/vocab.txt.zst" > vocab.txt
for file in dev.json:squad vocab.txt:bert-base-uncased; do
  grep -qF "$(sha256sum < "${file%:*}" | cut -d' ' -f1)" "$scripts/${file#*:}" || fail "expected the sum of ${file%:*} in the script"
done
mh-prep vocab -q --type wordpiece --from vocab.txt > v
zstd -dcq "$data/squad-1.1/train-part.json.zst" > train-part.json
expect 0 "$scripts/squad" part 1.1 v train-part.json dev.json; expect_stderr "valid.mhs: 10570 questions; the published development set has 10570"
expect_stderr "train.mhs: 11877 questions"
