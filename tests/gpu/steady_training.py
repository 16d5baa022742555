#!/usr/bin/env python3
"""Trains a recipe on random text for some minutes and prints the speed of each minute as tab-separated columns.

    configs/recipes/expand mixhead/table1-baevski-mixhead-a > recipe.toml
    tests/gpu/steady_training.py --tools build/tools --minutes 8 recipe.toml --set train.precision=bf16

The text has a vocabulary of --words entries, drawn with word frequencies of natural text (Zipf's law).
Losses are meaningless, but an update costs the same as on a real corpus. The last line extrapolates the hours of the complete
training from the median speed of all minutes except the first. Exit status 1 if one of these speeds differs from the median by
more than 2%.
"""
import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

script_folder = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(script_folder.parent / "bench"))

import corpora  # noqa: E402  (a module of tests/bench)


def minutes_of(entries):
    """Yields (tokens, seconds) of each complete minute of training. `entries`: entries of log.jsonl."""
    tokens, seconds, tokens_before = 0, 0.0, 0
    for entry in entries:
        tokens, seconds, tokens_before = tokens + entry["tokens"] - tokens_before, seconds + entry["seconds"], entry["tokens"]
        if seconds >= 60:
            yield tokens, seconds
            tokens, seconds = 0, 0.0


def report(entries, updates):
    """Prints the speeds of a run and returns the exit status. `entries`: entries of log.jsonl; `updates`: length of the complete training."""
    speeds = [tokens / seconds for tokens, seconds in minutes_of(entries)]
    print("minute\ttokens/s")
    for minute, speed in enumerate(speeds, 1):
        print(f"{minute}\t{speed:.0f}")
    if len(speeds) < 2:
        sys.exit(f"steady_training: expected two complete minutes of training; found {len(speeds)}; increase --minutes")
    steady_speed = statistics.median(speeds[1:])
    spread = max(abs(speed / steady_speed - 1) for speed in speeds[1:])
    hours = updates * entries[-1]["tokens"] / entries[-1]["update"] / steady_speed / 3600
    print(f"steady\t{steady_speed:.0f}\nspread\t{spread:.4f}\nupdates\t{entries[-1]['update']}\nhours of {updates} updates\t{hours:.1f}")
    return 0 if spread <= 0.02 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="configuration file of a language model")
    parser.add_argument("--tools", default=script_folder.parents[1] / "build/tools", type=pathlib.Path, help="folder of the tools [build/tools]")
    parser.add_argument("--minutes", type=float, default=8, help="minutes of training [8]")
    parser.add_argument("--updates", type=int, default=286000, help="length of the complete training in updates, to extrapolate its hours [286000]")
    parser.add_argument("--words", type=int, default=267744, help="vocabulary size in words [267744, as in WikiText-103]")
    parser.add_argument("--tokens", type=int, default=4000000, help="length of the random text in tokens [4000000]")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="device that trains the model [cuda]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="value of a configuration key, as in mh-train --set")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder_name:
        folder = pathlib.Path(folder_name)
        text, vocabulary, shard = folder / "text", folder / "vocabulary", folder / "text.mhs"
        corpora.write_text(text, args.words - 2, args.tokens)
        subprocess.run([args.tools / "mh-prep", "-q", "vocab", "--type", "word", "-o", vocabulary, text], check=True)
        subprocess.run([args.tools / "mh-prep", "-q", "lm", "--vocab", vocabulary, "-o", shard, text], check=True)
        set_options = [word for setting in ("log_every=10u", "validation.every=0u", "checkpoint.every=0u") for word in ("--set", f"train.{setting}")]
        set_options += [word for setting in args.set for word in ("--set", setting)]
        run = folder / "run"
        with subprocess.Popen([args.tools / "mh-train", "-q", "--device", args.device, "--config", args.recipe, "--train", shard, "--out", run, *set_options]) as job:
            try:
                sys.exit(f"steady_training: expected mh-train to run for {args.minutes:g} minutes; found exit status {job.wait(60 * args.minutes)}; see its messages above")
            except subprocess.TimeoutExpired:
                job.send_signal(signal.SIGTERM)
        entries = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return report([entry for entry in entries if "nll" in entry], args.updates)


if __name__ == "__main__":
    sys.exit(main())
