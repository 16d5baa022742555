"""Beam search of a batch, against models of the same size in transformers and CTranslate2."""
import statistics
import subprocess

from measure import Comparison, TableRow, UnavailableError, allocator_settings, output_of, peer_program, side_of_peer, side_of_project


def measure(bench):
    threads = str(bench.threads)
    description = "beam search, 3 + 3 layers, d 256, beam 5, batch 32"
    device_arguments = []  # empty on the CPU, since earlier versions of beam-bench have no device argument
    # On the CPU, CTranslate2 is compared in fp32 only, since it supports bf16 only on CPUs with bf16 instructions.
    bars = [("transformers", "fp32", 3), ("transformers", "bf16", 3), ("ctranslate2", "fp32", 0.5)]
    if bench.device == "cuda":
        description += ", on a GPU"
        device_arguments.append("cuda")
        bars.append(("ctranslate2", "bf16", 0.5))

    def speed(command, environment):
        lines = output_of(command, {"OMP_NUM_THREADS": threads, **environment}).splitlines()
        return {"tokens/s": statistics.median(float(line) for line in lines)}

    def project_side(precision):
        return side_of_project(f"{description}, {precision}",
                               lambda: speed([bench.tests / "beam-bench", "3", threads, precision, *device_arguments], {}))

    def peer_side(name, precision):
        command = [*peer_program("beam"), name, "--precision", precision, "--device", bench.device, "--rounds", "3", "--threads", threads]

        def measure_peer():
            try:
                return speed(command, allocator_settings)
            except subprocess.CalledProcessError as error:
                raise UnavailableError(f"exit status {error.returncode}: {error.stderr.strip().splitlines()[-1:]}") from error

        return side_of_peer(f"{name}, {precision}", measure_peer)

    def rows(results):
        for name, precision, bar in bars:
            peer_metrics = results[f"{name}, {precision}"]
            yield TableRow(f"{description}, {name}, {precision}", "tokens/s", results[f"{description}, {precision}"]["tokens/s"], peer_metrics and peer_metrics["tokens/s"], bar)

    yield Comparison("beam search", [side for precision in ("fp32", "bf16")
                                     for side in [project_side(precision), *(peer_side(name, p) for name, p, _ in bars if p == precision)]], rows)
