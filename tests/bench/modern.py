"""Names of rows, and SmolLM2-135M with its texts, for the sections of the group `modern`."""
import functools
import os
import pathlib
import re
import subprocess

from measure import allocator_settings, here, output_of, print_progress, run


@functools.cache
def processor():
    """Returns the name of the processor, its model number, and its widest instruction set for matrix products."""
    fields = dict(re.findall(r"^(\S[^\t:]*)\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE))
    flags = fields.get("flags", fields.get("Features", "")).split()
    widest = next((flag for flag in ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "bf16") if flag in flags), "no wide products")
    return f"{fields.get('model name', 'unknown processor')}, model {fields.get('model', '?')}, {widest}"


# Name of a library: expressions for the line that it prints for a matrix product, and for its version.
LIBRARIES = {"oneDNN": (r"^onednn_verbose,.*exec,cpu,(?:matmul|inner_product)", r"^onednn_verbose,.*info,oneDNN v([\d.]+)"),
             "MKL": (r"^MKL_VERBOSE \w*GEMM", r"^MKL_VERBOSE .*?(\d{4}\.\d+)")}


def product_libraries(command, environment=None):
    """Runs a command once and returns the libraries that report matrix products of the command, with their versions."""
    lines = output_of(command, {**(environment or {}), "ONEDNN_VERBOSE": "1", "MKL_VERBOSE": "1"})
    names = []
    for name, (product, version) in LIBRARIES.items():
        if re.search(product, lines, re.MULTILINE):
            number = re.search(version, lines, re.MULTILINE)
            names.append(f"{name} {number[1]}" if number else name)
    return " and ".join(names) or "products of its own"


class Libraries:
    """The product libraries of the sides of a section. Each side runs once, when a row is named."""

    def __init__(self):
        self.names = {}

    def row_name(self, description, project_command, peer_command):
        """Returns the description with the processor and the product libraries of the project and of the peer."""
        sides = [(project_command, None), (peer_command, allocator_settings)]
        for command, environment in sides:
            key = tuple(map(str, command))
            if key not in self.names:
                self.names[key] = product_libraries(command, environment)
        project, peer = (self.names[tuple(map(str, command))] for command, _ in sides)
        return f"{description}; {processor()}; {project} against {peer}"


MODEL = "SmolLM2-135M-Instruct, dequantised from 4 bits"  # for names of rows


class SmolLM2:
    """The folder of SmolLM2-135M in the format of transformers, its checkpoint, and shards of text."""

    def __init__(self, bench, folder):
        self.bench, self.folder, self.checkpoint = bench, folder, bench.folder / "smollm2.safetensors"
        if not self.checkpoint.exists():
            run([bench.tools / "mh-convert", "-q", "-o", self.checkpoint, folder])

    def make_shard(self, name, text):
        """Returns the path of a shard of `text`, whole lines in bytes, and the path of its token ids."""
        source, shard, ids = (self.bench.folder / f"smollm2-{name}{end}" for end in ("", ".mhs", ".ids"))
        if not ids.exists():
            source.write_bytes(text)
            run([self.bench.tools / "mh-prep", "-q", "lm", "--vocab", self.folder, "-o", shard, source])
            ids.write_text(output_of([self.bench.tools / "mh-prep", "-q", "cat", "--ids", shard]))
        return shard, ids


def first_lines(bench, num_bytes):
    """Returns the first lines of the training text, together at most `num_bytes` bytes."""
    with open(bench.make_text(), "rb") as text:
        beginning = text.read(num_bytes)
    return beginning[:beginning.rindex(b"\n") + 1]


def smollm2(bench):
    """Returns SmolLM2-135M from the folder MH_SMOLLM2 or, if this variable is unset, from the cache of ./run, where data_scripts/smollm2 makes
    the folder once; None if the model is missing."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "multihead"
    folder = pathlib.Path(os.environ.get("MH_SMOLLM2") or cache / "smollm2-0.1.2")
    if not (folder / "config.json").exists() and not os.environ.get("MH_SMOLLM2"):
        print_progress(f"making {folder}")
        part = cache / f"{folder.name}.part"
        if subprocess.run([here.parents[1] / "data_scripts/smollm2", part], check=False).returncode == 0:
            part.rename(folder)
    if not (folder / "config.json").exists():
        print_progress(f"expected SmolLM2-135M in {folder}; found no config.json; run data_scripts/smollm2 {folder}; skipping the measurements of SmolLM2")
        return None
    return SmolLM2(bench, folder)
