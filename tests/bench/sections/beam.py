"""Beam search of a batch against models of the same shape in transformers and CTranslate2."""
import statistics

from measure import Comparison, Row, allocator, output, peer, peer_program, project


def measure(bench):
    threads = str(bench.threads)
    what = "beam search, 3 + 3 layers, d 256, beam 5, batch 32"

    def speed(command, environment):
        return {"tokens/s": statistics.median(float(line) for line in output(command, {"OMP_NUM_THREADS": threads, **environment}).splitlines())}

    def ours(precision):
        return project(f"{what}, {precision}", lambda: speed([bench.tests / "beam-bench", "3", threads, precision], {}))

    def theirs(name, precision):
        command = [*peer_program("beam"), name, "--precision", precision, "--rounds", "3", "--threads", threads]
        return peer(f"{name}, {precision}", lambda: speed(command, allocator))

    def rows(results):
        for name, precision, bar in (("transformers", "fp32", 3), ("transformers", "bf16", 3), ("ctranslate2", "fp32", 0.5)):
            yield Row(f"{what}, {name}, {precision}", "tokens/s", results[f"{what}, {precision}"]["tokens/s"],
                      results[f"{name}, {precision}"]["tokens/s"], bar)

    yield Comparison("beam search", [ours("fp32"), theirs("transformers", "fp32"), theirs("ctranslate2", "fp32"), ours("bf16"),
                                     theirs("transformers", "bf16")], rows)
