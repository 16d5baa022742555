# Training states contain exactly the entries that `mh-train --list` prints. The tables of mh-checkpoint(5) are generated
# from this list.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_shards
# train OUT SETTING...: trains a small language model with the settings in the folder OUT.
train() {
  local out=$1 settings=(model.layers=2 model.width=16 model.ffn_dim=16 attention.heads=4 train.batch.sequence_length=16 train.batch.tokens=64 train.length=2u)
  shift
  settings+=("$@")
  expect 0 mh-train -q --train t.mhs --valid t.mhs --out "$out" "${settings[@]/#/--set=}"
}
train mixed attention.mixer=mixhead-b attention.combiner=mae train.procedures.block-coordinate.every=1
train memory model.backbone=transformer-xl model.positions=none attention.score=relative model.transformer-xl.memory=16 train.batch.order=streams \
  model.input_cutoffs='[8]' model.output_cutoffs='[8]' model.tied=false train.checkpoint.retain=2 train.checkpoint.retain_by=best
# The pre-trained model has task heads for masked words and the next sentence, the classifier has a task head for
# classes; both models have a pooler.
printf 't0w1 t0w2 t0w3\nt0w4 t0w5\n\nt1w1 t1w2 t1w3\nt1w4 t1w5\n' > corpus
mh-prep vocab -q --type wordpiece --size 40 corpus > pieces
mh-prep mlm -q --vocab pieces corpus > pretrain.mhs
printf 'text\tlabel\nt0w1 t0w2\tyes\nt1w1\tno\n' > rows.tsv
mh-prep examples -q --text text --label label --labels yes,no --vocab pieces rows.tsv > classes.mhs
# train_bert OUT SHARD SETTING...: trains a small encoder on SHARD with the settings in the folder OUT.
train_bert() {
  local out=$1 shard=$2 settings=(model.backbone=bert model.norm=post model.positions=learned model.max_positions=64 model.bert.segments=2
    model.bert.embedding_norm=true model.layers=1 model.width=16 model.ffn_dim=16 attention.heads=4 train.batch.sequence_length=16 train.batch.rows=2 train.length=1u)
  shift 2
  settings+=("$@")
  expect 0 mh-train -q --train "$shard" --valid "$shard" --out "$out" "${settings[@]/#/--set=}"
}
train_bert words pretrain.mhs model.bert.next_sentence=true
train_bert classes classes.mhs model.bert.head=classes model.bert.classes=2
expect 0 python3 "$ROOT/tests/cli/checkpoint_page.py" "$(dirname "$(command -v mh-train)")" mixed/last.safetensors memory/last.safetensors \
  words/last.safetensors classes/last.safetensors
