# Converts folders of decoders that transformers 4.57.1 and 5.24.0 saved, and compares logits and the probabilities of each head with recorded
# outputs of transformers, so PyTorch is not needed. Decoding token by token, fp16, bf16 and divided files, and the conversion back give the same
# model.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
. "$ROOT/tests/cli/huggingface_recorded.sh"
programs=$(dirname "$(command -v mh-convert)")/../tests
recorded() { python3 -B "$ROOT/tests/cli/huggingface_decoders.py" "$@"; }
tokenizer=$ROOT/tests/cli/recorded/tokenizer-99
huggingface_recorded text > text
mapfile -t all < <(recorded names)
[ ${#all[@]} -gt 20 ] || fail "expected more than 20 folders; found ${#all[@]}"
# Without MH_FULL: one folder of each family, the folders of the cases below, and the conversion back of seven families.
is_full=${MH_FULL:-}
[ -n "$is_full" ] || all=(falcon-4 falcon-groups-4 gemma-4 gemma-5 gemma2-4 gemma3_text-5 gpt_neox-4 gpt_neox-sequential-4 gptj-4 llama-4 llama-biases-4
  llama-yarn-5 mistral-5 olmo2-5 opt-4 phi3-4 qwen2-4 qwen3-5 smollm3-5)
# print MODEL FOLDER [OPTION]: prints the outputs of a model for the rows of FOLDER.
print() { "$programs/model-print" ${3-} "$1" < "$2/rows"; }
written=()  # folders that are converted back
for folder in "${all[@]}"; do
  cp -r "$ROOT/tests/cli/recorded/$folder" .
  recorded weights $folder
  convert_exactly $folder $folder.safetensors; expect_stderr "99 entries of the vocabulary"
  print $folder.safetensors $folder --probabilities > $folder.printed
  recorded compare $folder $folder.printed
  case $is_full$folder in
    llama-4 | falcon-groups-4 | gemma2-4 | gemma3_text-5 | gpt_neox-4 | gptj-4 | phi3-4) ;;
    *-4 | *-5) [ -n "$is_full" ] || continue ;;
  esac
  # A text that grows beyond the length of training while it is decoded keeps the frequencies of its first keys with these scalings.
  case $folder in
    llama-dynamic-* | phi3-*) ;;
    *)
      "$programs/model-print" --probabilities --steps $folder.safetensors < $folder/rows > steps
      recorded compare $folder steps
      ;;
  esac
  expect 0 mh-convert --to huggingface $folder.safetensors $folder.back; expect_stderr "in float32; all parameters"
  recorded config $folder $folder.back
  convert_exactly $folder.back again
  print again $folder --probabilities | cmp - $folder.printed
  written+=("$folder")
  mh-prep -q vocab --type tokenizer-json --from $folder.back -o again.v
  [ -e first.v ] || mh-prep -q vocab --type tokenizer-json --from $folder -o first.v
  cmp again.v first.v
done
"$programs/token-ids" first.v < text | sed "s/ $//" > ids
cmp ids "$tokenizer/ids"
mh-prep -q lm --vocab first.v text -o text.mhs
expect 0 mh-eval llama-4.safetensors text.mhs
expect 0 mh-eval generate gemma3_text-5.safetensors --length 8
# A block up to max_position_embeddings is not too long, also after fine-tuning in shorter blocks.
cp -r llama-4 longer
huggingface_recorded update longer/config.json '{"max_position_embeddings": 600}'
mh-convert -q longer -o longer.safetensors
mh-train -q --from longer.safetensors --train text.mhs --out tuned --set train.batch.sequence_length=8 --set train.batch.tokens=32 --set train.length=1u
for model in longer.safetensors tuned/last.safetensors; do
  expect 0 mh-eval --sequence-length 600 $model text.mhs; ! grep -q "warning" err || fail "$model: expected no warning; found $(grep warning err)"
  expect 0 mh-eval --sequence-length 601 $model text.mhs; expect_stderr "blocks of 601 tokens are longer than the 600 positions of the model"
done

# The types of the tensors, and a model in several files. The numbers of the record are exact in fp16, not in bf16.
# copy_to_bad FOLDER FORM…: makes the folder `bad`, a copy of FOLDER with tensors in these forms.
copy_to_bad() { rm -rf bad; cp -r "$ROOT/tests/cli/recorded/$1" bad; recorded weights bad "${@:2}"; }
# expect_same FOLDER FORM…: FOLDER in these forms must give the outputs in the file `expected`.
expect_same() { copy_to_bad "$@"; expect 0 mh-convert bad -o same; print same bad | cmp - expected; }
for folder in phi3-4 ${is_full:+gemma-5 gpt_neox-4}; do
  print $folder.safetensors $folder > expected
  expect_same $folder F16
  expect_same $folder shards
  expect_same $folder F16 shards
  expect 0 mh-convert --to huggingface --dtype float16 $folder.safetensors half; expect_stderr "in float16"
  expect 0 mh-convert half -o same; print same $folder | cmp - expected
  rm -rf half
  copy_to_bad $folder rounded; mh-convert -q bad -o rounded; print rounded bad > expected
  expect_same $folder BF16
  expect_same $folder BF16 shards
done
expect 0 mh-convert --to huggingface --dtype bfloat16 phi3-4.safetensors brain; expect_stderr "in bfloat16; all settings of evaluation are preserved, and parameters are rounded"
copy_to_bad phi3-4 rounded; mh-convert -q bad -o rounded; print rounded bad > expected
expect 0 mh-convert brain -o same; print same phi3-4 | cmp - expected
grep -q '"dtype": "bfloat16"' brain/config.json || fail "expected the type in config.json"

# A trained model is written with the architecture of its folder, here a Mistral without a window, whose settings a Llama has too, and with the
# parts of the folder that multihead does not use.
copy_to_bad mistral-5
huggingface_recorded update bad/config.json '{"sliding_window": null}'
python3 - <<'P'
import json
json.dump({"temperature": 0.6, "eos_token_id": [2, 7]}, open("bad/generation_config.json", "w"))
json.dump({"eos_token": "</s>", "pad_token": "<unk>"}, open("bad/special_tokens_map.json", "w"))
open("bad/chat_template.jinja", "w").write("{% for m in messages %}[INST]{{ m.content }}{% endfor %}")
P
mh-convert -q bad -o window.safetensors
mh-train -q --from window.safetensors --train text.mhs --out trained --set train.batch.sequence_length=8 --set train.batch.tokens=32 --set train.length=1u
expect 0 mh-convert --to huggingface trained/last.safetensors trained.back; expect_stderr "saved as MistralForCausalLM"
cmp bad/chat_template.jinja trained.back/chat_template.jinja
python3 - <<'P'
import json
assert json.load(open("trained.back/generation_config.json")) == {"temperature": 0.6, "eos_token_id": [2, 7]}
assert json.load(open("trained.back/special_tokens_map.json"))["pad_token"] == "<unk>"
P

# A folder of a base model lacks the prefix of the names; a tied output layer may be under either name; buffers of older versions are ignored.
expect_same_models <<'T'
gemma-4 -model.
gemma-4 model.embed_tokens.weight=lm_head.weight
gemma-5 +model.embed_tokens.weight=lm_head.weight
llama-biases-4 -model.
llama-4 +model.norm.weight=model.layers.0.self_attn.rotary_emb.inv_freq
llama-4 +model.norm.weight=model.layers.1.self_attn.rotary_emb.inv_freq -model.
gpt_neox-4 +gpt_neox.final_layer_norm.bias=gpt_neox.layers.0.attention.bias +gpt_neox.final_layer_norm.bias=gpt_neox.layers.1.attention.masked_bias
gpt_neox-4 embed_out.weight=lm_head.weight -gpt_neox.
gpt_neox-sequential-4 gpt_neox.embed_in.weight=embed_out.weight
T
# Of Gemma 3 for text and images, the language model is read, with the names of tensors of transformers 4 and 5.
print gemma3_text-5.safetensors gemma3_text-5 > expected
for prefix in language_model.model. model.language_model.; do
  copy_to_bad gemma3_text-5
  python3 -B - "$ROOT/tests/cli" $prefix <<'P'
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
from huggingface_recorded import formula_tensors, pack_tensors, write_safetensors
tensors = {name.replace("model.", sys.argv[2], 1): tensor for name, tensor in formula_tensors("bad", []).items()}
vision = "vision_tower." if sys.argv[2].startswith("language") else "model.vision_tower."
tensors[vision + "post_layernorm.weight"] = ([3], [1.0, 2.0, 3.0])
write_safetensors(pathlib.Path("bad/model.safetensors"), pack_tensors(tensors, "F32"))
text = json.load(open("bad/config.json"))
json.dump({"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 3}, "mm_tokens_per_image": 4}, open("bad/config.json", "w"))
P
  expect 0 mh-convert bad -o same; expect_stderr "only the language model is read; 1 tensor of the parts for images ignored"
  print same bad | cmp - expected
done
expect 0 mh-convert --to huggingface same bad.back; expect_stderr "saved as Gemma3ForCausalLM"
expect_refused_tensors <<'T'
llama-4|lm_head.weight=model.layers.9.self_attn.rotary_emb.inv_freq|set tie_word_embeddings = true
gemma-4|+model.embed_tokens.weight=lm_head.weight ~lm_head.weight|tie_word_embeddings = false
gemma-4|model.embed_tokens.weight=none|embed_tokens.weight or lm_head.weight
gpt_neox-4|embed_out.weight=gpt_neox.layers.0.attention.bias|set tie_word_embeddings = true
qwen2-4|model.layers.0.self_attn.q_proj.bias=model.layers.0.self_attn.rotary_emb.inv_freq|layers.0.self_attn.q_proj.bias
llama-4|+model.norm.weight=model.layers.0.self_attn.q_proj.bias|the unknown tensor model.layers.0.self_attn.q_proj.bias
llama-4|+model.norm.weight=model.layers.0.mlp.experts.0.up_proj.weight|a mixture of experts
llama-4|+model.norm.weight=model.layers.0.self_attn.bias|the unknown tensor
phi3-4|model.layers.0.self_attn.qkv_proj.weight=model.layers.0.self_attn.q_proj.weight|the unknown tensor
T

# Settings without an equivalent are refused by their keys, and adapters and unknown architectures by the files and the name.
expect_refused_settings <<'T'
llama-4|{"model_type": "mixtral"}|a mixture of experts
llama-4|{"model_type": "qwen3_next"}|gates on the output of attention
llama-4|{"model_type": "gemma3n_text"}|embeddings of each layer
gemma3_text-4|{"model_type": "gemma3"}|text_config: expected the settings of the language model
llama-4|{"model_type": "mllama"}|inputs other than text
llama-4|{"model_type": "lama"}|did you mean 'llama'?
llama-4|{"model_type": "internlm2", "auto_map": {"AutoModel": "modeling.Model"}}|auto_map
llama-4|{"quantization_config": {"quant_method": "gptq", "bits": 4}}|quant_method "gptq"
llama-4|{"num_local_experts": 8}|num_local_experts
llama-4|{"elementwise_attn_output_gate": true}|elementwise_attn_output_gate
llama-4|{"layer_types": ["full_attention", "chunked_attention"]}|chunked_attention
llama-4|{"per_layer_config": {"0": {}}}|per_layer_config
llama-4|{"rope_scaling": {"rope_type": "proportional"}}|proportional
llama-5|{"rope_theta": 20000}|rope_parameters
llama-4|{"partial_rotary_factor": 0.5}|partial_rotary_factor: expected 1
llama-4|{"hidden_act": "relu2"}|relu2
llama-4|{"num_attention_heads": 3}|num_key_value_heads
llama-4|{"head_dim": 10}|as in config.json
llama-4|{"num_hidden_layers": 1}|unknown tensor model.layers.1.
gemma3_text-4|{"use_bidirectional_attention": true}|use_bidirectional_attention
gemma3_text-4|{"attn_logit_softcapping": -1}|attn_logit_softcapping
smollm3-4|{"no_rope_layers": [1, 0]}|no_rope_layers
phi3-4|{"rope_scaling": {"type": "linear", "factor": 2}}|default, longrope
mistral-4|{"sliding_window": 0}|sliding_window
T
copy_to_bad llama-4; echo '{}' > bad/adapter_config.json
expect 3 mh-convert bad -o x; expect_stderr "merge_and_unload"
expect 2 mh-convert --to huggingface --dtype float64 llama-4.safetensors x; expect_stderr "float64"

# A number past the range of fp16 is not written.
python3 -B - "$ROOT/tests/cli" <<'P'
import struct, sys
sys.path.insert(0, sys.argv[1])
import checkpoint_header
tensors, metadata, data = checkpoint_header.read("llama-4.safetensors")
at = tensors["decoder.norm.weight"]["data_offsets"][0]
checkpoint_header.write("large.safetensors", tensors, metadata, data[:at] + struct.pack("<f", 70000) + data[at + 4:])
P
expect 3 mh-convert --to huggingface --dtype float16 large.safetensors x; expect_stderr "decoder.norm.weight"; expect_stderr "bfloat16"
[ ! -e x ] || fail "expected no folder after an error; found one"

# transformers computes the recorded outputs, and all logits and probabilities, from the written folders, which need no other file.
find_transformers torch
compare_with_transformers "${written[@]}"
