"""Compares byte-level BPE with the package `tokenizers`: byte_bpe_parity.py PROGRAMS [TEXT…]

The package learns vocabularies from the texts, or from generated text. The tokens of the texts, of every assigned Unicode character (with
MH_FULL=1: of every character) and of generated text must be equal.
"""
import os
import pathlib
import random
import subprocess
import sys

import tokenizers
from tokenizers import ByteLevelBPETokenizer

programs = pathlib.Path(sys.argv[1])
texts = sys.argv[2:]
num_compared = 0


def learn(size):
    tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
    if texts:
        tokenizer.train(texts, vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False)
    else:
        tokenizer.train_from_iterator(generated_lines(4000), vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>"],
                                      show_progress=False)
    folder = pathlib.Path(f"gpt2-{size}")
    folder.mkdir()
    tokenizer.save_model(str(folder))
    subprocess.run(["mh-prep", "-q", "vocab", "--type", "byte-bpe", "--from", str(folder), "-o", f"v{size}"], check=True)
    # The tokenizer of GPT2TokenizerFast without its special token, since mh-prep never encodes text to special tokens.
    return ByteLevelBPETokenizer.from_file(f"{folder}/vocab.json", f"{folder}/merges.txt", add_prefix_space=False)


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


for size in (300, 3000, 20000):
    tokenizer = learn(size)
    compare(tokenizer, f"v{size}", generated_lines(4000))
    if size == 3000:
        compare(tokenizer, f"v{size}", characters())
    for text in texts:
        with open(text, encoding="utf-8", newline="\n") as file:
            compare(tokenizer, f"v{size}", [line.rstrip("\n") for line in file])
print(f"{num_compared} lines have the same tokens as tokenizers {tokenizers.__version__}")
