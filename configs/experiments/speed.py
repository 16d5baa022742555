"""Measures the speed of a recipe by a run of a few updates on generated text, and estimates the hours of its training.

The measured tokens per second are stored in the cache folder of the user, by configuration, processor and number of cores. A measured update
has at most MAX_TOKENS tokens, unless a sequence is longer, and fewer if they do not fit into the free memory. Small updates have fewer tokens
for each step of the optimiser than the updates of the recipe, so the hours are rather too high than too low.
"""
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile

from configurations import fingerprint, merged, text_of
from errors import refuse
from tools import say, write_atomically

UPDATES = 3  # the fastest update counts, since the first update allocates memory and other programs may run
MAX_TOKENS = 1024  # tokens per measured update, unless a sequence is longer
reasons = {}  # {key of a row: why this call could not measure it}


def cache_file():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "multihead/speeds.json"


def read_cache():
    try:
        return json.loads(cache_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        return refuse(cache_file(), "measured speeds in JSON", "other content", "remove the file, and measure again with --measure")


def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{model}, {os.cpu_count()} cores"


def key_of(row):
    return hashlib.sha256(f"{fingerprint(row.configurations)} {processor()}".encode()).hexdigest()[:16]


def vocabulary_rows(row):
    """Returns the size of the vocabulary that the data set gives a configuration without model.vocabulary_rows."""
    size = re.search(r"--size (\d+)", row.data.vocabulary)
    return int(size.group(1)) if size else 8000 if row.data.name == "multi30k" else 33280


def dry_run(configurations, added):
    """Returns the values of mh-train --dry-run, or an error message."""
    command = ["mh-train", "--dry-run", "--format", "json", *(word for file in configurations for word in ("--config", str(file)))]
    process = subprocess.run([*command, *(word for key, value in added.items() for word in ("--set", f"{key}={value}"))], capture_output=True, text=True, check=False)
    return json.loads(process.stdout) if process.returncode == 0 else process.stderr.strip()


def properties_of(row):
    """Returns (values of mh-train --dry-run, values to add to the configuration), or (error message, {})."""
    for added in ({}, {"model.vocabulary_rows": vocabulary_rows(row)}):
        properties = dry_run(row.configurations, added)
        if isinstance(properties, dict):
            return properties, added
    return properties, {}


def free_memory():
    """Returns the number of bytes that new processes can use without swapping."""
    match = re.search(r"^MemAvailable: *(\d+) kB", pathlib.Path("/proc/meminfo").read_text(encoding="utf-8"), re.MULTILINE)
    return int(match.group(1)) << 10 if match else 0


def is_masked(row):
    return row.data.name in ("bert", "wikipedia")


def has_pairs(row, properties):
    return "source_vocabulary" in properties or row.data.name.startswith(("multi30k", "iwslt14", "wmt14"))


def write_measured(row, file, properties, added):
    """Writes the configuration of the measurement with the largest batch that fits. Returns (its maximum number of tokens, 0), or (0, bytes that the
    smallest batch needs)."""
    largest, sizes, needed = properties["tokens_per_update"], [MAX_TOKENS >> shift for shift in range(6)], 0
    sizes = [min(size, largest) for size in sizes] + [size for size in (2048, 4096, 8192, 16384) if size < largest] + [largest]
    message = ""
    # The shortened run has neither BLEU nor a second phase of pre-training, and mh-train refuses the keys of both in a run without them.
    metric = "" if has_pairs(row, properties) else 'metric = "loss"\n'
    first_lines = "[mlm]\nlong_predictions = 0\n[train]\nbatch.long_sequence_length = 0\nbatch.long_from = \"0u\"\n" if is_masked(row) else "[train]\n"
    for size in dict.fromkeys(sizes):
        batch = f"batch.rows = {max(1, size // 128)}" if is_masked(row) else f"batch.tokens = {size}"
        changes = (f'{first_lines}length = "{UPDATES}u"\nlog_every = "1u"\n{batch}\nbatch.micro_tokens = 0\n'
                   '[train.schedule]\nwarmup = "0u"\nrestart = "0u"\nrestart_warmup = "0u"\n'
                   f'[train.validation]\nevery = "1e"\n{metric}[train.checkpoint]\nevery = "1e"\n')
        file.write_text(text_of(map(pathlib.Path.resolve, row.configurations), added) + changes, encoding="utf-8")
        values = dry_run([file], {})
        if isinstance(values, str):  # such as a batch of fewer tokens than a sequence
            message = message or values
        elif values["memory_bytes"] <= free_memory():
            return size, 0
        else:
            needed = min(needed or values["memory_bytes"], values["memory_bytes"])
    if not needed:
        raise OSError(message)
    return 0, needed


def updates_of(row, properties):
    """Returns the number of updates of `tokens_per_update` tokens, estimated from the tokens of an epoch for a length in epochs, or None. An update
    of rows of train.batch.long_sequence_length tokens counts by its tokens."""
    if properties.get("updates"):
        batch, updates = merged(row.configurations).get("train", {}).get("batch", {}), properties["updates"]
        if batch.get("long_sequence_length") and batch.get("long_from", "0u").endswith("u"):
            num_long = updates - int(batch.get("long_from", "0u")[:-1])
            return updates + num_long * (batch["long_sequence_length"] / batch["sequence_length"] - 1)
        return updates
    length = properties["length"]
    if length.endswith("e") and row.data.tokens:
        return float(length[:-1]) * row.data.tokens / properties["tokens_per_update"]
    return None


def hours(row):
    """Returns (hours, "") of training one seed of a row, or (None, reason)."""
    if row.program == "score":
        return 0.0, ""
    if row.program == "mh-finetune":
        return None, "depends on the initial model"
    speed = read_cache().get(key_of(row))
    if speed is None:
        return None, reasons.get(key_of(row), "unmeasured")
    if speed["updates"] is None:
        return None, "unknown number of updates"
    return speed["updates"] * speed["tokens_per_update"] / speed["tokens_per_second"] / 3600, ""


def note(row):
    """Returns a remark on a measurement with smaller updates than others, or ""."""
    speed = read_cache().get(key_of(row), {}) if row.program == "mh-train" else {}
    tokens = speed.get("measured_tokens", MAX_TOKENS)
    if tokens >= min(MAX_TOKENS, speed.get("tokens_per_update", 0)):
        return ""
    return f"{row.name}: measured with updates of {tokens} tokens, since more did not fit into the free memory, so the hours are too high"


def make_texts(folder, num_words, documents):
    """Writes three texts: `words` has each word once; `train` and `valid` have 1,500 and 20 sentences of words with falling frequencies."""
    generator = random.Random(1)
    def sentence(index):
        words = " ".join(f"w{int(num_words ** generator.random()) - 1}" for _ in range(12))
        return words + ("\n\n" if documents and index % 10 == 9 else "\n")
    texts = {"words": "".join(f"w{index}\n" for index in range(num_words)), "train": "".join(map(sentence, range(1500))), "valid": "".join(map(sentence, range(20)))}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def make_shards(row, folder, properties):
    """Writes train.mhs and valid.mhs, for the kind of task of the row, to the folder."""
    masked = is_masked(row)
    pairs = has_pairs(row, properties)
    # The adaptive softmax needs a vocabulary of its size; other models accept one of a few words.
    make_texts(folder, 60 if masked or pairs else max(60, properties["vocabulary"] - 16), masked)
    vocabulary = folder / "vocabulary"
    kind = ["--type", "wordpiece", "--size", "100"] if masked else []
    if row.data.name == "enwik8":
        kind = ["--type", "byte"]
    run(["mh-prep", "vocab", "-q", *kind, folder / ("train" if masked else "words"), "-o", vocabulary])
    for split in ("train", "valid"):
        text, shard = folder / split, folder / f"{split}.mhs"
        if masked:
            run(["mh-prep", "mlm", "-q", "--vocab", vocabulary, text, "-o", shard])
        elif pairs:
            sides = ["--source-vocab", vocabulary, "--target-vocab", vocabulary] if "source_vocabulary" in properties else ["--vocab", vocabulary]
            run(["mh-prep", "translation", "-q", *sides, text, text, "-o", shard])
        else:
            run(["mh-prep", "lm", "-q", "--vocab", vocabulary, text, "-o", shard])


def run(command):
    process = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise OSError(process.stderr.strip().splitlines()[-1] if process.stderr.strip() else f"exit status {process.returncode}")


def measure(row, threads):
    """Measures a row unless the cache has its speed. A row that cannot run here stays unmeasured, with a message."""
    if row.program != "mh-train":
        return
    cache, key = read_cache(), key_of(row)
    if key in cache:
        return
    properties, added = properties_of(row)
    if isinstance(properties, str):
        say(f"{row.name}: unmeasured: {properties}")
        return
    say(f"measures {row.name}")
    free = free_memory()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            overrides = folder / "measured.toml"
            tokens, needed = write_measured(row, overrides, properties, added)
            if needed:
                reasons[key] = f"does not fit: {needed / 1e9:.1f} GB"
                say(f"{row.name}: unmeasured: expected {needed / 1e9:.1f} GB of free memory for the smallest update; found {free / 1e9:.1f} GB; measure on another machine")
                return
            make_shards(row, folder, properties)
            run(["mh-train", "-q", "--config", overrides, "--train", folder / "train.mhs", "--valid", folder / "valid.mhs", "--threads", threads, "--out", folder / "run"])
            lines = [json.loads(line) for line in (folder / "run/log.jsonl").read_text(encoding="utf-8").splitlines()]
        except OSError as error:
            say(f"{row.name}: unmeasured: {error}")
            return
    speeds = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
    cache = read_cache()
    cache[key] = {"row": row.name, "processor": processor(), "tokens_per_second": max(speeds), "tokens_per_update": properties["tokens_per_update"],
                  "measured_tokens": tokens, "updates": updates_of(row, properties)}
    write_atomically(cache_file(), json.dumps(cache, indent=1) + "\n")
