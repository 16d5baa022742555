"""Ablation scan of all heads in batched forward passes, against a separate evaluation for each head."""
import sys

from measure import RepeatingProgram, TableRow, here, output_of

sys.path.insert(0, str(here.parent / "cli"))
import tolerance


def measure(bench):
    for description, layers, entries, model, attention, train in (
            ("8 layers, vocabulary 8000", 8, 8000, "", "", "batch.sequence_length = 256\n"),
            ("12 layers, vocabulary 200", 12, 200, "", "", "batch.sequence_length = 256\n"),
            ("8 layers, vocabulary 8000, memory 640", 8, 8000, "backbone = 'transformer-xl'\npositions = 'none'\ntransformer-xl.memory = 640\n",
             "score = 'relative'\n", "batch.order = 'streams'\nbatch.sequence_length = 128\n")):
        toml = f"[model]\n{model}layers = {layers}\nwidth = 256\nffn_dim = 1024\n[attention]\nheads = 8\n{attention}[train]\n{train}"
        block, blocks = (128, 2) if model else (256, 8)
        checkpoint = bench.make_checkpoint(description.replace(" ", "-").replace(",", ""), bench.make_shard(entries), toml)
        label, differences = f"scan, {description}", []
        max_keys = block + 640 if model else block

        def scans(rounds):
            *lines, largest_difference = output_of([bench.tests / "scan-bench", checkpoint, bench.make_shard(entries), blocks, rounds,
                                                       bench.threads, block]).splitlines()
            differences.append(float(largest_difference))
            return [{"s": float(line.split()[0]), "one by one s": float(line.split()[1])} for line in lines]

        def rows(results):
            yield TableRow(f"scan of {8 * layers} heads, {description}", "s", results[label]["s"], results[label]["one by one s"], 1.8, lower_is_better=True)
            # scan-bench prints differences relative to the loss, so the bound is for a loss of 1.
            bound = tolerance.mean_nll_bound({"tokens": blocks * block, "nll": 1}, checkpoint, max_keys)
            yield TableRow("scan, losses within rounding errors of separate evaluations", "largest", [max(differences)], bound, 1, lower_is_better=True)

        yield RepeatingProgram(label, scans, rows)
