#!/usr/bin/env python3
"""Measures causal attention in PyTorch, forward and backward: the peer of attention_bench, with the same arguments and output.

    peers/attention.py KIND BATCH HEADS LENGTH SIZE fp32|bf16|fp16 THREADS|cuda
    peers/attention.py -       reads these arguments from each line of standard input; a failure prints `failed: REASON`

KIND:
    mixhead-a, mixhead-b                     eager: logits plus mask, softmax, heads mixed by one matrix product over all heads
    mixhead-a-compiled, mixhead-b-compiled   mixhead-a and mixhead-b under torch.compile
    sdpa                                     scaled_dot_product_attention without mixing, with the backend that PyTorch chooses
    flash, cudnn                             scaled_dot_product_attention without mixing, with the named backend
    flex                                     FlexAttention without mixing, under torch.compile
    cross-head                               scaled_dot_product_attention where each head reads keys and values of the next head
    scaled                                   scaled_dot_product_attention with outputs scaled per head and batch element
    relative                                 eager Transformer-XL attention with a memory of LENGTH; relative logits are shifted by
                                             padding and reshaping, as in the paper's appendix
    talking-heads                            x-transformers, with a mixing matrix after the softmax
    decode-a, decode-b                       Mixhead A and B with one query and LENGTH keys, forward only

On a GPU, times come from CUDA events and memory from the allocator's statistics, after warm-up calls.
"""
import functools
import statistics
import sys
import time

import torch
import torch.nn.attention

BACKENDS = {"flash": torch.nn.attention.SDPBackend.FLASH_ATTENTION, "cudnn": torch.nn.attention.SDPBackend.CUDNN_ATTENTION}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def peak_mb():
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024


def mixhead_attention(q, k, v, m, mask):
    """Returns the output of Mixhead attention, (B, h, T, dk), for T queries and Tk keys. mask: added to the logits, or None; m: mixing
    matrix, (h, h) or (B, T, h, h)."""
    batch, heads, queries, size = q.shape
    logits = torch.matmul(q * size**-0.5, k.transpose(2, 3))
    p = (logits if mask is None else logits + mask).softmax(-1)
    if m.dim() == 2:
        p = torch.matmul(m.t().to(q.dtype), p.reshape(batch, heads, -1)).view(batch, heads, queries, -1)
    else:  # (B, T, h, h) times (B, T, h, Tk)
        p = torch.matmul(m.transpose(2, 3).to(q.dtype), p.transpose(1, 2)).transpose(1, 2)
    return torch.matmul(p, v)


@functools.cache
def compiled_mixhead():
    torch._dynamo.config.recompile_limit = 64  # beyond this limit new shapes run eagerly
    return torch.compile(mixhead_attention, dynamic=False)


@functools.cache
def compiled_flex_attention():
    from torch.nn.attention.flex_attention import flex_attention
    torch._dynamo.config.recompile_limit = 64
    return torch.compile(flex_attention, dynamic=False)


def measure_on_cpu(call, clear):
    """Returns the median time of call() in ms and the peak memory that a call adds in MB, results included. clear() drops gradients."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    initial_mb = peak_mb()
    call()
    memory = peak_mb() - initial_mb
    times = []
    start_time = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - start_time < 1:
        call_start = time.perf_counter()
        clear()
        call()
        times.append(1000 * (time.perf_counter() - call_start))
    return statistics.median(times), memory


def measure_on_gpu(call, clear):
    """Returns the median time of call() on a GPU in ms and the peak memory that a call adds in MB, results included. clear() drops gradients."""
    for _ in range(5):
        clear()
        call()
    clear()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    initial_bytes = torch.cuda.memory_allocated()
    call()
    memory = (torch.cuda.max_memory_allocated() - initial_bytes) / 2**20
    times = []
    while len(times) < 20 or sum(times) < 300:
        events = []
        for i in range(11):
            clear()
            if i > 0:
                call()
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()
        torch.cuda.synchronize()
        times += [first.elapsed_time(last) for first, last in zip(events, events[1:])]
    return statistics.median(times), memory


def measure(kind, batch, heads, n, size, dtype, threads_or_cuda):
    batch, heads, n, size, dtype = int(batch), int(heads), int(n), int(size), TYPES[dtype]
    device = "cuda" if threads_or_cuda == "cuda" else "cpu"
    if device == "cpu":
        torch.set_num_threads(int(threads_or_cuda))

    decodes, is_relative = kind.startswith("decode"), kind == "relative"
    queries, keys = 1 if decodes else n, 2 * n if is_relative else n

    def leaf(length):
        return torch.randn(batch, length, heads, size, device=device).to(dtype).transpose(1, 2).detach().requires_grad_()

    q, k, v = leaf(queries), leaf(keys), leaf(keys)
    if decodes:  # contiguous, as in a key/value cache
        k, v = k.detach().contiguous(), v.detach().contiguous()
    dout = torch.randn(batch, queries, heads, size, device=device).to(dtype).transpose(1, 2)
    m = torch.eye(heads, device=device) + 0.1 * torch.randn(heads, heads, device=device)
    if kind.removesuffix("-compiled").endswith("-b"):
        m = m.expand(batch, queries, heads, heads).contiguous()
    m.requires_grad_()
    u, position_bias, r = (torch.randn(shape, device=device).to(dtype).requires_grad_() for shape in ((heads, 1, size), (heads, 1, size), (heads, keys, size)))
    next_heads = (torch.arange(heads, device=device) + 1) % heads
    scales = torch.rand(batch, heads, 1, 1, device=device, requires_grad=True)
    mask = torch.full((queries, keys), float("-inf"), device=device).triu(1 + keys - queries).to(dtype)

    if kind == "talking-heads":
        from x_transformers.attend import Attend  # only talking-heads needs the package x-transformers
        talking_heads = Attend(heads=heads, causal=True, post_talking_heads=True).to(device)

    if kind == "flex":
        from torch.nn.attention.flex_attention import create_block_mask
        block_mask = create_block_mask(lambda _, __, query, key: query >= key, None, None, queries, keys, device=device)

    def attend():
        if kind == "talking-heads":
            return talking_heads(q, k, v)[0]
        if kind in BACKENDS:
            with torch.nn.attention.sdpa_kernel(BACKENDS[kind]):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        if kind == "flex":
            return compiled_flex_attention()(q, k, v, block_mask=block_mask)
        if kind == "sdpa":
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        if kind == "cross-head":
            return torch.nn.functional.scaled_dot_product_attention(q, k.index_select(1, next_heads), v.index_select(1, next_heads), is_causal=True)
        if kind == "scaled":
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True) * scales.to(dtype)
        if is_relative:
            logits_by_distance = torch.matmul((q + position_bias) * size**-0.5, r.transpose(1, 2))
            shifted_logits = torch.nn.functional.pad(logits_by_distance, (1, 0)).view(batch, heads, keys + 1, queries)[:, :, 1:].view_as(logits_by_distance)
            return torch.matmul((torch.matmul((q + u) * size**-0.5, k.transpose(2, 3)) + shifted_logits + mask).softmax(-1), v)
        return (compiled_mixhead() if kind.endswith("-compiled") else mixhead_attention)(q, k, v, m, None if decodes else mask)

    def clear():
        for t in (q, k, v, m, u, position_bias, r, scales):
            t.grad = None

    def call():
        if decodes:
            with torch.inference_mode():
                attend()
        else:
            attend().backward(dout)

    milliseconds, memory = (measure_on_gpu if device == "cuda" else measure_on_cpu)(call, clear)
    return f"{milliseconds:.3f} {memory - (2 * q.nbytes + k.nbytes + v.nbytes) / 2**20:.1f}"  # excludes the results: output and gradients


def main():
    if sys.argv[1:] != ["-"]:
        print(measure(*sys.argv[1:]))
        return
    for line in sys.stdin:
        try:
            answer = measure(*line.split())
        except Exception as problem:  # such as no C compiler or too little memory; the next measurement may succeed
            answer = f"failed: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # attention_bench uses the GPU between measurements of this program
        print(answer, flush=True)


if __name__ == "__main__":
    main()
