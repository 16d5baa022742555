#!/usr/bin/env python3
"""Runs nvcc with -Xptxas=-v and keeps what ptxas says of each kernel, for resources.py; whatever else nvcc says is shown.

usage: compile.py LOG COMPILER COMMAND…     COMPILER: its name and version, which LOG begins with
"""
import os
import re
import subprocess
import sys

usage = re.compile(r"ptxas info\s*: (\d+ bytes gmem|Compiling entry function|Function properties|Used \d+|Compile time)"
                   r"|\s+\d+ bytes stack frame")

log, compiler, *command = sys.argv[1:]
# Else ccache tells sources apart by what the preprocessor leaves of them for a GPU: a change of what the host alone sees
# (#ifndef __CUDA_ARCH__) would get the object of before.
environment = dict(os.environ, CCACHE_DEPEND="1")
ran = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                     errors="replace", check=False)
said = ran.stdout.splitlines(keepends=True)
sys.stdout.writelines(line for line in said if not usage.match(line))
if ran.returncode == 0:
    with open(log, "w", encoding="utf-8") as file:
        file.write(f"== {compiler}: {command[-1]}\n")
        file.writelines(said)
sys.exit(1 if ran.returncode else 0)
