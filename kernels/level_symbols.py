#!/usr/bin/env python3
"""Checks that files compiled for one SIMD level (cpu/simd.h) define no symbols except their loops.

    level_symbols.py NM OUTPUT ARCHIVE...

The linker would merge an inline function emitted by such a file with the same function of other files, so that a processor without
the instructions could execute it. Prints the names of such symbols and fails; else writes the number of loops of each archive to
OUTPUT.
"""
import re
import subprocess
import sys

loop_symbol = re.compile(r"mh::kernels::\w+Loops<\(mh::kernels::Level\)\d(, [\w ]+)?>::\w+\(")

nm, output, *archives = sys.argv[1:]
counts, unexpected = [], []
for archive in archives:
    nm_output = subprocess.run([nm, "-C", "--defined-only", "--extern-only", archive], stdout=subprocess.PIPE, text=True, check=True).stdout
    names = [line.split(" ", 2)[2] for line in nm_output.splitlines() if re.match(r"[0-9a-f]+ [A-Za-z] ", line)]
    unexpected += [f"{archive}: {name}" for name in names if not loop_symbol.match(name)]
    counts.append(f"{archive} {len(names)}\n")
    if not names:
        unexpected.append(f"{archive}: expected loops; found no symbol")
if unexpected:
    sys.exit("\n".join(["expected only loops in the files of one SIMD level; found", *unexpected,
                        "make the function a member of the loops, or MH_INLINE"]))
with open(output, "w", encoding="utf-8") as file:
    file.writelines(counts)
