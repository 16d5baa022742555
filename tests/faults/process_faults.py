#!/usr/bin/env python3
"""Kills, stops and disconnects processes of a training job at random moments and checks that the job ends and loses nothing.

    process_faults.py TOOLS [--kills N] [--stops N] [--validation-stops N] [--partitions N] [--processes N] [--seed S]

Each time, a job of several processes trains, and a process drawn at random receives SIGKILL, or SIGSTOP, at a random moment of the job.
The stops of --validation-stops strike a job that validates for most of its time. In a partition, all connections between the process and the
others stay open and transmit nothing from a random moment on; the process is not rank 0, which serves the store of the job.
Every other process must end with exit status 1 within train.timeout and MARGIN_SECONDS, and name the process; or, if the signal comes before
the processes are connected, with an error. The disconnected process must end, too, and name rank 0. The line of each fault states the longest
time from the fault to the end of a process. A resume with the same number of processes must then reach the weights and the log of an undisturbed
job, bit for bit. Every second job divides the optimiser state among the processes (train.shard=optimizer), which does not change the weights.
The last line is `mh-tests: N passed, N failed, 0 skipped`, a test for each fault.
"""
import argparse
import dataclasses
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import partition
import scenarios

TIMEOUT_SECONDS = 8  # train.timeout; an operation may take half of it
# Rank 0 serves the store for 5 s after a failed start, so that the other processes can read the reason. The rest is for a busy machine.
MARGIN_SECONDS = 5 + 5
START = f"mh-train -q --threads 1 --config c.toml --set train.timeout={TIMEOUT_SECONDS} --set train.length=200u --set train.checkpoint.every=5u --out run"
SHARDED = " --set train.shard=optimizer"
VALIDATION_START = f"{START} --set data.valid=long.mhs --set train.length=40u --set train.validation.every=10u"
RESUME = "mh-train -q --threads 1 --resume --out run"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@dataclasses.dataclass
class Fault:
    """A kind of fault. `after_log`: whether the moment is drawn after the processes are connected and have begun the log."""
    name: str
    count: int
    start_command: str = START
    reference: str = "reference"
    signal_number: int = 0  # 0: a partition
    after_log: bool = False

    def is_partition(self):
        return self.signal_number == 0


class Job:
    """The processes of one job, which run `command` in `folder`. `cut_off_rank`: the process that disconnect() disconnects."""

    def __init__(self, command, folder, size, environment, cut_off_rank=None):
        port, self.processes = free_port(), []
        self.partition = None if cut_off_rank is None else partition.Partition(port)
        for rank in range(size):
            own_port = self.partition.port if rank == cut_off_rank else port
            variables = dict(environment, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR=partition.HOST, MASTER_PORT=str(own_port))
            self.processes.append(subprocess.Popen(command.split(), cwd=folder, env=variables, stdin=subprocess.DEVNULL,
                                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"))

    def disturb(self, fault, victim):
        if fault.is_partition():
            self.partition.cut()
        else:
            self.processes[victim].send_signal(fault.signal_number)

    def is_running(self):
        return all(process.poll() is None for process in self.processes)

    def wait(self, timeout):
        """Waits for all processes; returns their exit statuses and messages. Kills processes that do not end in time (status None)."""
        end, results = time.monotonic() + timeout, []
        for process in self.processes:
            try:
                stderr = process.communicate(timeout=max(0.1, end - time.monotonic()))[1]
                results.append((process.returncode, stderr))
            except subprocess.TimeoutExpired:
                process.kill()
                results.append((None, process.communicate()[1]))
        if self.partition is not None:
            self.partition.close()
        return results


def make_long_shard(folder, environment):
    """Writes the shard long.mhs, whose validation takes most of the time of a job."""
    (folder / "long").write_text((folder / "text").read_text(encoding="utf-8") * 50, encoding="utf-8")
    process = scenarios.call("mh-prep lm -q --vocab v long -o long.mhs", folder, environment)
    if process.returncode != 0:
        sys.exit(f"process_faults.py: expected the shard long.mhs; found: {process.stderr}")


def wait_for_log(job, folder):
    """Waits until the processes of the job are connected and have begun the log, or until a process has ended."""
    while job.is_running() and not (folder / "run/log.jsonl").exists():
        time.sleep(0.01)


def run_undisturbed(start_command, reference, folder, size, environment):
    """Runs a job without faults and moves its folder to `reference`. Returns its durations in seconds: of the job, and of the job after the
    beginning of its log."""
    begin, job = time.monotonic(), Job(start_command, folder, size, environment)
    wait_for_log(job, folder)
    log_begin, results = time.monotonic(), job.wait(scenarios.TIMEOUT_SECONDS)
    if any(status != 0 for status, _ in results):
        sys.exit(f"process_faults.py: expected an undisturbed job; found {results}")
    (folder / "run").rename(reference)
    return time.monotonic() - begin, time.monotonic() - log_begin


def find_problems(fault, seconds, victim, start_command, folder, reference, size, environment):
    """Starts a job and disturbs the process `victim` after `seconds`. Returns a text for each problem, and the longest time in seconds from the
    fault to the end of a process; None if the job had ended."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    job = Job(start_command, folder, size, environment, victim if fault.is_partition() else None)
    if fault.after_log:
        wait_for_log(job, folder)
    time.sleep(seconds)
    if not job.is_running():
        job.wait(TIMEOUT_SECONDS + MARGIN_SECONDS)
        return None
    is_connected = (folder / "run/log.jsonl").exists()
    job.disturb(fault, victim)
    fault_time, limit, durations = time.monotonic(), TIMEOUT_SECONDS + MARGIN_SECONDS, {}
    waiting = set(range(size)) if fault.is_partition() else set(range(size)) - {victim}
    while waiting and time.monotonic() - fault_time < limit:
        for rank in [rank for rank in waiting if job.processes[rank].poll() is not None]:
            durations[rank] = time.monotonic() - fault_time
            waiting.remove(rank)
        time.sleep(0.02)
    for rank in waiting | {victim}:
        job.processes[rank].kill()
    problems = [f"rank {rank} did not end within {limit} s" for rank in sorted(waiting)]
    for rank, (status, stderr) in enumerate(job.wait(10)):
        if rank not in durations:
            continue
        named_rank = 0 if rank == victim else victim
        if status == 0 and subprocess.run([sys.executable, scenarios.SAME_RUN, reference, folder / "run"], capture_output=True, check=False).returncode == 0:
            return None  # the job was complete
        if status != 1:
            problems.append(f"rank {rank} ended with {status}: {stderr.strip()}")
        elif is_connected and f"rank {named_rank}" not in stderr:
            problems.append(f"rank {rank} did not name rank {named_rank}: {stderr.strip()}")
    command = RESUME if (folder / "run/config.toml").exists() else start_command
    for rank, (status, stderr) in enumerate(Job(command, folder, size, environment).wait(scenarios.TIMEOUT_SECONDS)):
        if status != 0:
            problems.append(f"resume, rank {rank}: exit status {status}: {stderr.strip()}")
    comparison = subprocess.run([sys.executable, scenarios.SAME_RUN, reference, folder / "run"], capture_output=True, text=True, check=False)
    if comparison.returncode != 0:
        problems.append(f"other weights than the undisturbed job: {comparison.stderr.strip().splitlines()[-1]}")
    return problems, max(durations.values(), default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--validation-stops", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    environment = dict(os.environ, PATH=f"{args.tools.resolve()}:{os.environ['PATH']}", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    num_failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        scenarios.make_inputs(folder, environment, [])
        (folder / "c.toml").write_text(scenarios.CONFIG, encoding="utf-8")
        make_long_shard(folder, environment)
        durations = {start: run_undisturbed(start, folder / name, folder, args.processes, environment)
                     for start, name in ((START, "reference"), (VALIDATION_START, "validation-reference"))}
        faults = [Fault("SIGKILL", args.kills, signal_number=signal.SIGKILL), Fault("SIGSTOP", args.stops, signal_number=signal.SIGSTOP),
                  Fault("SIGSTOP in a validation", args.validation_stops, VALIDATION_START, "validation-reference", signal.SIGSTOP, True),
                  Fault("partition", args.partitions, after_log=True)]
        for fault in faults:
            duration = durations[fault.start_command][fault.after_log]
            rng, num_done, num_survived, max_seconds = random.Random(f"{args.seed} {fault.name}"), 0, 0, 0
            while num_done < fault.count:
                seconds, victim = rng.uniform(0, duration), rng.randrange(1 if fault.is_partition() else 0, args.processes)
                start_command = fault.start_command + SHARDED * (num_done % 2)
                result = find_problems(fault, seconds, victim, start_command, folder, folder / fault.reference, args.processes, environment)
                if result is None:
                    duration *= 0.95  # the job ended before the fault
                    continue
                problems, end_seconds = result
                num_done += 1
                num_survived += not problems
                max_seconds = max(max_seconds, end_seconds)
                for problem in problems:
                    print(f"{fault.name} of rank {victim} after {seconds:.3f} s of {start_command}: {problem}", flush=True)
            print(f"{fault.name}: survived {num_survived} of {fault.count} within {duration:.2f} s; a process ended at most {max_seconds:.1f} s after the "
                  f"fault, of {TIMEOUT_SECONDS} + {MARGIN_SECONDS} s", flush=True)
            if num_survived < fault.count:
                print(f"failed: {fault.name}")
                num_failed += 1
    print(f"mh-tests: {len(faults) - num_failed} passed, {num_failed} failed, 0 skipped")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
