"""Compares folders with tokenizer.model alone with the Python package `sentencepiece`: sentencepiece_parity.py PROGRAMS [MODEL…]

MODEL is a SentencePiece model; without models, the package trains BPE models of the form of Llama 2 and Mistral, and of Gemma (pieces across words,
without a space in front of a text), and a Unigram model. The ids of the strings of wild_strings.py and of natural text, line feeds included, must be equal to
the ids of the package with its begin token.
"""
import pathlib
import random
import shutil
import subprocess
import sys

import sentencepiece

from wild_strings import natural_lines, natural_texts, strings, training_lines

programs = pathlib.Path(sys.argv[1])
models = [pathlib.Path(path) for path in sys.argv[2:]]
random.seed(11)
texts = strings() + natural_lines() + natural_texts()


def train(name, **options):
    """Trains a model that keeps all text, with a piece for each byte."""
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(training_lines() + natural_lines()), model_prefix=name, vocab_size=1500,
                                             hard_vocab_limit=False, byte_fallback=True, normalization_rule_name="identity",
                                             remove_extra_whitespaces=False, character_coverage=.99, minloglevel=2, **options)
    return pathlib.Path(f"{name}.model")


models = models or [train("llama", model_type="bpe", split_digits=True), train("gemma", model_type="bpe", split_by_whitespace=False, add_dummy_prefix=False),
                    train("unigram", model_type="unigram", user_defined_symbols=["<tool>", "  "])]
for model in models:
    folder = pathlib.Path(f"{model.name}.folder")
    folder.mkdir()
    shutil.copyfile(model, folder / "tokenizer.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    printed_begin = subprocess.run([programs / "token-ids", "--begin", folder], capture_output=True, check=True, text=True).stdout
    assert int(printed_begin) == processor.bos_id(), (model.name, printed_begin, processor.bos_id())
    # The texts have line feeds, so they are separated by NUL.
    printed = subprocess.run([programs / "token-ids", "--nul", folder], input="\0".join(texts) + "\0", capture_output=True, check=True, encoding="utf-8").stdout
    lines = printed.split("\n")[:-1]
    assert len(lines) == len(texts), (model.name, len(lines), len(texts))
    different = [(text, line) for text, line in zip(texts, lines)
                 if [processor.bos_id(), *map(int, line.split())] != processor.encode(text, add_bos=True)]
    assert not different, f"{model.name}: {len(different)} of {len(texts)} texts have other ids, such as {different[:3]}"
print(f"{len(models)} models give {len(texts)} texts the same ids as sentencepiece {sentencepiece.__version__}")
