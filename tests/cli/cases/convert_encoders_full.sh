# Folders of encoders with other names of tensors, with settings and tensors that are refused, and with vocabularies: rows for encoders have the
# special tokens of the vocabulary, and the models are evaluated and fine-tuned.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
[ -n "${MH_FULL:-}" ] || skip "MH_FULL is not set"
. "$ROOT/tests/cli/huggingface_recorded.sh"
programs=$(dirname "$(command -v mh-convert)")/../tests
recorded() { python3 -B "$ROOT/tests/cli/huggingface_encoders.py" "$@"; }
print() { "$programs/model-print" --probabilities "$1" < "$2/rows"; }
for folder in roberta-4 roberta-untied-4 modernbert-4 xlm-roberta-span-4; do
  cp -r "$ROOT/tests/cli/recorded/$folder" .
  recorded weights $folder
  mh-convert -q $folder -o $folder.safetensors
done

# A folder of a base model lacks the prefix of the names and may have a pooler without use; buffers of older versions are ignored; tied tensors may
# be under either name.
# copy_to_bad FOLDER CHANGE…: makes the folder `bad`, a copy of FOLDER with these changes of its tensors.
copy_to_bad() { rm -rf bad; cp -r "$ROOT/tests/cli/recorded/$1" bad; recorded weights bad "${@:2}"; }
expect_same_models <<'T'
roberta-4 -roberta.
roberta-4 +roberta.embeddings.word_embeddings.weight=lm_head.decoder.weight +lm_head.bias=lm_head.decoder.bias
roberta-4 +roberta.embeddings.LayerNorm.bias=roberta.embeddings.position_ids +roberta.embeddings.LayerNorm.bias=roberta.pooler.dense.weight
roberta-4 lm_head.bias=lm_head.decoder.bias
roberta-untied-4 lm_head.bias=lm_head.decoder.bias
modernbert-4 -model.
modernbert-4 +model.embeddings.tok_embeddings.weight=decoder.weight
T
expect_refused_tensors <<'T'
roberta-4|+roberta.embeddings.word_embeddings.weight=lm_head.decoder.weight ~lm_head.decoder.weight|tie_word_embeddings = false
roberta-4|roberta.embeddings.position_embeddings.weight=roberta.embeddings.position_ids|embeddings.position_embeddings.weight
roberta-classes-4|classifier.out_proj.weight=classifier.weight|the unknown tensor classifier.weight
modernbert-4|model.layers.1.attn_norm.weight=model.layers.1.attn.rotary_emb.inv_freq|layers.1.attn_norm.weight
modernbert-4|+model.final_norm.weight=model.layers.0.attn_norm.weight|the unknown tensor model.layers.0.attn_norm.weight
T

# Settings without an equivalent are refused; the error contains the text of the third column.
expect_refused_settings <<'T'
roberta-4|{"pad_token_id": 0}|pad_token_id
roberta-4|{"is_decoder": true}|is_decoder
roberta-4|{"add_cross_attention": true}|add_cross_attention
roberta-4|{"position_embedding_type": "relative_key"}|relative_key
roberta-4|{"hidden_act": "relu"}|the head for masked words always has gelu
roberta-4|{"max_position_embeddings": 63}|as in config.json
roberta-4|{"architectures": ["RobertaForTokenClassification"]}|RobertaForMaskedLM
modernbert-4|{"classifier_activation": "silu"}|classifier_activation
modernbert-4|{"decoder_bias": false}|decoder_bias
modernbert-4|{"layer_types": ["full_attention", "linear_attention"]}|linear_attention
modernbert-classes-4|{"classifier_pooling": "mean"}|classifier_pooling
T
copy_to_bad roberta-4; rm bad/tokenizer.json
expect 3 mh-convert bad -o x; expect_stderr "tokenizer.json"; expect_stderr "save_pretrained()"
copy_to_bad roberta-4; sed -i 's/"<mask>"/"<hole>"/g' bad/*.json
expect 3 mh-convert bad -o x; expect_stderr "the special token <mask> or [MASK]"

# Shards for encoders, from the vocabulary of a model or of a folder, have the tokens of the vocabulary, and the models are evaluated and fine-tuned.
printf 'the cat sat on\nthe mat\n\nthe mat sat\non the cat the mat\n' > documents
printf 'x\ty\tz\nthe cat\ton the mat\tyes\nthe mat\tthe cat sat\tno\n' > examples
cat > questions <<'J'
{"data": [{"title": "T", "paragraphs": [{"context": "the caf\u00e9 cat  sat on the mat", "qas": [{"id": "q", "question": "who sat?",
  "answers": [{"text": "caf\u00e9 cat", "answer_start": 4}]}]}]}], "version": "1.1"}
J
options="--set train.batch.sequence_length=32 --set train.batch.rows=2 --set train.length=3u --set train.lr=1e-3 --threads 1"
for folder in roberta-4 modernbert-4; do
  m=$folder.safetensors
  mh-prep mlm -q --vocab $m documents -o mlm.mhs
  diff <(mh-prep cat --ids mlm.mhs) <(mh-prep mlm -q --vocab $folder documents | mh-prep cat --ids -)
  expect 0 mh-eval $m mlm.mhs
  mh-prep examples -q --text x --text-b y --label z --labels no,yes --vocab $m examples -o classes.mhs
  mh-prep squad -q --vocab $m questions -o questions.mhs
  expect 0 mh-finetune --init $m --train mlm.mhs --out mlm-$folder $options
  expect 0 mh-finetune --init $m --train classes.mhs --out classes-$folder $options
  expect 0 mh-finetune --init $m --train questions.mhs --out questions-$folder $options --set squad.max_question_tokens=8
done
expect 0 mh-finetune --init modernbert-4.safetensors --train classes.mhs --out pooler $options --set 'model.bert.pooler="transform"'
expect 0 mh-convert --to huggingface pooler/last.safetensors pooler.back; expect_stderr "ModernBertForSequenceClassification"
expect 3 mh-prep squad --vocab xlm-roberta-span-4.safetensors questions -o x; expect_stderr "which bytes of the paragraph each token encodes"
mh-prep -q vocab --type byte documents -o byte.v
expect 3 mh-prep mlm --vocab byte.v documents -o x; expect_stderr "a vocabulary of an encoder"
