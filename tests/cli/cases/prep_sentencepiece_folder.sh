# A folder with tokenizer.model and without tokenizer.json has the ids of the SentencePiece library, and the begin token of the model in front
# of each text; line feeds are text. tokenizer_config.json states the tokens around a text.
command -v spm_train >/dev/null || skip "spm_train is not installed"
make_text 500 | sed '5s/$/ naïve  ½ 東京/; 9s/$/ \xf0\x9f\x98\x80  a\xc2\xa0b/' > text
spm_train --input=text --model_prefix=llama --model_type=bpe --vocab_size=330 --byte_fallback=true --normalization_rule_name=identity \
  --remove_extra_whitespaces=false --character_coverage=1 --num_threads=1 --minloglevel=2 2>/dev/null
mkdir f; cp llama.model f/tokenizer.model
expect 0 mh-prep lm --vocab f text -o s; expect_stderr "500 lines"
mh-prep cat s | cmp - text
mh-prep info s | grep -q "sentencepiece" || fail "expected the tokenizer sentencepiece"
# The begin token 1 is the context of the first token of a text, so it ends each line.
mh-prep cat --ids s | sed 's/ \{0,1\}1$//' > ids
spm_encode --model=llama.model --output_format=id < text > spm_ids 2>/dev/null
cmp ids spm_ids
expect 0 mh-prep lm --document file --vocab f text -o d; expect_stderr "1 document"
mh-prep cat d | cmp - text
token_ids=$(dirname "$(command -v mh-prep)")/../tests/token-ids
[ "$("$token_ids" --begin f)" = 1 ] || fail "expected the begin token 1"
# A model alone has no begin token, and a line feed ends its lines.
expect 0 mh-prep lm --vocab llama.model text -o m
mh-prep cat --ids m | sed 's/ \{0,1\}2$//' | cmp - spm_ids
expect 2 mh-prep lm --document file --vocab llama.model text -o x; expect_stderr "encodes line ends"
expect 3 mh-prep vocab --type tokenizer-json --from f -o x; expect_stderr "--vocab of mh-prep lm"

# expect_config STATUS CONFIG: runs mh-prep lm with the folder and the tokenizer_config.json CONFIG.
expect_config() { printf '%s' "$2" > f/tokenizer_config.json; expect "$1" mh-prep lm --vocab f text -o x; }
expect_config 0 '{"tokenizer_class": "LlamaTokenizer", "add_bos_token": false}'
[ "$("$token_ids" --begin f)" = -1 ] || fail "expected no begin token"
mh-prep cat --ids x | sed 's/ \{0,1\}2$//' | cmp - spm_ids
expect_config 3 '{"tokenizer_class": "BaichuanTokenizer"}'; expect_stderr "BaichuanTokenizer"
expect_config 3 '{"add_prefix_space": false}'; expect_stderr "add_prefix_space"
expect_config 3 '{"bos_token": "<begin>"}'; expect_stderr "'<begin>', which is no piece"
expect_config 3 '{"added_tokens_decoder": {"330": {"content": "<tool>"}}}'; expect_stderr "'<tool>' with the id 330"

needs_peers
export PYTHONPATH=${MH_CHECK_PYTHONPATH:-}
python3 -c 'import sentencepiece' 2>/dev/null || { echo "without Python's sentencepiece"; exit 0; }
python3 -B "$ROOT/tests/cli/sentencepiece_parity.py" "$(dirname "$token_ids")"
