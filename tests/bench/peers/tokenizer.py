#!/usr/bin/env python3
"""Measures the seconds that the package `tokenizers` needs for the lines of a text, on one thread, without file I/O.

    peers/tokenizer.py TOKENIZER TEXT IDS      writes the ids of each line to IDS

TOKENIZER: a tokenizer.json, or vocab.txt of BERT. The names of special tokens in the text are encoded as ordinary text.
"""
import os
import pathlib
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers  # noqa: E402


def wordpiece(path):
    """Returns BERT's tokenizer with the pieces of vocab.txt."""
    pieces = path.read_text(encoding="utf-8").split("\n")[:-1]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def main():
    path, text, ids = map(pathlib.Path, sys.argv[1:4])
    tokenizer = Tokenizer.from_file(str(path)) if path.suffix == ".json" else wordpiece(path)
    tokenizer.encode_special_tokens = True
    lines = text.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    start_time = time.perf_counter()
    encodings = tokenizer.encode_batch_fast(lines, add_special_tokens=False)  # without character offsets
    print(f"{time.perf_counter() - start_time:.6f}")
    ids.write_text("".join(" ".join(map(str, line.ids)) + "\n" for line in encodings))


if __name__ == "__main__":
    main()
