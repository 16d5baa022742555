#!/usr/bin/env python3
"""Compares the rows of example shards with BertTokenizerFast and BertTokenizer of transformers: input_ids and token_type_ids of
single texts and pairs.

usage: examples_parity.py FOLDER-OF-PROGRAMS VOCAB.TXT FOLDER-OF-GLUE   compares each file of FILES that exists
"""
import pathlib
import subprocess
import sys

import transformers

# (task, file, options of mh-prep, columns of the texts counted from 0, number of header lines)
FILES = [
    ("cola", "CoLA/train.tsv", [], [3], 0),
    ("cola", "CoLA/dev.tsv", [], [3], 0),
    ("cola", "CoLA/test.tsv", [], [1], 1),
    ("mrpc", "MRPC/train.tsv", [], [3, 4], 1),
    ("mrpc", "MRPC/dev.tsv", [], [3, 4], 1),
    ("mrpc", "MRPC/test.tsv", [], [3, 4], 1),
    ("mrpc", "MRPC/msr_paraphrase_test.txt", [], [3, 4], 1),
    ("rte", "RTE/train.tsv", [], [1, 2], 1),
    ("rte", "RTE/dev.tsv", [], [1, 2], 1),
    ("rte", "RTE/test.tsv", [], [1, 2], 1),
    ("sst2", "SST-2/train.tsv", ["--crlf", "normalise"], [1], 1),
    ("sst2", "SST-2/dev.tsv", ["--text", "content"], [1], 1),
    ("stsb", "STS-B/sts-train.csv", ["--no-header", "--text", "6", "--text-b", "7", "--label", "5"], [5, 6], 0),
    ("stsb", "STS-B/sts-dev.csv", ["--no-header", "--text", "6", "--text-b", "7", "--label", "5"], [5, 6], 0),
]
programs, vocab, glue = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
fast = transformers.BertTokenizerFast(vocab_file=vocab, do_lower_case=True)
slow = transformers.BertTokenizer(vocab_file=vocab, do_lower_case=True)
num_compared = odd_splits = 0


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True).stdout.decode().split("\n")[:-1]


def rows_of(shard, length):
    for line in run(programs / "example-rows", shard, length):
        _, first, *tokens = map(int, line.split())
        yield tokens, [0] * first + [1] * (len(tokens) - first)


def encode(tokenizer, texts, length):
    return tokenizer(*map(list, zip(*texts)), truncation="longest_first", max_length=length)


for task, name, options, columns, header in FILES:
    path = glue / name
    if not path.exists():
        continue
    subprocess.run(["mh-prep", "-q", "glue", "--task", task, "--wordpiece", vocab, *options, "-o", "shard", path], check=True)
    lines = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")[header:]
    texts = [[line.split("\t")[c] for c in columns] for line in lines]
    for length in (128, 24, 21):
        shard_rows = list(rows_of("shard", length))
        if len(shard_rows) != len(texts):
            sys.exit(f"{name}: expected a row for each of {len(texts)} lines; found {len(shard_rows)}")
        shard_rows = shard_rows if length == 128 else shard_rows[:2000]
        encodings = encode(fast, texts[:len(shard_rows)], length)
        for i, (row, segments) in enumerate(shard_rows):
            if (row, segments) != (encodings["input_ids"][i], encodings["token_type_ids"][i]):
                sys.exit(f"{name}, length {length}, row {i}: expected {encodings['input_ids'][i]}, as from BertTokenizerFast; found {row}")
            num_compared += 1
        # BertTokenizer and BertTokenizerFast differ in how they divide an odd number of tokens between two truncated sentences.
        first_rows = slice(0, 300)
        encodings = encode(slow, texts[first_rows], length)
        for i, (row, segments) in enumerate(shard_rows[first_rows]):
            if (row, segments) == (encodings["input_ids"][i], encodings["token_type_ids"][i]):
                num_compared += 1
                continue
            lengths = [len(slow(t, add_special_tokens=False)["input_ids"]) for t in texts[i]]
            room = length - 3
            if len(lengths) == 1 or room % 2 == 0 or min(lengths) <= room // 2:
                sys.exit(f"{name}, length {length}, row {i}: expected {encodings['input_ids'][i]}, as from BertTokenizer; found {row}")
            odd_splits += 1
print(f"{num_compared} rows equal the rows of transformers {transformers.__version__}; in {odd_splits} rows BertTokenizer splits an odd number of tokens differently")
