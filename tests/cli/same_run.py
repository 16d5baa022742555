#!/usr/bin/env python3
"""Checks that two run folders are bit-identical: the tensors of last.safetensors, of best.safetensors and of the files in checkpoints/, the
names of these files, and the log entries.

usage: same_run.py FOLDER FOLDER [FIELD...]     FIELD: further log fields to compare; each must occur in the log
"""
import json
import pathlib
import struct
import sys

FIELDS = {"update", "loss", "nll", "lr", "gradient_norm", "valid_nll"}


def read_tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__")
    return {name: data[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]] for name, v in header.items()}


def read_log(path, fields):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key in fields} for line in lines if "started" not in line]


def checkpoint_names(folder):
    return sorted(f"checkpoints/{path.name}" for path in (folder / "checkpoints").glob("*"))


def require_same_runs(folder_a, folder_b, fields=()):
    """Raises AssertionError with the first difference between two run folders. `fields`: further log fields to compare."""
    names = checkpoint_names(folder_a)
    assert names == checkpoint_names(folder_b), f"expected the same checkpoints; found {names} and {checkpoint_names(folder_b)}"
    for name in ("last.safetensors", "best.safetensors", *names):
        a, b = read_tensors(folder_a / name), read_tensors(folder_b / name)
        assert a.keys() == b.keys(), f"{name}: expected the same tensors in both folders; found in one folder only: {sorted(a.keys() ^ b.keys())}"
        different = [key for key in a if a[key] != b[key]]
        assert not different, f"{name}: {len(different)} tensors differ, first {different[0]}"
    all_fields = FIELDS | set(fields)
    lines = read_log(folder_a / "log.jsonl", all_fields)
    for field in fields:
        assert any(field in line for line in lines), f"expected the field {field} in the log; found no line with it"
    assert lines == read_log(folder_b / "log.jsonl", all_fields), "the logs differ"


if __name__ == "__main__":
    require_same_runs(*map(pathlib.Path, sys.argv[1:3]), sys.argv[3:])
