#!/usr/bin/env python3
"""Attention by itself, forward and backward, in PyTorch: the peer of attention_bench, with its arguments and output.

    peer_attention.py KIND BATCH HEADS LENGTH SIZE fp32|bf16 THREADS

KIND: mixhead-a and mixhead-b, eager: logits with an added mask, softmax, the heads mixed by one product over all of them; sdpa,
the fused attention of PyTorch, without mixing; relative, that of Transformer-XL with a memory as long, eager, the logits of
distances moved into place by the view of the paper's appendix; talking-heads, that of x-transformers, with a matrix behind the softmax; decode-a and decode-b, Mixhead of one query, forward alone.
"""
import statistics
import sys
import time

import torch


def peak_mb():
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024


def main():
    kind, (batch, heads, n, size), dtype = sys.argv[1], map(int, sys.argv[2:6]), sys.argv[6]
    torch.set_num_threads(int(sys.argv[7]))
    dtype = torch.bfloat16 if dtype == "bf16" else torch.float32

    decodes, relative = kind.startswith("decode"), kind == "relative"
    queries, keys = 1 if decodes else n, 2 * n if relative else n

    def leaf(length):
        return torch.randn(batch, length, heads, size).to(dtype).transpose(1, 2).detach().requires_grad_()

    q, k, v = leaf(queries), leaf(keys), leaf(keys)
    if decodes:  # as a cache keeps them
        k, v = k.detach().contiguous(), v.detach().contiguous()
    given = torch.randn(batch, queries, heads, size).to(dtype).transpose(1, 2)
    m = torch.eye(heads) + 0.1 * torch.randn(heads, heads)
    if kind.endswith("-b"):
        m = m.expand(batch, queries, heads, heads).contiguous()
    m.requires_grad_()
    u, bias, r = (torch.randn(shape).to(dtype).requires_grad_() for shape in ((heads, 1, size), (heads, 1, size), (heads, keys, size)))
    mask = torch.full((queries, keys), float("-inf")).triu(1 + keys - queries).to(dtype)

    if kind == "talking-heads":
        from x_transformers.attend import Attend  # installed for this kind alone
        talking = Attend(heads=heads, causal=True, post_talking_heads=True)

    def attend():
        if kind == "talking-heads":
            return talking(q, k, v)[0]
        if kind == "sdpa":
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        if relative:
            by_distance = torch.matmul((q + bias) * size**-0.5, r.transpose(1, 2))
            shifted = torch.nn.functional.pad(by_distance, (1, 0)).view(batch, heads, keys + 1, queries)[:, :, 1:].view_as(by_distance)
            return torch.matmul((torch.matmul((q + u) * size**-0.5, k.transpose(2, 3)) + shifted + mask).softmax(-1), v)
        logits = torch.matmul(q * size**-0.5, k.transpose(2, 3))
        p = (logits if decodes else logits + mask).softmax(-1)
        if kind.endswith("-a"):
            p = torch.matmul(m.t().to(dtype), p.reshape(batch, heads, queries * keys)).view(batch, heads, queries, keys)
        else:  # (B, T, h, h) times (B, T, h, S)
            p = torch.matmul(m.transpose(2, 3).to(dtype), p.transpose(1, 2)).transpose(1, 2)
        return torch.matmul(p, v)

    def call():
        if decodes:
            with torch.inference_mode():
                attend()
            return
        for t in (q, k, v, m, u, bias, r):
            t.grad = None
        attend().backward(given)

    with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
        clear.write("5")
    before = peak_mb()
    call()
    memory = peak_mb() - before - (2 * q.nbytes + k.nbytes + v.nbytes) / 2**20  # besides its results
    times = []
    began = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - began < 1:
        first = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - first))
    print(f"{statistics.median(times):.3f} {memory:.1f}")


if __name__ == "__main__":
    main()
