"""Compares byte-level BPE with the package `tokenizers`: byte_bpe_parity.py PROGRAMS [TEXT…]

The package and mh-prep learn vocabularies from the texts and from generated text; their pieces and merges must be equal. The tokens of the
texts, of every assigned Unicode character (with MH_FULL=1: of every character) and of generated text must be equal, also of the tokenizer.json
that multihead writes.
"""
import os
import pathlib
import random
import re
import subprocess
import sys

import tokenizers
from tokenizers import ByteLevelBPETokenizer, Tokenizer

programs = pathlib.Path(sys.argv[1])
texts = sys.argv[2:]
num_compared = 0


def learn(size, files, min_count=2):
    """Learns a vocabulary with the package and with mh-prep, which must write the same file, v{size}. Returns the tokenizer of the package."""
    tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
    tokenizer.train(files, vocab_size=size, min_frequency=min_count, special_tokens=["<|endoftext|>"], show_progress=False)
    folder = pathlib.Path(f"gpt2-{size}")
    folder.mkdir(exist_ok=True)
    tokenizer.save_model(str(folder))
    prep = ["mh-prep", "-q", "vocab", "--type", "byte-bpe"]
    subprocess.run([*prep, "--from", folder, "-o", f"v{size}"], check=True)
    learnt = subprocess.run([*prep, "--size", str(size), "--min-count", str(min_count), *files], check=True, capture_output=True).stdout
    assert learnt == pathlib.Path(f"v{size}").read_bytes(), f"mh-prep learns another vocabulary of {size} pieces from {files}"
    # The tokenizer of GPT2TokenizerFast without its special token, since mh-prep never encodes text to special tokens.
    return ByteLevelBPETokenizer.from_file(f"{folder}/vocab.json", f"{folder}/merges.txt", add_prefix_space=False)


def without_crlf(text):
    return re.sub("\r+\n", "\n", text)


def learn_from_generated_text():
    """Compares vocabularies of texts in which line ends, white space and ties matter, without CR LF, which mh-prep refuses."""
    rng = random.Random(3)
    parts = ["a", "b", "ab", "'s", "12", "!", " ", "  ", "   ", "\t", "\r", "\n", "\n\n", "\u00e9", "\u4e2d\u6587", "\U0001F600", "\u3000", "\\"]
    for n in range(30):
        text = "".join(rng.choice(parts[n % len(parts):] + ["a", " "]) for _ in range(rng.choice([3, 30, 300]))) + " ab" * 3  # one merge at least
        pathlib.Path("generated").write_bytes(without_crlf(text).encode())
        learn(700, ["generated"], min_count=1 + n % 3)


def generated_lines(count):
    random.seed(7)
    parts = ["a", "b", "ab", "the", "'s", "'ll", "'S", "'", "!", "-", "12", "7", " ", " ", " ", "  ", "\t", "\r", "\u00a0", "\u3000", "\u2028",
             "\u0085", "\x1c", "\u00e9", "e\u0301", "\u4e2d\u6587", "\u0663", "\u00bd", "\U0001F600", "\u200b", "\ufeff", "<|endoftext|>"]
    lines = []
    for _ in range(count):
        line = "".join(random.choice(parts) if random.random() < 0.9 else chr(random.choice(range(1, 0xD800)))
                       for _ in range(random.randrange(30)))
        lines.append(line.replace("\n", ""))
    return lines


def characters():
    """Returns a line for every Unicode character; without MH_FULL, only for every 257th character of the planes 4 to 13
    (unassigned), 15 and 16 (private use), which contain three quarters of all characters."""
    def is_compared(c):
        return os.environ.get("MH_FULL") or c < 0x40000 or c >> 16 == 14 or c % 257 == 0

    codes = [c for c in range(1, 0x110000) if c != 10 and not 0xD800 <= c < 0xE000 and is_compared(c)]
    return [f"a{c}a 1{c}1 !{c}! {c} {c}" for c in map(chr, codes)]


def compare(tokenizer, vocabulary, lines):
    global num_compared
    id_lines = subprocess.run([programs / "token-ids", vocabulary], input="\n".join(lines) + "\n", capture_output=True, text=True,
                           check=True, encoding="utf-8").stdout.split("\n")[:-1]
    assert len(id_lines) == len(lines), (len(id_lines), len(lines))
    for start in range(0, len(lines), 20000):
        for line, id_line, encoding in zip(lines[start:], id_lines[start:], tokenizer.encode_batch(lines[start:start + 20000])):
            assert [int(i) for i in id_line.split()] == encoding.ids, (line, id_line, encoding.ids)
    num_compared += len(lines)


def written_back(vocabulary):
    """Returns the tokenizer of the tokenizer.json that multihead writes for a vocabulary."""
    written = subprocess.run([programs / "token-ids", "--json", vocabulary], capture_output=True, check=True, encoding="utf-8").stdout
    tokenizer = Tokenizer.from_str(written)
    tokenizer.encode_special_tokens = True
    return tokenizer


learn_from_generated_text()
if not texts:
    pathlib.Path("lines").write_bytes(without_crlf("\n".join(generated_lines(4000))).encode())
for size in (300, 1000, 8000):
    tokenizer = learn(size, texts or ["lines"])
    compare(tokenizer, f"v{size}", generated_lines(4000))
    compare(written_back(f"v{size}"), f"v{size}", generated_lines(1000))
    if size == 1000:
        compare(tokenizer, f"v{size}", characters())
    for text in texts:
        with open(text, encoding="utf-8", newline="\n") as file:
            compare(tokenizer, f"v{size}", [line.rstrip("\n") for line in file])
print(f"{num_compared} lines have the same tokens as tokenizers {tokenizers.__version__}")
