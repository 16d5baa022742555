#!/usr/bin/env python3
"""Checks that each folder of lib includes only headers of itself and of lower folders in the table of docs/architecture.md.

    layering.py             checks every include in lib, kernels and tools, and the list of sources of libmultihead-core; tests both
                            checks on broken examples
    layering.py --compile FLAG...
                            also compiles the headers of each folder with only this folder and lower ones on the include path;
                            FLAG: compiler flags for LibTorch and other libraries

Folders marked "no tensors" must not include LibTorch. The sources of such folders in lib, and no others, form
libmultihead-core.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TENSORS = re.compile(r"(ATen|c10|torch)/")
CORE_FILES = re.compile(r"\bcore_sources\s*\+?=\s*files\(([^)]*)\)")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def folders_of(text):
    """Returns (name, may_use_tensors) of each folder in the table of the page `text`, from the highest folder to the lowest."""
    rows = re.findall(r"^\| `(lib|kernels|tools)(?:/(\w+))?/` \| (tensors|no tensors) \|", text, re.MULTILINE)
    return [(name or top, tensors == "tensors") for top, name, tensors in rows]


def faults_of(sources, folders):
    """Returns one error line for each forbidden include. `sources`: tuples (path, folder, text)."""
    level = {name: -i for i, (name, _) in enumerate(folders)}
    tensors = dict(folders)
    faults = []
    for path, folder, text in sources:
        if folder not in level:
            faults.append(f"{path}: expected a folder in the table of docs/architecture.md; found {folder}; add it to the table")
            continue
        for quoted, angled in INCLUDE.findall(text):
            if angled:
                if TENSORS.match(angled) and not tensors[folder]:
                    faults.append(f"{path}: expected no tensor library in {folder}; found <{angled}>")
                continue
            included_folder = quoted.split("/")[0] if "/" in quoted else folder
            if (ROOT / "tools" / quoted).exists():  # a header that several tools share
                included_folder = "tools"
            if included_folder in ("cpu", "cuda") or (ROOT / "kernels" / quoted).exists():
                included_folder = "kernels"
            if level.get(included_folder, 1) > level[folder]:
                faults.append(f'{path}: expected a header of {folder} or of a lower folder; found "{quoted}"')
    return faults


def all_sources():
    """Yields (path, folder, text) of each source and header of lib, kernels and tools; `folder` is a folder of the table."""
    for top in ("lib", "kernels", "tools"):
        for path in sorted((ROOT / top).rglob("*")):
            parts = path.relative_to(ROOT).parts
            if path.suffix in (".cpp", ".h", ".cu", ".in") and parts[1] != "pch":  # the folders of precompiled headers are not in the table
                yield path.relative_to(ROOT), parts[1] if top == "lib" else top, path.read_text(encoding="utf-8")


def listed_core_sources():
    """Returns the paths, relative to lib, of the sources that the files meson.build of lib add to core_sources."""
    paths = set()
    for build in (ROOT / "lib").rglob("meson.build"):
        for names in CORE_FILES.findall(re.sub("#.*", "", build.read_text(encoding="utf-8"))):
            paths |= {(build.parent / name).resolve().relative_to(ROOT / "lib").as_posix() for name in re.findall("'([^']+)'", names)}
    return paths


def core_faults(listed_sources, sources, folders):
    """Returns one error line for each source of a folder marked "no tensors" that is not listed for libmultihead-core, and for each listed
    source of another folder. `listed_sources`, `sources`: sets of paths relative to lib, of the sources in core_sources and of all sources of lib."""
    core_folders = {name for name, tensors in folders if not tensors}
    expected = {path for path in sources if path.split("/")[0] in core_folders}
    return ([f'lib/{path}: expected an entry in core_sources of meson.build, since docs/architecture.md marks the folder "no tensors"; '
             "found none" for path in sorted(expected - listed_sources)] +
            [f"lib/{path}: expected only sources of the folders that docs/architecture.md marks \"no tensors\" in core_sources of meson.build; "
             "found this source; list it in torch_sources, or move it" for path in sorted(listed_sources - expected)])


def compile_folders(folders, flags):
    """Compiles all headers of each folder of lib as one unit, with only this folder and lower ones on the include path."""
    faults = []
    for i, (name, _) in enumerate(folders):
        if not (ROOT / "lib" / name).is_dir():
            continue
        with tempfile.TemporaryDirectory() as include_folder:
            include_folder = pathlib.Path(include_folder)
            for lower, _ in folders[i:]:
                if (ROOT / "lib" / lower).is_dir():
                    (include_folder / lower).symlink_to(ROOT / "lib" / lower)
            headers = sorted(path.relative_to(ROOT / "lib") for path in (ROOT / "lib" / name).rglob("*.h"))
            unit = "".join(f'#include "{header}"\n' for header in headers)
            process = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", "-I", include_folder, "-I", ROOT / "kernels", *flags, "-x", "c++", "-"],
                                  input=unit, text=True, capture_output=True, check=False)
            if process.returncode != 0:
                faults.append(f"lib/{name}: expected headers that compile with only this folder and lower ones on the include path; found:\n{process.stderr}")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", nargs=argparse.REMAINDER, metavar="FLAG")
    arguments = parser.parse_args()
    folders = folders_of((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    faults = faults_of(all_sources(), folders)
    lowest, highest = folders[-2][0], folders[1][0]
    broken_examples = [("lib/x.h", lowest, f'#include "{highest}/x.h"\n'), ("lib/y.h", lowest, "#include <ATen/ATen.h>\n"), ("lib/z.h", "none", "")]
    for example in broken_examples:
        if len(faults_of([example], folders)) != 1:
            faults.append(f"layering.py: expected a fault in {example}; found none")
    listed_sources = listed_core_sources()
    sources = {path.relative_to(ROOT / "lib").as_posix() for path in (ROOT / "lib").rglob("*.cpp")}
    faults += core_faults(listed_sources, sources, folders)
    for example in [({f"{highest}/x.cpp"}, {f"{highest}/x.cpp"}), (set(), {f"{lowest}/y.cpp"})]:
        if len(core_faults(*example, folders)) != 1:
            faults.append(f"layering.py: expected a fault in the sources of libmultihead-core {example}; found none")
    if arguments.compile is not None:
        faults += compile_folders(folders, arguments.compile)
    print("\n".join(faults), end="\n" if faults else "")
    print(f"{len(folders)} folders, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
