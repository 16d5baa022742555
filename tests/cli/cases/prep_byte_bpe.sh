# Byte-level BPE of GPT-2: mh-prep learns the vocabulary or reads it from the files of GPT-2, encodes and decodes text,
# and refuses damaged files. The learnt vocabularies and the token ids of all available texts equal the results of the
# Python package `tokenizers`.
python3 - <<'P'
import json, os
# GPT-2's printable letters for the 256 bytes, and two merges.
printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
others = [b for b in range(256) if b not in printed]
letters = {**{b: chr(b) for b in printed}, **{b: chr(256 + i) for i, b in enumerate(others)}}
pieces = [letters[b] for b in range(256)] + ["<|endoftext|>", "\u0120a", "\u0120ab"]
os.mkdir("f")
json.dump({p: i for i, p in enumerate(pieces)}, open("f/vocab.json", "w"))
open("f/merges.txt", "w").write("#version: 0.2\n\u0120 a\n\u0120a b\n")
P
expect 0 mh-prep vocab --type byte-bpe --from f -o v; expect_stderr "259 entries"
head -4 v | tail -1 | grep -q "^merges 2" || fail "expected the two merges of f/merges.txt in the vocabulary"
printf 'ab ab  ab\n\303\251 a\tb\n\n' > text
expect 0 mh-prep lm --vocab v text -o s; expect_stderr "tokens"
"$(dirname "$(command -v mh-prep)")/../tests/token-ids" v < text > ids
printf '97 98 258 32 258 \n195 169 257 9 98 \n\n' | diff - ids || fail "expected 97 98 258 32 258, 195 169 257 9 98 and an empty line; found $(cat ids)"
mh-prep cat s | cmp - text
# A learnt vocabulary has <|endoftext|>, the bytes, and the joined pieces; the line feed belongs to the last word.
printf 'ab ab\n\nab  \n  \nq' > learn
learn() { mh-prep vocab --type byte-bpe "$@"; }
expect 0 learn --size 300 --min-count 2 learn -o l; expect_stderr "stopped after 260 entries: no pair of pieces occurs --min-count times"
[ "$(sed -n '7,8p' l | tr '\t\n' '  ')" = "<|endoftext|> 0 ! 0 " ] || fail "expected <|endoftext|> and ! as the first entries; found $(sed -n 7,8p l)"
[ "$(tail -n 3 l | tr '\n' ' ')" = "a b Ġ Ċ Ġ ĠĊ " ] || fail "expected the merges a b, Ġ Ċ and Ġ ĠĊ; found $(tail -n 3 l)"
learn --size 300 --min-count 2 - < learn | cmp - l
sed 's/$/\r/; $s/\r$//' learn | learn --size 300 --min-count 2 --crlf normalise - | cmp - l
[ "$(learn -q --size 258 learn | tail -n 1)" = "a b" ] || fail "expected the number of entries that --size names"
learn -q --size 257 learn | mh-prep lm -q --vocab - learn | mh-prep cat - | cmp - <(cat learn; echo)
: > empty; expect 3 mh-prep vocab --type byte-bpe --size 300 empty -o x; expect_stderr "no words"
# expect_refused STATUS MESSAGE ARGUMENT…: mh-prep vocab --type byte-bpe must exit with STATUS and MESSAGE and leave no file.
expect_refused() { expect "$1" mh-prep vocab --type byte-bpe "${@:3}" -o x; expect_stderr "$2"; [ ! -e x ] || fail "expected no output file after an error; found one"; }
expect_refused 2 "either --size, to learn a vocabulary, or --from" text
expect_refused 2 "at least 257" --size 256 text
expect_refused 2 "--alphabet" --size 300 --alphabet 9 text
expect_refused 2 "both" --from f text
expect_refused 2 "--size" --from f --size 300
expect_refused 2 "--cased" --from f --cased
expect_refused 2 "--min-count" --from f --min-count 2
expect_refused 3 "vocab.json" --from missing
mkdir g; cp f/vocab.json g
expect_refused 3 "merges.txt" --from g
printf '#version: 0.2\na b\n' > g/merges.txt
expect_refused 3 "'ab' of merge 1" --from g
printf 'ab\n' > g/merges.txt
expect_refused 3 "merges.txt:1" --from g
expect 2 mh-prep vocab --type wordpiece --from f/vocab.json --merges 3 -o x; expect_stderr "--merges"

needs_peers
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import tokenizers' 2>/dev/null || { echo "without Python's tokenizers"; exit 0; }
data=${MH_DATA:-$ROOT/../shared/data}
mkdir texts
for file in wikitext-2/valid.txt multi30k/val.en multi30k/val.de; do
  [ ! -f "$data/$file.zst" ] || zstd -dcq "$data/$file.zst" > "texts/$(basename "$file")"
done
[ ! -f "$data/squad-1.1/dev.json.zst" ] || zstd -dcq "$data/squad-1.1/dev.json.zst" | python3 -c 'import json, sys
for article in json.load(sys.stdin)["data"]:
    for paragraph in article["paragraphs"]:
        print(" ".join(paragraph["context"].split("\n")))' > texts/squad-dev
mapfile -t files < <(find texts -type f | sort)
PYTHONPATH=$MH_CHECK_PYTHONPATH python3 -B "$ROOT/tests/cli/byte_bpe_parity.py" "$(dirname "$(command -v mh-prep)")/../tests" "${files[@]}"
