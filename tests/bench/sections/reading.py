"""Reading random blocks of a shard, as a fraction of the time of a training step."""
from measure import Comparison, TableRow, output_of, side_of_project


def measure(bench):
    shard = bench.make_shard(33278)
    project_name = "reading random blocks"

    def rows(results):
        step = 4096 / bench.train_language_model(8000, "bf16")["tokens/s"]
        yield TableRow(f"{project_name}, fraction of a bf16 training step, against the bound 1%", "fraction", [time * 1e-6 / step for time in results[project_name]["us"]], 0.01, 1, lower_is_better=True)

    yield Comparison(project_name, [
        side_of_project(project_name, lambda: {"us": float(output_of([bench.tests / "shard-bench", shard]))})], rows)
