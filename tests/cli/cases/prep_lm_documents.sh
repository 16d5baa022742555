# Documents of mh-prep lm: the line ends within a document are text, and one <|endoftext|> follows each document. Options
# and lines that are not documents are refused. The tokens equal the tokens of the Python package `tokenizers`.
printf 'one two\nthree\n\n  \nfour  \n  five\n' > a
printf 'six\n\n\nseven' > b
: > empty
mh-prep vocab -q --type byte-bpe --size 270 a b -o v
mh-prep vocab -q a b -o words
# make_shard UNIT FILE…: makes the shard UNIT.mhs.
make_shard() { expect 0 mh-prep lm --vocab v --document "$1" "${@:2}" -o "$1.mhs"; }
expect 0 mh-prep lm --vocab v a b -o default.mhs; expect_stderr "10 lines, "; expect_stderr ", --document line"
make_shard line a b
cmp line.mhs default.mhs
make_shard blank-line a empty b; expect_stderr "4 documents, "; expect_stderr ", --document blank-line"
mh-prep cat blank-line.mhs | cmp - <(printf 'one two\nthree\n\nfour  \n  five\n\nsix\n\nseven\n')
mh-prep cat blank-line.mhs | mh-prep lm -q --vocab v --document blank-line - | mh-prep cat --ids - | cmp - <(mh-prep cat --ids blank-line.mhs)
expect 0 mh-prep info blank-line.mhs
expect_stdout "records	4"
expect_stdout "text_bytes	$(printf 'one two\nthree\nfour  \n  five\nsix\nseven\n' | wc -c)"
expect_stdout '"document":"blank-line"'
make_shard file a empty; expect_stderr "1 document, "
mh-prep cat file.mhs | cmp - a
make_shard file a b; expect_stderr "2 documents, "
printf '%s\n' '{"text": "one\n\ntwo", "id": 1}' '' '{"meta": [{}], "text": "\u4e2d \ud83d\ude00\n"}' '{"text": ""}' > lines
make_shard jsonl lines; expect_stderr "2 documents, "; expect_stderr "dropped 1 document without text"
mh-prep cat jsonl.mhs | cmp - <(printf 'one\n\ntwo\n\n中 😀\n\n')
mh-prep lm -q --vocab v --document jsonl --crlf normalise <(sed 's/$/\r/' lines) | mh-prep cat --ids - | cmp - <(mh-prep cat --ids jsonl.mhs)
# A document of several batches is one record.
make_text 20000 > long
make_shard file long; expect_stderr "1 document, "
mh-prep cat file.mhs | cmp - long
[ "$(mh-prep cat --ids file.mhs | wc -l)" -eq 1 ] || fail "expected one record for a long file"
# Each of the following commands must fail because of its options or files.
for unit in blank-line file jsonl; do record 2 mh-prep lm --vocab words --document $unit a -o y; done
record 2 mh-prep lm --vocab v --document page a -o y
record 3 mh-prep lm --vocab v --document file empty -o y
record 3 mh-prep lm --vocab v --document jsonl a -o y
for line in '{"text": 1}' '{"Text": ""}' '["text"]' '{"text": "a\u0000"}' '{"text": "a", "text": "b"}' '{"text": "a'; do
  printf '{"text": "a"}\n%s\n' "$line" > bad
  record 3 mh-prep lm --vocab v --document jsonl bad -o y
done
printf 'a\n\xff\n' > bytes
for unit in blank-line file jsonl; do record 3 mh-prep lm --vocab v --document $unit bytes -o y; done
golden_record refused
[ ! -e y ] || fail "expected no file after an error; found one"

needs_peers
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import tokenizers' 2>/dev/null || { echo "without Python's tokenizers"; exit 0; }
PYTHONPATH=$MH_CHECK_PYTHONPATH python3 -B - <<'P'
import json, random, subprocess
from tokenizers import ByteLevelBPETokenizer

random.seed(5)
parts = ["a", "b", "the", " the", "'s", "12", "!", " ", "  ", "\n", "\n", "\n\n", " \n", "\t", "\u00e9", "\u4e2d\u6587", "\U0001F600", "\u3000"]
texts = ["".join(random.choices(parts, k=random.randrange(1, 60))) for _ in range(400)]
open("texts", "w").write("\n".join(json.dumps({"text": text}) for text in texts))
open("plain", "w").write("\n".join(texts))
tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
tokenizer.train_from_iterator(texts, vocab_size=500, special_tokens=["<|endoftext|>"], show_progress=False)
tokenizer.save_model(".")
subprocess.run("mh-prep vocab -q --type byte-bpe --from . -o peer.vocab", shell=True, check=True)
peer = ByteLevelBPETokenizer.from_file("vocab.json", "merges.txt", add_prefix_space=False)
end = tokenizer.token_to_id("<|endoftext|>")
for unit, file, documents in ("jsonl", "texts", texts), ("file", "plain", ["\n".join(texts).removesuffix("\n")]):
    printed = subprocess.run(f"mh-prep lm -q --vocab peer.vocab --document {unit} {file} | mh-prep cat --ids -", shell=True, check=True, capture_output=True, text=True).stdout
    records = [[int(token) for token in line.split()] for line in printed.splitlines()]
    assert records == [encoding.ids + [end] for encoding in peer.encode_batch(documents)], unit
P
