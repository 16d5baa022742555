"""Attention kernels, forward and backward, causal, head size 64; with --device cuda on a GPU, head sizes 64 and 128."""
import itertools

from measure import Comparison, LineProgram, TableRow, allocator_settings, output_of, peer_program, side_of_peer, side_of_project


def measure(bench):
    yield from gpu_comparisons(bench) if bench.device == "cuda" else cpu_comparisons(bench)


def cpu_comparisons(bench):
    """Yields the comparisons on the CPU: 8 heads, batch size 2, or batch size 8 in incremental decoding."""
    def run_program(command, kind, n, dtype, batch, environment=None):
        time, memory = output_of([*command, kind, batch, 8, n, 64, dtype, bench.threads], environment).split()
        return {"ms": float(time), "MB": float(memory)}

    def project_side(kind, n, dtype="fp32", batch=2):
        return side_of_project(f"attention, {kind}, n {n}, {dtype}",
                               lambda: run_program([bench.tests / "attention-bench"], kind, n, dtype, batch))

    def peer_side(kind, n, dtype="fp32", batch=2):
        return side_of_peer(f"peer {kind}", lambda: run_program(peer_program("attention"), kind, n, dtype, batch, allocator_settings))

    def compare(description, side, baseline, bar, label=None, memory_bar=None):
        def rows(results):
            yield TableRow(f"attention, {description}", "ms", results[side.name]["ms"], results[baseline.name]["ms"], bar, lower_is_better=True)
            if memory_bar:
                yield TableRow(f"attention, {description}, memory without the results", "MB", results[side.name]["MB"], results[baseline.name]["MB"],
                          memory_bar, lower_is_better=True)

        return Comparison(f"attention, {label or description}", [side, baseline], rows)

    for n in (512, 1024, 2048):
        for kind in ("mixhead-a", "mixhead-b"):
            yield compare(f"{kind}, n {n}, fp32, against eager", project_side(kind, n), peer_side(kind, n), 5, memory_bar=25 if n == 2048 else None)
        yield compare(f"mixhead-a, n {n}, fp32, against talking heads of x-transformers", project_side("mixhead-a", n), peer_side("talking-heads", n), 5)
        yield compare(f"mixhead-a, n {n}, against plain attention of the project (1.2 times its time)", project_side("mixhead-a", n), project_side("plain", n), 1 / 1.2,
                      label=f"mixhead-a and plain, n {n}")
        for dtype in ("fp32", "bf16"):
            yield compare(f"plain, n {n}, {dtype}, against PyTorch's fused attention", project_side("plain", n, dtype), peer_side("sdpa", n, dtype), 1)
    for n in (256, 512, 1024):
        yield compare(f"relative, n {n}, memory {n}, fp32, against eager", project_side("relative", n), peer_side("relative", n), 3)
    for kind in ("decode-a", "decode-b"):
        yield compare(f"{kind} of 8 rows, 1024 keys, fp32, against eager", project_side(kind, 1024, batch=8), peer_side(kind, 1024, batch=8), 3)


# (KIND of attention_bench, KIND of peers/attention.py, bar, metric, comment); with bar 0 every ratio passes. Each round measures all
# kinds.
GPU_ROWS = [("mixhead-a", "mixhead-a", 4, "ms", "against eager"),
            ("mixhead-a", "mixhead-a-compiled", 2, "ms", "against torch.compile"),
            ("mixhead-b", "mixhead-b", 4, "ms", "against eager"),
            ("mixhead-b", "mixhead-b-compiled", 0, "ms", "against torch.compile"),
            ("mixhead-a", "flash", 1 / 2.2, "ms", "against flash attention without mixing (2.2 times its time)"),
            ("relative", "relative", 4, "ms", "memory of the same length, against eager"),
            ("plain", "flash", 1 / 1.03, "ms", "against PyTorch's flash attention (1.03 times its time)"),
            ("plain", "cudnn", 0, "ms", "against cuDNN's attention"),
            ("plain", "flex", 0, "ms", "against FlexAttention"),
            ("kernel", "flash", 0, "ms", "plain with the project's kernel (layers use PyTorch's attention), against flash attention"),
            ("cross-head", "cross-head", 1 / 1.03, "ms", "against PyTorch's fused attention after index_select of the heads"),
            ("scaled", "scaled", 1 / 1.03, "ms", "outputs scaled per head, against PyTorch's fused attention and a product"),
            ("mixhead-a", "mixhead-a", 25, "MB", "against eager, memory without the results"),
            ("mixhead-b", "mixhead-b", 25, "MB", "against eager, memory without the results")]


GPU_SIZES = list(itertools.product((64, 128), (2048, 512), (8, 16)))  # (head size, length, heads)


def gpu_arguments(kind, n, heads, size):
    """Returns the arguments of one GPU measurement in bf16 with batches of 16384 tokens, for both attention programs."""
    return [kind, 16384 // n, heads, n, size, "bf16", "cuda"]


def compiled_gpu_arguments():
    """Returns the arguments of each GPU measurement of peers/attention.py that uses torch.compile, one text each."""
    kinds = [kind for kind in dict.fromkeys(peer_kind for _, peer_kind, *_ in GPU_ROWS) if kind == "flex" or kind.endswith("-compiled")]
    return [" ".join(map(str, gpu_arguments(kind, n, heads, size))) for size, n, heads in GPU_SIZES for kind in kinds]


def gpu_comparisons(bench):
    def name_of(kind, n, heads, size):
        return f"attention on a GPU, {kind}, n {n}, {heads} heads of {size}, bf16"

    def query(lines, kind, n, heads, size):
        time, memory = lines.query(*gpu_arguments(kind, n, heads, size))
        return {"ms": max(time, 0), "MB": max(memory, 0.1)}

    with LineProgram(bench.tests / "attention-bench", "-") as project_lines, LineProgram(*peer_program("attention"), "-") as peer_lines:
        for size, n, heads in GPU_SIZES:
            kinds = sorted({(kind, False) for _, kind, *_ in GPU_ROWS} | {(kind, True) for kind, *_ in GPU_ROWS})

            def side(kind, is_project):
                if is_project:
                    return side_of_project(name_of(kind, n, heads, size), lambda: query(project_lines, kind, n, heads, size))
                return side_of_peer(f"peer {kind}", lambda: query(peer_lines, kind, n, heads, size))

            def rows(results):
                for kind, peer_kind, bar, metric, comment in GPU_ROWS:
                    name, peers = name_of(kind, n, heads, size), results[f"peer {peer_kind}"]
                    yield TableRow(f"{name}, {comment}", metric, results[name][metric], peers and peers[metric], bar, lower_is_better=True)

            yield Comparison(f"attention on a GPU, n {n}, {heads} heads of {size}", [side(kind, is_project) for kind, is_project in kinds], rows)
