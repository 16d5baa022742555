"""Peer of the training benchmarks: a tuned decoder language model in eager PyTorch.

The peer uses one projection for queries, keys and values, scaled_dot_product_attention, fused AdamW, gradients set to None, a fixed
number of threads, and autocast for bf16. The model has the defaults of mh-train: pre-norm, sinusoidal positions, ReLU, tied embeddings.

    python peers/decoder.py --rows 8000 --precision fp32 --updates 12     one line of JSON
"""
import argparse
import itertools
import json
import math
import resource
import time

import torch
import torch.nn.functional as F
from torch import nn


def sinusoidal(length, width, first=2):
    """Returns the position table of fairseq: sines in the first half, cosines in the second; positions start at padding index + 1."""
    frequencies = torch.exp(torch.arange(width // 2, dtype=torch.float64) * -(math.log(10000) / (width // 2 - 1)))
    angles = torch.arange(first, first + length, dtype=torch.float64)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1).float()


class Layer(nn.Module):
    number = 0  # index of the layer in the model

    def __init__(self, d, h, f):
        super().__init__()
        self.h = h
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, f), nn.Linear(f, d)

    def project(self, x):
        """Returns q, k, v, (B, h, T, dk) each, from x (B, T, d)."""
        b, t, d = x.shape
        return self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)

    def attend(self, x):
        """Returns the concatenated head outputs (B, T, d) from x (B, T, d)."""
        return F.scaled_dot_product_attention(*self.project(x), is_causal=True).transpose(1, 2).reshape(x.shape)

    def forward(self, x):
        x = x + self.out(self.attend(self.norm1(x)))
        return x + self.down(F.relu(self.up(self.norm2(x))))

    def load_project(self, tensors):
        """Loads the weights of a layer from a checkpoint of mh-train. `tensors`: {name within the layer: tensor}."""
        projections = [p for p in ("query", "key", "value") if f"self.{p}.weight" in tensors]
        state = {}
        for kind in ("weight", "bias"):
            state[f"qkv.{kind}"] = torch.cat([tensors[f"self.{p}.{kind}"] for p in projections])
            state[f"out.{kind}"] = tensors[f"self.output.{kind}"]
            state[f"norm1.{kind}"] = tensors[f"self.norm.{kind}"]
            state[f"norm2.{kind}"] = tensors[f"ffn.norm.{kind}"]
            state[f"up.{kind}"] = tensors[f"ffn.up.{kind}"]
            state[f"down.{kind}"] = tensors[f"ffn.down.{kind}"]
        # Additional parameters of a stage are named as in checkpoints of mh-train, with "__" in place of ".".
        for name, _ in itertools.chain(self.named_parameters(), self.named_buffers()):
            state.setdefault(name, tensors.get(f"self.{name.replace('__', '.')}"))
        self.load_state_dict({name: tensor for name, tensor in state.items() if tensor is not None})


def load_project_layers(layers, tensors):
    """Loads the weights of all layers from a checkpoint of mh-train. `tensors`: {name: tensor}."""
    for i, layer in enumerate(layers):
        prefix = f"decoder.layers.{i}."
        layer.load_project({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})


class Decoder(nn.Module):
    def __init__(self, vocabulary, layers=4, d=256, h=8, f=1024, n=256, layer=Layer):
        super().__init__()
        self.d = d
        self.embedding = nn.Embedding(vocabulary, d)
        nn.init.normal_(self.embedding.weight, std=d**-0.5)
        self.layers = nn.ModuleList(layer(d, h, f) for _ in range(layers))
        for number, module in enumerate(self.layers):
            module.number = number
        self.norm = nn.LayerNorm(d)
        self.register_buffer("positions", sinusoidal(n, d))

    def forward(self, tokens):
        x = self.embedding(tokens) * math.sqrt(self.d) + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.embedding.weight)

    def load_project(self, tensors):
        """Loads the weights of a checkpoint of mh-train. `tensors`: {name: tensor}."""
        self.load_state_dict({"embedding.weight": tensors["decoder.embedding.weight"],
                              "norm.weight": tensors["decoder.norm.weight"], "norm.bias": tensors["decoder.norm.bias"],
                              "positions": self.positions}, strict=False)
        load_project_layers(self.layers, tensors)


def optimizer_of(model, lr):
    return torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.0, fused=True)


def update(model, optimizer, tokens, targets, bf16=False):
    """Performs one update and returns the loss before the update, in nats per token."""
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=bf16):
        logits = model(tokens)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def add_measure_options(parser):
    """Adds the options that measure() reads to a parser."""
    parser.add_argument("--rows", type=int, required=True, help="vocabulary size")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--length", type=int, default=256, help="sequence length in tokens")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--warm", type=int, default=3, help="updates before the clock starts")
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--compiled", default="no", choices=["no", "yes"], help="use torch.compile [no]")


def measure(args, make):
    """Trains the model that make() returns and prints a line of JSON: tokens per second of wall time and of CPU time, and the peak
    memory in bytes."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    peak_at_start = peak_bytes()
    model = make().to(args.device)
    optimizer = optimizer_of(model, 5e-4)
    if args.compiled == "yes":
        model = torch.compile(model, dynamic=False)
    batch = args.batch_tokens // args.length
    data = torch.randint(args.rows, (args.warm + args.updates, batch, args.length + 1)).to(args.device)
    for i, rows in enumerate(data):
        if i == args.warm:
            start_time, cpu_start = time.perf_counter(), time.process_time()
        update(model, optimizer, rows[:, :-1], rows[:, 1:], args.precision == "bf16")
    tokens = args.updates * batch * args.length
    print(json.dumps({"tokens_per_second": tokens / (time.perf_counter() - start_time),
                      "tokens_per_cpu_second": tokens / (time.process_time() - cpu_start), "peak": peak_bytes(), "at_start": peak_at_start}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_measure_options(parser)
    args = parser.parse_args()
    measure(args, lambda: Decoder(args.rows, n=args.length))


if __name__ == "__main__":
    main()
