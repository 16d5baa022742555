#!/usr/bin/env python3
"""Checks that files compiled for one SIMD level (cpu/simd.h) define no symbols except their loops,
the member functions of the class templates *Loops.

    level_symbols.py NM OUTPUT ARCHIVE...

The linker keeps only one definition of an inline function. If a file of one level emitted an inline function, all files could
call this definition, whose instructions the processor may lack. Prints the names of all symbols other than loops and fails;
without such symbols writes the number of loops of each archive to OUTPUT.
"""
import re
import subprocess
import sys

loop_symbol = re.compile(r"mh::kernels::\w+Loops<\(mh::kernels::SimdLevel\)\d(, [\w ]+)?>::\w+\(")

nm, output, *archives = sys.argv[1:]
count_lines, unexpected_symbols = [], []
for archive in archives:
    nm_output = subprocess.run([nm, "-C", "--defined-only", "--extern-only", archive], stdout=subprocess.PIPE, text=True, check=True).stdout
    names = [line.split(" ", 2)[2] for line in nm_output.splitlines() if re.match(r"[0-9a-f]+ [A-Za-z] ", line)]
    unexpected_symbols += [f"{archive}: {name}" for name in names if not loop_symbol.match(name)]
    count_lines.append(f"{archive} {len(names)}\n")
    if not names:
        unexpected_symbols.append(f"{archive}: expected loops; found no symbol")
if unexpected_symbols:
    sys.exit("\n".join(["expected only loops in the files of one SIMD level; found", *unexpected_symbols,
                        "make the function a member of the loops, or MH_INLINE"]))
with open(output, "w", encoding="utf-8") as file:
    file.writelines(count_lines)
