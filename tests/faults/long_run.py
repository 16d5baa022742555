#!/usr/bin/env python3
"""Trains for an hour with frequent validation, saving and retention, beside a reader of the log, and checks that nothing grows.

    long_run.py TOOLS [--minutes N]

Every ten seconds the test samples the resident memory and the open file descriptors of mh-train. It expects that
  - the largest memory of the last tenth of the run is within 1% of the largest one of the second tenth (the first warms up);
  - no sample after the first tenth has more file descriptors than the first tenth had;
  - the reader, which reads log.jsonl from its start once a second, never sees an invalid line or one that vanishes.
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

CONFIGURATION = scenarios.SMALL.replace('length = "200u"', 'length = "1000000000u"')
INTERVAL = 10  # seconds between samples


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_log(log, seen):
    """Reads the whole lines of the log and checks them against the `seen` bytes; returns the bytes read and what is wrong."""
    data = log.read_bytes() if log.exists() else b""
    whole = data[:data.rfind(b"\n") + 1]
    if not whole.startswith(seen):
        return whole, [f"{log.name}: expected the {len(seen)} bytes read before; found others"]
    try:
        for line in whole[len(seen):].splitlines():
            json.loads(line)
    except ValueError as error:
        return whole, [f"{log.name}: expected JSON; found an invalid line: {error}"]
    return whole, []


def observe(process, log, seconds):
    """Samples the process for `seconds`; returns [(memory in bytes, file descriptors)] and what is wrong with the log."""
    samples, seen, problems = [], b"", []
    begin = time.monotonic()
    while process.poll() is None and time.monotonic() - begin < seconds and not problems:
        time.sleep(1)
        seen, problems = read_log(log, seen)
        if time.monotonic() - begin >= INTERVAL * (len(samples) + 1):
            samples.append((resident_bytes(process.pid), len(os.listdir(f"/proc/{process.pid}/fd"))))
    return samples, problems


def growth(samples):
    """Returns a line on memory and file descriptors, and what is wrong with them."""
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
    a = parser.parse_args()
    environment = dict(os.environ, PATH=f"{a.tools.resolve()}:{os.environ['PATH']}", OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        scenarios.prepare(folder, environment, has_models=False)
        (folder / "c.toml").write_text(CONFIGURATION)
        with (folder / "stderr").open("w") as stderr, \
                subprocess.Popen("mh-train -q --threads 1 --config c.toml --out run".split(), cwd=folder, env=environment,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr) as process:
            samples, problems = observe(process, folder / "run/log.jsonl", 60 * a.minutes)
            if process.poll() is not None:
                problems.append(f"expected a running mh-train; found exit status {process.returncode}: {(folder / 'stderr').read_text()}")
            process.kill()
        updates = (folder / "run/log.jsonl").read_bytes().count(b"\n")
        if len(samples) >= 20:
            line, grown = growth(samples)
            problems += grown
            print(f"{len(samples)} samples, {updates} lines of the log: {line}")
        else:
            problems.append(f"expected at least 20 samples; found {len(samples)}; raise --minutes")
    for problem in problems:
        print(f"failed: long_run: {problem}")
    print(f"mh-tests: {int(not problems)} passed, {int(bool(problems))} failed, 0 skipped")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
