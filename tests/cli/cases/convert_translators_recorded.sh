# Converts folders of encoder-decoders that transformers saved, and compares logits and the probabilities of each head with recorded outputs of
# transformers, so PyTorch is not needed. Decoding token by token and the conversion back give the same model, and text has the tokens of
# transformers.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
. "$ROOT/tests/cli/huggingface_recorded.sh"
programs=$(dirname "$(command -v mh-convert)")/../tests
recorded() { python3 -B "$ROOT/tests/cli/huggingface_translators.py" "$@"; }
mapfile -t all < <(recorded names)
[ ${#all[@]} -ge 5 ] || fail "expected at least 5 folders; found ${#all[@]}"
recorded text > text
print() { "$programs/model-print" ${3-} "$1" < "$2/rows"; }
for folder in "${all[@]}"; do
  cp -r "$ROOT/tests/cli/recorded/$folder" .
  recorded weights $folder
  convert_exactly $folder $folder.safetensors; expect_stderr "99 entries of the vocabulary"
  print $folder.safetensors $folder --probabilities > printed
  recorded compare $folder printed
  "$programs/model-print" --probabilities --steps $folder.safetensors < $folder/rows > steps
  recorded compare $folder steps
  # --vocab takes both vocabularies of a checkpoint or of a folder.
  mh-prep -q translation --vocab $folder.safetensors text text -o $folder.mhs
  mh-prep cat --ids $folder.mhs > ids
  recorded ids $folder ids
  mh-prep -q translation --vocab $folder text text -o again.mhs
  diff <(mh-prep cat --ids again.mhs) ids
  expect 0 mh-eval $folder.safetensors $folder.mhs
  # The start token is never generated, so no line has the padding token.
  expect 0 mh-eval translate $folder.safetensors text --beam 2 --max-length-b 8
  [ "$(wc -l < out)" -eq "$(wc -l < text)" ] || fail "$folder: expected a line for each line of text"
  ! grep -q "<pad>" out || fail "$folder: the padding token in a translation"
  expect 0 mh-convert --to huggingface $folder.safetensors $folder.back; expect_stderr "in float32; all parameters"
  recorded config $folder $folder.back
  convert_exactly $folder.back again
  print again $folder --probabilities | cmp - printed
  mh-prep -q translation --vocab again text text -o again.mhs
  diff <(mh-prep cat --ids again.mhs) ids
done

# Tied tensors are accepted under each of their names; buffers and the table of cross-attention of the first T5 are ignored.
# copy_to_bad NAME CHANGE…: writes the recorded folder NAME with changed tensors to the folder bad. The script finds the tokenizer by the name.
copy_to_bad() { rm -rf bad; cp -r "$ROOT/tests/cli/recorded/$1" "$1-bad"; recorded weights "$1-bad" "${@:2}"; mv "$1-bad" bad; }
expect_same_models <<'T'
marian-4 model.shared.weight=model.decoder.embed_tokens.weight
marian-4 +model.shared.weight=lm_head.weight +model.shared.weight=model.encoder.embed_tokens.weight
marian-4 +model.shared.weight=model.encoder.embed_positions.weight
t5-4 shared.weight=encoder.embed_tokens.weight
t5-4 +shared.weight=lm_head.weight
t5-4 +encoder.final_layer_norm.weight=decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight
T
expect_refused_tensors <<'T'
marian-4|final_logits_bias=none|the unknown tensor none
marian-4|model.encoder.layers.1.fc1.bias=model.encoder.embed_positions.weight|encoder.layers.1.fc1.bias
marian-separate-4|+model.decoder.embed_tokens.weight=lm_head.weight ~lm_head.weight|tie_word_embeddings = false
t5-4|+shared.weight=decoder.block.1.layer.1.EncDecAttention.relative_attention_bias.weight|the unknown tensor
t5-gated-4|lm_head.weight=encoder.embed_tokens.weight|set tie_word_embeddings = true
T

# Other encoder-decoders and settings are refused by name.
expect_refused_settings <<'T'
marian-4|{"model_type": "bart"}|an encoder and a decoder of another form
marian-4|{"model_type": "mbart"}|an encoder and a decoder of another form
marian-4|{"model_type": "pegasus"}|an encoder and a decoder of another form
t5-4|{"model_type": "umt5"}|position biases of its own
marian-4|{"encoder_ffn_dim": 64}|encoder_ffn_dim
marian-4|{"normalize_before": true}|normalize_before
marian-4|{"share_encoder_decoder_embeddings": false}|embed_tokens.weight
marian-4|{"decoder_start_token_id": 5}|decoder_start_token_id
t5-4|{"feed_forward_proj": "gated-mish"}|feed_forward_proj
t5-4|{"num_decoder_layers": 2}|the unknown tensor decoder.block.2.
T

# transformers computes the recorded outputs from the written folders.
compare_with_peers torch,transformers,sentencepiece "${MH_CHECK_PYTHONPATH:-} ${MH_NEWEST_PYTHONPATH:-}" "${all[@]}"
