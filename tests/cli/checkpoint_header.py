"""Reads checkpoints, and writes them with other metadata and valid checksums."""
import ctypes
import json
import struct


def xxh64(data):
    """Returns XXH64 with seed 0 in hexadecimal digits, computed by the library that the tools use."""
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH64.restype = ctypes.c_uint64
    return f"{library.XXH64(data, ctypes.c_size_t(len(data)), ctypes.c_uint64(0)):016x}"


def read(path):
    """Returns {name: entry} of the tensors, the metadata, and the data of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        metadata = header.pop("__metadata__", {})
        return header, metadata, file.read()


def encode(tensors, metadata, data):
    """Returns the bytes of a checkpoint with a computed multihead.xxh64."""
    metadata = {key: value for key, value in metadata.items() if key != "multihead.xxh64"}
    shapes = {name: [entry["dtype"], entry["shape"]] for name, entry in tensors.items()}
    checksums = {name: xxh64(data[slice(*entry["data_offsets"])]) for name, entry in tensors.items()}
    text = json.dumps([shapes, metadata], separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    checksums["__metadata__"] = xxh64(text.encode())
    header = json.dumps({"__metadata__": {**metadata, "multihead.xxh64": json.dumps(checksums)}, **tensors}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def write(path, tensors, metadata, data):
    """Writes a checkpoint and computes multihead.xxh64."""
    with open(path, "wb") as file:
        file.write(encode(tensors, metadata, data))
