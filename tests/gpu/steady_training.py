#!/usr/bin/env python3
"""Trains a recipe on random text for some minutes and prints its speed, minute by minute, as tab-separated columns.

    tests/gpu/steady_training.py --tools build/tools --minutes 8 configs/recipes/mixhead/table1-baevski-mixhead-a.toml --set train.precision=bf16

The text has as many different words as the recipe's vocabulary, drawn with the frequencies of natural text (Zipf's law), so
losses mean nothing; steps cost what they cost on a real corpus. The last line says what the whole training would take
at the speed of the minutes after the first. Exit status 1 if the speed of a later minute differs from their median by more than 2%.
"""
import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "bench"))

import corpora  # noqa: E402  (beside the benchmarks)


def minutes_of(entries):
    """Yields (tokens, seconds) of each whole minute of training, from lines of log.jsonl."""
    tokens, seconds, before = 0, 0.0, 0
    for entry in entries:
        tokens, seconds, before = tokens + entry["tokens"] - before, seconds + entry["seconds"], entry["tokens"]
        if seconds >= 60:
            yield tokens, seconds
            tokens, seconds = 0, 0.0


def report(entries, updates):
    """Prints the speeds of a training from the lines of its log; returns the exit status. `updates`: of the whole training."""
    speeds = [tokens / seconds for tokens, seconds in minutes_of(entries)]
    print("minute\ttokens/s")
    for minute, speed in enumerate(speeds, 1):
        print(f"{minute}\t{speed:.0f}")
    if len(speeds) < 2:
        sys.exit(f"steady_training: expected two whole minutes of training; found {len(speeds)}; give more --minutes")
    steady = statistics.median(speeds[1:])
    spread = max(abs(speed / steady - 1) for speed in speeds[1:])
    hours = updates * entries[-1]["tokens"] / entries[-1]["update"] / steady / 3600
    print(f"steady\t{steady:.0f}\nspread\t{spread:.4f}\nupdates\t{entries[-1]['update']}\nhours of {updates} updates\t{hours:.1f}")
    return 0 if spread <= 0.02 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="a configuration of a language model")
    parser.add_argument("--tools", default=here.parents[1] / "build/tools", type=pathlib.Path, help="folder of the tools [build/tools]")
    parser.add_argument("--minutes", type=float, default=8, help="minutes of training [8]")
    parser.add_argument("--updates", type=int, default=286000, help="updates of the whole training [286000, the recipe's above]")
    parser.add_argument("--words", type=int, default=267744, help="entries of the vocabulary [267744, WikiText-103's]")
    parser.add_argument("--tokens", type=int, default=4000000, help="tokens of the text [4000000]")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="device of the training [cuda]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the configuration, as for mh-train")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text, vocabulary, shard = folder / "text", folder / "vocabulary", folder / "text.mhs"
        corpora.write_text(text, a.words - 2, a.tokens)
        subprocess.run([a.tools / "mh-prep", "-q", "vocab", "--type", "word", "-o", vocabulary, text], check=True)
        subprocess.run([a.tools / "mh-prep", "-q", "lm", "--vocab", vocabulary, "-o", shard, text], check=True)
        sets = [word for item in ("log_every=10u", "validation.every=0u", "checkpoint.every=0u") for word in ("--set", f"train.{item}")]
        sets += [word for item in a.set for word in ("--set", item)]
        run = folder / "run"
        with subprocess.Popen([a.tools / "mh-train", "-q", "--device", a.device, "--config", a.recipe, "--train", shard, "--out", run, *sets]) as job:
            try:
                sys.exit(f"steady_training: mh-train ended within {a.minutes:g} minutes, exit status {job.wait(60 * a.minutes)}")
            except subprocess.TimeoutExpired:
                job.send_signal(signal.SIGTERM)
        entries = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return report([entry for entry in entries if "nll" in entry], a.updates)


if __name__ == "__main__":
    sys.exit(main())
