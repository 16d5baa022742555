"""Ablation scan of the 270 heads of SmolLM2-135M, against 271 evaluations by the project and by transformers; measured in part, extrapolated."""
import sys

import modern
from measure import Comparison, TableRow, here, output_of, side_of_peer, side_of_project

sys.path.insert(0, str(here.parent / "cli"))
import tolerance

N, NUM_BLOCKS, NUM_MODELS = 1024, 2, 271
TOKENS_AT_ONCE = 16384  # tokens of a pass of the scan, as in mh-prune
ALL_PASSES = -(-NUM_MODELS // (TOKENS_AT_ONCE // N))
NUM_PASSES, NUM_EVALUATIONS = 3, 3  # of all passes and of NUM_MODELS evaluations; the times of all are extrapolated


def measure(bench):
    smollm2 = modern.smollm2(bench)
    if smollm2 is None:
        return
    libraries, differences = modern.Libraries(), []
    shard, ids = smollm2.make_shard("scanned", modern.first_lines(bench, 16000))
    peer_ids = bench.folder / "smollm2-blocks.ids"
    peer_ids.write_text(" ".join(ids.read_text().split()[:NUM_BLOCKS * N]))
    for precision in ("fp32", "bf16"):
        name = f"scan of the 270 heads of {modern.MODEL}, {NUM_BLOCKS} blocks of {N}, {precision}"
        options = dict(length=N, heads=NUM_EVALUATIONS, precision=precision)

        def command(num_passes, num_evaluations):
            return [bench.tests / "scan-bench", smollm2.checkpoint, shard, NUM_BLOCKS, 1, bench.threads, N, TOKENS_AT_ONCE, precision, num_passes, num_evaluations]

        def scan():
            times, largest_difference = output_of(command(NUM_PASSES, NUM_EVALUATIONS)).splitlines()
            differences.append(float(largest_difference))
            seconds, separate_seconds, *_ = map(float, times.split())
            return {"s": seconds, "one by one s": separate_seconds}

        def scan_peer():
            return {"s": NUM_MODELS * bench.run_peer("causal_lm", "scan", smollm2.folder, peer_ids, **options)["seconds"]}

        def rows(results):
            description = f"{name}, times of {NUM_PASSES} of {ALL_PASSES} passes and of {NUM_EVALUATIONS} of {NUM_MODELS} evaluations extrapolated"
            project_command = command(1, 1)
            times = results[name]
            yield TableRow(libraries.row_name(f"{description}, against evaluations by the project", project_command, project_command), "s",
                           times["s"], times["one by one s"], 1.55, lower_is_better=True)
            if precision == "bf16":
                peer_command = bench.peer_command("causal_lm", "scan", smollm2.folder, peer_ids, **{**options, "heads": 1})
                yield TableRow(libraries.row_name(f"{description}, against evaluations by transformers", project_command, peer_command), "s",
                               times["s"], results["transformers"]["s"], 2, lower_is_better=True)
            else:
                # scan-bench prints differences relative to the loss, so the bound is for a loss of 1.
                bound = tolerance.mean_nll_bound({"tokens": NUM_BLOCKS * N, "nll": 1}, smollm2.checkpoint, N)
                yield TableRow(f"scan of {modern.MODEL}, losses within rounding errors of separate evaluations", "largest", [max(differences)], bound, 1,
                               lower_is_better=True)

        sides = [side_of_project(name, scan)]
        if precision == "bf16":
            sides.append(side_of_peer("transformers", scan_peer))
        yield Comparison(name, sides, rows)
