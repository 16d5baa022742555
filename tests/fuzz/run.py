#!/usr/bin/env python3
"""Runs the fuzz targets of a sanitizer build, as many at a time as there are cores.

    run.py BUILD [--mutations N]

Makes the corpus in BUILD/corpus first (corpus.py). Prints the last line of each target, or the complete output of a target that fails
or is killed after TIMEOUT; driver.cpp has a shorter limit for each input, and saves the input. The last line is
`mh-tests: N passed, N failed, 0 skipped`, a test for each target.
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

TIMEOUT = 1800  # seconds for each program, far above its duration on a busy machine
CORPUS = pathlib.Path(__file__).resolve().parent / "corpus.py"


def run(program, corpus, mutations):
    """Returns the exit status and the output of a target; the status is None if the target was killed after TIMEOUT."""
    command = [program, "--mutations", str(mutations), corpus / program.name.removeprefix("fuzz-")]
    try:
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=TIMEOUT)
    except subprocess.TimeoutExpired as error:
        return None, (error.stdout or b"").decode(errors="replace")
    return process.returncode, process.stdout.decode(errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--mutations", type=int, default=2000)
    args = parser.parse_args()
    corpus = args.build / "corpus"
    subprocess.run([sys.executable, CORPUS, args.build / "tools/mh-prep", corpus], check=True, timeout=TIMEOUT)
    programs = sorted(path for path in (args.build / "tests/fuzz").glob("fuzz-*") if path.is_file())
    if not programs:
        sys.exit(f"{args.build}/tests/fuzz: expected fuzz targets; found none; build them first")
    num_failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for program, (status, output) in zip(programs, pool.map(lambda program: run(program, corpus, args.mutations), programs)):
            if status == 0:
                print(output.splitlines()[-1], flush=True)
            else:
                print(output, end="", flush=True)
                reason = f"exit status {status}" if status is not None else f"killed after {TIMEOUT} s"
                print(f"failed: {program.name} ({reason})", flush=True)
                num_failed += 1
    print(f"mh-tests: {len(programs) - num_failed} passed, {num_failed} failed, 0 skipped")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
