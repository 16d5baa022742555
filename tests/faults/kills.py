#!/usr/bin/env python3
"""Kills the tools with SIGKILL at random moments and checks that nothing is lost.

    kills.py TOOLS [--kills N] [--seed S] [--only NAME…]

Each command of scenarios.py is killed N times, at moments drawn from the duration of an undisturbed run. Afterwards the output
is the old file or the new one, whole; a training run resumes to the same weights, bit for bit, as the undisturbed one. The last
line is `mh-tests: N passed, N failed, 0 skipped`, a test for each command.
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import scenarios


def kill_after(seconds, workplace):
    """Runs the command and kills it after a while; returns whether it was still running."""
    workplace.reset()
    with subprocess.Popen(workplace.scenario.command.split(), cwd=workplace.folder, env=workplace.environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            process.wait(seconds)
            return False
        except subprocess.TimeoutExpired:
            process.kill()
            return True


def survey(scenario, inputs, folder, environment, a):
    """Tests a command; returns its line of the report and what is wrong."""
    workplace = scenarios.Workplace(scenario, inputs, folder / scenario.name, environment)
    begin = time.monotonic()
    scenarios.call(scenario.command, folder / scenario.name if not scenario.run else workplace.folder, environment)
    duration = time.monotonic() - begin
    draw, kills, problems = random.Random(f"{a.seed} {scenario.name}"), 0, []
    while kills < a.kills:
        seconds = draw.uniform(0, duration)
        if not kill_after(seconds, workplace):
            duration *= 0.95  # the machine is faster now
            continue
        kills += 1
        found = workplace.problems(None, killed=True)
        if found:
            problems.append(f"{scenario.name}: killed after {seconds:.3f} s: " + "; ".join(found))
    shutil.rmtree(workplace.folder)
    return f"{scenario.name}: survived {kills - len(problems)} of {kills} kills within {duration:.2f} s", problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[])
    a = parser.parse_args()
    has_models = (a.tools / "mh-train").exists()
    environment = dict(os.environ, PATH=f"{a.tools.resolve()}:{os.environ['PATH']}", LC_ALL="C.UTF-8", OMP_NUM_THREADS="1")
    chosen = [s for s in (scenarios.SCENARIOS if has_models else scenarios.PREP_ONLY) if not a.only or s.name in a.only]
    failed = 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        folder = pathlib.Path(name)
        (folder / "inputs").mkdir()
        scenarios.prepare(folder / "inputs", environment, has_models)
        for line, problems in pool.map(lambda s: survey(s, folder / "inputs", folder, environment, a), chosen):
            print(line, flush=True)
            for problem in problems:
                print(f"failed: {problem}", flush=True)
            failed += bool(problems)
    print(f"mh-tests: {len(chosen) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
