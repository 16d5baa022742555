#!/usr/bin/env python3
"""Compares updates of several processes with updates of one process, with dropout.

    processes.py TOOLS [--only TEXT] [--updates N]

For every corpus, backbone and procedure: the gradients of update 1 by 2 and 3 processes must equal the gradients by one process up to
GRADIENT_BOUND times the largest entry of all gradients, and the losses of N updates [200] by 2 processes must differ from the losses of one
process by at most FACTOR times the difference between 1 and 2 threads of one process; both without a method and with a mixture of experts.
The methods with discrete draws, of permutations, heads or experts, follow in tables of their own.

Prints tab-separated tables. Differences of gradients are the largest over all entries, relative to the largest entry of the gradient of the same
parameter, for the parameter for which this is largest, and relative to the largest entry of all gradients. Differences of losses are
relative to the loss. The last line is `mh-tests: N passed, N failed, N skipped`; a combination that the tools refuse is skipped.
"""
import argparse
import array
import json
import math
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import archive

GRADIENT_BOUND = 1e-6  # relative to the largest entry of all gradients
ROUNDING_LEVEL = 2.0 ** -20  # relative to all gradients; below are only rounding errors, such as the gradients of key biases, which are 0 in exact arithmetic
FACTOR = 3
DISCRETE_METHODS = ("cross-head", "drop-head", "mae-uniform", "mixture-of-heads")  # compared without a procedure
# Task heads that archive.BACKBONES lacks: configuration, and the shard to train on.
TASKS = {
    "bert-classes": ('[model]\nbackbone = "bert"\nhead = "classes"\nclasses = 2\nsegments = 2\n[train]\nblock = 24\nbatch_tokens = 96\nmicro_tokens = 48\n', "examples.mhs"),
    "bert-span": ('[model]\nbackbone = "bert"\nhead = "span"\nsegments = 2\n[train]\nblock = 96\nbatch_tokens = 576\nmicro_tokens = 192\n', "questions.mhs"),
}
# With β1 = 0 the first moment of AdamW after one update is the gradient of the mean loss.
ONE_UPDATE = ["train.length=1u", "train.optimizer.betas=[0,0.98]", "train.optimizer.clip_norm=0", "train.schedule.warmup=0u", "train.schedule.rule=constant",
              "train.batch.micro_tokens=0"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def shard_name(backbone):
    return TASKS[backbone][1] if backbone in TASKS else archive.shard_of(backbone)


def first_moments(path):
    """Returns {parameter: elements} of the first moments in a training state."""
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    header, moments = json.loads(data[8:8 + header_bytes]), {}
    for name, entry in header.items():
        if name.startswith("optimizer.") and name.endswith(".first"):
            begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
            moments[name[len("optimizer."):-len(".first")]] = array.array("f", data[begin:end])
    return moments


class Trainer:
    def __init__(self, tools, folder):
        self.tools, self.folder, self.shards = tools, folder, folder / "shards"
        archive.make_shards(tools, self.shards)
        archive.BACKBONES.update({name: toml for name, (toml, _) in TASKS.items()})

    def train(self, combination, settings, size=1, threads=1):
        """Trains by `size` processes of `threads` threads. Returns the folder of the run; None if mh-train refuses the combination."""
        backbone, run = combination[0], self.folder / "runs" / "-".join((archive.name_of(combination), str(len(settings)), str(size), str(threads)))
        configuration = run.parent / (run.name + ".configuration")
        if configuration.exists():  # trained for an earlier comparison
            return run if run.exists() else None
        configuration.mkdir(parents=True)
        shard = self.shards / shard_name(backbone)
        arguments = ["-q", "--threads", threads, *archive.write_config(self.tools, configuration, combination), "--train", shard, "--valid", shard]
        arguments += [argument for setting in ["train.dropout_index=position", *settings] for argument in ("--set", setting)]
        command = [str(argument) for argument in [self.tools.folder / "mh-train", *arguments, "--out", run]]
        port, processes = free_port(), []
        for rank in range(size):
            variables = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive")  # waiting threads leave a busy machine to others
            if size > 1:
                variables.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=variables))
        errors = [process.communicate()[1] for process in processes]
        statuses = {process.returncode for process in processes}
        if statuses == {2} and combination[1:] != ("none", "none"):
            return None
        if statuses != {0}:
            raise RuntimeError(f"{' '.join(command)}: exit statuses {statuses}: {' '.join(errors)}")
        return run

    def gradient_differences(self, combination, size):
        """Compares the gradients of update 1 by one and by `size` processes. Returns the parameter with the largest difference relative to its
        largest entry, this difference, and the largest difference relative to the largest entry of all gradients; None if mh-train refuses
        the combination. The first two leave out parameters whose gradients are only rounding errors."""
        runs = [self.train(combination, ONE_UPDATE, n) for n in (1, size)]
        if None in runs:
            return None if runs == [None, None] else ("-", math.inf, math.inf)
        one, several = (first_moments(run / "last.safetensors") for run in runs)
        differences = {name: max(abs(x - y) for x, y in zip(values, several[name], strict=True)) for name, values in one.items()}
        largest = {name: max(map(abs, values)) for name, values in one.items()}
        largest_of_all = max(largest.values())
        ratios = {name: differences[name] / largest[name] for name in one if largest[name] > ROUNDING_LEVEL * largest_of_all}
        name = max(ratios, key=ratios.get)
        return name, ratios[name], max(differences.values()) / largest_of_all

    def loss_differences(self, combination, updates):
        """Returns the largest relative differences of the losses of 2 processes, and of 2 threads, from the losses of one process of one thread."""
        # The batch norm in the gates of MAE's experts takes its statistics from one micro-batch of all processes together, so the runs
        # are equal only if each update has a single micro-batch.
        settings = [f"train.length={updates}u", f"train.schedule.length={updates}u", "train.batch.micro_tokens=0"]
        runs = [self.train(combination, settings, size, threads) for size, threads in ((1, 1), (2, 1), (1, 2))]
        if None in runs:
            return None if runs == [None] * 3 else (math.inf, 0.0)
        one, processes, threads = ([loss for _, loss in sorted(archive.losses_by_update(run).items(), key=lambda item: int(item[0]))] for run in runs)
        return tuple(max(abs(x - y) / x for x, y in zip(one, other, strict=True)) for other in (processes, threads))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", help="folder of the tools")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the combinations whose name BACKBONE+METHOD+PROCEDURE contains TEXT")
    parser.add_argument("--updates", type=int, default=200, metavar="N", help="number of updates whose losses are compared [200]; 0: none")
    arguments = parser.parse_args()
    counts = {"pass": 0, "FAIL": 0, "refused": 0}

    def report(combination, columns, values, is_within):
        """Prints a row of a table. `columns`: further columns that identify the row; `values`: results, None if mh-train refuses the combination."""
        verdict = "refused" if values is None else "pass" if is_within(*values) else "FAIL"
        counts[verdict] += 1
        names = [shard_name(combination[0]).removesuffix(".mhs"), *combination, *map(str, columns)]
        print("\t".join([*names, *(f"{x:.2g}" if isinstance(x, float) else str(x) for x in values or ()), verdict]), flush=True)
        if verdict == "FAIL":
            print("failed: " + " ".join(names), flush=True)

    def print_tables(title, combinations):
        print(f"{title}: gradients of update 1\ncorpus\tbackbone\tmethod\tprocedure\tprocesses\tparameter\tof this parameter\tof all\tverdict")
        for combination in combinations:
            for size in (2, 3):
                report(combination, [size], trainer.gradient_differences(combination, size), lambda _, _of_parameter, of_all: of_all <= GRADIENT_BOUND)
        if not arguments.updates:
            return
        print(f"{title}: losses of {arguments.updates} updates\ncorpus\tbackbone\tmethod\tprocedure\t2 processes\t2 threads\tverdict")
        for combination in combinations:
            report(combination, [], trainer.loss_differences(combination, arguments.updates),
                   lambda processes, threads: processes <= FACTOR * threads)

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(archive.Tools(arguments.tools), pathlib.Path(folder))

        def chosen(methods, procedures):
            combinations = [(backbone, method, procedure) for backbone in archive.BACKBONES for method in methods for procedure in procedures]
            return [combination for combination in combinations if arguments.only in archive.name_of(combination)]

        print_tables("methods without discrete draws", chosen(("none", "mae"), archive.PROCEDURES))
        print_tables("methods with discrete draws", chosen(DISCRETE_METHODS, ("none",)))
    passed, failed, skipped = counts.values()
    print(f"mh-tests: {passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
