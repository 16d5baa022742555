# Converts folders that transformers 4.57.1 and 5.24.0 saved, and compares tokens, hidden states and logits with recorded
# outputs of transformers, so PyTorch is not needed. mh-convert and mh-prep must read the same vocabulary, and converting
# back must write every setting.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
. "$ROOT/tests/cli/huggingface_recorded.sh"
programs=$(dirname "$(command -v mh-convert)")/../tests
huggingface_recorded text > text
print() { "$programs/model-print" "$1" < "$2/rows"; }
all=(gpt2-4 gpt2-5 bert-4 bert-5)
for folder in "${all[@]}"; do
  cp -r "$ROOT/tests/cli/recorded/$folder" .
  type=byte-bpe; [ "${folder%-*}" = gpt2 ] || type=wordpiece
  huggingface_recorded weights $folder
  expect 0 mh-convert $folder -o $folder.safetensors; expect_stderr "entries of the vocabulary"
  entries=$(sed -n 's/.* \([0-9]*\) entries of the vocabulary.*/\1/p' err)
  expect 0 mh-prep vocab --type $type --from $folder -o $folder.v; expect_stderr "$entries entries"
  print $folder.safetensors $folder > printed
  "$programs/token-ids" $folder.v < text > ids
  huggingface_recorded compare $folder printed ids
  mh-prep -q lm --vocab $folder.v text -o $folder.mhs
  mh-prep -q lm --vocab $folder.safetensors text -o again.mhs
  diff <(mh-prep cat --ids again.mhs) <(mh-prep cat --ids $folder.mhs)
  if [ $type = byte-bpe ]; then expect 0 mh-eval $folder.safetensors $folder.mhs; fi  # the example of README.md evaluates a converted GPT-2
  expect 0 mh-convert --to huggingface $folder.safetensors $folder.back
  huggingface_recorded config $folder $folder.back
  expect 0 mh-convert $folder.back -o again
  print again $folder | cmp - printed
  expect 0 mh-prep vocab --type $type --from $folder.back -o again.v
  cmp again.v $folder.v
done

# A BERT folder is accepted wherever a vocabulary is expected, but not with options of its normalisation. An output must not be a file of
# the folder that is read.
expect 0 mh-prep mlm --wordpiece bert-4 text -o a.mhs
expect 0 mh-prep mlm --vocab bert-4.v text -o b.mhs
diff <(mh-prep cat --ids a.mhs) <(mh-prep cat --ids b.mhs)
expect 2 mh-prep mlm --wordpiece bert-4 --cased text -o x; expect_stderr "states the normalisation"
expect 2 mh-prep vocab --type wordpiece --from bert-4 --strip-accents no -o x; expect_stderr "states the normalisation"
expect 2 mh-prep vocab --type byte-bpe --from gpt2-4 -o gpt2-4/vocab.json; expect_stderr "an output that is not an input"
expect 2 mh-convert gpt2-4 -o gpt2-4/config.json; expect_stderr "an output that is not an input"

# An added token is read from each file that can declare it.
# copy_to_bad FOLDER CHANGE…: makes the folder `bad`, a copy of FOLDER with changed tensors.
copy_to_bad() { rm -rf bad; cp -r "$1" bad; [ $# -eq 1 ] || huggingface_recorded weights bad "${@:2}"; }
# declare_in FILE: makes the folder `bad`, a copy of gpt2-4 in which only FILE declares added tokens.
declare_in() {
  copy_to_bad gpt2-4
  python3 - "$1" <<'P'
import json, os, sys
other_files = {"added_tokens.json", "tokenizer_config.json", "tokenizer.json"} - {sys.argv[1]}
for name in [*other_files, "special_tokens_map.json"]:
    os.remove("bad/" + name)
if sys.argv[1] == "tokenizer_config.json":
    config = json.load(open("bad/tokenizer_config.json"))
    json.dump({"added_tokens_decoder": config["added_tokens_decoder"]}, open("bad/tokenizer_config.json", "w"))
if sys.argv[1] == "tokenizer.json":  # merges in the format of older versions
    whole = json.load(open("bad/tokenizer.json"))
    whole["model"]["merges"] = [" ".join(pair) for pair in whole["model"]["merges"]]
    json.dump(whole, open("bad/tokenizer.json", "w"))
P
}
for file in added_tokens.json tokenizer_config.json tokenizer.json; do
  declare_in $file
  expect 0 mh-convert bad -o one.safetensors; expect_stderr "277 entries"
  expect 0 mh-prep vocab --type byte-bpe --from bad -o one.v; expect_stderr "277 entries"
  mh-prep -q lm --vocab one.v text | mh-eval -q one.safetensors -
done
[ $file = tokenizer.json ] || fail "the loop did not reach tokenizer.json"
declare_in added_tokens.json
expect 0 mh-convert bad -o one.safetensors; expect_stderr "not special (2): '<pad>', '<sep>'"

# Tied tensors are accepted under either name, with and without the model prefix. If the tensors of both names differ or both are
# missing, the error has both names. Duplicate and unknown tensors are refused.
expect_same_models <<'T'
gpt2-4 transformer.wte.weight=lm_head.weight
gpt2-5 transformer.wte.weight=lm_head.weight -transformer.
gpt2-4 +transformer.wte.weight=lm_head.weight
gpt2-4 +transformer.wte.weight=lm_head.weight -transformer.
bert-4 bert.embeddings.word_embeddings.weight=cls.predictions.decoder.weight
bert-5 bert.embeddings.word_embeddings.weight=cls.predictions.decoder.weight cls.predictions.bias=cls.predictions.decoder.bias -bert.
bert-4 +cls.predictions.bias=cls.predictions.decoder.bias +bert.embeddings.word_embeddings.weight=cls.predictions.decoder.weight
T
while read -r folder one other changes; do
  copy_to_bad $folder $changes
  expect 3 mh-convert bad -o x; expect_stderr "$one"; expect_stderr "$other"
done <<'T'
gpt2-4 lm_head.weight transformer.wte.weight +transformer.wte.weight=lm_head.weight ~lm_head.weight
gpt2-5 lm_head.weight wte.weight +transformer.wte.weight=lm_head.weight -transformer. ~lm_head.weight
bert-4 cls.predictions.decoder.weight bert.embeddings.word_embeddings.weight +bert.embeddings.word_embeddings.weight=cls.predictions.decoder.weight ~cls.predictions.decoder.weight
bert-5 cls.predictions.decoder.bias cls.predictions.bias +cls.predictions.bias=cls.predictions.decoder.bias ~cls.predictions.decoder.bias
gpt2-4 lm_head.weight wte.weight transformer.wte.weight=none
gpt2-4 transformer.wte.weight unique +transformer.wte.weight=wte.weight
gpt2-4 unknown h.0.ln_3.weight +transformer.wte.weight=transformer.h.0.ln_3.weight
T

# An unsupported setting of tokenizer.json is refused with an error that names it. Files that contradict each other are
# refused too.
while IFS='|' read -r folder change words; do
  copy_to_bad $folder
  python3 - "$change" <<'P'
import json, sys
whole = json.load(open("bad/tokenizer.json"))
model, added = whole["model"], whole["added_tokens"]
exec(sys.argv[1])
json.dump(whole, open("bad/tokenizer.json", "w"))
P
  type=byte-bpe; [ "${folder%-*}" = gpt2 ] || type=wordpiece
  expect 3 mh-convert bad -o x; expect_stderr "$words"
  expect 3 mh-prep vocab --type $type --from bad -o x; expect_stderr "$words"
  [ ! -e x ] || fail "expected no output file after an error; found one"
done <<'T'
gpt2-5|whole["added_tokens"] = {}|added_tokens: expected a list; found {}
gpt2-5|whole["normalizer"] = {"type": "Sequence"}|normalizer.normalizers: expected a list; found null
gpt2-5|whole["post_processor"] = {"type": "TemplateProcessing", "single": 3}|post_processor.single: expected a list; found 3
gpt2-5|whole["normalizer"] = {"type": "NFC"}|normalizer: expected no normalizer; found NFC
gpt2-5|whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, whole["pre_tokenizer"]]}|pretokenizers[0]: expected ByteLevel; found Digits
gpt2-5|whole["pre_tokenizer"]["add_prefix_space"] = True|pre_tokenizer.add_prefix_space
gpt2-5|whole["pre_tokenizer"]["use_regex"] = False|pre_tokenizer.use_regex
gpt2-5|whole["pre_tokenizer"] = None|pre_tokenizer: expected ByteLevel; found none
gpt2-5|model["ignore_merges"] = True|model.ignore_merges
gpt2-5|model["dropout"] = 0.1|model.dropout
gpt2-5|model["end_of_word_suffix"] = "</w>"|model.end_of_word_suffix
gpt2-5|model["type"] = "Unigram"|expected BPE; found Unigram
gpt2-5|model["merges"][3] = "a b c"|model.merges[3]
gpt2-5|model["merges"] = []|model.merges
gpt2-5|model["vocab"]["a"] = model["vocab"]["b"]|a unique id for each piece
gpt2-5|del model["vocab"]["!"]|a piece with the id
gpt2-5|added[-1]["id"] = 400|a piece with the id
gpt2-5|added[-1]["id"] = 5|added_tokens: expected a token with a unique id
gpt2-5|added[-1].pop("id")|added_tokens[2].id: expected the id of the added token, a whole number; found none
gpt2-5|added[-1].pop("content")|added_tokens[2].content: expected the text of the added token with the id 276
gpt2-5|whole["post_processor"]["single"].append({"SpecialToken": {"id": "<sep>", "type_id": 0}})|post_processor
gpt2-5|whole["decoder"] = {"type": "Metaspace"}|decoder: expected ByteLevel; found Metaspace
gpt2-4|model["vocab"]["w9"] = 275; added[:] = added[:1]|vocab.json: expected piece 275, 'w9', of bad/tokenizer.json; found only 275 pieces, without piece 275
gpt2-4|model["merges"].pop()|merges.txt: expected the merges of
bert-5|whole["normalizer"]["clean_text"] = False|normalizer.clean_text
bert-5|whole["normalizer"]["handle_chinese_chars"] = False|normalizer.handle_chinese_chars
bert-5|whole["normalizer"] = {"type": "Lowercase"}|normalizer: expected BertNormalizer; found Lowercase
bert-5|whole["normalizer"] = None|normalizer: expected BertNormalizer; found none
bert-5|whole["normalizer"]["lowercase"] = True|do_lower_case: expected true, as in bad/tokenizer.json
bert-5|whole["pre_tokenizer"] = {"type": "Whitespace"}|pre_tokenizer: expected BertPreTokenizer; found Whitespace
bert-5|whole["pre_tokenizer"] = None|pre_tokenizer: expected BertPreTokenizer; found none
bert-5|whole["post_processor"]["single"].pop()|[CLS], the text and [SEP]
bert-5|model["unk_token"] = "<unk>"|model.unk_token
bert-5|model["max_input_chars_per_word"] = 50|model.max_input_chars_per_word
bert-5|model["continuing_subword_prefix"] = "@@"|model.continuing_subword_prefix
bert-5|model["type"] = "BPE"|expected WordPiece; found BPE
bert-4|model["vocab"]["w9"] = 32|vocab.txt: expected piece 32, 'w9', of bad/tokenizer.json; found only 32 pieces, without piece 32
T
for bad in '[]' '{' '' '{"model": 3}'; do
  copy_to_bad gpt2-5; printf '%s' "$bad" > bad/tokenizer.json
  expect 3 mh-convert bad -o x; expect_stderr "bad/tokenizer.json"
done
# A truncated file of settings is refused with the byte at which it ends.
for file in config.json generation_config.json special_tokens_map.json tokenizer_config.json tokenizer.json; do
  copy_to_bad gpt2-5; printf '{"eos_token_id": ' > bad/$file
  expect 3 mh-convert bad -o x; expect_stderr "bad/$file: byte 17: expected the rest of a JSON object; found the end of the text"
done
# Invalid settings are refused, and settings and vocabularies that contradict the tensors or other files.
while IFS='|' read -r folder file change words; do
  copy_to_bad $folder
  huggingface_recorded update bad/$file "$change"
  expect 3 mh-convert bad -o x; expect_stderr "$words"
done <<'T'
gpt2-4|config.json|{"n_head": 0}|n_head: expected a whole number from 1 to
gpt2-4|config.json|{"n_head": 3}|n_head: expected a divisor
gpt2-4|config.json|{"n_positions": 7}|as in config.json
bert-4|config.json|{"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "a"}}|id2label
bert-4|tokenizer_config.json|{"cls_token": "[SEP]"}|cls_token: expected [CLS]; found [SEP]
gpt2-4|added_tokens.json|{"<new>": 277}|belongs to another model
T
copy_to_bad bert-4; echo more >> bad/vocab.txt
expect 3 mh-convert bad -o x; expect_stderr "found the additional piece 'more'"
# mh-prep takes the settings of the normaliser from tokenizer.json, here lower case with accents.
copy_to_bad bert-5
python3 - <<'P'
import json
whole = json.load(open("bad/tokenizer.json"))
whole["normalizer"].update(lowercase=True, strip_accents=False)
json.dump(whole, open("bad/tokenizer.json", "w"))
json.dump({}, open("bad/tokenizer_config.json", "w"))
P
mh-prep -q vocab --type wordpiece --from bad -o accents.v
grep -q '^lowercase yes' accents.v && grep -q '^strip_accents no' accents.v || fail "expected lowercase yes and strip_accents no in the vocabulary"

# Compares configurations and tokenizers with transformers, which does not need PyTorch here.
needs_peers
lacking=
for path in ${MH_CHECK_PYTHONPATH:-} ${MH_NEWEST_PYTHONPATH:-}; do
  PYTHONPATH=$path huggingface_recorded peer "${all[@]}" 2>peer.err || { cat peer.err; fail "$path"; }
done
[ -n "${MH_CHECK_PYTHONPATH:-}" ] || lacking="transformers 4.57.1"
[ -n "${MH_NEWEST_PYTHONPATH:-}" ] || lacking="${lacking:+$lacking and }transformers 5.24.0"
[ -z "$lacking" ] || echo "without $lacking; compared with recorded outputs only"
