"""Training step of every attention stage, and memory of Mixhead A and B on a CPU; needs PyTorch."""
from measure import Comparison, TableRow, side_of_peer, side_of_project


def measure(bench):
    from peers import stages  # needs PyTorch
    entries, warm, updates = 1000, 1, 4
    if bench.device != "cpu":
        updates = 20
    for name in bench.stages.split(",") if bench.stages else stages.STAGES:
        stage = stages.STAGES[name]
        mixes = name in ("mixhead-a", "mixhead-b")
        compare_memory = mixes and bench.device == "cpu"
        sizes = [(stages.ModelSize(n=1024), 1.3), (stages.ModelSize(d=256, f=1024, n=1024), 4.0)] if mixes else [(stages.ModelSize(), 1.0)]
        for size, bar in sizes:
            description = f"{name}, width {size.d}, {size.n} positions"
            project_name = f"step {description}"
            options = dict(stage=name, rows=entries, length=size.n, batch_tokens=size.batch_tokens, d=size.d, f=size.f)
            sides = [side_of_project(project_name,
                                     lambda: bench.throughput(bench.make_shard(entries), stage.toml(size), size.batch_tokens, warm,
                                                              updates)),
                     side_of_peer("PyTorch", lambda: bench.train_peer("stages", warm=warm, updates=updates, **options))]
            if compare_memory:
                sides.append(side_of_peer("PyTorch's memory",
                                          lambda: bench.train_peer("stages", is_tuned=False, warm=1, updates=1, **options)))

            def rows(results):
                yield TableRow(project_name, "tokens/s", results[project_name]["tokens/s"], results["PyTorch"]["tokens/s"], bar)
                if compare_memory:
                    yield TableRow(f"memory {description}", "MB", results[project_name]["MB"], results["PyTorch's memory"]["MB"], 1 / 0.7, lower_is_better=True)

            yield Comparison(description, sides, rows)
