#!/usr/bin/env python3
"""Attention by itself, forward and backward, in PyTorch: the peer of attention_bench, with its arguments and output.

    peer_attention.py KIND BATCH HEADS LENGTH SIZE fp32|bf16 THREADS

KIND: mixhead-a and mixhead-b, eager: logits with an added mask, softmax, the heads mixed by one product over all of them; sdpa,
the fused attention of PyTorch, without mixing.
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

    def leaf():
        return torch.randn(batch, n, heads, size).to(dtype).transpose(1, 2).detach().requires_grad_()

    q, k, v = leaf(), leaf(), leaf()
    given = torch.randn(batch, n, heads, size).to(dtype).transpose(1, 2)
    m = torch.eye(heads) + 0.1 * torch.randn(heads, heads)
    if kind == "mixhead-b":
        m = m.expand(batch, n, heads, heads).contiguous()
    m.requires_grad_()
    mask = torch.full((n, n), float("-inf")).triu(1).to(dtype)

    def attend():
        if kind == "sdpa":
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        p = (torch.matmul(q * size**-0.5, k.transpose(2, 3)) + mask).softmax(-1)
        if kind == "mixhead-a":
            p = torch.matmul(m.t().to(dtype), p.reshape(batch, heads, n * n)).view(batch, heads, n, n)
        else:  # (B, T, h, h) times (B, T, h, S)
            p = torch.matmul(m.transpose(2, 3).to(dtype), p.transpose(1, 2)).transpose(1, 2)
        return torch.matmul(p, v)

    def call():
        for t in (q, k, v, m):
            t.grad = None
        attend().backward(given)

    with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
        clear.write("5")
    before = peak_mb()
    call()
    memory = peak_mb() - before - 4 * q.nbytes / 2**20  # besides its results
    times = []
    began = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - began < 1:
        first = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - first))
    print(f"{statistics.median(times):.3f} {memory:.1f}")


if __name__ == "__main__":
    main()
