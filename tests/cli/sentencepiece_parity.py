"""Compares a folder with tokenizer.model alone with the Python package `sentencepiece`: sentencepiece_parity.py PROGRAMS [MODEL…]

MODEL is a SentencePiece model; without models, the models in the package mistral-common. The ids of the strings of wild_strings.py, line feeds
included, must be equal to the ids of the package with its begin token.
"""
import importlib.util
import pathlib
import random
import shutil
import subprocess
import sys

import sentencepiece

from wild_strings import strings

programs = pathlib.Path(sys.argv[1])
models = [pathlib.Path(path) for path in sys.argv[2:]]
if not models:
    data = pathlib.Path(importlib.util.find_spec("mistral_common").origin).parent / "data"
    models = sorted(path for path in data.iterdir() if ".model." in path.name)
random.seed(11)
texts = strings()
for model in models:
    folder = pathlib.Path(model.name)
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
