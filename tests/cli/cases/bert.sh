# Pre-trains a BERT encoder on text and fine-tunes it for classification, regression and question answering; checks
# errors.
[ -n "$(command -v mh-finetune || true)" ] || skip "mh-finetune is not built"
# Documents of sentences. Each document has a topic whose words follow a fixed order, so a masked word can be predicted
# from its neighbours.
awk 'BEGIN { srand(3); for (d = 0; d < 60; d++) { t = int(rand() * 4); for (i = 0; i < 6; i++) { s = ""; n = 4 + int(rand() * 6);
  for (k = 0; k < n; k++) s = s " t" t "w" (i + k) % 9; print s } print "" } }' > corpus
mh-prep vocab -q --type wordpiece --size 120 corpus > v
mh-prep mlm -q --vocab v corpus > t.mhs
head -n 100 corpus | mh-prep mlm -q --vocab v - > v.mhs
cat > c.toml <<'T'
[model]
backbone = "bert"
norm = "post"
activation = "gelu"
positions = "learned"
max_positions = 64
scale_embedding = false
bert.segments = 2
bert.embedding_norm = true
init = "bert"
layers = 2
width = 32
ffn_dim = 64
bert.next_sentence = true
[attention]
heads = 4
[train]
length = "400u"
batch.sequence_length = 32
batch.rows = 16
optimizer.rule = "adamw"
optimizer.decay_norms_and_biases = false
lr = 5e-3
schedule.rule = "linear"
schedule.warmup = "40u"
validation.every = "100u"
log_every = "10u"
T
expect 0 mh-train --config c.toml --train t.mhs --valid v.mhs --out bert --threads 1
expect_stderr "word_accuracy"; expect_stderr "next_accuracy"
# The word accuracy rises during training. A run resumed halfway ends with the same weights.
python3 - <<'P'
import json
lines = [json.loads(line) for line in open("bert/log.jsonl")]
words = [line["valid_word_accuracy"] for line in lines if "valid_word_accuracy" in line]
assert len(words) == 4 and words[-1] > max(0.1, words[0]), words
assert [line["valid_next_accuracy"] for line in lines if "valid_next_accuracy" in line][-1] > 0.75
P
mh-train -q --config c.toml --train t.mhs --valid v.mhs --out halves --threads 1 --set train.length=213u --set train.schedule.length=400u
expect 0 mh-train -q --resume --out halves --threads 1 --set train.length=400u
mh-eval -q --format json bert/last.safetensors v.mhs | sed 's/bert//' > a
mh-eval -q --format json halves/last.safetensors v.mhs | sed 's/halves//' > b
cmp a b || fail "a resumed run differs"
grep -q '"word_accuracy":' a || fail "$(cat a)"
m=bert/best.safetensors

# The sequence length grows during training (train.batch.long_sequence_length); a run resumed after the change ends with the same
# weights.
go="--config c.toml --train t.mhs --threads 1 --set train.batch.long_sequence_length=48 --set train.batch.long_from=7u"
mh-train -q $go --out long --set train.length=12u
mh-train -q $go --out parts --set train.length=9u --set train.schedule.length=12u
expect 0 mh-train -q --resume --out parts --threads 1 --set train.length=12u
mh-eval -q --format json long/last.safetensors v.mhs | sed 's/long//' > a
mh-eval -q --format json parts/last.safetensors v.mhs | sed 's/parts//' > b
cmp a b || fail "a resumed run differs"
mh-train -q --config c.toml --train t.mhs --threads 1 --out short --set train.length=12u
mh-eval -q --format json short/last.safetensors v.mhs | sed 's/short//' > b
! cmp -s a b || fail "rows did not become longer"
# long_sequence_length is at most max_positions and needs long_from; long_predictions needs long_sequence_length.
expect 2 mh-train $go --out no --set train.batch.long_sequence_length=65
expect 2 mh-train --config c.toml --train t.mhs --out no --set train.batch.long_sequence_length=48
expect 2 mh-train --config c.toml --train t.mhs --out no --set mlm.long_predictions=9
expect_stderr "0, unless train.batch.long_sequence_length is set"
# Trains in blocks of 3 tokens, which have room for one piece beside [CLS] and [SEP].
printf 't0w1 t0w2 t0w3\n\nt1w1 t1w2 t1w3\n' | mh-prep mlm -q --vocab v - > three.mhs
expect 0 mh-train --config c.toml --train three.mhs --out three --threads 1 --set model.bert.next_sentence=false --set train.batch.sequence_length=3 --set train.length=30u

# Classification: the words determine the label. Three seeds, reported with mean and sample standard deviation.
awk 'BEGIN { srand(5); print "label\ttext"; for (i = 0; i < 120; i++) { t = int(rand() * 3); print "c" t "\tt" t "w" int(rand() * 9) " t" t "w" int(rand() * 9) } }' > train.tsv
mh-prep examples -q --vocab $m --text text --label label --labels c0,c1,c2 train.tsv > classes.mhs
go="--init $m --set train.batch.sequence_length=32 --set train.batch.rows=16 --set train.lr=1e-3 --threads 1"
expect 0 mh-finetune --train classes.mhs --valid classes.mhs $go --out ft --seeds 3 --set train.length=6e --set train.validation.metric=accuracy
expect_stderr "head.classes.weight"; expect_stderr "left out"; expect_stderr "head.words.transform.weight"
[ "$(wc -l < out)" -eq 6 ] || fail "$(cat out)"
with_tolerance - <<'P'
import csv, statistics, tolerance
rows = list(csv.DictReader(open("out"), delimiter="\t"))
assert [row["seed"] for row in rows] == ["1", "2", "3", "mean", "deviation"], rows
scores = [float(row["accuracy"]) for row in rows[:3]]
assert min(scores) > 0.9, scores
assert abs(float(rows[3]["accuracy"]) - statistics.mean(scores)) <= tolerance.mean_bound(scores)
assert abs(float(rows[4]["accuracy"]) - statistics.stdev(scores)) <= tolerance.deviation_bound(scores)
losses = {row["loss"] for row in rows[:3]}
assert len(losses) == 3, "seeds that do the same"
P
expect 0 mh-eval --format json ft/seed2/best.safetensors classes.mhs; expect_stdout '"accuracy":'; expect_stdout '"rows":120'
# Predicted classes, compared with the labels; the classes are in the configuration of the run.
cut -f 2 train.tsv > unlabelled.tsv
mh-prep examples -q --vocab $m --text text --label label --labels c0,c1,c2 train.tsv > test.mhs
expect 0 mh-eval ft/seed2/best.safetensors test.mhs --predictions -
[ "$(head -n 1 out)" = "$(printf 'index\tprediction')" ] || fail "$(head -n 2 out)"
tail -n +2 train.tsv | cut -f 1 > truth
tail -n +2 out | cut -f 2 | paste - truth | awk '$1 == $2' | wc -l > right
[ "$(cat right)" -gt 108 ] || fail "$(cat right) of 120 predictions are right"
grep -q 'labels = \["c0", "c1", "c2"\]' ft/seed1/config.toml || fail "labels: $(grep labels ft/seed1/config.toml)"
# A shard with the classes in another order is refused, unless model.bert.labels is empty.
mh-prep examples -q --vocab $m --text text --label label --labels c2,c1,c0 train.tsv > other.mhs
expect 3 mh-eval ft/seed2/best.safetensors other.mhs; expect_stderr "in the model's order, c0, c1, c2"; expect_stderr "found c2, c1, c0"
expect 0 mh-eval ft/seed2/best.safetensors other.mhs --set 'model.bert.labels=[]'
expect 3 mh-finetune --train classes.mhs --valid other.mhs $go --out no; [ ! -d no ] || fail "expected no folder after an error; found one"
# A shard without labels is refused for training, validation and pruning.
cut -f 2 train.tsv > texts.tsv
mh-prep examples -q --vocab $m --text text --labels c0,c1,c2 texts.tsv > bare.mhs
expect 3 mh-finetune --train classes.mhs --valid bare.mhs $go --out no; [ ! -d no ] || fail "expected no folder after an error; found one"
expect 3 mh-prune scan ft/seed2/best.safetensors bare.mhs
expect 3 mh-finetune --train bare.mhs $go --out no; [ ! -d no ] || fail "expected no folder after an error; found one"
# Refuses a head without its number of classes, options of mh-eval for other tasks, and examples from a pipe.
expect 2 mh-train --config c.toml --train classes.mhs --out no --set model.bert.head=classes; [ ! -d no ] || fail "expected no folder after an error; found one"
expect 2 mh-eval ft/seed2/best.safetensors classes.mhs --best-answers x
expect 2 mh-eval ft/seed2/best.safetensors classes.mhs --per-token x
expect 2 mh-eval ft/seed2/best.safetensors - < <(cat classes.mhs)
# mh-eval scores no example of a shard without labels.
expect 0 mh-eval --format json ft/seed2/best.safetensors bare.mhs; expect_stdout '"loss":null'; expect_stdout '"scored":0'
# --seeds excludes train.seed, folders of earlier runs and a model from a pipe; --resume needs --init for a run that has not begun.
expect 2 mh-finetune --train classes.mhs $go --out no --seeds 2 --set train.seed=7
expect 2 mh-finetune --train classes.mhs $go --out ft --seed 3 --seeds 2; expect_stderr "found the folder ft/seed3"; [ ! -d ft/seed4 ] || fail "a seed ran although another was refused"
expect 3 mh-eval ft classes.mhs
expect 2 mh-finetune --resume --out ft --seeds 4; expect_stderr "the run with seed 4 has not begun"
expect 0 mh-finetune -q --resume --out ft --seeds 3 --threads 1; [ "$(wc -l < out)" -eq 6 ] || fail "$(cat out)"
# --resume with --init begins the runs whose folder is missing, or has no config.toml and no completed update, and leaves the others unchanged.
mv out scores
cp -r ft whole
rm -r ft/seed2 ft/seed3
mkdir ft/seed3
cp ft/seed1/last.safetensors unchanged
expect 0 mh-finetune -q --resume --train classes.mhs --valid classes.mhs $go --out ft --seeds 3 --set train.length=6e --set train.validation.metric=accuracy
cmp out scores
cmp ft/seed1/last.safetensors unchanged
for seed in 2 3; do expect 0 python3 "$ROOT/tests/cli/same_run.py" whole/seed$seed ft/seed$seed; done
expect 2 mh-finetune --train classes.mhs --init - --seeds 2 --out no < $m
# Each run reads the configuration again, so the configuration must be a file unless there is only one run.
expect 2 mh-finetune --config - --train classes.mhs $go --seeds 2 --out no < c.toml; [ ! -d no ] || fail "expected no folder after an error; found one"
expect 2 mh-finetune --config <(cat c.toml) --train classes.mhs $go --seeds 2 --out no; [ ! -d no ] || fail "expected no folder after an error; found one"
printf '[train]\nlength = "1u"\n' | mh-finetune -q --config - --train classes.mhs $go --seeds 1 --out single
# The names of the classes survive the conversion to Hugging Face and back.
mh-convert -q --to huggingface ft/seed2/best.safetensors named && mh-convert -q named > named.safetensors
for labels in c0,c1,c2 c2,c1,c0; do
  mh-prep examples -q --vocab named.safetensors --text text --label label --labels $labels train.tsv > $labels.mhs
done
expect 0 mh-eval named.safetensors c0,c1,c2.mhs
expect 3 mh-eval named.safetensors c2,c1,c0.mhs; expect_stderr "in the model's order, c0, c1, c2"
# A model whose scores are NaN is refused, and no predictions are written.
cp -r named spoilt
python3 - <<'P'
import json, struct
data = open("named/model.safetensors", "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header, numbers = json.loads(data[8:8 + length]), bytearray(data[8 + length:])
header["__metadata__"] = {"format": "pt"}  # without checksums
at = header["classifier.weight"]["data_offsets"][0]
numbers[at:at + 4] = struct.pack("<f", float("nan"))
text = json.dumps(header).encode()
open("spoilt/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + numbers)
P
mh-convert -q spoilt > nan.safetensors
expect 1 mh-eval nan.safetensors c0,c1,c2.mhs --predictions nan.tsv; [ ! -e nan.tsv ] || fail "predictions were written although the scores are NaN"

# mh-finetune reports that an added method does not change the hidden states at the start, or warns that it does.
expect 0 mh-finetune --train classes.mhs $go --out mixed --set train.length=1u --set attention.mixer=mixhead-b
expect_stderr "do not change the hidden states yet"
expect 0 mh-finetune --train classes.mhs $go --out halved --set train.length=1u --set attention.mixer=mixhead-b --set train.precision=bf16
expect_stderr "do not change the hidden states yet"
expect 0 mh-finetune --train classes.mhs $go --out crossed --set train.length=1u --set attention.pairing=cross-head
expect 0 mh-finetune --train classes.mhs $go --out drawn --set train.length=1u --set attention.mixer=random-normal
expect_stderr "the model computes another function than"

# Regression: the number to predict follows from the topic of the words.
awk 'BEGIN { srand(6); print "score\ttext"; for (i = 0; i < 80; i++) { t = int(rand() * 4); print t ".5\tt" t "w" int(rand() * 9) " t" t "w" int(rand() * 9) } }' > numbers.tsv
mh-prep examples -q --vocab $m --text text --label score --number 0,5 numbers.tsv > numbers.mhs
expect 3 mh-eval ft/seed2/best.safetensors numbers.mhs
expect 0 mh-finetune -q --train numbers.mhs --valid numbers.mhs $go --out n --set train.length=8e --set train.validation.metric=spearman
expect 0 mh-eval --format json n/best.safetensors numbers.mhs; expect_stdout '"pearson":'
python3 -c 'import json; assert json.load(open("out"))["spearman"] > 0.8' || fail "$(cat out)"

# Question answering: the answer is the word after the word of the question.
python3 - <<'P'
import json, random
random.seed(2)
paragraphs = []
for p in range(40):
    words = [f"t{random.randrange(4)}w{i}" for i in random.sample(range(9), 9)]
    text = " ".join(words)
    at = random.randrange(8)
    paragraphs.append({"context": text, "qas": [{"id": f"q{p}", "question": words[at],
        "answers": [{"text": words[at + 1], "answer_start": text.index(words[at + 1])}]}]})
json.dump({"version": "1.1", "data": [{"title": "one", "paragraphs": paragraphs}]}, open("qa.json", "w"))
P
mh-prep squad -q --vocab $m qa.json > qa.mhs
expect 0 mh-finetune -q --train qa.mhs --valid qa.mhs $go --out qa --set train.batch.sequence_length=64 --set squad.max_question_tokens=20 --set train.length=4e --set train.validation.metric=f1
expect 0 mh-eval --format json qa/best.safetensors qa.mhs --predictions answers.json --best-answers best.json
expect_stdout '"exact":'; expect_stdout '"f1":'; expect_stdout '"question":20'; expect_stdout '"longest_answer":30'
expect 0 mh-eval --format json qa/best.safetensors qa.mhs --set squad.max_answer_tokens=1 --set squad.num_best_answers=3; expect_stdout '"longest_answer":1'; expect_stdout '"best":3'
expect 2 mh-eval ft/seed1/best.safetensors classes.mhs --set squad.max_answer_tokens=1
expect 2 mh-eval qa/best.safetensors qa.mhs --predictions x.json --best-answers ./x.json
expect 0 mh-swap report qa/best.safetensors qa/best.safetensors qa.mhs
python3 - <<'P'
import json
answers, best = json.load(open("answers.json")), json.load(open("best.json"))
assert len(answers) == 40 and all(best[q][0]["text"] == text for q, text in answers.items())
P

# The analysis tools accept encoders with any task head.
for model in "$m v.mhs" "ft/seed1/best.safetensors classes.mhs" "qa/best.safetensors qa.mhs"; do
  expect 0 mh-prune scan --format json $model
  [ "$(grep -c '"kind":"encoder.self"' out)" -ge 8 ] || fail "heads of $model: $(cat out)"
  expect 0 mh-prune rank --by taylor $model
  expect 0 mh-spectrum --blocks 4 --summary $model
done
# The tables of mh-prune name the loss of a task head, which is no perplexity, and count targets instead of tokens.
for model in "ft/seed1/best.safetensors classes.mhs 120" "n/best.safetensors numbers.mhs 80"; do
  read -r checkpoint shard rows <<< "$model"
  expect 0 mh-prune scan --heads 0:0,0:1 --format json $checkpoint $shard; mv out scan
  expect 0 mh-prune scan --heads 0:0,0:1 --summary --format json $checkpoint $shard; mv out summary
  expect 0 mh-prune curve --by random --step 100% --format json $checkpoint $shard; mv out curve
  python3 - $rows <<'P'
import json, sys
tables = {name: [json.loads(line) for line in open(name)] for name in ("scan", "summary", "curve")}
for name, rows in tables.items():
    assert not {"nll", "perplexity", "tokens"} & rows[0].keys(), (name, rows[0])
    assert all(row["scored"] == int(sys.argv[1]) for row in rows), (name, rows)
full = tables["scan"][0]["loss"]
assert tables["summary"][0]["loss"] == full and all(row["difference"] == row["loss"] - full for row in tables["scan"])
assert all(row["difference"] == row["loss"] - tables["curve"][0]["loss"] for row in tables["curve"])
P
done
expect 2 mh-prune scan --heads 0:0 --metric perplexity ft/seed1/best.safetensors classes.mhs
# mh-prune --metric and mh-eval report the same task scores for the same models.
print_score() { mh-eval -q --format json "$1" "$2" | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$3"; }
mh-prune cut -q ft/seed1/best.safetensors --heads 0:1 -o without.safetensors
expect 0 mh-prune scan --metric accuracy --format json ft/seed1/best.safetensors classes.mhs; mv out scan
with_tolerance - "$(print_score ft/seed1/best.safetensors classes.mhs accuracy)" \
  "$(print_score without.safetensors classes.mhs accuracy)" <<'P'
import json, statistics, sys, tolerance
rows = [json.loads(line) for line in open("scan")]
full, without = map(float, sys.argv[1:])
assert len(rows) == 9 and rows[0]["accuracy"] == full and "nll" not in rows[0], rows[0]
first = [row for row in rows if row["layer"] == 0]
assert first[1]["accuracy"] == without and first[1]["difference"] == without - full, (first[1], without)
scores = [row["accuracy"] for row in first]
assert abs(first[0]["layer_deviation"] - statistics.stdev(scores)) <= tolerance.deviation_bound(scores)
assert len({row["accuracy"] for row in rows}) > 1, rows
P
expect 0 mh-prune scan --metric accuracy --summary ft/seed1/best.safetensors classes.mhs; expect_stdout "accuracy"
expect 0 mh-prune curve --by random --step 50% --metric f1 --format json qa/best.safetensors qa.mhs; mv out curve
mh-eval -q --format json qa/best.safetensors qa.mhs > of_all
python3 - <<'P'
import json
rows, full = [json.loads(line) for line in open("curve")], json.load(open("of_all"))["f1"]
assert rows[0]["f1"] == full and rows[2]["f1"] < full and rows[2]["f1_difference"] == rows[2]["f1"] - full, rows
P
# Refuses scores of other tasks, and --blocks with a score of all rows.
expect 2 mh-prune scan --metric f1 ft/seed1/best.safetensors classes.mhs
expect 2 mh-prune scan --metric accuracy --blocks 4 ft/seed1/best.safetensors classes.mhs
expect 2 mh-prune scan --metric bleu ft/seed1/best.safetensors classes.mhs
# The default number of blocks is limited to the rows of the shard; an explicit --blocks above it is refused.
head -n 11 train.tsv > few.tsv
mh-prep examples -q --vocab $m --text text --label label --labels c0,c1,c2 few.tsv > few.mhs
expect 0 mh-spectrum --summary --format json ft/seed1/best.safetensors few.mhs; expect_stdout '"blocks":10'
expect 2 mh-spectrum --blocks 64 ft/seed1/best.safetensors few.mhs; expect_stderr "at most 10, the number of sentence pairs or examples"
# Pruned encoders and encoders with swapped heads can be scored; an encoder generates no text.
expect 0 mh-prune cut ft/seed1/best.safetensors --by taylor --data classes.mhs --fraction 30% -o cut.safetensors
expect 0 mh-eval --format json cut.safetensors classes.mhs; expect_stdout '"accuracy":'
expect 0 mh-swap $m --mode soft --k 1 --data v.mhs -o swapped.safetensors
expect 0 mh-eval --format json swapped.safetensors v.mhs; expect_stdout '"word_accuracy":'
expect 2 mh-eval generate $m --prompt t0w1 --length 3

# Contradictory options are refused, and no folder is left.
# expect_refused STATUS MESSAGE ARGUMENT…: mh-finetune must exit with STATUS and MESSAGE and leave no folder.
expect_refused() { expect "$1" mh-finetune "${@:3}" --out no; expect_stderr "$2"; [ ! -d no ] || fail "expected no folder after an error; found one"; }
expect_refused 2 "word_accuracy, next_accuracy" --train t.mhs --valid v.mhs $go --set train.validation.metric=f1
expect_refused 2 "updates or epochs" --train classes.mhs $go --set train.length=100t
expect_refused 2 "encoder.layers.0.ffn.up.weight" --train classes.mhs $go --set model.ffn_dim=32
expect_refused 3 "documents" --train classes.mhs $go --set "model.bert.head='words'" --set model.bert.classes=0 --set 'model.bert.labels=[]'
expect_refused 2 "one name for each of the 2 classes" --train classes.mhs $go --set model.bert.classes=2
expect_refused 2 "model.bert.classes" --train classes.mhs $go --set model.bert.classes=0 --set 'model.bert.labels=[]'
expect 2 mh-train --config c.toml --train t.mhs --out no --set model.bert.segments=1; expect_stderr "at least 2, since a row of t.mhs has 2 segments"; [ ! -d no ] || fail "expected no folder after an error; found one"
expect_refused 2 "4 heads in layer 0, as in the checkpoint; found 2 heads" --train classes.mhs $go --set attention.heads=2
# --train-only without `head` leaves the new output head untrained, with a warning.
expect 0 mh-finetune --train classes.mhs $go --out gated --set train.length=1u --set attention.combiner=gates --train-only gates
expect_stderr "keep their random initial values: "; expect_stderr "to train the output head, add head"
expect 0 mh-finetune --train classes.mhs $go --out headed --set train.length=1u --set attention.combiner=gates --train-only gates,head
! grep -q "keep their random initial values" err || fail "expected no warning about the head, which has been trained; found $(cat err)"
! grep -q perplexity headed/log.jsonl || fail "the log has the perplexity of a classifier"
# Refuses sequence lengths, numbers of classes and keys that do not fit the model or its task, and shards and options of other tasks.
expect_refused 2 "at least 5" --train t.mhs $go --set train.batch.sequence_length=4
expect_refused 3 "2 classes" --train classes.mhs $go --set model.bert.classes=2 --set 'model.bert.labels=[]'
expect_refused 2 "mlm.mask_fraction" --train classes.mhs $go --set mlm.mask_fraction=0.2
expect_refused 2 "train.batch.sequence_length" --train classes.mhs $go --set train.batch.sequence_length=65
mh-prep vocab -q corpus > words; mh-prep lm -q --vocab words corpus > lm.mhs
expect_refused 3 "mh-prep" --train lm.mhs $go
expect 3 mh-eval ft/seed1/best.safetensors t.mhs
expect 2 mh-eval ft/seed1/best.safetensors classes.mhs --context 3
expect 2 mh-eval ft/seed1/best.safetensors classes.mhs --text-rows blocks
expect 2 mh-eval ft/seed1/best.safetensors classes.mhs --words 3
expect 2 mh-eval ft/seed1/best.safetensors classes.mhs --beam 3
expect 2 mh-eval bert/best.safetensors v.mhs --predictions -
expect 3 mh-train --config c.toml --train t.mhs --out no --set "model.bert.head='classes'"
