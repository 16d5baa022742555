#!/usr/bin/env python3
"""Trains for an hour with frequent validation, saving and retention, beside a reader of the log, and checks that nothing grows.

    long_run.py TOOLS [--minutes N]

Every ten seconds the test samples the resident memory and the open file descriptors of mh-train. It expects that
  - the largest memory of the last tenth of the run is at most 1% above the largest memory of the second tenth (the first
    tenth is warm-up);
  - no sample after the first tenth has more file descriptors than the first tenth had;
  - the reader, which reads log.jsonl from its start once a second, never finds an invalid line, and never misses a line that it has
    read before.
The last line is `mh-tests: 1 passed, 0 failed, 0 skipped`.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import scenarios

CONFIGURATION = scenarios.CONFIG.replace('length = "100u"', 'length = "1000000000u"')
INTERVAL_SECONDS = 10  # seconds between samples


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_log(log, earlier_bytes):
    """Reads the complete lines of the log and checks that they begin with `earlier_bytes`, the bytes read before.
    Returns all bytes read and a text for each problem."""
    data = log.read_bytes() if log.exists() else b""
    complete_lines = data[:data.rfind(b"\n") + 1]
    if not complete_lines.startswith(earlier_bytes):
        return complete_lines, [f"{log.name}: expected the {len(earlier_bytes)} bytes read before; found others"]
    try:
        for line in complete_lines[len(earlier_bytes):].splitlines():
            json.loads(line)
    except ValueError as error:
        return complete_lines, [f"{log.name}: expected JSON; found an invalid line: {error}"]
    return complete_lines, []


def sample_process(process, log, seconds):
    """Samples the process for `seconds`; returns [(memory in bytes, number of file descriptors)] and a text for each problem of the log."""
    samples, earlier_bytes, problems = [], b"", []
    start_time = time.monotonic()
    while process.poll() is None and time.monotonic() - start_time < seconds and not problems:
        time.sleep(1)
        earlier_bytes, problems = read_log(log, earlier_bytes)
        if time.monotonic() - start_time >= INTERVAL_SECONDS * (len(samples) + 1):
            samples.append((resident_bytes(process.pid), len(os.listdir(f"/proc/{process.pid}/fd"))))
    return samples, problems


def find_growth(samples):
    """Returns a line with the memory and the file descriptors, and a text for each of the two that grows."""
    tenth = max(1, len(samples) // 10)
    early, late = (max(memory for memory, _ in part) for part in (samples[tenth:2 * tenth], samples[-tenth:]))
    open_early, open_late = (max(descriptors for _, descriptors in part) for part in (samples[:tenth], samples[tenth:]))
    problems = []
    if late > 1.01 * early:
        problems.append(f"expected at most 1.01 times {early} bytes of memory; found {late}")
    if open_late > open_early:
        problems.append(f"expected at most {open_early} file descriptors; found {open_late}")
    return f"memory {early} bytes early, {late} late ({late / early:.4f}); at most {open_early} file descriptors early, {open_late} later", problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=60)
    args = parser.parse_args()
    environment = dict(os.environ, PATH=f"{args.tools.resolve()}:{os.environ['PATH']}", OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        scenarios.make_inputs(folder, environment, [])
        (folder / "c.toml").write_text(CONFIGURATION)
        with (folder / "stderr").open("w") as stderr, \
                subprocess.Popen("mh-train -q --threads 1 --config c.toml --out run".split(), cwd=folder, env=environment,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr) as process:
            samples, problems = sample_process(process, folder / "run/log.jsonl", 60 * args.minutes)
            if process.poll() is not None:
                problems.append(f"expected a running mh-train; found exit status {process.returncode}: {(folder / 'stderr').read_text()}")
            process.kill()
        updates = (folder / "run/log.jsonl").read_bytes().count(b"\n")
        if len(samples) >= 20:
            line, growth_problems = find_growth(samples)
            problems += growth_problems
            print(f"{len(samples)} samples, {updates} lines of the log: {line}")
        else:
            problems.append(f"expected at least 20 samples; found {len(samples)}; raise --minutes")
    for problem in problems:
        print(f"failed: long_run: {problem}")
    print(f"mh-tests: {int(not problems)} passed, {int(bool(problems))} failed, 0 skipped")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
