#!/usr/bin/env python3
"""Runs an nvcc command that has -Xptxas=-v. Prints the output of nvcc without the resource usage of the kernels, and, if the
command succeeds, writes the whole output to LOG for resources.py.

usage: compile.py LOG COMPILER COMMAND…
COMPILER: name and version of the compiler, for the first line of LOG. COMMAND: the nvcc command; its last word is the source file.
"""
import os
import re
import subprocess
import sys

usage_line = re.compile(r"ptxas info\s*: (\d+ bytes gmem|Compiling entry function|Function properties|Used \d+|Compile time)"
                   r"|\s+\d+ bytes stack frame")

log, compiler, *command = sys.argv[1:]
# Without CCACHE_DEPEND, ccache compares the preprocessed device code only, so a change of host code (#ifndef __CUDA_ARCH__)
# would return the old object.
environment = dict(os.environ, CCACHE_DEPEND="1")
result = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        text=True, errors="replace", check=False)
output = result.stdout.splitlines(keepends=True)
sys.stdout.writelines(line for line in output if not usage_line.match(line))
if result.returncode == 0:
    with open(log, "w", encoding="utf-8") as file:
        file.write(f"== {compiler}: {command[-1]}\n")
        file.writelines(output)
sys.exit(1 if result.returncode else 0)
