"""Makes random text, random sentence pairs and their shards for the benchmarks and equality checks. Needs no Python package."""
import itertools
import json
import pathlib
import random
import subprocess


def zipf(vocabulary_size, count, rng):
    """Returns `count` words from a vocabulary of `vocabulary_size` words, with the frequencies of natural text (Zipf's law); each occurs at least once."""
    names = [f"w{i}" for i in range(vocabulary_size)]
    weights = list(itertools.accumulate(1 / (i + 2.7) for i in range(vocabulary_size)))
    return names + rng.choices(names, cum_weights=weights, k=max(0, count - vocabulary_size))


def write_text(path, vocabulary_size, num_tokens, seed=1):
    """Writes `num_tokens` random words from a vocabulary of `vocabulary_size` words, 20 per line."""
    text = zipf(vocabulary_size, num_tokens, random.Random(seed))
    with open(path, "w", encoding="ascii") as out:
        for i in range(0, len(text), 20):
            out.write(" ".join(text[i:i + 20]) + "\n")


def write_pairs(source, target, vocabulary_size, num_pairs, seed=1):
    """Writes `num_pairs` pairs of random lines; their lengths are distributed as in Multi30k with a joint BPE of 8000 entries."""
    rng = random.Random(seed)
    lengths = []
    for _ in range(num_pairs):
        target_length = min(60, max(3, round(rng.lognormvariate(2.61, 0.32))))
        lengths.append((min(70, max(3, round(target_length * rng.lognormvariate(0.02, 0.18)))), target_length))
    for path, side in ((source, 0), (target, 1)):
        text = iter(zipf(vocabulary_size, sum(pair[side] for pair in lengths), rng))
        with open(path, "w", encoding="ascii") as out:
            for pair in lengths:
                out.write(" ".join(itertools.islice(text, pair[side])) + "\n")


class Folder:
    """A working folder in which the tools run."""

    def __init__(self, tools, path):
        self.tools, self.path = pathlib.Path(tools).resolve(), pathlib.Path(path)

    def make_text_shard(self, vocabulary_size, num_tokens):
        """Makes `text.mhs`, a shard of random text."""
        write_text(self.path / "text", vocabulary_size, num_tokens)
        self.run("mh-prep", "-q", "vocab", "--type", "word", "-o", "vocab", "text")
        self.run("mh-prep", "-q", "lm", "--vocab", "vocab", "-o", "text.mhs", "text")

    def make_pair_shard(self, vocabulary_size, num_pairs):
        """Makes `pairs.mhs`, a shard of random pairs with a joint vocabulary, and `pairs`, its token ids as text."""
        write_pairs(self.path / "source", self.path / "target", vocabulary_size, num_pairs)
        self.run("mh-prep", "-q", "vocab", "--type", "word", "-o", "joint", "source", "target")
        self.run("mh-prep", "-q", "translation", "--vocab", "joint", "-o", "pairs.mhs", "source", "target")
        (self.path / "pairs").write_bytes(self.run("mh-prep", "-q", "cat", "--ids", "pairs.mhs", capture_output=True).stdout)

    def run(self, *command, **options):
        return subprocess.run([self.tools / command[0], *map(str, command[1:])], cwd=self.path, check=True, **options)

    def read_losses(self, run):
        """Returns {update: loss without label smoothing, nats per token} from the log of a run."""
        lines = [json.loads(line) for line in (self.path / run / "log.jsonl").read_text().splitlines()]
        return {line["update"]: line["nll"] for line in lines if "nll" in line}
