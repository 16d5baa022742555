#!/usr/bin/env python3
"""Compares the contents of checkpoints with the tables of mh-train from which mh-checkpoint(5) is generated.

usage: checkpoint_page.py FOLDER-OF-TOOLS STATE...
STATE: training states (last.safetensors) that together have every key of a training state. Prints a line for each entry of a
checkpoint that the tables lack, and for each entry of the tables that no checkpoint has; exit status 1 if it prints a line.
"""
import json
import pathlib
import re
import sys

from method_pages import ROOT, table_of


def header_of(path):
    data = pathlib.Path(path).read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])


def differences(label, stored, listed):
    """Returns one line for each name that occurs in only one of the sets `stored` (in checkpoints) and `listed` (in a table)."""
    return [f"{label}: {name} is not in the table" for name in sorted(stored - listed)] + \
           [f"{label}: no checkpoint has {name}" for name in sorted(listed - stored)]


def main():
    tool = pathlib.Path(sys.argv[1]) / "mh-train"
    tables = {table_name: {row["key"] for row in table_of(tool, "--list", table_name)} for table_name in ("metadata", "training")}
    tensors = {row["tensor"] for row in table_of(tool, "--list", "tensors")}
    source_keys = set(re.findall(r'"(multihead\.\w+)"', (ROOT / "lib/io/checkpoint.h").read_text()))
    faults = differences("metadata named in lib/io/checkpoint.h", source_keys, tables["metadata"])
    training = set()
    for path in sys.argv[2:]:
        header = header_of(path)
        metadata = header.pop("__metadata__")
        training |= json.loads(metadata["multihead.training"]).keys()
        faults += [f"{path}: metadata {name} is not in the table" for name in sorted(metadata.keys() - tables["metadata"])]
        for name in header:
            generic_name = re.sub(r"\.bands\.\d+\.", ".bands.b.", re.sub(r"\.layers\.\d+\.", ".layers.i.", name))
            generic_name = re.sub(r"^optimizer\.(.*)\.(first|second)$", r"\1", generic_name)
            name_in_stage = re.sub(r"^\w+\.layers\.i\.(self|cross)(?=\.)", "", generic_name)
            if generic_name not in tensors and name_in_stage not in tensors and not generic_name.startswith("memory."):
                faults.append(f"{path}: the tensor {name} is not in the table")
    faults += differences("training state", training, tables["training"])
    print("\n".join(faults) if faults else f"{len(training)} keys, {len(tensors)} tensors")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
