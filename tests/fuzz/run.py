#!/usr/bin/env python3
"""Runs the fuzz targets of a sanitizer build, as many at a time as there are cores.

    run.py BUILD [--mutations N]

Makes the corpus in BUILD/corpus first (corpus.py). Prints the last line of each target, or the complete output of a target that fails;
the last line is `mh-tests: N passed, N failed, 0 skipped`, a test for each target.
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus.py"


def run(program, corpus, mutations):
    """Returns the finished process of a target."""
    command = [program, "--mutations", str(mutations), corpus / program.name.removeprefix("fuzz-")]
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--mutations", type=int, default=2000)
    args = parser.parse_args()
    corpus = args.build / "corpus"
    subprocess.run([sys.executable, CORPUS, args.build / "tools/mh-prep", corpus], check=True)
    programs = sorted(path for path in (args.build / "tests/fuzz").glob("fuzz-*") if path.is_file())
    if not programs:
        sys.exit(f"{args.build}/tests/fuzz: expected fuzz targets; found none; build them first")
    num_failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for program, process in zip(programs, pool.map(lambda program: run(program, corpus, args.mutations), programs)):
            if process.returncode == 0:
                print(process.stdout.splitlines()[-1], flush=True)
            else:
                print(process.stdout, end="", flush=True)
                print(f"failed: {program.name} (exit status {process.returncode})", flush=True)
                num_failed += 1
    print(f"mh-tests: {len(programs) - num_failed} passed, {num_failed} failed, 0 skipped")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
