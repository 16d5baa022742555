# mh-convert refuses unsupported and damaged Hugging Face folders, and does not convert pruned models to Hugging Face. A
# converted model works in every tool.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
# expect_refused STATUS MESSAGE ARGUMENT…: mh-convert must exit with STATUS and MESSAGE and leave no file.
expect_refused() {
  expect "$1" mh-convert "${@:3}" -o x
  expect_stderr "$2"
  [ ! -e x ] || fail "expected no output file after an error; found one"
}

# Errors that can be tested without transformers.
mkdir empty none llama gguf
expect_refused 3 "config.json" empty
expect_refused 3 "missing: expected a Hugging Face folder; found no such folder" missing
touch gguf/model-Q8_0.gguf
expect_refused 3 "model-Q8_0.gguf, a model of llama.cpp" gguf
echo '{"model_type": "gpt3"}' > llama/config.json
expect_refused 3 "did you mean 'gpt2'?" llama
echo '{"model_type": 3}' > llama/config.json
expect_refused 3 "text" llama
echo '{"model_type": "gpt2"}' > llama/config.json
echo '{"weight_map": {"wte.weight": "pytorch_model-00001-of-00002.bin"}}' > llama/pytorch_model.bin.index.json
expect_refused 3 "the file pytorch_model-00001-of-00002.bin, which the index lists" llama
printf '{"weight_map": {"wte.weight": ' > llama/pytorch_model.bin.index.json
expect_refused 3 "llama/pytorch_model.bin.index.json: byte 30: expected the rest of JSON with a weight_map" llama
rm llama/pytorch_model.bin.index.json
echo 'GPT' > llama/config.json
expect_refused 3 "llama/config.json: byte 0: expected a JSON object" llama
printf '{"model_type": "gpt2", "n_he' > llama/config.json
expect_refused 3 "llama/config.json: byte 28: expected the rest of a JSON object" llama
printf '{"model_type": "gpt2",\n "n_head": None}\n' > llama/config.json
expect_refused 3 "llama/config.json: byte 34: expected a JSON object" llama
echo '{"model_type": "gpt2"}' > none/config.json
expect_refused 3 "neither" none
printf '{"model_type": "gpt2"}\0{"n_head": 3}' > llama/config.json
expect_refused 3 "without NUL bytes" llama
echo '{"model_type": "gpt2", "n_head": 4, "n_head": 2}' > llama/config.json
expect_refused 3 "'n_head' twice" llama
expect_refused 2 "--average" --average empty
expect_refused 2 "one Hugging Face folder" empty none
expect_refused 2 "one Hugging Face folder" --padded-vocabulary empty none
expect_refused 2 "--padded-vocabulary: expected a Hugging Face folder" --padded-vocabulary --fold empty.safetensors
expect_refused 2 "--seed: expected a Hugging Face folder" --seed 1 --average empty.safetensors
# Refuses an output that is a file of the input folder, and JSON that is nested too deeply.
echo '{"model_type": "bert"}' > none/config.json
expect 2 mh-convert none -o none/config.json; expect_stderr "an output that is not an input"
[ "$(cat none/config.json)" = '{"model_type": "bert"}' ] || fail "the folder is changed"
python3 -c 'print("{\"model_type\": \"bert\", \"x\": " + "[" * 1000000 + "]" * 1000000 + "}")' > llama/config.json
expect_refused 3 "1000001 nested levels" llama
# --to refuses an unknown format, no output folder or an existing one, a model that transformers cannot represent, and options of other
# conversions.
expect 2 mh-convert --to onnx empty x; expect_stderr "huggingface"
expect 2 mh-convert --to huggingface empty; expect_stderr "a checkpoint and a new folder"
make_shards
mh-train -q --train t.mhs --out run --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 \
  --set train.batch.sequence_length=8 --set train.batch.tokens=32 --set train.length=1u
expect 3 mh-convert --to huggingface run/last.safetensors x; expect_stderr "model.positions"; [ ! -e x ] || fail "expected no output folder after an error; found one"
expect 2 mh-convert --to huggingface run/last.safetensors empty; expect_stderr "a new folder"
expect 2 mh-convert --to huggingface run/last.safetensors x -o -; expect_stderr "--output"
expect 2 mh-convert --to huggingface --fold run/last.safetensors x; expect_stderr "--fold"

# Models that transformers cannot represent.
# train NAME KEY=VALUE…: trains the model NAME/last.safetensors in the form of GPT-2, with these settings.
train() {
  local settings=() setting
  for setting in "${@:2}"; do settings+=(--set "$setting"); done
  mh-train -q --train t.mhs --out "$1" --set model.positions=learned --set model.max_positions=24 --set model.scale_embedding=false \
    --set model.activation=gelu-tanh --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 \
    --set attention.bias=true --set model.init=bert --set train.batch.sequence_length=8 --set train.batch.tokens=32 --set train.length=1u "${settings[@]}"
}
# expect_not_written NAME MESSAGE: the model NAME cannot be converted to Hugging Face.
expect_not_written() { expect 3 mh-convert --to huggingface "$1/last.safetensors" x; expect_stderr "$2"; [ ! -e x ] || fail "expected no output folder after an error; found one"; }
train words
expect_not_written words "the type byte-bpe"
train sizes attention.head_size=4
expect_not_written sizes "instead of (16"
train recurrent model.backbone=transformer-xl model.positions=none
expect_not_written recurrent "model.backbone"
train bands 'model.input_cutoffs=[8]' 'model.output_cutoffs=[8]' model.cutoff_factor=2
expect_not_written bands "the parameter decoder.embedding.weight"
mh-prep -q vocab --type wordpiece --size 80 text > pieces.v
sed '/^$/d' text > sentences
mh-prep -q mlm --vocab pieces.v sentences -o m.mhs
mh-train -q --train m.mhs --out masked --set model.backbone=bert --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 \
  --set attention.heads=2 --set train.batch.sequence_length=8 --set train.batch.tokens=32 --set train.length=1u
expect_not_written masked "converted to config.json: type_vocab_size"
# A BERT checkpoint with a word vocabulary in place of its WordPiece vocabulary cannot be converted to Hugging Face.
cp -r "$ROOT/tests/cli/recorded/bert-4" recorded
python3 -B "$ROOT/tests/cli/huggingface_recorded.py" weights recorded
mh-convert -q recorded -o replaced.safetensors
mh-prep -q vocab --type word --size 33 text -o words.v
mh-prep -q lm --vocab words.v text -o words.mhs
python3 -B - "$ROOT/tests/cli" "$(mh-prep info words.mhs | awk '/^fingerprint/ { print $2 }')" <<'P'
import base64, sys
sys.path.insert(0, sys.argv[1])
import checkpoint_header
tensors, metadata, data = checkpoint_header.read("replaced.safetensors")
with open("words.v", "rb") as file:
    metadata["multihead.tokenizer"] = base64.b64encode(file.read()).decode()
metadata["multihead.vocabulary"] = sys.argv[2]
checkpoint_header.write("replaced.safetensors", tensors, metadata, data)
P
expect 3 mh-convert --to huggingface replaced.safetensors x; expect_stderr "the type wordpiece"

needs_peers
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import torch, transformers' 2>/dev/null || skip "Python lacks transformers and torch"
transformers_parity() { PYTHONPATH=$MH_CHECK_PYTHONPATH python3 -B "$ROOT/tests/cli/huggingface_parity.py" "$@"; }
transformers_parity make gpt2 gpt2-bin gpt2-other gpt2-padded gpt2-shards bert
mh-convert -q gpt2 -o gpt2.safetensors

# NaN in a weight is reported when the model is read, and sampling from its logits is refused.
cp -r gpt2 spoilt
python3 - <<'P'
import json, struct
data = open("spoilt/model.safetensors", "rb").read()
length = struct.unpack("<Q", data[:8])[0]
at = 8 + length + json.loads(data[8:8 + length])["transformer.h.0.ln_1.weight"]["data_offsets"][0]
open("spoilt/model.safetensors", "wb").write(data[:at] + struct.pack("<f", float("nan")) + data[at + 4:])
P
expect 0 mh-convert spoilt -o nan.safetensors
expect_stderr "parameter tensors with NaN or infinite values, the first of them decoder.layers.0.self.norm.weight"
expect 1 mh-eval generate nan.safetensors --length 3; expect_stderr "finite logits"
expect 1 mh-eval generate nan.safetensors --length 3 --temperature 0; expect_stderr "finite logits"
expect 0 mh-convert --average nan.safetensors gpt2.safetensors -o mean.safetensors; expect_stderr "nan.safetensors: 1 of"

# A converted model can be scored, trained and pruned. Pruned models and models with a mixer cannot be converted to transformers. The parent
# folder of the output folder must exist.
mh-prep -q vocab --type byte-bpe --from gpt2 -o bpe.v
python3 -c 'for i in range(60): print("w1 w2 w3"[:i % 9], "caf\u00e9")' | mh-prep -q lm --vocab bpe.v - -o bpe.mhs
expect 0 mh-eval gpt2.safetensors bpe.mhs
expect 0 mh-train -q --from gpt2.safetensors --train bpe.mhs --out on --set train.batch.sequence_length=8 --set train.batch.tokens=32 --set train.length=2u
mh-convert -q --to huggingface on/last.safetensors on.back
expect 1 mh-convert --to huggingface gpt2.safetensors no/folder; expect_stderr "create the folder first"
mh-prune -q cut gpt2.safetensors --heads 0:1 -o cut
expect 3 mh-convert --to huggingface cut x; expect_stderr "attention.decoder.self.0.heads"
mh-train -q --train bpe.mhs --out mixed --set attention.mixer=talking-heads --set model.positions=learned --set model.max_positions=24 \
  --set model.scale_embedding=false --set model.activation=gelu-tanh --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 \
  --set attention.heads=2 --set train.batch.sequence_length=8 --set train.batch.tokens=32 --set train.length=1u
expect 3 mh-convert --to huggingface mixed/last.safetensors x; expect_stderr "attention.mixer"; expect_stderr "talking-heads"

# Folders with unsupported settings, and damaged or inconsistent folders.
# copy_to_bad FOLDER: makes the folder `bad`, a copy of FOLDER.
copy_to_bad() { rm -rf bad; cp -r "$1" bad; }
# change_settings FOLDER JSON: makes `bad`, a copy of FOLDER with the keys of the object JSON set in config.json.
change_settings() { copy_to_bad "$1"; python3 - "$2" <<'P'
import json, sys
config = json.load(open("bad/config.json"))
config.update(json.loads(sys.argv[1]))
json.dump(config, open("bad/config.json", "w"))
P
}
while IFS='|' read -r folder change words; do
  change_settings "$folder" "$change"
  expect_refused 3 "$words" bad
done <<'T'
gpt2|{"scale_attn_by_inverse_layer_idx": true}|scale_attn_by_inverse_layer_idx
gpt2|{"scale_attn_weights": false}|scale_attn_weights
gpt2|{"add_cross_attention": true}|add_cross_attention
gpt2|{"activation_function": "quick_gelu"}|activation_function
gpt2|{"n_embd": "32"}|a whole number
gpt2|{"n_embd": 16}|as in config.json
gpt2|{"n_layer": 3}|h.2.ln_1.weight
gpt2|{"n_layer": 1}|unknown tensor transformer.h.1.
gpt2|{"n_head": 5}|n_head: expected a divisor
gpt2-other|{"tie_word_embeddings": true}|tie_word_embeddings
bert|{"position_embedding_type": "relative_key"}|position_embedding_type
bert|{"is_decoder": true}|is_decoder
bert|{"add_cross_attention": true}|add_cross_attention
bert|{"hidden_act": "quick_gelu"}|hidden_act
bert|{"architectures": ["BertForTokenClassification"]}|BertForTokenClassification
bert|{"architectures": ["BertForSequenceClassification"], "problem_type": "multi_label_classification"}|problem_type
bert|{"architectures": ["BertForSequenceClassification"], "problem_type": "regression"}|2 outputs
bert|{"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "2": "b"}}|id2label
bert|{"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "a"}}|id2label
bert|{"num_attention_heads": 0}|a whole number from 1 to
bert|{"num_hidden_layers": 300000000}|num_hidden_layers: expected a whole number from 1 to
bert|{"pruned_heads": {"0": [1]}}|pruned_heads
gpt2|{"n_head": 0}|a whole number from 1 to
T
change_settings gpt2 '{"attn_soft_cap": 30, "eos_token_id": 7}'
expect 0 mh-convert bad -o y; expect_stderr "attn_soft_cap"; expect_stderr "eos_token_id is 7; using 0 from the tokenizer files"
# change_tensors CODE: runs the Python CODE, which changes `tensors`, the tensors of bad/model.safetensors by name.
change_tensors() { PYTHONPATH=$MH_CHECK_PYTHONPATH python3 - "$1" <<'P'
import sys
from safetensors.numpy import load_file, save_file
tensors = load_file("bad/model.safetensors")
exec(sys.argv[1])
save_file(tensors, "bad/model.safetensors", {"format": "pt"})
P
}
copy_to_bad gpt2; change_tensors 'tensors["transformer.h.0.ln_3.weight"] = tensors["transformer.h.0.ln_1.weight"]'
expect_refused 3 "unknown tensor transformer.h.0.ln_3.weight" bad; expect_stderr "use a model without this tensor"
copy_to_bad gpt2; change_tensors 'del tensors["transformer.h.1.mlp.c_fc.bias"]'
expect_refused 3 "the tensor h.1.mlp.c_fc.bias" bad
copy_to_bad gpt2; change_tensors 'tensors["wpe.weight"] = tensors["transformer.wpe.weight"]'
expect_refused 3 "unique tensor names" bad
copy_to_bad bert; change_tensors 'del tensors["cls.predictions.transform.dense.weight"]'
expect_refused 3 "cls.predictions.transform.dense.weight" bad
copy_to_bad gpt2; rm bad/tokenizer.json bad/merges.txt
expect_refused 3 "tokenizer.json, or vocab.json and merges.txt; found no merges.txt" bad
copy_to_bad bert; echo more >> bad/vocab.txt
expect_refused 3 "found the additional piece 'more'" bad
copy_to_bad bert; rm bad/tokenizer.json; echo more >> bad/vocab.txt
expect_refused 3 "another model" bad
expect_refused 3 "--padded-vocabulary" gpt2-padded
copy_to_bad gpt2; echo '{"<pad>": 400}' > bad/added_tokens.json
expect_refused 3 "<pad>" bad
copy_to_bad gpt2-bin; head -c 9000 gpt2-bin/pytorch_model.bin > bad/pytorch_model.bin
expect_refused 3 "truncated" bad
copy_to_bad gpt2-shards; rm bad/model-00002-of-00004.safetensors
expect_refused 3 "model-00002-of-00004.safetensors" bad
PYTHONPATH=$MH_CHECK_PYTHONPATH python3 - <<'P'
import os, torch
class Evil:
    def __reduce__(self): return os.system, ("touch evil",)
state = torch.load("gpt2-bin/pytorch_model.bin")
os.makedirs("evil-bin", exist_ok=True), os.makedirs("old-bin", exist_ok=True)
torch.save(state | {"x": Evil()}, "evil-bin/pytorch_model.bin")
torch.save(state, "old-bin/pytorch_model.bin", _use_new_zipfile_serialization=False)
P
for kind in evil old; do
  copy_to_bad gpt2-bin; cp $kind-bin/pytorch_model.bin bad
  expect_refused 3 "safe_serialization=True" bad
  if [ $kind = evil ]; then expect_stderr "posix.system"; else expect_stderr "1.6"; fi
done
[ ! -e evil ] || fail "a program in a pickle file was executed"
