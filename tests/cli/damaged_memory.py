#!/usr/bin/env python3
"""Measures the memory that the tools take to read hostile files.

    damaged_memory.py TOOLS [--mib N] [--binary] [--only NAME…]

Makes, in the working folder, files of about N MiB whose content takes much memory per byte, and reads each with a tool. As
SECURITY.md promises, the additional memory, compared with a small file, may be at most 64 MiB plus the size of the file times the
factor of its format.
With --binary, reads only files of binary formats, whose factor is visible only in files of 64 MiB or more.
Prints a line for each file, and ends with status 1 if a tool takes more memory or ends with a status other than 0, 2 and 3.
"""
import argparse
import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import zipfile

import checkpoint_header
import shard_bytes

RECORDED = pathlib.Path(__file__).parent / "recorded"
CONFIGURATION = RECORDED / "gpt2-5/config.json"
VOCABULARY_FILES = [RECORDED / "gpt2-4" / name for name in ("vocab.json", "merges.txt")]
BASE = 64 << 20           # limit on the memory for a file: constant part, bytes
BINARY, TEXT = 2, 24      # limit on the memory for a file: bytes per byte of a binary file, of a text file
PROGRAMS = "../tests"     # folder of the programs that only tests use, relative to the folder of the tools
SMALL = 1 << 10           # size of the small file with which the memory is compared, bytes


def repeated(element, size, begin="", end=""):
    """Returns copies of `element` separated by commas, between `begin` and `end`, about `size` bytes in total."""
    return begin + ",".join([element] * (size // (len(element) + 1))) + end


def numbered(template, size, separator):
    """Returns copies of `template` with consecutive hexadecimal numbers in place of #, about `size` bytes in total."""
    count = size // (len(template) + len(separator) + 4)
    return separator.join(template.replace("#", format(i, "x")) for i in range(count))


# {name: function}. The function of a size in bytes returns JSON text of about this size, whose parsed value takes much memory.
VALUES = {"objects": lambda size: repeated("{}", size, "[", "]"), "strings": lambda size: repeated('""', size, "[", "]"),
          "lists": lambda size: repeated("[]", size, "[", "]"), "numbers": lambda size: repeated("0", size, "[", "]"),
          "spaced objects": lambda size: repeated("{}  ", size, "[", "]"), "keys": lambda size: "{" + numbered('"#":0', size, ",") + "}"}


def safetensors(header, data=b""):
    return struct.pack("<Q", len(header)) + header.encode() + data


def checkpoint_of_run(key, text):
    """Returns the checkpoint of the run with another entry of its metadata, and with valid checksums."""
    tensors, metadata, data = checkpoint_header.read("run/last.safetensors")
    return checkpoint_header.encode(tensors, {**metadata, key: text}, data)


def training_state(size, key, make_value):
    """Returns the checkpoint of the run with a value of about `size` bytes in its training state. `make_value`: a function of VALUES."""
    state = json.loads(checkpoint_header.read("run/last.safetensors")[1]["multihead.training"])
    return checkpoint_of_run("multihead.training", json.dumps({**state, key: None}).replace(f'"{key}": null', f'"{key}": {make_value(size)}'))


def zip_archive(entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return out.getvalue()


def vocabulary(header, body):
    return f"multihead-vocabulary 1\n{header}\nxxh64 {checkpoint_header.xxh64(body.encode())}\n\n{body}"


def words(size):
    lines = "<eos>\t1\n<unk>\t0\n" + numbered("#\t1", size, "\n") + "\n"
    return vocabulary(f"type word\nentries {lines.count(chr(10))}", lines)


def sentencepiece(size):
    """Returns a SentencePiece model of type BPE, a protobuf message, whose pieces are the shortest possible."""
    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    pieces = [field(1, field(1, text.encode()) + bytes([3 << 3, kind])) for text, kind in (("<unk>", 2), ("<s>", 3), ("</s>", 3))]
    for i in range((size - 64) // 9):
        pieces.append(field(1, field(1, chr(0x10000 + i % 0xFFFFF).encode())))
    return b"".join(pieces) + field(2, bytes([3 << 3, 2]))


def tokenizer_json(model, **parts):
    """Returns a tokenizer.json of the type tokenizer-json. `model`, `parts`: JSON text of the entry model and of further entries."""
    return "{" + "".join(f'"{key}":{value},' for key, value in parts.items()) + f'"model":{model}}}'


def pieces(size):
    """Returns an object of distinct pieces and ids, with the piece </s>, which ends a text."""
    return '{"</s>":0,' + ",".join(f'"{i:x}":{i}' for i in range(1, size // 14)) + "}"


def marian_pieces(size):
    """Returns a vocab.json of a Marian model."""
    return '{"</s>":0,"<unk>":1,' + ",".join(f'"{i:x}":{i}' for i in range(2, size // 14)) + "}"


# {name: function}. The function of a size in bytes returns a tokenizer.json of about this size whose reading takes much memory. Readers accept
# the first six.
PIPELINES = {
    "vocabulary": lambda size: tokenizer_json('{"type":"BPE","merges":[],"vocab":' + pieces(size) + "}"),
    "words": lambda size: tokenizer_json('{"type":"WordLevel","unk_token":"</s>","vocab":' + pieces(size) + "}"),
    "scores": lambda size: tokenizer_json('{"type":"Unigram","unk_id":0,"vocab":[["</s>",0],' + numbered('["#",0]', size, ",") + "]}"),
    "merges": lambda size: tokenizer_json('{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"</s>":3},"merges":' + repeated('"a b"', size, "[", "]") + "}"),
    "tokens": lambda size: tokenizer_json('{"type":"BPE","merges":[],"vocab":{"</s>":0}}', added_tokens="[" + ",".join(
        f'{{"id":{i},"content":"{i:x}"}}' for i in range(1, size // 30)) + "]"),
    "vocabulary and pairs": lambda size: tokenizer_json(
        '{"type":"BPE","vocab":' + pieces(size // 2) + ',"merges":' + repeated('["1","1"]', size // 2, "[", "]") + "}"),
    "cut vocabulary": lambda size: PIPELINES["vocabulary"](size)[:-1],
    "numbers as scores": lambda size: tokenizer_json('{"type":"Unigram","unk_id":0,"vocab":' + VALUES["numbers"](size) + "}"),
    **{f"{key} of objects": lambda size, key=key, kind=kind, name=name: tokenizer_json(
        PIPELINES["vocabulary"](SMALL)[9:-1], **{key: '{"type":"' + kind + '","special_tokens":{},"' + name + '":' + VALUES["spaced objects"](size) + "}"})
       for key, kind, name in (("normalizer", "Sequence", "normalizers"), ("pre_tokenizer", "Sequence", "pretokenizers"),
                               ("decoder", "Sequence", "decoders"), ("post_processor", "TemplateProcessing", "single"))},
}


def shard(tools, vocabulary_bytes=SMALL, provenance="", copies=1, command="lm --vocab shard.vocab text"):
    """Returns a shard that the command of mh-prep makes, with a vocabulary of `vocabulary_bytes`, with the JSON text `provenance` in its
    header, and with `copies` of its frame of tokens."""
    pathlib.Path("shard.vocab").write_text(words(vocabulary_bytes))
    made = shard_bytes.Shard(
        subprocess.run([f"{tools}/mh-prep", *command.split(), "--quiet"], capture_output=True, check=True).stdout)
    made.copies = copies
    if provenance:
        made.header["provenance"] = None
        made.header_text = json.dumps(made.header).replace('"provenance": null', '"provenance": {"a":' + provenance + "}").encode()
    return made.bytes()


# Size of an object whose keys keep their order, bytes. The parser compares each key with all others, so larger objects take minutes.
ORDERED_KEYS_BYTES = 1 << 18
FRAME_BYTES = 16 << 20    # largest decompressed size of a frame of tokens, bytes


def expanding_shard(tools, size):
    """Returns a shard of a few KB whose frame of tokens expands to FRAME_BYTES if `size` is large."""
    made = shard_bytes.Shard(shard(tools))
    num_tokens = (FRAME_BYTES if size > SMALL else SMALL) // made.header["token_bytes"]
    made.content = bytes(num_tokens * made.header["token_bytes"])
    made.token_frame = shard_bytes.zstd_zeros(len(made.content))
    made.varints = bytes([num_tokens >> 7 * i & 127 | (num_tokens >> 7 * (i + 1) > 0) << 7 for i in range(5) if num_tokens >> 7 * i])
    made.trailer = {"tokens": num_tokens}
    return made.bytes()


def shard_of_empty_pairs(tools, size):
    """Returns a shard of a few KB with `size` / 8 sequences: a pair with 3 tokens on each side, then pairs without tokens."""
    made = shard_bytes.Shard(shard(tools, command="translation --vocab shard.vocab text text"))
    num_sequences, start = size // 16 * 2, bytes([3, 3])
    made.content *= 2
    made.varints = start + bytes(num_sequences - 2)
    made.lengths = shard_bytes.zstd_zeros(num_sequences - 2, start)
    made.trailer = {"tokens": 6, "records": num_sequences // 2, "runs": num_sequences}
    return made.bytes()


def files(tools):
    """Yields the name, the factor, the command and the maker of each file. A maker returns the content for a size in bytes."""
    for name, value in VALUES.items():
        yield f"squad/{name}", TEXT, "mh-prep squad --wordpiece vocab.txt FILE", lambda size, value=value: '{"data":' + value(size) + "}"
    yield "config.json/text_config", TEXT, "mh-convert config.json/", lambda size: (
        '{"model_type":"gemma3","text_config":{"a":' + VALUES["objects"](size) + "}}")
    yield "config.json/layer_types", TEXT, "mh-convert config.json/", lambda size: (
        '{"model_type":"gpt2","layer_types":' + VALUES["strings"](size) + "}")
    for file in ("generation_config.json", "tokenizer_config.json"):
        yield f"{file}/companion, objects", TEXT, f"mh-convert {file}/", lambda size: '{"pad_token":' + VALUES["objects"](size) + "}"
    yield "config.json/numbers", TEXT, "mh-convert config.json/", lambda size: '{"model_type":' + VALUES["numbers"](size) + "}"
    yield "tokenizer.json/keys", TEXT, "mh-prep vocab --type byte-bpe --from tokenizer.json/", VALUES["keys"]
    yield "checkpoint/numbers", TEXT, "mh-convert --average FILE", lambda size: safetensors('{"a":' + VALUES["numbers"](size) + "}")
    yield "checkpoint/tensors", TEXT, "mh-convert --average FILE", lambda size: safetensors(
        "{" + numbered('"#":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}', size, ",") + "}")
    yield "checkpoint/metadata", TEXT, "mh-convert --average FILE", lambda size: safetensors(
        '{"__metadata__":{' + numbered('"#":""', size, ",") + "}}")
    yield "checkpoint/checksums", TEXT, "mh-convert --average FILE", lambda size: safetensors(
        '{"__metadata__":{"multihead.xxh64":"' + VALUES["objects"](size) + '"}}')
    for name in ("objects", "strings"):
        yield f"checkpoint/origin of {name}", TEXT, "mh-convert --average FILE", lambda size, name=name: checkpoint_of_run(
            "multihead.origin", VALUES[name](size))
    for key, name in {"steps": "keys", "procedures": "keys", "kept": "lists", "update": "objects"}.items():
        yield f"last.safetensors/{key}", TEXT, "mh-train --resume --out last.safetensors", lambda size, key=key, name=name: training_state(
            size, key, VALUES[name])
    for name, value in {"vocabulary": lambda size: '{"model":{"type":"BPE","merges":[],"vocab":' + VALUES["keys"](size) + "}}",
                        "merges": lambda size: '{"model":{"type":"BPE","vocab":{},"merges":' + repeated('"a b"', size, "[", "]") + "}}",
                        "pairs": lambda size: '{"model":{"type":"BPE","vocab":{},"merges":' + repeated('["a","b"]', size, "[", "]") + "}}",
                        "tokens": lambda size: '{"added_tokens":[' + numbered('{"id":0,"content":"#"}', size, ",") + "]}",
                        "stages": lambda size: '{"pre_tokenizer":{"type":"Sequence","pretokenizers":' + VALUES["objects"](size) + "}}"}.items():
        yield f"tokenizer.json/{name}", TEXT, "mh-prep vocab --type byte-bpe --from tokenizer.json/", value
    for name, value in PIPELINES.items():
        yield f"tokenizer.json/pipeline, {name}", TEXT, "mh-prep vocab --type tokenizer-json --from tokenizer.json/", value
    yield "vocab.json/keys", TEXT, "mh-prep vocab --type byte-bpe --from vocab.json/", lambda size: (
        "{" + ",".join(f'"{i:x}":{i}' for i in range(size // 15)) + "}")
    yield "target_vocab.json/marian, keys", TEXT, "mh-prep lm --vocab target_vocab.json/ text", marian_pieces
    yield "source.spm/marian, pieces", TEXT, "mh-prep lm --vocab source.spm/ text", sentencepiece
    yield "documents/objects", TEXT, "mh-prep lm --document jsonl --vocab pieces.vocab FILE", lambda size: (
        '{"text":"a","b":' + VALUES["objects"](size) + "}\n")
    yield "merges.txt/lines", TEXT, "mh-prep vocab --type byte-bpe --from merges.txt/", lambda size: numbered("# a", size, "\n") + "\n"
    yield "added_tokens.json/keys", TEXT, "mh-prep vocab --type byte-bpe --from added_tokens.json/", lambda size: (
        "{" + ",".join(f'"{i:x}":{i}' for i in range(min(size, ORDERED_KEYS_BYTES) // 15)) + "}")
    yield "added_tokens.json/objects", TEXT, "mh-prep vocab --type byte-bpe --from added_tokens.json/", lambda size: (
        '{"a":' + VALUES["objects"](size) + "}")
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        for name in ("objects", "strings"):
            yield f"{file}/{name}", TEXT, f"mh-prep vocab --type byte-bpe --from {file}/", lambda size, name=name: (
                '{"additional_special_tokens":' + VALUES[name](size) + "}")
    yield "predictions/keys", TEXT, f"{PROGRAMS}/squad-print score squad.mhs FILE", lambda size: (
        "{" + numbered('"#":""', size, ",") + "}")
    yield "model.safetensors.index.json/keys", TEXT, "mh-convert model.safetensors.index.json/", lambda size: (
        '{"weight_map":{' + numbered('"#":"a"', size, ",") + "}}")
    yield "pytorch_model.bin/entries", BINARY, "mh-convert pytorch_model.bin/", lambda size: zip_archive(
        [(format(i, "x"), b"") for i in range(size // 95)])
    for name, opcode in {"marks": b"(", "dicts": b"}"}.items():
        yield f"pytorch_model.bin/{name}", BINARY, "mh-convert pytorch_model.bin/", lambda size, opcode=opcode: zip_archive(
            [("model/data.pkl", b"\x80\x02" + opcode * size + b".")])
    yield "vocabulary/words", TEXT, "mh-prep lm --vocab FILE text", words
    yield "wordpiece/words", TEXT, "mh-prep vocab --type wordpiece --from FILE", lambda size: numbered("#", size, "\n")
    # A SentencePiece model is binary, but its library stores each piece, of 9 bytes or more, in several objects and tables.
    yield "sentencepiece/pieces", TEXT, "mh-prep lm --vocab FILE text", sentencepiece
    yield "codes/merges", TEXT, "mh-prep vocab --type subword-nmt --codes FILE text", lambda size: (
        "#version: 0.2\n" + "a b\n" * (size // 4) + "ab\n")
    yield "tsv/columns", TEXT, "mh-prep glue --task sst2 --wordpiece vocab.txt FILE", lambda size: "\t" * min(size, 8000000)
    yield "tsv/lines", TEXT, "mh-prep glue --task sst2 --wordpiece vocab.txt FILE", lambda size: "label\tsentence\n" + "1\ta\n" * (size // 4)
    yield "shard/vocabulary", TEXT, "mh-prep info FILE", lambda size: shard(tools, vocabulary_bytes=size)
    yield "shard/provenance", TEXT, "mh-prep info FILE", lambda size: shard(
        tools, provenance=VALUES["objects"](min(size, (2 << 20) - 4096)))  # the reader limits the JSON text of a header to 2 MiB
    yield "shard/frames", BINARY, "mh-train --dry-run --train FILE", lambda size: shard(
        tools, copies=size // 27)  # a frame has 19 bytes, and its entry in the seek table 8 bytes
    yield "shard/expanding frame", BINARY, "mh-prep info FILE", lambda size: expanding_shard(tools, size)
    yield "shard/sequence lengths", BINARY, "mh-train --dry-run --set model.backbone=encoder-decoder --train FILE", (
        lambda size: shard_of_empty_pairs(tools, size))
    yield "log.jsonl/lines", TEXT, "mh-train --resume --out log.jsonl", lambda size: '{"update":1}\n' * (size // 13)
    yield "log.jsonl/keys", TEXT, "mh-train --resume --out log.jsonl", lambda size: (
        '{"update":1,"a":{' + numbered('"#":0', min(size, (1 << 20) - 64), ",") + "}}\n")  # the reader limits a line to 1 MiB
    yield "toml/lists", TEXT, "mh-train --config FILE --dry-run", lambda size: repeated("[]", min(size, 1 << 20) - 16, "a = [", "]")
    yield "toml/keys", TEXT, "mh-train --config FILE --dry-run", lambda size: numbered("a# = 1", min(size, 1 << 20) - 16, "\n")


def decompressed_size(name, size):
    """Returns the size with which SECURITY.md counts a shard that expands, or None for another file: 4 bytes for each token and 8 for each
    sequence."""
    if name == "shard/expanding frame":
        return 4 * FRAME_BYTES // 2  # tokens of 2 bytes
    return size if name == "shard/sequence lengths" else None


def make_inputs(tools):
    """Makes the shard squad.mhs of one question, and the run folder `run` of a model that has trained for one update of two."""
    def run(command):
        subprocess.run(f"{tools}/{command}", shell=True, check=True, stdin=subprocess.DEVNULL)

    paragraph = {"context": "a", "qas": [{"id": "q", "question": "a", "answers": [{"text": "a", "answer_start": 0}]}]}
    pathlib.Path("squad.json").write_text(json.dumps({"version": "1.1", "data": [{"title": "T", "paragraphs": [paragraph]}]}))
    run("mh-prep squad --quiet --wordpiece vocab.txt squad.json -o squad.mhs")
    run("mh-prep vocab --quiet --type byte text -o run.vocab")
    run("mh-prep vocab --quiet --type byte-bpe --size 262 text -o pieces.vocab")
    run("mh-prep lm --quiet --vocab run.vocab text -o run.mhs")
    run("mh-train --quiet --out run --train run.mhs --set model.layers=1 --set model.width=8 --set model.ffn_dim=8 --set attention.heads=1 "
        "--set train.batch.sequence_length=2 --set train.batch.tokens=2 --set train.length=1u")


def write(name, make, size):
    """Writes the file, in a process of its own, since the peak memory of a process includes the peak memory of the process that
    starts it. Returns the size. For a name such as config.json/…, the file is config.json in the folder config.json, to which
    the function also copies the other files that the tool needs."""
    path = pathlib.Path(name.split("/")[0])
    if path.suffix:
        path.mkdir(exist_ok=True)
        if path.name in ("pytorch_model.bin", "model.safetensors.index.json"):
            shutil.copyfile(CONFIGURATION, path / "config.json")
        if path.name in ("merges.txt", "vocab.json", "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json"):
            for file in VOCABULARY_FILES:
                shutil.copy(file, path)
        if "companion" in name:  # a folder with a model of no tensors: mh-convert reads the companion before it refuses the model
            shutil.copyfile(CONFIGURATION, path / "config.json")
            (path / "model.safetensors").write_bytes(safetensors("{}"))
        if "marian" in name:
            for file, content in {"source.spm": sentencepiece(SMALL), "target.spm": sentencepiece(SMALL), "vocab.json": marian_pieces(SMALL).encode(),
                                  "target_vocab.json": marian_pieces(SMALL).encode(), "tokenizer_config.json": b'{"separate_vocabs":true}'}.items():
                (path / file).write_bytes(content)
        if path.name in ("log.jsonl", "last.safetensors"):
            shutil.copytree("run", path, dirs_exist_ok=True)
        path /= path.name
    pid = os.fork()
    if pid == 0:
        content = make(size)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return path.stat().st_size


def measure_command(tools, command, name):
    """Returns the exit status, the peak memory in bytes and the last line on stderr of a command."""
    command = command.replace("FILE", name.split("/")[0]).split()
    with open("err", "wb") as err:
        process = subprocess.Popen([f"{tools}/{command[0]}", *command[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss << 10, (pathlib.Path("err").read_text(errors="replace").splitlines() or [""])[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--binary", action="store_true")
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    pathlib.Path("vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]) + "\n")
    pathlib.Path("text").write_text("a\n")
    make_inputs(args.tools)
    num_failed = 0
    print(f"{'file':42}{'MiB':>8}{'memory, MiB':>13}{'limit':>8}  status")
    for name, factor, command, make in files(args.tools):
        if args.only and not any(name.startswith(only) for only in args.only) or args.binary and factor != BINARY:
            continue
        write(name, make, SMALL)
        _, base, _ = measure_command(args.tools, command, name)
        size = write(name, make, args.mib << 20)
        size = decompressed_size(name, args.mib << 20) or size
        status, memory, message = measure_command(args.tools, command, name)
        cost, limit = memory - base, BASE + factor * size
        print(f"{name:42}{size / 2**20:8.1f}{cost / 2**20:13.1f}{limit / 2**20:8.0f}  {status}", flush=True)
        if cost > limit or status not in (0, 2, 3):
            num_failed += 1
            print(f"failed: {name}: {message[:200]}", flush=True)
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
