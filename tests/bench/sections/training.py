"""Training speed and peak memory of a language model."""
from measure import Comparison, TableRow, side_of_peer, side_of_project


def measure(bench):
    for entries, bars in ((8000, (1.3, 1.0)), (33278, (1.5, 1.15))):
        for precision, bar in zip(("fp32", "bf16"), bars):
            updates = 10 if precision == "fp32" else 20  # enough updates for about 10 seconds
            options = dict(rows=entries, precision=precision)
            description = f"vocabulary {entries}, {precision}"
            project_name = f"training, {description}"
            sides = [side_of_project(project_name, lambda: bench.train_language_model(entries, precision, updates=updates)),
                     side_of_peer("PyTorch", lambda: bench.train_peer("decoder", **options, warm=3, updates=updates))]
            compare_memory = entries == 33278 and bench.device == "cpu"
            if compare_memory:
                sides.append(side_of_peer("PyTorch's memory",
                                          lambda: bench.train_peer("decoder", is_tuned=False, **options, warm=1, updates=1)))

            def rows(results):
                yield TableRow(project_name, "tokens/s", results[project_name]["tokens/s"], results["PyTorch"]["tokens/s"], bar)
                if compare_memory:
                    yield TableRow(f"peak memory, {description}", "MB", results[project_name]["MB"], results["PyTorch's memory"]["MB"], 2, lower_is_better=True)

            yield Comparison(project_name, sides, rows)
