# tokenizer.json of other families than GPT-2 and BERT: mh-prep lm reads a file or a folder, encodes and decodes text, and refuses other
# components by name. The ids of strings of many kinds equal the ids from the Python package `tokenizers`.
python3 - <<'P'
import json, os
printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
others = [b for b in range(256) if b not in printed]
letters = {**{b: chr(b) for b in printed}, **{b: chr(256 + i) for i, b in enumerate(others)}}
pieces = [letters[b] for b in range(256)] + ["\u0120a", "\u0120ab", "abc"]
added = [(259, "<|begin|>", True), (260, "<|end|>", True), (261, "<tool>", False)]
tokenizer = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": s} for i, c, s in added],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}| ?\p{L}+|\s+(?!\S)|\s+|[^\s]"}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                       "pair": [], "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [259], "tokens": ["<|begin|>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "ignore_merges": True, "vocab": {p: i for i, p in enumerate(pieces)}, "merges": [["\u0120", "a"], "\u0120a b"]}}


def write(name, **changes):
    os.mkdir(name)
    json.dump({**tokenizer, **changes}, open(f"{name}/tokenizer.json", "w"))


def pattern(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


write("f")
json.dump({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": False, "eos_token": "<|end|>"}, open("f/tokenizer_config.json", "w"))
write("plain")
write("without-backslash", model={**tokenizer["model"], "vocab": {p if p != "\\" else "abab": i for i, p in enumerate(pieces)}})
write("unnamed")
json.dump({"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}, open("unnamed/tokenizer_config.json", "w"))
write("words", pre_tokenizer={"type": "WhitespaceSplit"}, normalizer=None, added_tokens=[], post_processor=None, decoder=None,
      model={"type": "WordLevel", "vocab": {"</s>": 0, "?": 1, "a": 2, "ab": 3}, "unk_token": "?"})
for name, changes in {
        "normalizer": {"normalizer": {"type": "Nmt"}}, "pre": {"pre_tokenizer": {"type": "UnicodeScripts"}}, "decoder": {"decoder": {"type": "CTC"}},
        "post": {"post_processor": {"type": "Other"}}, "model": {"model": {"type": "Lattice", "vocab": {"a": 0}}},
        "dropout": {"model": {**tokenizer["model"], "dropout": 0.1}}, "merge": {"model": {**tokenizer["model"], "merges": ["a q"]}},
        "behavior": {"pre_tokenizer": {**pattern("a"), "behavior": "Other"}}, "id": {"added_tokens": [{"id": 300, "content": "<x>", "special": True}]},
        "backreference": {"pre_tokenizer": pattern(r"(a)\1")}, "property": {"pre_tokenizer": pattern(r"ab\p{Han}")},
        "exponential": {"pre_tokenizer": pattern(r"(?:a|aa)+b")}, "ends": {"post_processor": None}}.items():
    write("bad-" + name, **changes)
os.mkdir("tiktoken")
open("tiktoken/tokenizer.model", "w").write("IQ== 0\nIg== 1\n")
os.mkdir("empty")
P
token_ids=$(dirname "$(command -v mh-prep)")/../tests/token-ids
printf 'a ab <tool>abc 1234<|end|>\n\303\251\n\n' > text
record 0 mh-prep lm --vocab plain text -o s
mh-prep cat s | cmp - text
"$token_ids" plain < text > ids
printf '97 257 32 261 258 32 49 50 51 52 60 124 101 110 100 124 62 \n195 169 \n\n' | diff - ids || fail "expected the token ids of the merges"
# The token 259, <|begin|>, ends a line.
record 0 mh-prep cat --ids s
# The folder states that no token precedes a text, so eos_token, the token 260, ends a line.
record 0 mh-prep lm --vocab f text -o s
record 0 mh-prep cat --ids s
record 0 mh-prep vocab --type tokenizer-json --from plain/tokenizer.json -o v
record 0 sed '/^$/q' v
expect 0 mh-prep lm --vocab v text -o t; expect 0 mh-prep lm --vocab plain/tokenizer.json text -o u
mh-prep cat --ids t > ids; mh-prep cat --ids u | cmp - ids
# The first line has the words a and ab, two unknown words, and the end of the line.
record 0 mh-prep lm --vocab words text -o t
record 0 mh-prep cat --ids t
golden_record tokens
printf 'a\\b\n' > backslash
expect 0 mh-prep lm --vocab without-backslash backslash -o t; expect_stderr "drops characters without a token, as in Hugging Face tokenizers; the first is '\\'"
[ "$(mh-prep cat t)" = ab ] || fail "expected the text without the character without a token; found $(mh-prep cat t)"
"$token_ids" --json plain > written.json
mh-prep lm --vocab written.json text -o t; mh-prep cat --ids t | cmp - <(mh-prep cat --ids u)
[ "$("$token_ids" --begin unnamed)" = 259 ] || fail "expected the token of the post-processor in front of a text"
# The folder f states that no token precedes a text, and so does its tokenizer.json.
mkdir w
"$token_ids" --json f > w/tokenizer.json
echo '{"eos_token": "<|end|>"}' > w/tokenizer_config.json
[ "$("$token_ids" --begin w)" = -1 ] || fail "expected no token in front of a text"
expect 2 mh-prep vocab --type tokenizer-json text -o x; expect_stderr "no --from"
expect 2 mh-prep vocab --type tokenizer-json --from plain --size 300 -o x; expect_stderr "--size"
expect 2 mh-prep vocab --type tokenizer-json --from plain --min-count 3 -o x; expect_stderr "--min-count"
# expect_refused FOLDER MESSAGE: mh-prep must refuse the tokenizer with MESSAGE.
expect_refused() { expect 3 mh-prep lm --vocab "$1" text -o x; expect_stderr "$2"; }
expect_refused bad-normalizer "Nmt"
expect_refused bad-pre "UnicodeScripts"
expect_refused bad-decoder "CTC"
expect_refused bad-post "Other"
expect_refused bad-model "Lattice"
expect_refused bad-dropout "dropout"
expect_refused bad-merge "'aq', which is no piece"
expect_refused bad-behavior "MergedWithPrevious"
expect_refused bad-id "the id 259"
expect_refused bad-backreference "byte 3"
expect_refused bad-property "byte 2"
expect_refused bad-ends "no such token"
expect_refused tiktoken "tiktoken"
expect_refused empty "none of these files"
head -c 3000 /dev/zero | tr '\0' a > long; echo >> long
expect 3 mh-prep lm --vocab bad-exponential long -o x; expect_stderr "linear time"
sed 's/^begin .*/begin 5000/' v > damaged
expect 3 mh-prep lm --vocab damaged text -o x; expect_stderr "below 262"
sed 's/^entries .*/entries 5/' v > damaged
expect 3 mh-prep lm --vocab damaged text -o x; expect_stderr "entries 262"
sed 's/^end .*/end last/' v > damaged
expect 3 mh-prep lm --vocab damaged text -o x; expect_stderr "at least -1"

needs_peers
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import tokenizers' 2>/dev/null || { echo "without Python's tokenizers"; exit 0; }
PYTHONPATH=$MH_CHECK_PYTHONPATH python3 -B "$ROOT/tests/cli/tokenizer_json_parity.py" "$(dirname "$token_ids")"
