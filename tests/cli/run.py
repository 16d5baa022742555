#!/usr/bin/env python3
"""Runs the command-line tests: each case is a script of tests/cli/cases, run by bash in a folder of its own.

usage: run.py FOLDER-OF-TOOLS [PREFIX…]     only cases whose name starts with a PREFIX
A case passes with exit status 0 and is skipped with 77; its last line is then the reason. The last line of a case that passes
without some of its peers begins with "without" and names them.
"""
import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
tools = pathlib.Path(sys.argv[1]).resolve()
prefixes = tuple(sys.argv[2:]) or ("",)


def outcome(case):
    """Verdict and output of a case."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}", ROOT=str(here.parent.parent), LC_ALL="C.UTF-8")
        environment.setdefault("OMP_NUM_THREADS", "1")  # as many cases as cores run side by side
        with subprocess.Popen(["bash", "-euo", "pipefail", "-c", f"source '{here}/helpers.sh'; source '{case}'"],
                              cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=600)
                status = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # what it started too
                status, output = 1, "took longer than 10 minutes\n" + process.communicate()[0]
    return {0: "passed", 77: "skipped"}.get(status, "failed"), output


counts = {"passed": 0, "failed": 0, "skipped": 0}
cases = [case for case in sorted((here / "cases").glob("*.sh")) if case.name.startswith(prefixes)]
with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
    for case, (verdict, output) in zip(cases, pool.map(outcome, cases)):
        counts[verdict] += 1
        last = output.strip().splitlines()[-1] if output.strip() else ""
        reason = f" ({last})" if last and (verdict == "skipped" or verdict == "passed" and last.startswith("without ")) else ""
        print(f"{verdict}: cli/{case.stem}{reason}", flush=True)
        if verdict == "failed":
            print(output, flush=True)

print("mh-tests: {passed} passed, {failed} failed, {skipped} skipped".format(**counts))
sys.exit(1 if counts["failed"] else 0)
