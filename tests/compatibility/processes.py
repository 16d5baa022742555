#!/usr/bin/env python3
"""Compares updates of several processes with updates of one process, with dropout.

    processes.py TOOLS [--only TEXT] [--updates N]

For every corpus, backbone and procedure: the gradients of update 1 by 2 and 3 processes must equal the gradients by one process up to
GRADIENT_BOUND times the largest entry, and the losses of N updates [200] by 2 processes must differ from the losses of one process by at most
FACTOR times the difference between 1 and 2 threads of one process; both without a method and with a mixture of experts. Prints a tab-separated table of the
differences. The last line is `mh-tests: N passed, N failed, N skipped`; a combination that the tools refuse is skipped.
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
FACTOR = 3
FLOOR = 2.0 ** -20  # relative; smaller differences of losses are a few roundings of a sum
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
        shard = self.shards / (TASKS[backbone][1] if backbone in TASKS else archive.shard_of(backbone))
        arguments = ["-q", "--threads", threads, *archive.write_config(self.tools, configuration, combination), "--train", shard, "--valid", shard]
        arguments += [argument for setting in ["train.dropout_index=position", *settings] for argument in ("--set", setting)]
        command = [str(argument) for argument in [self.tools.folder / "mh-train", *arguments, "--out", run]]
        port, processes = free_port(), []
        for rank in range(size):
            variables = dict(os.environ, OMP_NUM_THREADS=str(threads))
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

    def gradient_difference(self, combination, size):
        """Returns the largest difference of the gradients of update 1 by one and by `size` processes, relative to the largest entry."""
        runs = [self.train(combination, ONE_UPDATE, n) for n in (1, size)]
        if None in runs:
            return None if runs == [None, None] else math.inf
        one, several = (first_moments(run / "last.safetensors") for run in runs)
        largest = max(abs(x) for values in one.values() for x in values)
        return max(abs(x - y) for name, values in one.items() for x, y in zip(values, several[name], strict=True)) / largest

    def loss_differences(self, combination, updates):
        """Returns the largest relative differences of the losses of 2 processes, and of 2 threads, from the losses of one process of one thread."""
        # The batch norm in the gates of MAE's experts takes its statistics from one micro-batch of all processes together, so the runs
        # are equal only if each update has a single micro-batch.
        settings = [f"train.length={updates}u", f"train.schedule.length={updates}u", "train.batch.micro_tokens=0"]
        runs = [self.train(combination, settings, size, threads) for size, threads in ((1, 1), (2, 1), (1, 2))]
        if None in runs:
            return None if runs == [None] * 3 else (math.inf, 0)
        one, processes, threads = ([loss for _, loss in sorted(archive.losses_by_update(run).items(), key=lambda item: int(item[0]))] for run in runs)
        return tuple(max(abs(x - y) / x for x, y in zip(one, other, strict=True)) for other in (processes, threads))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", help="folder of the tools")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the combinations whose name BACKBONE+METHOD+PROCEDURE contains TEXT")
    parser.add_argument("--updates", type=int, default=200, metavar="N", help="number of updates whose losses are compared [200]; 0: none")
    arguments = parser.parse_args()
    passed = failed = skipped = 0

    def report(name, values, is_within):
        nonlocal passed, failed, skipped
        passed, failed, skipped = passed + (is_within is True), failed + (is_within is False), skipped + (is_within is None)
        print("\t".join([name, *(f"{value:.2g}" for value in values), {True: "pass", False: "FAIL", None: "refused"}[is_within]]), flush=True)
        if is_within is False:
            print("failed: " + name, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(archive.Tools(arguments.tools), pathlib.Path(folder))
        combinations = [(backbone, method, procedure) for backbone in archive.BACKBONES for method in ("none", "mae") for procedure in archive.PROCEDURES
                        if arguments.only in archive.name_of((backbone, method, procedure))]
        for combination in combinations:
            for size in (2, 3):
                difference = trainer.gradient_difference(combination, size)
                report(f"{archive.name_of(combination)}: gradients of {size} processes", [] if difference is None else [difference],
                       None if difference is None else difference <= GRADIENT_BOUND)
        for combination in combinations if arguments.updates else []:
            differences = trainer.loss_differences(combination, arguments.updates)
            report(f"{archive.name_of(combination)}: losses of {arguments.updates} updates by 2 processes, by 2 threads", differences or [],
                   None if differences is None else differences[0] <= max(FLOOR, FACTOR * differences[1]))
    print(f"mh-tests: {passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
