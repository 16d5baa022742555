"""Measures the speed of a recipe by a run of a few updates on generated text, and estimates the hours of its training.

The measured tokens per second are stored in the cache folder of the user, by configuration, processor and number of cores.
"""
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile

from configurations import fingerprint, text_of
from errors import refuse
from tools import say, write_atomically

UPDATES = 3  # the fastest update counts, since the first update allocates memory and other programs may run
MAX_TOKENS = 1024  # tokens per measured update, unless a sequence is longer


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


def dry_run(row):
    """Returns (values of mh-train --dry-run, values to add to the configuration), or (error message, {})."""
    command = ["mh-train", "--dry-run", "--format", "json", *(word for file in row.configurations for word in ("--config", str(file)))]
    for added in ({}, {"model.vocabulary_rows": vocabulary_rows(row)}):
        process = subprocess.run([*command, *(word for key, value in added.items() for word in ("--set", f"{key}={value}"))], capture_output=True, text=True, check=False)
        if process.returncode == 0:
            return json.loads(process.stdout), added
    return process.stderr.strip(), {}


def updates_of(row, properties):
    """Returns the number of updates, estimated from the tokens of an epoch for a length in epochs, or None."""
    if properties.get("updates"):
        return properties["updates"]
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
        return None, "unmeasured"
    if speed["updates"] is None:
        return None, "unknown number of updates"
    return speed["updates"] * speed["tokens_per_update"] / speed["tokens_per_second"] / 3600, ""


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
    masked = row.data.name in ("bert", "wikipedia")
    pairs = "source_vocabulary" in properties or row.data.name in ("multi30k", "wmt14-en-de")
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
    properties, added = dry_run(row)
    if isinstance(properties, str):
        say(f"{row.name}: unmeasured: {properties}")
        return
    say(f"measures {row.name}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            make_shards(row, folder, properties)
            overrides = folder / "measured.toml"
            tokens = min(properties["tokens_per_update"], MAX_TOKENS)
            batch = "rows = 8\nlong_sequence_length = 0" if row.data.name in ("bert", "wikipedia") else f"tokens = {tokens}"
            changes = (f'[train]\nlength = "{UPDATES}u"\nlog_every = "1u"\n[train.batch]\n{batch}\nmicro_tokens = 0\n[train.schedule]\nwarmup = "0u"\n'
                       '[train.validation]\nevery = "1e"\nmetric = "loss"\n[train.checkpoint]\nevery = "1e"\n')
            overrides.write_text(text_of(map(pathlib.Path.resolve, row.configurations), added) + changes, encoding="utf-8")
            run(["mh-train", "-q", "--config", overrides, "--train", folder / "train.mhs", "--valid", folder / "valid.mhs", "--threads", threads, "--out", folder / "run"])
            lines = [json.loads(line) for line in (folder / "run/log.jsonl").read_text(encoding="utf-8").splitlines()]
        except OSError as error:
            say(f"{row.name}: unmeasured: {error}")
            return
    speeds = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
    cache = read_cache()
    cache[key] = {"row": row.name, "processor": processor(), "tokens_per_second": max(speeds), "tokens_per_update": properties["tokens_per_update"],
                  "updates": updates_of(row, properties)}
    write_atomically(cache_file(), json.dumps(cache, indent=1) + "\n")
