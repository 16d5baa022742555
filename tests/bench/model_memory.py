#!/usr/bin/env python3
"""Measures the peak memory of importing and evaluating models with billions of parameters in bf16.

usage: model_memory.py FOLDER-OF-TOOLS [--size 1B|3.2B]... [--dtype bfloat16|float32] [--threads N]
Makes a folder of the GPT-2 form whose weights are numbers from a formula, in bf16 shards with an index; imports the folder with mh-convert, and
scores 512 tokens and generates 16 tokens with mh-eval --precision bf16. Prints a line for each command: the peak resident memory with
mapped pages (VmHWM), its bound, and the wall time. The exit status is 1 if a peak is above its bound. Needs twice the size of the folder on
the disk of $TMPDIR, with --dtype float32 three times the size. The section `large_models` of ./run bench, if there, measures the Llama form.
"""
import argparse
import array
import json
import math
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

from measure import run

# The shapes of Llama 3.2 with the feed-forward width of GPT-2.
SIZES = {"1B": {"n_embd": 2048, "n_layer": 16, "n_head": 32}, "3.2B": {"n_embd": 3072, "n_layer": 25, "n_head": 24}}
VOCABULARY = 128256  # rows of the embedding, of which 257 have entries
POSITIONS = 1024
LENGTH = 512  # scored tokens
SHARD_BYTES = 2 << 30  # a tensor that does not fit begins a new shard
EXTRA_BYTES = 200e6  # of an import, besides three times the largest tensor
SCORING_BYTES = {"1B": None, "3.2B": 8.0e9}  # bound of scoring and generation; None: twice the parameters and 1.6 GB


def shapes_of(config):
    """Returns {name of a tensor: shape}."""
    d = config["n_embd"]
    shapes = {"transformer.wte.weight": (VOCABULARY, d), "transformer.wpe.weight": (POSITIONS, d)}
    for i in range(config["n_layer"]):
        prefix = f"transformer.h.{i}."
        shapes.update({prefix + "ln_1.weight": (d,), prefix + "ln_1.bias": (d,), prefix + "ln_2.weight": (d,), prefix + "ln_2.bias": (d,)})
        for name, rows, columns in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, 4 * d), ("mlp.c_proj", 4 * d, d)):
            shapes.update({f"{prefix}{name}.weight": (rows, columns), f"{prefix}{name}.bias": (columns,)})
    return {**shapes, "transformer.ln_f.weight": (d,), "transformer.ln_f.bias": (d,)}


def formula_bytes(count):
    """Returns `count` bf16 numbers of magnitude 2^-7 to 2^-6 with alternating signs."""
    return array.array("H", ((i * 2654435761 >> 7 & 0x807F) | 0x3C00 for i in range(count))).tobytes()


def write_weights(folder, shapes):
    shards, shard_bytes = [{}], 0
    for name, shape in shapes.items():
        num_bytes = 2 * math.prod(shape)
        if shards[-1] and shard_bytes + num_bytes > SHARD_BYTES:
            shards.append({})
            shard_bytes = 0
        shards[-1][name] = shape
        shard_bytes += num_bytes
    numbers, one = memoryview(formula_bytes(1 << 20)), struct.pack("<H", 0x3F80)
    weight_map = {}
    for i, shard in enumerate(shards):
        file, header, begin = f"model-{i + 1:05}-of-{len(shards):05}.safetensors", {}, 0
        for name, shape in shard.items():
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, begin + 2 * math.prod(shape)]}
            begin, weight_map[name] = begin + 2 * math.prod(shape), file
        text = json.dumps(header).encode()
        with open(folder / file, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for name, shape in shard.items():
                num_bytes = 2 * math.prod(shape)
                if ".ln_" in name and name.endswith(".weight"):
                    out.write(one * shape[0])
                    continue
                while num_bytes > 0:
                    num_bytes -= out.write(numbers[:num_bytes])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def write_vocabulary(folder):
    """Writes a byte-level vocabulary without merges. GPT-2 represents a byte that is no printable character by one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    characters = [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
    (folder / "vocab.json").write_text(json.dumps({**{c: i for i, c in enumerate(characters)}, "<|endoftext|>": 256}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>",
                                                              "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}))


def write_folder(folder, size):
    """Writes the folder. Returns the number of parameters, and the bytes of the largest tensor."""
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **SIZES[size], "n_positions": POSITIONS, "vocab_size": VOCABULARY,
              "bos_token_id": 256, "eos_token_id": 256}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_vocabulary(folder)
    shapes = shapes_of(config)
    write_weights(folder, shapes)
    return sum(map(math.prod, shapes.values())), 2 * max(map(math.prod, shapes.values()))


def measure(tools, size, dtype, threads, folder):
    """Prints a line for each command. Returns whether all peaks are within their bounds."""
    source, checkpoint, text, shard = (folder / name for name in ("gpt2", "model.safetensors", "text", "text.mhs"))
    num_parameters, largest = write_folder(source, size)
    is_within = True

    def report(name, bound, command):
        nonlocal is_within
        seconds, peak = run(command, stdout=subprocess.DEVNULL)
        is_within = is_within and peak <= bound
        print(f"{size} ({num_parameters / 1e9:.2f} billion parameters), {name}: {peak / 1e6:.0f} MB, bound {bound / 1e6:.0f} MB, {seconds:.1f} s"
              f"{'' if peak <= bound else ', ABOVE THE BOUND'}", flush=True)

    report(f"import as {dtype}", 3 * largest + EXTRA_BYTES, [tools / "mh-convert", "-q", "--padded-vocabulary", "--dtype", dtype, "--threads", threads,
                                                            source, "-o", checkpoint])
    text.write_text(("the quick brown fox jumps over the lazy dog " * LENGTH)[:LENGTH - 1] + "\n")
    run([tools / "mh-prep", "-q", "lm", "--vocab", source, text, "-o", shard])
    shutil.rmtree(source)
    bound = SCORING_BYTES[size] or 2 * num_parameters + 1.6e9
    eval_command = [tools / "mh-eval", "-q", "--precision", "bf16", "--threads", threads]
    report(f"scoring {LENGTH} tokens, bf16", bound, [*eval_command, "--block", LENGTH, checkpoint, shard])
    report("generating 16 tokens, bf16", bound, [*eval_command, "generate", checkpoint, "--prompt", "the quick", "--length", 16, "--temperature", 0])
    return is_within


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n")[2].removeprefix("usage: "))
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--size", action="append", choices=SIZES)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    results = []
    for size in args.size or SIZES:
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(args.tools, size, args.dtype, args.threads, pathlib.Path(folder)))
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
