"""Attention layers of a model with half of its heads pruned, against the same layers with all heads."""
from measure import Comparison, Row, output, project


def measure(bench):
    for path, mixer in (("fused", "none"), ("composed", "none"), ("composed", "mixhead-a")):
        ours = f"attention with half of the heads pruned, {path}, mixer {mixer}"

        def times():
            whole, half = output([bench.tests / "cut-bench", path, mixer], {"OMP_NUM_THREADS": str(bench.threads)}).split()
            return {"ms": float(half), "all heads ms": float(whole)}

        def rows(results):
            yield Row(ours, "ms", results[ours]["ms"], results[ours]["all heads ms"], 1.7, less=True)

        yield Comparison(f"pruned heads, {path}, mixer {mixer}", [project(ours, times)], rows)
