# Folders of encoder-decoders with other names of tensors, and with settings and tensors that are refused.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
[ -n "${MH_FULL:-}" ] || skip "MH_FULL is not set"
. "$ROOT/tests/cli/huggingface_recorded.sh"
programs=$(dirname "$(command -v mh-convert)")/../tests
recorded() { python3 -B "$ROOT/tests/cli/huggingface_translators.py" "$@"; }
print() { "$programs/model-print" "$1" < "$2/rows"; }
for folder in marian-4 t5-4; do
  cp -r "$ROOT/tests/cli/recorded/$folder" .
  recorded weights $folder
  mh-convert -q $folder -o $folder.safetensors
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
