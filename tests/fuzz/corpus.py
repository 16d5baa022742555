#!/usr/bin/env python3
"""Makes the seed corpus of the fuzz targets: a folder of small files for each target, most of them valid.

    corpus.py MH_PREP FOLDER            replaces FOLDER by shards and vocabularies by MH_PREP, files of the archive of tests/data and of
                                        tests/cli/recorded, checkpoints, a file in the form of torch.save, inputs that readers must refuse,
                                        and the inputs in tests/fuzz/found that once failed
    corpus.py MH_PREP FOLDER TARGET...  adds the files of each TARGET to FOLDER/TARGET. Inputs that libFuzzer has added there, and the other
                                        folders in FOLDER, stay, so that several processes may call this at the same time

Most files have at most 4 KB, the maximum of ./run fuzz, since the time of a target grows with the size of its inputs.
"""
import argparse
import base64
import collections
import ctypes
import io
import json
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
CONFIG_FILES = ("config.json", "generation_config.json", "special_tokens_map.json", "chat_template.jinja", "tokenizer_config.json")
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer_config.json", "added_tokens.json",
                   "special_tokens_map.json")

# States of procedures in a training state (lib/train/procedures/procedure_states.h).
SKIP_RETAIN_STATE = '{"stalled":false}'
HEAD_ROTATION_STATE = '{"active":["decoder.self:1.0-5.3"],"begun":3,"planned":["encoder.self:0.1-2.0"],"swapped_at":2}'

# A value for each field of the struct of options in toml.cpp.
EVERY_TYPE = """[options]
flag = true
integer = 2
number = 0.25
text = "a text"
choice_text = "b"
length = "16000u"
integers = [1, 2]
numbers = [1, 2.5, 1e-3]
texts = ["a", "b"]
text_or_texts = "a"
numbers_if_any = [0.5]
choice = "second"
[options.section]
number = -1
"""


class Corpus:
    def __init__(self, folder):
        self.folder = folder

    def add(self, target, name, data):
        (self.folder / target).mkdir(parents=True, exist_ok=True)
        (self.folder / target / name).write_bytes(data)

    def read(self, target, name):
        return (self.folder / target / name).read_bytes()


def pickled_state_dict():
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
    saved_modules = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update({"torch": torch, "torch._utils": utils})
    try:
        Pickler(out, protocol=2).dump(collections.OrderedDict(a=Tensor(0, (2, 3), (3, 1)), b=Tensor(2, (4,), (1,))))
    finally:
        for name, module in saved_modules.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return out.getvalue()


def torch_file(pickle_bytes):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in [("data.pkl", pickle_bytes), ("data/0", struct.pack("<6f", *range(6))), ("version", b"3\n")]:
            archive.writestr(zipfile.ZipInfo(f"model/{name}"), data)  # ZipInfo without a date: the file is the same in every run
    return out.getvalue()


def safetensors(tensors, metadata=None):
    """Returns a safetensors file. `tensors`: {name: (type, shape, bytes)}."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def xxh64(data):
    """Returns XXH64 with seed 0, computed by the library that mh-prep uses."""
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH64.restype = ctypes.c_uint64
    return library.XXH64(data, ctypes.c_size_t(len(data)), ctypes.c_uint64(0))


def read_shard_header(shard):
    """Returns the JSON object and the vocabulary in the header of a shard."""
    payload_bytes, = struct.unpack_from("<I", shard, 4)
    json_bytes, = struct.unpack_from("<Q", shard, 16)
    # The payload begins at byte 8 and ends with a checksum of 8 bytes, so the vocabulary ends at byte payload_bytes.
    return json.loads(shard[24:24 + json_bytes]), shard[24 + json_bytes:payload_bytes]


def with_provenance(shard, provenance):
    """Returns the shard with another provenance in its header."""
    header, vocabulary = read_shard_header(shard)
    header["provenance"] = provenance
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    payload = b"MHSHARD1" + struct.pack("<Q", len(text)) + text + vocabulary
    payload += struct.pack("<Q", xxh64(payload))
    old_payload_bytes, = struct.unpack_from("<I", shard, 4)
    num_frames, = struct.unpack_from("<I", shard, len(shard) - 9)
    table = len(shard) - 9 - 8 * num_frames             # offset of the table of frame sizes, in which the header is first
    return (shard[:4] + struct.pack("<I", len(payload)) + payload + shard[8 + old_payload_bytes:table] +
            struct.pack("<I", len(payload) + 8) + shard[table + 4:])


def add_checkpoints(corpus):
    """Adds small checkpoints. The checkpoints of the archive have 12 KB and more, mostly names and tensors."""
    headers = [read_shard_header(corpus.read("shard", f"shards-{name}.mhs")) for name in ("lm-bytes", "pairs")]
    tensors = {"a": ("F32", [2, 3], bytes(24)), "b": ("BF16", [2], b"1234"), "c": ("I64", [], bytes(8)), "d": ("BOOL", [0, 2], b"")}
    corpus.add("checkpoint", "plain", safetensors(tensors))
    for sides in ([""], ["", "source_"]):
        metadata = {"multihead.format": "1", "multihead.origin": json.dumps([{"average": ["a", "b"]}, {"fold": ["decoder.layers.0.self"]}])}
        for side, (header, vocabulary) in zip(sides, headers):
            metadata[f"multihead.{side}tokenizer"] = base64.b64encode(vocabulary).decode()
            metadata[f"multihead.{side}vocabulary"] = header["fingerprint"]
        shapes = {name: [dtype, shape] for name, (dtype, shape, _) in tensors.items()}
        checksums = {name: f"{xxh64(values):016x}" for name, (_, _, values) in tensors.items()}
        text = json.dumps([shapes, metadata], separators=(",", ":"), sort_keys=True)
        checksums["__metadata__"] = f"{xxh64(text.encode()):016x}"
        metadata["multihead.xxh64"] = json.dumps(checksums, separators=(",", ":"))
        corpus.add("checkpoint", f"vocabularies-{len(sides)}", safetensors(tensors, metadata))


def add_archive(corpus):
    """Adds the small files of the archive: shards, vocabularies, configurations, up to four logs, examples and questions."""
    logs = 0
    with tarfile.open(ROOT / "tests/data/archive.tar.xz") as archive:
        for member in archive:
            if not member.isfile():
                continue
            data = archive.extractfile(member).read()
            name = member.name.replace("/", "-")
            if name.endswith(".mhs"):
                corpus.add("shard", name, with_provenance(data, {}))  # the provenance is half of the JSON text of a header
            elif name.endswith(".vocab"):
                corpus.add("vocabulary", name, data)
            elif name.endswith("log.jsonl") and logs < 4:
                corpus.add("run_log", name, data)
                logs += 1
            elif name.endswith("config.toml") and logs < 4:
                corpus.add("toml", name, data + b"\x1emodel.width = 16")
            elif name.endswith(".tsv"):
                for task in range(9):
                    corpus.add("tsv", f"{task}-{name}", bytes([task]) + data)
            elif name.endswith("squad.json"):
                corpus.add("squad", name, data)


def read_files(folder, names):
    """Returns the contents of files in a folder; b"" for a file that does not exist."""
    return [(folder / name).read_bytes() if (folder / name).exists() else b"" for name in names]


def add_recorded(corpus):
    """Adds the files of the recorded Hugging Face folders."""
    for folder in sorted(RECORDED.iterdir()):
        files = read_files(folder, TOKENIZER_FILES)
        if (folder / "source.spm").exists():
            model = with_small_table((folder / "source.spm").read_bytes())
            corpus.add("tokenizer_folder", folder.name, b"\x1e".join([*files, model]))
        if not (folder / "config.json").exists():
            continue
        corpus.add("huggingface_config", folder.name, b"\x1e".join(read_files(folder, CONFIG_FILES)).rstrip(b"\x1e"))
        if any(files):
            corpus.add("tokenizer_folder", folder.name, b"\x1e".join(files))
        if files[0]:
            corpus.add("tokenizer_folder", folder.name + "-old", b"\x1e".join([b"", *files[1:]]))


def add_pipelines(corpus):
    """Adds a small tokenizer.json for each component that multihead reads, as a vocabulary and as a folder."""
    bpe = {"type": "BPE", "vocab": {"<unk>": 0, "</s>": 1, "T": 2, "h": 3, "e": 4, "Th": 5, "\u0120": 6, "\u2581": 7, "<0x20>": 8}, "merges": ["T h", ["h", "e"]],
           "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "ignore_merges": True}
    bpe["vocab"]["he"] = 9
    unigram = {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [["<unk>", 0], ["</s>", 0], ["\u2581", -2.5], ["e", -3], ["he", -4.5]]}
    wordpiece = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                 "vocab": {"[UNK]": 0, "</s>": 1, "t": 2, "##he": 3}}
    word_level = {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<unk>": 0, "</s>": 1, "The": 2, "42": 3}}
    words = r"(?i:'s|'ll)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s+(?!\S)|(?>\s)+?"
    sequence = lambda key, stages: {"type": "Sequence", key: stages}
    split = lambda pattern, behavior: {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
    around = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
              "pair": [], "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}
    table = base64.b64encode(struct.pack("<5I", 16, 1 << 10, 1 << 10 | 1, 0, 0) + b"a\0").decode()
    for name, (model, normalizers, pre_tokenizers, decoders) in {
            "bytes": (bpe, [{"type": "NFC"}], [split({"Regex": words}, "Isolated"), {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}],
                      [{"type": "ByteLevel"}]),
            "characters": (bpe, [{"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}], [],
                           [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]),
            "unigram": (unigram, [{"type": "Precompiled", "precompiled_charsmap": table}, {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
                                  {"type": "Strip", "strip_left": True, "strip_right": True}], [{"type": "WhitespaceSplit"}, metaspace],
                        [{k: v for k, v in metaspace.items() if k != "split"}]),
            "words": (word_level, [], [{"type": "Whitespace"}], [{"type": "WordPiece", "prefix": "##", "cleanup": False}]),
            "wordpiece": (wordpiece, [{"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}],
                          [{"type": "BertPreTokenizer"}, {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Contiguous"},
                           {"type": "CharDelimiterSplit", "delimiter": "x"}, split({"String": "a"}, "MergedWithNext")],
                          [{"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "BPEDecoder", "suffix": "</w>"}])}.items():
        added = [{"id": 1, "content": "</s>", "special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False},
                 {"id": len(model["vocab"]), "content": "cat", "special": False, "normalized": True, "single_word": True, "lstrip": True, "rstrip": True}]
        data = json.dumps({"version": "1.0", "added_tokens": added, "normalizer": sequence("normalizers", normalizers),
                           "pre_tokenizer": sequence("pretokenizers", pre_tokenizers), "post_processor": around,
                           "decoder": sequence("decoders", decoders), "model": model}, ensure_ascii=False).encode()
        corpus.add("vocabulary", f"tokenizer-json-{name}", data)
        config = json.dumps({"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "</s>", "eos_token": {"content": "</s>"}}).encode()
        corpus.add("tokenizer_folder", f"pipeline-{name}", b"\x1e".join([data, b"", b"", b"", config, b"", b""]))
    corpus.add("vocabulary", "tokenizer-json", b"multihead-vocabulary 1\ntype tokenizer-json\nentries 10\nbegin -1\nend 1\nxxh64 0000000000000000\n\n" +
               json.dumps({"model": bpe}).encode())


def read_varint(data, at):
    """Returns the LEB128 number at the offset `at`, and the offset of the first byte after it."""
    end = at
    while data[end] >= 128:
        end += 1
    return sum((byte & 127) << 7 * i for i, byte in enumerate(data[at:end + 1])), end + 1


def encode_varint(number):
    return bytes([number & 127 | 128]) + encode_varint(number >> 7) if number >= 128 else bytes([number])


def read_protobuf_fields(message):
    """Yields the number, wire type and encoded value of each field of a message of Protocol Buffers."""
    at = 0
    while at < len(message):
        key, begin = read_varint(message, at)
        kind = key & 7
        if kind == 0:
            at = read_varint(message, begin)[1]
        elif kind == 2:
            size, begin = read_varint(message, begin)
            at = begin + size
        else:
            at = begin + {1: 8, 5: 4}[kind]
        yield key >> 3, kind, message[begin:at]


def encode_protobuf(fields):
    """Returns a message of Protocol Buffers with the fields of read_protobuf_fields()."""
    return b"".join(encode_varint(number << 3 | kind) + (encode_varint(len(value)) if kind == 2 else b"") + value
                    for number, kind, value in fields)


def with_small_table(model):
    """Returns a SentencePiece model whose normalisation table has 2 KB instead of 230 KB and maps A to a."""
    normaliser, table = 3, 2
    units = [0] * 512
    units[0] = 256 << 10                                # the children of the root are units 256 ^ byte
    units[256 ^ ord("A")] = ord("A") | 1 << 8 | (256 ^ ord("A") ^ 2) << 10  # end of the key A, whose value is in unit 2
    units[2] = 1 << 31                                  # value of the key A: offset 0 in the text of replacements
    small_map = struct.pack("<513I", 4 * len(units), *units) + b"a\0"
    fields = []
    for number, kind, value in read_protobuf_fields(model):
        if number == normaliser:
            value = encode_protobuf((n, k, small_map if n == table else v) for n, k, v in read_protobuf_fields(value))
        fields.append((number, kind, value))
    return encode_protobuf(fields)


def add_prepared(corpus, prep):
    """Adds vocabularies of all types that mh-prep learns, and a codes file."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text"
        text.write_text(TEXT, encoding="utf-8")
        for options in ("word", "char", "byte", "bpe --size 40", "bpe --size 300 --byte-fallback", "subword-nmt --merges 20",
                        "wordpiece --size 60", "byte-bpe --size 262"):
            vocabulary = subprocess.run([prep, "vocab", "-q", "--type", *options.split(), str(text)], capture_output=True, check=True).stdout
            if options.startswith("bpe"):
                vocabulary = with_small_table(vocabulary)
                size = options.split()[2]
                corpus.add("vocabulary", f"sentencepiece-{size}", f"multihead-vocabulary 1\ntype sentencepiece\nentries {size}\nbegin 1\nend 2\nxxh64 {0:016}\n\n".encode() + vocabulary)
                marian = {"model": base64.b64encode(vocabulary).decode(), "pieces": ["</s>", "<unk>", "\u2581"], "unknown": 1}
                corpus.add("vocabulary", f"marian-{size}", f"multihead-vocabulary 1\ntype marian\nentries 3\nbegin -1\nend 0\nxxh64 {0:016}\n\n".encode() + json.dumps(marian).encode())
                config = json.dumps({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "added_tokens_decoder": {size: {"content": "<pad>", "special": True}}})
                corpus.add("tokenizer_folder", f"sentencepiece-{size}", b"\x1e".join([b""] * 4 + [config.encode(), b"", b"", vocabulary]))
            corpus.add("vocabulary", options.replace(" ", ""), vocabulary)
            if options.startswith("subword-nmt"):
                corpus.add("codes", "vocabulary", vocabulary)
    corpus.add("codes", "codes", b"#version: 0.2\nt h\nth e</w>\na t</w>\nc at</w>\n")


def add_settings(corpus):
    """Adds settings of models for text and images, settings that multihead refuses, and files that a conversion keeps."""
    text = json.loads((RECORDED / "gemma3_text-5/config.json").read_text())
    generation = {"do_sample": True, "eos_token_id": [1, 2], "temperature": 0.6}
    pad = {"pad_token": "[PAD]", "additional_special_tokens": ["<a>"]}
    files = [{"model_type": "gemma3", "pad_token_id": 0, "eos_token_id": [1, 2], "text_config": text, "vision_config": {}}, generation, pad]
    corpus.add("huggingface_config", "text-part", b"\x1e".join([*(json.dumps(file).encode() for file in files), b"{{ messages }}",
                                                               json.dumps({**pad, "chat_template": "{{ messages }}", "padding_side": "left"}).encode()]))
    companions = {"config.json": {"pad_token_id": 0, "eos_token_id": [1, 2]}, "generation_config.json": generation, "chat_template.jinja": "x",
                  "tokenizer_config.json": pad, "special_tokens_map.json": pad}
    corpus.add("huggingface_config", "companions", json.dumps(companions).encode())
    for name, settings in {"quantised": {"quantization_config": {"quant_method": "awq"}}, "experts": {"num_local_experts": 8}, "gates": {"attn_output_gate": True},
                           "layer-types": {"layer_types": ["full_attention", "sliding_attention", "conv"]}, "per-layer": {"per_layer_config": {"0": {}}},
                           "unsupported": {"model_type": "mamba"}, "code": {"model_type": "a", "auto_map": {}}}.items():
        corpus.add("huggingface_config", name, json.dumps({**text, **settings}).encode())


def add_documents(corpus):
    """Adds documents of mh-prep lm: JSON lines, and text in whose first byte the target finds another unit."""
    lines = [{"text": "a b\n\n c", "id": [1, {"k": None}]}, {"text": ""}, {"text": TEXT}]
    corpus.add("jsonl", "jsonl", b"\0" + "\n\n".join(json.dumps(line) for line in lines).encode())
    for unit in (b"\1", b"\2"):
        corpus.add("jsonl", f"unit-{unit[0]}", unit + TEXT.replace(" ", "\n").encode() + b"\n \n\nlast")


def add_refused(corpus):
    """Adds inputs that readers must refuse, since they would exhaust memory or the stack, or make a reader use a value of another type."""
    num_layers = 10 ** 12                               # more than kMaxLayers of lib/huggingface, in the keys of BERT, GPT-2, T5 and Marian
    keys = ("num_hidden_layers", "n_layer", "num_layers", "decoder_layers")
    corpus.add("huggingface_config", "many-layers", json.dumps(dict.fromkeys(keys, num_layers)).encode())
    nested_object = {}
    for _ in range(63):                                 # 65 levels with {} and the header: one more than kMaxJsonDepth of lib/base
        nested_object = {"a": nested_object}
    corpus.add("shard", "nested-header", with_provenance(corpus.read("shard", "shards-lm-bytes.mhs"), nested_object))
    long_pair = json.dumps({"active": ["a" * 200000], "begun": 0, "planned": [], "swapped_at": 0})  # std::regex would exhaust the stack
    corpus.add("training_state", "long-pair", long_pair.encode())
    protocol = b"\x80\x02"
    corpus.add("pickle", "none-as-storage", protocol + b"NQ.")  # NONE; BINPERSID, which requires a tuple; STOP
    corpus.add("pickle", "none-as-state", protocol + b"}Nb.")   # EMPTY_DICT, NONE; BUILD, which requires a dict; STOP


def make_corpus(prep, folder):
    """Makes the corpus of all targets in `folder`."""
    corpus = Corpus(folder)
    add_archive(corpus)
    add_checkpoints(corpus)
    add_recorded(corpus)
    add_settings(corpus)
    add_pipelines(corpus)
    add_prepared(corpus, prep)
    add_documents(corpus)
    add_refused(corpus)
    pickle_bytes = pickled_state_dict()
    corpus.add("pickle", "state_dict", pickle_bytes)
    corpus.add("torch_file", "model.bin", torch_file(pickle_bytes))
    corpus.add("training_state", "state", json.dumps({
        "update": 2, "tokens": 128, "best_update": 1, "worse": 0, "last_lr": 0.01, "norm": 1.5, "settled": True, "threads": 1, "nll": 3.5,
        "smoothed": 3.5, "counted": 64, "steps": {"decoder.layers.0.self.query.weight": 2}, "memory": False, "kept": [[1, 3.25]],
        "procedures": {"skip-retain": SKIP_RETAIN_STATE, "head-rotation": HEAD_ROTATION_STATE}, "schedule_rule": 2, "best": 3.25,
        "counted_best": 3.25}).encode())
    corpus.add("training_state", "skip-retain", SKIP_RETAIN_STATE.encode())
    corpus.add("training_state", "head-rotation", HEAD_ROTATION_STATE.encode())
    corpus.add("toml", "every-type", EVERY_TYPE.encode() + b"\x1eoptions.length = 3e")
    corpus.add("predictions", "answers", b'{"q1": "the mat", "q2": ""}')
    corpus.add("tensor_index", "index", b'{"metadata": {"total_size": 8}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}')
    for input_file in (ROOT / "tests/fuzz/found").glob("*/*"):
        corpus.add(input_file.parent.name, input_file.name, input_file.read_bytes())


def merge(new_folder, folder):
    """Moves the files of `new_folder` to `folder`, which may have more files. Renames each file, so that a running fuzz target reads whole files."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in new_folder.iterdir():
        path.replace(folder / path.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prep", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    args = parser.parse_args()
    args.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=args.folder.name + ".", dir=args.folder.parent) as name:  # on the file system of the folder
        new_corpus = pathlib.Path(name)
        make_corpus(args.prep.resolve(), new_corpus)
        if not args.targets:
            shutil.rmtree(args.folder, ignore_errors=True)
        for target in args.targets or [path.name for path in new_corpus.iterdir()]:
            if (new_corpus / target).exists():  # a target without a corpus starts from an empty folder
                merge(new_corpus / target, args.folder / target)
            (args.folder / target).mkdir(parents=True, exist_ok=True)


if __name__ == "__main__":
    main()
