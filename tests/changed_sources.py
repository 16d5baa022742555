#!/usr/bin/env python3
"""Lists the C++ sources that a change reaches, one path per line; `./run lint` passes them to clang-tidy.

    changed_sources.py BASE     BASE: the commit to compare the working tree with, such as origin/main

A change reaches a source if the source itself, or a header that it includes directly or through other headers, differs from BASE or
is untracked and not ignored.
"""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("lib", "kernels", "tools", "tests")  # include paths of the build
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments, "-z"], text=True, capture_output=True, check=True).stdout.split("\0")[:-1]


def includers():
    """Returns {header: files that include it directly}, as paths relative to the root of the repository."""
    files = {path.relative_to(ROOT).as_posix(): path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".h")}
    result = collections.defaultdict(set)
    for name, path in files.items():
        for include in INCLUDE.findall(path.read_text(encoding="utf-8")):
            for folder in (path.parent.relative_to(ROOT).as_posix(), *FOLDERS):  # the order in which the compiler searches
                header = f"{folder}/{include}"
                if header in files:
                    result[header].add(name)
                    break
    return result


def reached_files(changed, includers_of):
    """Returns the files in `changed` and all files that include one of them, directly or through other headers."""
    result, pending = set(changed), list(changed)
    while pending:
        new_files = includers_of.get(pending.pop(), set()) - result
        result |= new_files
        pending += new_files
    return result


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    changed = git("diff", "--name-only", "--diff-filter=d", sys.argv[1]) + git("ls-files", "--others", "--exclude-standard")
    sources = sorted(path for path in reached_files(changed, includers()) if path.endswith(".cpp") and path.startswith(("lib/", "kernels/cpu/", "tools/", "tests/")))
    print("\n".join(sources), end="\n" if sources else "")


if __name__ == "__main__":
    main()
