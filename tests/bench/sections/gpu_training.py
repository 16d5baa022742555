"""Training with Mixhead A, 16 layers of width 1024, on a GPU with CUDA graphs; needs --device cuda and PyTorch."""
from measure import Comparison, TableRow, print_progress, side_of_peer, side_of_project


def measure(bench):
    if bench.device != "cuda":
        print_progress("skipping gpu_training, which needs --device cuda")
        return
    from peers import stages  # needs PyTorch
    size, warm, updates, entries = stages.ModelSize(layers=16, d=1024, h=16, f=4096, n=512, batch_tokens=16384), 5, 20, 8000
    toml = stages.STAGES["mixhead-a"].toml(size) + "precision = 'bf16'\ncuda_graph = true\n"
    options = dict(stage="mixhead-a", rows=entries, length=size.n, batch_tokens=size.batch_tokens, layers=size.layers, d=size.d,
                   h=size.h, f=size.f, precision="bf16", warm=warm, updates=updates)
    project_name = f"training on a GPU, mixhead-a, {size.layers} layers of width {size.d}, n {size.n}, bf16"
    for compiled, against, bar in (("no", "eager", 3), ("yes", "torch.compile", 1.3)):
        def rows(results):
            yield TableRow(f"{project_name}, against {against}", "tokens/s", results[project_name]["tokens/s"], results[against]["tokens/s"], bar)

        yield Comparison(f"training on a GPU, against {against}", [
            side_of_project(project_name, lambda: bench.throughput(bench.make_shard(entries), toml, size.batch_tokens, warm, updates)),
            side_of_peer(against, lambda: bench.train_peer("stages", compiled=compiled, **options))], rows)
