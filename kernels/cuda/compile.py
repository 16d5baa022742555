#!/usr/bin/env python3
"""Runs nvcc with -Xptxas=-v, writes its output to a log for resources.py, and prints the lines that are not resource usage.

usage: compile.py LOG COMPILER COMMAND…     COMPILER: name and version of nvcc, written to the first line of LOG
"""
import os
import re
import subprocess
import sys

usage = re.compile(r"ptxas info\s*: (\d+ bytes gmem|Compiling entry function|Function properties|Used \d+|Compile time)"
                   r"|\s+\d+ bytes stack frame")

log, compiler, *command = sys.argv[1:]
# Without CCACHE_DEPEND, ccache compares the preprocessed device code only, so a change of host code (#ifndef __CUDA_ARCH__)
# would return the old object.
environment = dict(os.environ, CCACHE_DEPEND="1")
result = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        text=True, errors="replace", check=False)
output = result.stdout.splitlines(keepends=True)
sys.stdout.writelines(line for line in output if not usage.match(line))
if result.returncode == 0:
    with open(log, "w", encoding="utf-8") as file:
        file.write(f"== {compiler}: {command[-1]}\n")
        file.writelines(output)
sys.exit(1 if result.returncode else 0)
