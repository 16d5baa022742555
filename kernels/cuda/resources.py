#!/usr/bin/env python3
"""Compares the registers, spills, stack and shared memory of a build's CUDA kernels with a table.

usage: resources.py LOG TABLE [--all] [--write]
  LOG      output of ptxas for all kernels of a build (kernels/cuda/resources.log)
  TABLE    expected values (resources.tsv): a line `# nvcc VERSION`, a header, then a row for each kernel and target
  --all    the build contains every kernel: a row of TABLE without a kernel in LOG is an error
  --write  writes TABLE from LOG; without --all, keeps the rows of the same version of nvcc for kernels that
           LOG lacks
A kernel that spills more bytes than in TABLE is an error with any compiler. The other columns are compared only if LOG and TABLE have
the same version of nvcc. `spills` and `stack` are bytes per thread; `shared` is static shared memory in bytes per block, without the
dynamic shared memory of a launch. For a function that kernels call, ptxas reports neither registers nor shared memory: both are `nan`.
Exit status: 0 no difference, 1 a kernel differs or spills more, 2 wrong usage, 3 LOG or TABLE is damaged.
"""
import pathlib
import re
import subprocess
import sys

columns = ["registers", "spills", "stack", "shared"]
header = "\t".join(["kernel", "target", *columns])
source_line = re.compile(r"== nvcc (\S+): (.+)")
entry_line = re.compile(r"ptxas info\s*: Compiling entry function '(\S+)' for '(\S+)'")
function_line = re.compile(r"ptxas info\s*: Function properties for (\S+)")
frame_line = re.compile(r"\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
registers_line = re.compile(r"ptxas info\s*: Used (\d+) registers")


class DamagedFile(Exception):
    """Raised for a damaged LOG or TABLE. The message states the file, what was expected, what was found and what to do."""


def short_name(name):
    """Returns a demangled function name without namespaces, return type and arguments, such as run<AttentionDelta<Bf16>>."""
    name = re.sub(r"\(anonymous namespace\)::|\bmh::(kernels::)?", "", name).replace("> >", ">>")
    name = re.sub(r"\([\w: ]+\)(?=-?\d)", "", name)  # <(int)64>
    depth, start = 0, 0
    for position, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter == "(":
            return name[start:position]
        if depth == 0 and letter == " ":
            start = position + 1
    return name[start:]


def read_log(path):
    """Reads LOG; returns the version of nvcc and a dict from (kernel, target) to a dict of the columns."""
    version, kernel, target, row, rows = "", "", "", {}, {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if match := source_line.match(line):
            version, kernel, target, row = match[1], "", "", {}
            file = match[2]
        elif match := entry_line.match(line):
            if not version:
                raise DamagedFile(f"{path}: expected a line '== nvcc VERSION: FILE' before the kernels; found {line!r}; build again")
            kernel, target = match.groups()
            row = rows.setdefault((kernel, target, file), {})
        elif (match := function_line.match(line)) and target:
            row = rows.setdefault((match[1], target, file), {})
            if match[1] != kernel:
                row.update(registers="nan", shared="nan")
        elif (match := frame_line.match(line)) and target:
            row.update(stack=match[1], spills=str(int(match[2]) + int(match[3])))
        elif (match := registers_line.match(line)) and kernel:
            shared = re.search(r"(\d+) bytes smem", line)
            rows[kernel, target, file].update(registers=match[1], shared=shared[1] if shared else "0")
    if not rows:
        raise DamagedFile(f"{path}: expected the output of ptxas -v for kernels; found none; build again")
    names = [name for name, _, _ in rows]
    demangled = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    kernels = {}
    for ((name, target, file), row), text in zip(rows.items(), demangled):
        missing = [column for column in columns if column not in row]
        if missing:
            raise DamagedFile(f"{path}: {file}: expected {', '.join(missing)} of {name} for {target}; found none; build again")
        key = short_name(text), target
        if kernels.setdefault(key, row) != row:
            raise DamagedFile(f"{path}: {file}: expected one kernel with the name {key[0]}; found two that differ; rename one")
    return version, kernels


def read_table(path):
    """Reads TABLE; returns the version of nvcc and a dict from (kernel, target) to a dict of the columns."""
    lines = path.read_text(encoding="utf-8").splitlines()
    version = re.fullmatch(r"# nvcc (\S+)", lines[0] if lines else "")
    if not version or lines[1:2] != [header]:
        raise DamagedFile(f"{path}: expected a line `# nvcc VERSION` and the header {header!r}; found {lines[:2]}; run ./run resources --write")
    rows = {}
    for number, line in enumerate(lines[2:], 3):
        key, numbers = tuple(line.split("\t")[:2]), line.split("\t")[2:]
        if len(numbers) != len(columns) or not all(re.fullmatch(r"\d+|nan", text) for text in numbers) or key in rows:
            raise DamagedFile(f"{path}:{number}: expected a unique kernel and target and {len(columns)} numbers; found {line!r}; "
                              "run ./run resources --write")
        rows[key] = dict(zip(columns, numbers))
    return version[1], rows


def natural_sort_key(key):
    """Returns a sort key for a tuple of texts that orders the numbers in them by value: 64 before 128."""
    return [[int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)] for text in key]


def problem_of(expected_row, built_row, table, has_table_compiler):
    """Returns a description of the difference of a kernel, or "". expected_row, built_row: the rows of the kernel in TABLE and LOG, or None."""
    max_spills = int(expected_row["spills"]) if expected_row else 0
    if built_row and int(built_row["spills"]) > max_spills:
        return f"expected {f'at most {max_spills} bytes of' if max_spills else 'no'} spills; found {built_row['spills']} bytes; reduce the number of live values per thread"
    if not has_table_compiler or expected_row == built_row:
        return ""
    advice = "./run resources --write writes the new values to the table"
    if not expected_row or not built_row:
        return f"expected this kernel in {'the build' if expected_row else table}; found none; {advice}"
    differing_columns = [column for column in columns if expected_row[column] != built_row[column]]
    expected_values, built_values = (", ".join(f"{column} {side[column]}" for column in differing_columns) for side in (expected_row, built_row))
    return f"expected {expected_values}; found {built_values}; {advice}"


def main():
    paths = [pathlib.Path(word) for word in sys.argv[1:] if not word.startswith("-")]
    options = {word for word in sys.argv[1:] if word.startswith("-")}
    if len(paths) != 2 or not options <= {"--all", "--write"}:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    log, table = paths
    version, built_rows = read_log(log)
    if "--write" in options:
        old_version, old_rows = read_table(table) if table.exists() and "--all" not in options else (version, {})
        new_rows = {**(old_rows if old_version == version else {}), **built_rows}
        rows = ["\t".join([*key, *(new_rows[key][column] for column in columns)]) for key in sorted(new_rows, key=natural_sort_key)]
        table.write_text("\n".join([f"# nvcc {version}", header, *rows, ""]), encoding="utf-8")
    table_version, table_rows = read_table(table)
    has_table_compiler = version == table_version
    keys = built_rows.keys() | table_rows.keys() if has_table_compiler and "--all" in options else built_rows.keys()
    num_failed = 0
    for key in sorted(keys, key=natural_sort_key):
        problem = problem_of(table_rows.get(key), built_rows.get(key), table.name, has_table_compiler)
        if problem:
            num_failed += 1
            print(f"failed: resources/{key[0]} {key[1]}: {problem}")
    if not has_table_compiler:
        print(f"skipped: resources (except spills: {table.name} has values of nvcc {table_version}, this build uses nvcc {version})")
    print(f"mh-tests: {len(keys) - num_failed} passed, {num_failed} failed, {int(not has_table_compiler)} skipped")
    return int(num_failed > 0)


try:
    sys.exit(main())
except (DamagedFile, OSError, UnicodeDecodeError) as error:
    print(f"resources.py: error: {error}", file=sys.stderr)
    sys.exit(3)
