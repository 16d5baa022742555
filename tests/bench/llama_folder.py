#!/usr/bin/env python3
"""Writes a Hugging Face folder with a model of the Llama form whose weights are random numbers in bf16; needs numpy.

    llama_folder.py 1B FOLDER     prints the number of parameters and the size of the largest tensor in bytes

The shapes equal Llama 3.2. The numbers repeat after 2^24, so that writing a file takes the time of the disk. The tokenizer has the
256 bytes and two special tokens; further rows of the embedding are padding (mh-convert --padded-vocabulary).
"""
import json
import math
import pathlib
import struct
import sys

import numpy

SIZES = {"1B": dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64, intermediate_size=8192),
         "3.2B": dict(hidden_size=3072, num_hidden_layers=28, num_attention_heads=24, num_key_value_heads=8, head_dim=128, intermediate_size=8192)}
VOCABULARY = 128256  # rows of the embedding
SHARD_BYTES = 2 << 30  # a tensor that does not fit begins a new shard


def shapes_of(config):
    """Returns {name of a tensor: shape}."""
    d, f, dk = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    h, hkv = config["num_attention_heads"], config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (VOCABULARY, d)}
    for i in range(config["num_hidden_layers"]):
        shapes.update({f"model.layers.{i}.{name}.weight": shape for name, shape in {
            "input_layernorm": (d,), "self_attn.q_proj": (h * dk, d), "self_attn.k_proj": (hkv * dk, d), "self_attn.v_proj": (hkv * dk, d),
            "self_attn.o_proj": (d, h * dk), "post_attention_layernorm": (d,), "mlp.gate_proj": (f, d), "mlp.up_proj": (f, d),
            "mlp.down_proj": (d, f)}.items()})
    return {**shapes, "model.norm.weight": (d,)}


def bf16_bytes(numbers):
    """Returns the bytes of fp32 numbers in bf16, rounded towards zero."""
    return (numbers.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()


def write_shard(path, shapes, random_bytes):
    """Writes a safetensors file. Norms are 1; other tensors begin at different numbers of `random_bytes`, which repeat."""
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        end = begin + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for i, shape in enumerate(shapes.values()):
            num_bytes = 2 * math.prod(shape)
            if len(shape) == 1:
                out.write(bf16_bytes(numpy.ones(shape, numpy.float32)))
                continue
            first = 2 * (1000003 * i % (len(random_bytes) // 2))
            while num_bytes > 0:
                num_bytes -= out.write(random_bytes[first:first + num_bytes])
                first = 0


def write_weights(folder, shapes):
    shards, shard_bytes = [{}], 0
    for name, shape in shapes.items():
        num_bytes = 2 * math.prod(shape)
        if shards[-1] and shard_bytes + num_bytes > SHARD_BYTES:
            shards.append({})
            shard_bytes = 0
        shards[-1][name] = shape
        shard_bytes += num_bytes
    random_bytes = memoryview(bf16_bytes(0.02 * numpy.random.default_rng(1).standard_normal(1 << 24, numpy.float32)))
    weight_map = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        write_shard(folder / file, shard, random_bytes)
        weight_map.update(dict.fromkeys(shard, file))
    total_bytes = sum(2 * math.prod(shape) for shape in shapes.values())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total_bytes}, "weight_map": weight_map}))


def byte_characters():
    """Returns the characters by which ByteLevel of the package `tokenizers` represents the bytes, in the order of the bytes."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def write_tokenizer(folder):
    special = ["<|begin_of_text|>", "<|end_of_text|>"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added_tokens = [{"id": 256 + i, "content": name, **flags, "special": True} for i, name in enumerate(special)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens, "normalizer": None, "pre_tokenizer": byte_level,
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {character: byte for byte, character in enumerate(byte_characters())}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": special[0], "eos_token": special[1], "clean_up_tokenization_spaces": False}))


def write_folder(folder, size):
    """Writes the model of the size SIZES[size] to an existing folder. Returns the number of parameters and the size of the largest tensor in bytes."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **SIZES[size], "vocab_size": VOCABULARY, "hidden_act": "silu",
              "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 131072, "tie_word_embeddings": True, "attention_bias": False,
              "mlp_bias": False, "bos_token_id": 256, "eos_token_id": 257, "torch_dtype": "bfloat16"}
    folder, shapes = pathlib.Path(folder), shapes_of(config)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    write_tokenizer(folder)
    write_weights(folder, shapes)
    sizes = [math.prod(shape) for shape in shapes.values()]
    return sum(sizes), 2 * max(sizes)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SIZES:
        sys.exit(f"usage: llama_folder.py {'|'.join(SIZES)} FOLDER")
    pathlib.Path(sys.argv[2]).mkdir(parents=True)
    print(*write_folder(sys.argv[2], sys.argv[1]))


if __name__ == "__main__":
    main()
