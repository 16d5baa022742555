#!/usr/bin/env python3
"""Makes the seed corpus of the fuzz targets: a folder of small valid files for each target.

    corpus.py MH_PREP FOLDER    shards and vocabularies by MH_PREP, files of the archive of tests/data and of tests/cli/recorded,
                                a file in the form of torch.save, and the inputs in tests/fuzz/found that once failed
"""
import collections
import io
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import types
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECORDED = ROOT / "tests/cli/recorded"
TEXT = "the cat sat on the mat\nthe rat ate the cat\nthe mat was wet, was it not?\n" * 8
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer_config.json", "added_tokens.json")


class Corpus:
    def __init__(self, folder):
        self.folder = folder

    def add(self, target, name, data):
        (self.folder / target).mkdir(parents=True, exist_ok=True)
        (self.folder / target / name).write_bytes(data)


def state_dict():
    """Returns the pickle that torch.save writes for a dict of two tensors that share a storage; PyTorch is not needed."""
    utils = types.ModuleType("torch._utils")
    torch = types.ModuleType("torch")

    def _rebuild_tensor_v2(*_):
        raise NotImplementedError

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    torch.FloatStorage = type("FloatStorage", (), {"__module__": "torch"})
    Storage = collections.namedtuple("Storage", "key size")

    class Tensor:
        def __init__(self, offset, shape, strides):
            self.arguments = (Storage("0", 6), offset, shape, strides, False, collections.OrderedDict())

        def __reduce__(self):
            return _rebuild_tensor_v2, self.arguments

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return ("storage", torch.FloatStorage, obj.key, "cpu", obj.size) if isinstance(obj, Storage) else None

    out = io.BytesIO()
    saved = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update({"torch": torch, "torch._utils": utils})
    try:
        Pickler(out, protocol=2).dump(collections.OrderedDict(a=Tensor(0, (2, 3), (3, 1)), b=Tensor(2, (4,), (1,))))
    finally:
        for name, module in saved.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return out.getvalue()


def torch_file(pickled):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("model/data.pkl", pickled)
        archive.writestr("model/data/0", struct.pack("<6f", *range(6)))
        archive.writestr("model/version", "3\n")
    return out.getvalue()


def add_archive(corpus):
    """Adds the small files of the archive: shards, checkpoints, configurations, logs, examples and questions."""
    logs = checkpoints = 0
    with tarfile.open(ROOT / "tests/data/archive.tar.xz") as archive:
        for member in archive:
            if not member.isfile():
                continue
            data = archive.extractfile(member).read()
            name = member.name.replace("/", "-")
            if name.endswith(".mhs"):
                corpus.add("shard", name, data)
            elif name.endswith(".vocab"):
                corpus.add("vocabulary", name, data)
            elif name.endswith("log.jsonl") and logs < 4:
                corpus.add("run_log", name, data)
                logs += 1
            elif name.endswith("config.toml") and logs < 4:
                corpus.add("toml", name, data + b"\x1emodel.width = 16")
            elif name.endswith(".safetensors") and checkpoints < 6:
                corpus.add("checkpoint", name, data)
                checkpoints += 1
            elif name.endswith(".tsv"):
                for task in range(9):
                    corpus.add("tsv", f"{task}-{name}", bytes([task]) + data)
            elif name.endswith("squad.json"):
                corpus.add("squad", name, data)


def add_recorded(corpus):
    """Adds the files of the recorded Hugging Face folders."""
    for folder in sorted(RECORDED.iterdir()):
        if not (folder / "config.json").exists():
            continue
        corpus.add("huggingface_config", folder.name, (folder / "config.json").read_bytes())
        files = [(folder / name).read_bytes() if (folder / name).exists() else b"" for name in TOKENIZER_FILES]
        corpus.add("tokenizer_folder", folder.name, b"\x1e".join(files))
        if files[0]:
            corpus.add("tokenizer_folder", folder.name + "-old", b"\x1e".join([b"", *files[1:]]))


def add_prepared(corpus, prep):
    """Adds vocabularies of all types that mh-prep learns, and a codes file."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text"
        text.write_text(TEXT, encoding="utf-8")
        for options in ("word", "char", "byte", "bpe --size 40", "bpe --size 300 --byte-fallback", "subword-nmt --merges 20",
                        "wordpiece --size 60"):
            made = subprocess.run([prep, "vocab", "-q", "--type", *options.split(), str(text)], capture_output=True, check=True).stdout
            corpus.add("vocabulary", options.replace(" ", ""), made)
            if options.startswith("subword-nmt"):
                corpus.add("codes", "vocabulary", made)
    corpus.add("codes", "codes", b"#version: 0.2\nt h\nth e</w>\na t</w>\nc at</w>\n")


def main():
    prep, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    corpus = Corpus(folder)
    add_archive(corpus)
    add_recorded(corpus)
    add_prepared(corpus, prep)
    pickled = state_dict()
    corpus.add("pickle", "state_dict", pickled)
    corpus.add("torch_file", "model.bin", torch_file(pickled))
    corpus.add("tensor_index", "index", b'{"metadata": {"total_size": 8}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}')
    for found in (ROOT / "tests/fuzz/found").glob("*/*"):
        corpus.add(found.parent.name, found.name, found.read_bytes())


if __name__ == "__main__":
    main()
