#!/usr/bin/env python3
"""Kills and stops processes of a training job at random moments and checks that the job ends and loses nothing.

    process_faults.py TOOLS [--kills N] [--stops N] [--validation-stops N] [--processes N] [--seed S]

Each time, a job of several processes trains, and a process drawn at random receives SIGKILL, or SIGSTOP, at a random moment of the job.
The stops of --validation-stops strike a job that validates for most of its time.
Every other process must end with exit status 1 within train.timeout and a margin, and name the process; or, if the signal comes before the
processes are connected, with an error. A resume with the same number of processes must then reach the weights and the log of an undisturbed
job, bit for bit. Every second job divides the optimiser state among the processes (train.shard=optimizer), which does not change the weights.
The last line is `mh-tests: N passed, N failed, 0 skipped`, a test for each signal.
"""
import argparse
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

import scenarios

TIMEOUT_SECONDS = 8  # train.timeout; an operation may take half of it
MARGIN_SECONDS = 60  # for a busy machine
START = f"mh-train -q --threads 1 --config c.toml --set train.timeout={TIMEOUT_SECONDS} --set train.length=200u --set train.checkpoint.every=5u --out run"
SHARDED = " --set train.shard=optimizer"
VALIDATION_START = f"{START} --set data.valid=long.mhs --set train.length=40u --set train.validation.every=10u"
RESUME = "mh-train -q --threads 1 --resume --out run"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Job:
    """The processes of one job, which run `command` in `folder`."""

    def __init__(self, command, folder, size, environment):
        port, self.processes = free_port(), []
        for rank in range(size):
            variables = dict(environment, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            self.processes.append(subprocess.Popen(command.split(), cwd=folder, env=variables, stdin=subprocess.DEVNULL,
                                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"))

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


def find_problems(signal_number, seconds, victim, start_command, after_log, folder, reference, size, environment):
    """Starts a job and sends the signal to the process `victim` after `seconds`, counted from the beginning of the log if `after_log` is set.
    Returns a text for each problem; None if the job had ended."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    job = Job(start_command, folder, size, environment)
    if after_log:
        wait_for_log(job, folder)
    time.sleep(seconds)
    if not job.is_running():
        job.wait(MARGIN_SECONDS)
        return None
    is_connected = (folder / "run/log.jsonl").exists()
    job.processes[victim].send_signal(signal_number)
    signal_time = time.monotonic()
    others = [process for rank, process in enumerate(job.processes) if rank != victim]
    while any(process.poll() is None for process in others) and time.monotonic() - signal_time < TIMEOUT_SECONDS + MARGIN_SECONDS:
        time.sleep(0.05)
    duration = time.monotonic() - signal_time
    job.processes[victim].kill()
    problems = []
    for rank, (status, stderr) in enumerate(job.wait(10)):
        if rank == victim:
            continue
        if status is None:
            problems.append(f"rank {rank} did not end within {duration:.0f} s")
        elif status == 0 and subprocess.run([sys.executable, scenarios.SAME_RUN, reference, folder / "run"], capture_output=True, check=False).returncode == 0:
            return None  # the job was complete
        elif status != 1:
            problems.append(f"rank {rank} ended with {status}: {stderr.strip()}")
        elif is_connected and f"rank {victim}" not in stderr:
            problems.append(f"rank {rank} did not name rank {victim}: {stderr.strip()}")
    command = RESUME if (folder / "run/config.toml").exists() else start_command
    for rank, (status, stderr) in enumerate(Job(command, folder, size, environment).wait(scenarios.TIMEOUT_SECONDS)):
        if status != 0:
            problems.append(f"resume, rank {rank}: exit status {status}: {stderr.strip()}")
    comparison = subprocess.run([sys.executable, scenarios.SAME_RUN, reference, folder / "run"], capture_output=True, text=True, check=False)
    if comparison.returncode != 0:
        problems.append(f"other weights than the undisturbed job: {comparison.stderr.strip().splitlines()[-1]}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--stops", type=int, default=5)
    parser.add_argument("--validation-stops", type=int, default=5)
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
        plans = [("SIGKILL", signal.SIGKILL, args.kills, START, False, "reference"), ("SIGSTOP", signal.SIGSTOP, args.stops, START, False, "reference"),
                 ("SIGSTOP in a validation", signal.SIGSTOP, args.validation_stops, VALIDATION_START, True, "validation-reference")]
        for plan_name, signal_number, count, start, after_log, reference in plans:
            duration = durations[start][after_log]
            rng, num_done, num_survived = random.Random(f"{args.seed} {plan_name}"), 0, 0
            while num_done < count:
                seconds, victim = rng.uniform(0, duration), rng.randrange(args.processes)
                start_command = start + SHARDED * (num_done % 2)
                problems = find_problems(signal_number, seconds, victim, start_command, after_log, folder, folder / reference, args.processes, environment)
                if problems is None:
                    duration *= 0.95  # the job ended before the signal
                    continue
                num_done += 1
                num_survived += not problems
                for problem in problems:
                    print(f"{plan_name} to rank {victim} after {seconds:.3f} s of {start_command}: {problem}", flush=True)
            print(f"{plan_name}: survived {num_survived} of {count} within {duration:.2f} s", flush=True)
            if num_survived < count:
                print(f"failed: {plan_name}")
                num_failed += 1
    print(f"mh-tests: {len(plans) - num_failed} passed, {num_failed} failed, 0 skipped")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
