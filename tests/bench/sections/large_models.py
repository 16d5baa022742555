"""Peak memory of importing 1.2 billion parameters, and of scoring and generating with 3.2 billion in bf16; needs 14 GB of disk space."""
import contextlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

import modern
from measure import Check, TableRow, here, output_of, print_progress, run

LENGTH = 512  # of the scored text, tokens
DISK_BYTES = 14e9  # of the larger model: its folder and its checkpoint, both in bf16


@contextlib.contextmanager
def imported_model(bench, size, dtype):
    """Imports a generated model of the size llama_folder.SIZES[size] as `dtype`, and deletes its files in the end. Returns its
    checkpoint, a shard of `LENGTH` tokens, the peak memory of the import, and the size of the largest tensor in the folder, in
    bytes."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as name:
        source, checkpoint, text, shard = (pathlib.Path(name) / file for file in ("huggingface", "model.safetensors", "text", "text.mhs"))
        print_progress(f"writing a model with {size} parameters")
        _, largest = output_of([sys.executable, "-B", here / "llama_folder.py", size, source]).split()
        print_progress(f"importing a model with {size} parameters as {dtype}")
        _, peak = run([bench.tools / "mh-convert", "-q", "--padded-vocabulary", "--dtype", dtype, "--threads", bench.threads, "-o", checkpoint, source])
        # A token is a byte, and the end-of-line token follows the line.
        text.write_text(("the quick brown fox jumps over the lazy dog " * LENGTH)[:LENGTH - 1] + "\n")
        run([bench.tools / "mh-prep", "-q", "lm", "--vocab", source, "-o", shard, text])
        shutil.rmtree(source)
        yield checkpoint, shard, peak, int(largest)


def memory_row(description, peak, bound):
    """Returns the row of the peak memory of a process with its mapped pages. `bound`: in bytes."""
    return TableRow(f"{description}, peak memory with mapped pages, against {bound / 1e6:.0f} MB; {modern.processor()}", "MB", [peak / 1e6], bound / 1e6, 1,
                    lower_is_better=True)


def import_rows(bench):
    for dtype in ("float32", "bfloat16"):
        with imported_model(bench, "1B", dtype) as (_, _, peak, largest):
            yield memory_row(f"import of 1.2 billion parameters in bf16 as {dtype}, bound of 3 times the largest tensor and 200 MB", peak, 3 * largest + 200e6)


def evaluation_rows(bench):
    with imported_model(bench, "3.2B", "bfloat16") as (checkpoint, shard, _, _):
        options = ["-q", "--precision", "bf16", "--threads", bench.threads, checkpoint]
        for description, command in ((f"scoring of {LENGTH} tokens", ["--sequence-length", LENGTH, *options, shard]),
                                     ("generation of 16 tokens", ["generate", "--prompt", "the quick", "--length", 16, *options])):
            print_progress(f"{description} with 3.2B parameters")
            _, peak = run([bench.tools / "mh-eval", *command], stdout=subprocess.DEVNULL)
            yield memory_row(f"{description} with 3.2 billion parameters, bf16", peak, 8e9)


def measure(bench):
    if (free := shutil.disk_usage(bench.folder).free) < DISK_BYTES:
        print_progress(f"expected {DISK_BYTES / 1e9:.0f} GB of disk space in {bench.folder}; found {free / 1e9:.0f}; set TMPDIR; skipping large models")
        return
    yield Check(lambda: import_rows(bench))
    yield Check(lambda: evaluation_rows(bench))
