"""Attention layers of a model with half of its heads pruned, against the same layers with all heads."""
from measure import Comparison, TableRow, output_of, side_of_project


def measure(bench):
    for path, mixer in (("fused", "none"), ("composed", "none"), ("composed", "mixhead-a")):
        name = f"attention with half of the heads pruned, {path}, mixer {mixer}"

        def times():
            all_heads, pruned = output_of([bench.tests / "cut-bench", path, mixer], {"OMP_NUM_THREADS": str(bench.threads)}).split()
            return {"ms": float(pruned), "all heads ms": float(all_heads)}

        def rows(results):
            yield TableRow(name, "ms", results[name]["ms"], results[name]["all heads ms"], 1.7, lower_is_better=True)

        yield Comparison(f"pruned heads, {path}, mixer {mixer}", [side_of_project(name, times)], rows)
