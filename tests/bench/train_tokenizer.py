#!/usr/bin/env python3
"""Trains a tokenizer in the form of a published family with the package `tokenizers`.

    train_tokenizer.py FAMILY TEXT FOLDER     writes tokenizer.json and tokenizer_config.json to a new folder
"""
import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

SPECIAL = ["<unk>", "<s>", "</s>"]
LLAMA_3_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def llama_3():
    """Returns byte-level BPE of words that a regular expression separates, and its trainer."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA_3_WORDS), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer, trainers.BpeTrainer(vocab_size=32000, show_progress=False, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def llama_2():
    """Returns BPE with bytes for unknown characters, and its trainer. Merges are learnt from words, but main() drops the separation into words."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer, trainers.BpeTrainer(vocab_size=32000, show_progress=False, special_tokens=SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)])


def t5():
    """Returns a unigram language model of words that spaces separate, and its trainer."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer, trainers.UnigramTrainer(vocab_size=32000, show_progress=False, special_tokens=SPECIAL, unk_token="<unk>")


FAMILIES = {"llama-3": llama_3, "llama-2": llama_2, "t5": t5}


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in FAMILIES:
        sys.exit(f"usage: train_tokenizer.py {'|'.join(FAMILIES)} TEXT FOLDER")
    folder = pathlib.Path(sys.argv[3])
    tokenizer, trainer = FAMILIES[sys.argv[1]]()
    tokenizer.train([sys.argv[2]], trainer)
    if sys.argv[1] == "llama-2":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        tokenizer.pre_tokenizer = None
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))


if __name__ == "__main__":
    main()
