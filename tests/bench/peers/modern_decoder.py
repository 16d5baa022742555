"""Peer of the training benchmark of a decoder as in today's language models, in PyTorch: RMSNorm, rotary positions, grouped heads, SwiGLU.

Layers are pre-norm without biases, adjacent query heads share a key/value head, and the embedding is tied to the output layer, as in Llama. The
peer is tuned as in decoder.py. Variants were compared by the CPU time of an update on one thread of a processor with AMX (n 1024, medians of 5
updates, other programs running): enable_gqa takes 0.82 (fp32) and 0.76 (bf16) of the time of repeated keys and values, and rotation in the
type of the queries 0.89 and 0.90 of the time of rotation in fp32. torch.compile in its default mode takes 0.99 (fp32) and 1.23 (bf16) of the
time of eager PyTorch, so both are measured.

    python peers/modern_decoder.py --rows 8000 --precision bf16 --length 1024 --compiled yes     one line of JSON
"""
import argparse
import dataclasses
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

bench_folder = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(bench_folder))  # so that `peers` can be imported when this file is run as a program
from peers import decoder  # noqa: E402


@dataclasses.dataclass
class ModelSize:
    """Sizes of the model, equal for the project and the peer."""
    layers: int = 4
    d: int = 256
    h: int = 8  # query heads
    hkv: int = 2  # key/value heads
    f: int = 704  # 8 d / 3, rounded up to a multiple of 64

    def toml(self, n, batch_tokens):
        """Returns the configuration of the project for batches of `batch_tokens` tokens in sequences of length n; it ends in [train]."""
        return (f"include = '{bench_folder.parents[1]}/configs/backbones/modern-decoder.toml'\n"
                f"[model]\nlayers = {self.layers}\nwidth = {self.d}\nffn_dim = {self.f}\nnorm_epsilon = {EPSILON}\n"
                f"[attention]\nheads = {self.h}\nkey_value_heads = {self.hkv}\nrotary.base = {BASE}\n"
                f"[train]\nbatch.sequence_length = {n}\nbatch.tokens = {batch_tokens}\n")


EPSILON, BASE = 1e-5, 10000.0  # of the norms; of the rotary angles


def rotary_table(length, size):
    """Returns the cosines and the sines of the rotary angles, (length, 1, size / 2) each."""
    frequencies = 1 / BASE ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = torch.arange(length, dtype=torch.float32)[:, None, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Rotates the pairs (j, j + dk / 2) of each head. x: (B, T, heads, dk); cos, sin: (T, 1, dk / 2)."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Layer(nn.Module):
    def __init__(self, size):
        super().__init__()
        d, f = size.d, size.f
        self.h, self.hkv, self.dk = size.h, size.hkv, d // size.h
        self.norm1, self.norm2 = nn.RMSNorm(d, EPSILON), nn.RMSNorm(d, EPSILON)
        self.qkv, self.out = nn.Linear(d, (self.h + 2 * self.hkv) * self.dk, bias=False), nn.Linear(d, d, bias=False)
        self.gate_up, self.down = nn.Linear(d, 2 * f, bias=False), nn.Linear(f, d, bias=False)

    def attend(self, x, cos, sin):
        """Returns the concatenated head outputs (B, T, d) from x (B, T, d)."""
        b, t, _ = x.shape
        qk, v = self.qkv(x).view(b, t, self.h + 2 * self.hkv, self.dk).split([self.h + self.hkv, self.hkv], 2)
        qk = rotate(qk, cos.to(qk.dtype), sin.to(qk.dtype))
        q, k = qk.split([self.h, self.hkv], 2)
        z = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True)
        return z.transpose(1, 2).reshape(x.shape)

    def forward(self, x, cos, sin):
        x = x + self.out(self.attend(self.norm1(x), cos, sin))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def load_project(self, tensors):
        """Loads the weights of a layer from a checkpoint of mh-train. `tensors`: {name within the layer: tensor}."""
        self.load_state_dict({"norm1.weight": tensors["self.norm.weight"],
                              "qkv.weight": torch.cat([tensors[f"self.{projection}.weight"] for projection in ("query", "key", "value")]),
                              "out.weight": tensors["self.output.weight"],
                              "norm2.weight": tensors["ffn.norm.weight"],
                              "gate_up.weight": torch.cat([tensors[f"ffn.{projection}.weight"] for projection in ("gate", "up")]),
                              "down.weight": tensors["ffn.down.weight"]})


class ModernDecoder(nn.Module):
    def __init__(self, vocabulary, n, size=None):
        super().__init__()
        size = size or ModelSize()
        self.embedding = nn.Embedding(vocabulary, size.d)
        nn.init.normal_(self.embedding.weight, std=size.d**-0.5)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.d, EPSILON)
        for name, table in zip(("cos", "sin"), rotary_table(n, size.d // size.h)):
            self.register_buffer(name, table, persistent=False)

    def forward(self, tokens):
        x, length = self.embedding(tokens), tokens.shape[1]
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        return F.linear(self.norm(x), self.embedding.weight)

    def load_project(self, tensors):
        """Loads the weights of a checkpoint of mh-train. `tensors`: {name: tensor}."""
        self.load_state_dict({"embedding.weight": tensors["decoder.embedding.weight"], "norm.weight": tensors["decoder.norm.weight"]}, strict=False)
        decoder.load_project_layers(self.layers, tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    decoder.add_measure_options(parser)
    args = parser.parse_args()
    decoder.measure(args, lambda: ModernDecoder(args.rows, args.length))


if __name__ == "__main__":
    main()
