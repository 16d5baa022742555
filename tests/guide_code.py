#!/usr/bin/env python3
"""Checks that the C++ examples in docs/adding-*.md compile and have the format of the sources.

usage: guide_code.py FLAG...       FLAG: compiler flags for LibTorch and other libraries

An example is a fenced block after a line with the path of its file and a colon. The examples of a page are compiled together, so a source may
include a header of the same page. The examples are not linked and not run.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = re.compile(r"^((?:lib|tests)/\S+\.(?:cpp|h)):\n\n```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def faults_of(page, examples, flags):
    """Returns one text for each example of a page that does not compile or is not formatted. `examples`: pairs (path, code)."""
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shutil.copy(ROOT / ".clang-format", folder)
        for path, code in examples:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(code, encoding="utf-8")
        includes = [flag for top in (folder, ROOT) for name in ("lib", "kernels", "tests") for flag in ("-I", top / name)]
        for path, _ in examples:
            for purpose, command in (("has the format of the sources", ["clang-format", "--dry-run", "-Werror", path]),
                                     ("compiles", ["c++", "-std=c++20", "-fsyntax-only", *includes, *flags, "-x", "c++", path])):
                process = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
                if process.returncode != 0:
                    faults.append(f"{page}: expected code that {purpose} in the example {path}; found:\n{process.stderr}correct the example")
    return faults


def main():
    faults, num_examples = [], 0
    for page in sorted((ROOT / "docs").glob("adding-*.md")):
        examples = EXAMPLE.findall(page.read_text(encoding="utf-8"))
        if not examples:
            faults.append(f"docs/{page.name}: expected an example, a line PATH: and a block of C++ code; found none; correct the page or EXAMPLE")
        faults += faults_of(f"docs/{page.name}", examples, sys.argv[1:])
        num_examples += len(examples)
    print("\n".join(faults), end="\n" if faults else "")
    print(f"{num_examples} examples, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
