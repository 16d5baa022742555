# Several processes share the mini-batches of an evaluation or of an ablation scan and print, once, what one process prints.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
. "$ROOT/tests/cli/processes.sh"
statuses=()  # set by wait_for_processes
make_character_shards 90
print_small_model > c.toml
cat >> c.toml <<'T'
[attention]
heads = 4
[train]
length = "4u"
batch.sequence_length = 16
batch.tokens = 600
T
train=(mh-train --threads 1 -q --config c.toml)
expect 0 "${train[@]}" --train t.mhs --out lm
expect 0 "${train[@]}" --train p.mhs --set model.backbone=encoder-decoder --set train.batch.sequence_length=64 --out mt
expect 0 "${train[@]}" --train p.mhs --set model.backbone=encoder-decoder --set train.batch.sequence_length=64 --set train.seed=2 --out mt2

expect 0 "${train[@]}" --train t.mhs --config "$ROOT/configs/methods/mixhead-b.toml" --out mixed

# same_as_one SIZE COMMAND…: compares what SIZE processes print with what one process prints.
same_as_one() {
  local size=$1
  shift
  expect 0 "$@"
  mv out one
  in_processes 0 "$size" "$@"
  cmp one out.0 || fail "expected the output of one process from $size processes: $*"
  [ ! -s out.1 ] && [ ! -s err.1 ] || fail "expected no output of rank 1"
}
same_as_one 3 mh-eval -q --threads 1 --format json --sequence-length 16 --batch 8 lm/last.safetensors t.mhs
same_as_one 2 mh-eval -q --threads 1 --format json --sequence-length 16 --context 8 --batch 8 lm/last.safetensors t.mhs
same_as_one 2 mh-eval -q --threads 1 --format json --batch 10 mt/last.safetensors p.mhs
same_as_one 3 mh-eval -q --threads 1 --format json --beam 2 --batch-tokens 200 mt/last.safetensors p.mhs
same_as_one 2 mh-eval translate -q --threads 1 --beam 2 --batch-tokens 200 mt/last.safetensors text
same_as_one 2 mh-eval -q --threads 1 --format json --ensemble --beam 2 --batch-tokens 200 mt/last.safetensors mt2/last.safetensors p.mhs
same_as_one 2 mh-eval translate -q --threads 1 --beam 2 --batch-tokens 200 --add-model mt2/last.safetensors mt/last.safetensors text
same_as_one 3 mh-prune scan -q --threads 1 --format json --sequence-length 16 --batch 8 lm/last.safetensors t.mhs
same_as_one 2 mh-prune rank -q --threads 1 --format json --by ablation --sequence-length 16 --batch 8 lm/last.safetensors t.mhs
same_as_one 3 mh-prune rank -q --threads 1 --format json --by avg-l2,avg-l2-outputs,confidence,received,entropy,taylor,weight-norm --sequence-length 16 --batch 4 lm/last.safetensors t.mhs
same_as_one 2 mh-prune curve -q --threads 1 --format json --by taylor --step 50% --sequence-length 16 --batch 8 lm/last.safetensors t.mhs
same_as_one 2 mh-prune rank -q --threads 1 --format json --by entropy,taylor mt/last.safetensors p.mhs
same_as_one 2 mh-spectrum -q --threads 1 --format json --sequence-length 16 --blocks 4 lm/last.safetensors t.mhs
for matrices in attention logits before-mixing mixing; do
  same_as_one 3 mh-spectrum -q --threads 1 --format json --of "$matrices" --sequence-length 16 --blocks 9 --batch 2 mixed/last.safetensors t.mhs
done
same_as_one 2 mh-spectrum -q --threads 1 --format json mt/last.safetensors p.mhs
same_as_one 2 mh-spectrum -q --threads 1 --format json --of output-value lm/last.safetensors
expect 0 mh-spectrum -q --threads 1 --sequence-length 16 --batch 2 --curves one-curves.tsv lm/last.safetensors t.mhs
in_processes 0 2 mh-spectrum -q --threads 1 --sequence-length 16 --batch 2 --curves two-curves.tsv lm/last.safetensors t.mhs
cmp one-curves.tsv two-curves.tsv || fail "expected the curves of one process"
same_as_one 2 mh-swap report -q --threads 1 --format json --sequence-length 16 --blocks 4 lm/last.safetensors t.mhs
same_as_one 3 mh-swap report -q --threads 1 --format json --sequence-length 16 --batch 4 lm/last.safetensors t.mhs
same_as_one 2 mh-swap report -q --threads 1 --format json mt/last.safetensors p.mhs

same_as_one 2 mh-prune curve -q --threads 1 --format json --by ablation --step 50% --sequence-length 16 --batch 8 lm/last.safetensors t.mhs
# The processes share the groups of streams of a model with a memory; of a single group, each process computes all streams.
expect 0 "${train[@]}" --train t.mhs --set model.backbone=transformer-xl --set model.transformer-xl.memory=16 --set model.positions=none --set attention.score=relative --set train.batch.order=streams --out xl
same_as_one 2 mh-eval -q --threads 1 --format json --sequence-length 16 --memory 16 xl/last.safetensors t.mhs
same_as_one 2 mh-eval -q --threads 1 --format json --sequence-length 16 --memory 16 --streams 5 --batch 2 xl/last.safetensors t.mhs
same_as_one 3 mh-eval -q --threads 1 --format json --sequence-length 16 --memory 16 --batch 2 xl/last.safetensors t.mhs
same_as_one 2 mh-prune scan -q --threads 1 --format json --sequence-length 16 --memory 16 --streams 4 --batch 1 xl/last.safetensors t.mhs

# Several processes write the same files of mh-eval as one process.
expect 0 mh-eval -q --threads 1 --sequence-length 16 --batch 8 --per-token one.tsv lm/last.safetensors t.mhs
in_processes 0 2 mh-eval -q --threads 1 --sequence-length 16 --batch 8 --per-token two.tsv lm/last.safetensors t.mhs
cmp one.tsv two.tsv || fail "expected the log-probabilities of one process"
expect 0 mh-eval -q --threads 1 --sequence-length 16 --memory 16 --streams 5 --batch 2 --per-token one-xl.tsv xl/last.safetensors t.mhs
in_processes 0 2 mh-eval -q --threads 1 --sequence-length 16 --memory 16 --streams 5 --batch 2 --per-token two-xl.tsv xl/last.safetensors t.mhs
cmp one-xl.tsv two-xl.tsv || fail "expected the log-probabilities of one process with a memory"
expect 0 mh-eval -q --threads 1 --beam 2 --batch-tokens 200 --hypotheses one.txt mt/last.safetensors p.mhs
in_processes 0 3 mh-eval -q --threads 1 --beam 2 --batch-tokens 200 --hypotheses two.txt mt/last.safetensors p.mhs
cmp one.txt two.txt || fail "expected the translations of one process"

# Documents with masked words, and examples with classes.
tr ' ' '\n' < text | sed '/^$/d' | LC_ALL=C sort -u | sed '1i [PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]' > vocab.txt
awk 'NF { for (i = 0; i < 8; i++) print NR % 2 "\t" $0 }' text | sed '1i label\tsentence' > sst2.tsv
awk 'NF { print; print "" }' text > documents
expect 0 mh-prep glue -q --task sst2 --wordpiece vocab.txt sst2.tsv -o classes.mhs
expect 0 mh-prep mlm -q --wordpiece vocab.txt documents -o words.mhs
bert=(--set model.backbone=bert --set model.bert.segments=2)
expect 0 "${train[@]}" --train words.mhs "${bert[@]}" --set train.batch.sequence_length=64 --set model.bert.head=words --out words
expect 0 "${train[@]}" --train classes.mhs "${bert[@]}" --set train.batch.sequence_length=64 --set model.bert.head=classes --set model.bert.classes=2 --out classes
same_as_one 2 mh-eval -q --threads 1 --format json words/last.safetensors words.mhs
same_as_one 2 mh-eval -q --threads 1 --format json classes/last.safetensors classes.mhs

# Validation during training, with a score of translations.
expect 0 "${train[@]}" --train p.mhs --valid p.mhs --set model.backbone=encoder-decoder --set train.batch.sequence_length=64 --set train.validation.metric=bleu --set train.batch.micro_tokens=300 --out one-valid
in_processes 0 2 "${train[@]}" --train p.mhs --valid p.mhs --set model.backbone=encoder-decoder --set train.batch.sequence_length=64 --set train.validation.metric=bleu --out two-valid
same_losses one-valid two-valid 2
for run in one two; do grep -o '"valid_bleu":[^,}]*' $run-valid/log.jsonl > $run.bleu || fail "expected valid_bleu in the log"; done
cmp one.bleu two.bleu || fail "expected the BLEU of one process"

# Each process reads all inputs, so standard input is refused as an input.
RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 expect 2 mh-eval lm/last.safetensors - < t.mhs
# Processes with different arguments, or with files of different contents, are refused.
start_processes 2 sh -c 'mh-eval -q --threads 1 --sequence-length $((16 + RANK)) lm/last.safetensors t.mhs'
wait_for_processes
[ "${statuses[*]}" = "2 2" ] || { cat err.*; fail "expected exit status 2 of both processes; found ${statuses[*]}"; }
record_error 2 err.0 "two processes with --sequence-length 16 and --sequence-length 17"

expect 0 "${train[@]}" --train t.mhs --set train.seed=2 --out other
expect 0 mh-prep lm -q --vocab v reversed -o reversed.mhs
# refused_contents NAME FILE0 FILE1: two processes, of which rank r reads FILEr under the name NAME, print both checksums.
refused_contents() {
  for rank in 0 1; do mkdir -p "rank$rank"; cp lm/last.safetensors t.mhs "rank$rank"; done
  cp "$2" "rank0/$1"
  cp "$3" "rank1/$1"
  start_processes 2 sh -c 'cd "rank$RANK" && mh-eval -q --threads 1 --sequence-length 16 last.safetensors t.mhs'
  wait_for_processes
  [ "${statuses[*]}" = "2 2" ] || { cat err.*; fail "expected exit status 2 of both processes; found ${statuses[*]}"; }
  for rank in 0 1; do
    [ "$(grep -o 'bytes with the checksum [0-9a-f]*' "err.$rank" | sort -u | wc -l)" -eq 2 ] || { cat "err.$rank"; fail "expected two checksums of $1"; }
  done
}
refused_contents last.safetensors lm/last.safetensors other/last.safetensors
refused_contents t.mhs t.mhs reversed.mhs

# If a reader closes the pipe, the job ends as one process does.
start_processes 2 bash -c '[ "$RANK" = 0 ] || exec mh-eval translate -q --threads 1 --beam 1 mt/last.safetensors text text text text text text text
mh-eval translate -q --threads 1 --beam 1 mt/last.safetensors text text text text text text text | head -1 >/dev/null; exit "${PIPESTATUS[0]:-0}"'
wait_for_processes
[ "${statuses[*]}" = "0 0" ] || { cat err.*; fail "expected exit status 0 of both processes; found ${statuses[*]}"; }
