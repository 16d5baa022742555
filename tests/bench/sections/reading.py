"""Reading random blocks of a shard, as a fraction of the time of a training step."""
from measure import Comparison, Row, output, project


def measure(bench):
    shard = bench.shard(33278)
    ours = "reading random blocks"

    def rows(results):
        step = 4096 / bench.train_language_model(8000, "bf16")["tokens/s"]
        yield Row(f"{ours}, share of a bf16 training step, against the bound 1%", "share", [time * 1e-6 / step for time in results[ours]["us"]], 0.01, 1, less=True)

    yield Comparison(ours, [project(ours, lambda: {"us": float(output([bench.tests / "shard-bench", shard]))})], rows)
