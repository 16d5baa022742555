#!/usr/bin/env python3
"""Equality before speed: from the same weights and batches, mh-train and eager PyTorch give the same losses.

    python equality.py --tools build/tools [--updates 200] [--full]

Trains both (fp32, no dropout, mean over scored tokens, Adam) and compares the loss of every update. The weights come from a
checkpoint of mh-train at its start; the batches are worked out here from the documented shuffle. Exit status 1 when two
losses differ by more than --tolerance, 77 when PyTorch is not installed.
"""
import argparse
import itertools
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import safetensors.torch
    import torch
    import torch.nn.functional as F

    import peer
except ImportError as error:
    print(f"PyTorch is not installed: {error}")
    sys.exit(77)

MASK = 0xFFFFFFFF


def philox(counter, key):
    """Philox-4x32-10 (Salmon et al. 2011)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & MASK, a >> 32 ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def stream_key(seed, name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & (2**64 - 1)
    return philox([h & MASK, h >> 32, seed & MASK, seed >> 32], [0x6D756C74, 0x69686561])[:2]


def shuffled(count, seed, epoch):
    """Order of an epoch's blocks: Fisher-Yates on the stream `batches`, bounded by Lemire's multiplication."""
    key = stream_key(seed, "batches")
    words = itertools.chain.from_iterable(philox([b & MASK, b >> 32, 0, epoch], key) for b in itertools.count())

    def below(bound):
        threshold = (2**64 - bound) % bound
        while True:
            low = next(words)
            product = (low | next(words) << 32) * bound
            if product & (2**64 - 1) >= threshold:
                return product >> 64

    order = list(range(count))
    for i in range(count, 1, -1):
        j = below(i)
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def write_text(path, words, tokens, seed=1):
    """Lines of words drawn as natural text is, a few very often; every word at least once."""
    draw = random.Random(seed)
    names = [f"w{i}" for i in range(words)]
    weights = list(itertools.accumulate(1 / (i + 2.7) for i in range(words)))
    text = names + draw.choices(names, cum_weights=weights, k=max(0, tokens - words))
    with open(path, "w", encoding="ascii") as out:
        for i in range(0, len(text), 20):
            out.write(" ".join(text[i:i + 20]) + "\n")


class Folder:
    """A folder to work in, with a shard of random text, `text.mhs`."""

    def __init__(self, tools, path, words, tokens):
        self.tools, self.path = pathlib.Path(tools).resolve(), pathlib.Path(path)
        write_text(self.path / "text", words, tokens)
        self.run("mh-prep", "-q", "vocab", "--type", "word", "-o", "vocab", "text")
        self.run("mh-prep", "-q", "lm", "--vocab", "vocab", "-o", "text.mhs", "text")

    def run(self, *command, **options):
        return subprocess.run([self.tools / command[0], *map(str, command[1:])], cwd=self.path, check=True, **options)

    def tokens(self):
        raw = self.run("mh-prep", "-q", "info", "--format", "json", "text.mhs", capture_output=True).stdout
        size = json.loads(raw)["token_bytes"]
        body = subprocess.run(["zstd", "-dcq", self.path / "text.mhs"], check=True, capture_output=True).stdout
        return torch.frombuffer(bytearray(body), dtype=torch.uint16 if size == 2 else torch.int32).long()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tools", required=True, help="folder of mh-prep and mh-train")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--full", action="store_true", help="the benchmark's model; without it a small one")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="nats per token")
    parser.add_argument("--lr", type=float, default=5e-4, help="learning rate, after a warm-up of --warmup updates")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=100, help="size of the text, in batches")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    words, layers, d, h, f, n, batch = (7996, 4, 256, 8, 1024, 256, 1024) if a.full else (500, 2, 64, 4, 128, 64, 512)
    seed, lr = 5, a.lr
    torch.set_num_threads(a.threads)

    with tempfile.TemporaryDirectory() as name:
        folder = Folder(a.tools, name, words, a.tokens * batch)
        (folder.path / "model.toml").write_text(
            f"[model]\nlayers = {layers}\nwidth = {d}\nffn = {f}\n[attention]\nheads = {h}\n"
            f"[train]\nseed = {seed}\nblock = {n}\nbatch_tokens = {batch}\nlr = {lr}\nlog_every = '1u'\n"
            "validate_every = '0u'\nsave_every = '0u'\n")
        train = ("mh-train", "-q", "--config", "model.toml", "--train", "text.mhs", "--threads", a.threads)
        # One update with a learning rate of 0 leaves a checkpoint of the first weights.
        folder.run(*train, "--out", "start", "--set", "train.length='1u'", "--set", "train.lr=0.0")
        folder.run(*train, "--out", "run", "--set", f"train.length='{a.updates}u'",
             "--set", f"train.warmup='{a.warmup}u'", "--set", "train.warmup_lr=0.0")
        lines = [json.loads(line) for line in (folder.path / "run/log.jsonl").read_text().splitlines()]
        ours = {line["update"]: line["nll"] for line in lines if "nll" in line}

        weights = safetensors.torch.load_file(folder.path / "start/last.safetensors")
        tokens = folder.tokens()
        vocabulary = weights["decoder.embedding.weight"].shape[0]
        model = peer.Decoder(vocabulary, layers, d, h, f, n)
        model.load_project(weights)
        optimizer = peer.optimizer_of(model, lr)
        end_of_line = tokens[-1].item()  # the text ends with a line's end
        inputs = torch.cat([torch.tensor([end_of_line]), tokens])
        blocks, rows = -(-len(tokens) // n), batch // n
        per_epoch = -(-blocks // rows)
        worst, at = 0.0, 0
        for update in range(a.updates):
            epoch, index = divmod(update, per_epoch)
            if index == 0:
                order = shuffled(blocks, seed, epoch)
            x = torch.full((len(order[index * rows:(index + 1) * rows]), n), end_of_line)
            y = torch.full_like(x, -1)
            for i, block in enumerate(order[index * rows:(index + 1) * rows]):
                part = inputs[block * n:block * n + n + 1]
                x[i, :len(part) - 1], y[i, :len(part) - 1] = part[:-1], part[1:]
            logits = model(x)
            loss = F.cross_entropy(logits.view(-1, vocabulary), y.view(-1), ignore_index=-1)
            loss.backward()
            for group in optimizer.param_groups:
                group["lr"] = lr * min(1.0, (update + 1) / max(1, a.warmup))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            difference = abs(loss.item() - ours[update + 1])
            if a.verbose and (update + 1) % 10 == 0:
                print(f"update {update + 1}: loss {loss.item():.6f}, difference {difference:.2e}", file=sys.stderr)
            if math.isnan(difference):  # of no size, and never less than another
                difference = math.inf
            if difference > worst:
                worst, at = difference, update + 1
    verdict = worst <= a.tolerance
    print(f"{a.updates} updates, loss {ours[1]:.4f} to {ours[a.updates]:.4f}: largest difference {worst:.2e} nats at update {at}, "
          f"allowed {a.tolerance:g}: {'pass' if verdict else 'FAIL'}")
    return 0 if verdict else 1


if __name__ == "__main__":
    sys.exit(main())
