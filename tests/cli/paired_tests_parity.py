#!/usr/bin/env python3
"""Compares mh-eval bleu --compare with the paired tests of sacrebleu, on generated text of three systems.

usage: paired_tests_parity.py
Scores must be equal to ten decimals; p-values, means and intervals agree up to the chance of 10,000 draws on both sides.
"""
import json
import math
import pathlib
import random
import subprocess
import sys

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

DRAWS = 10000
DEVIATIONS = 6  # bound on a difference, in standard deviations of the difference of two estimates
SENTENCES = 120


def make_files():
    """Writes a reference and three systems, which replace words at different rates. Returns the lines by the name of the file."""
    rng = random.Random(11)
    reference = [" ".join(f"w{int(40 * rng.random() ** 2)}" for _ in range(rng.randrange(4, 20))) for _ in range(SENTENCES)]

    def system(rate):
        return [" ".join(word if rng.random() > rate else f"w{rng.randrange(40)}" for word in line.split()) for line in reference]

    files = {"reference": reference, "baseline": system(0.4), "similar": system(0.38), "better": system(0.3)}
    for name, lines in files.items():
        pathlib.Path(name).write_text("".join(line + "\n" for line in lines))
    return files


def expect_near(name, found, expected, bound):
    if not abs(found - expected) <= bound:
        sys.exit(f"{name}: expected {expected} from sacrebleu, within {bound}; found {found}")


def check_system(name, row, prefix, score, result):
    """Compares a system's row of mh-eval with the result of each test of sacrebleu. prefix: start of the names of the columns."""
    def column(key):
        return row[f"{prefix}{key}"]
    expect_near(f"{name} score", score, result["bs"].score, 1e-10)
    # The score of a resample is nearly normal, with the standard deviation interval / 1.96. The standard deviations of the mean and of
    # half the distance of the two quantiles follow, for normal scores, from the number of draws.
    interval = result["bs"].ci
    deviation = interval / 1.96
    expect_near(f"{name} mean", column("mean"), result["bs"].mean, DEVIATIONS * deviation * math.sqrt(2 / DRAWS))
    quantile_deviation = math.sqrt(0.025 * 0.975 / DRAWS) / 0.0584 * deviation
    expect_near(f"{name} interval", column("interval"), interval, DEVIATIONS * quantile_deviation)
    for test, key in (("bs", "p_bootstrap"), ("ar", "p_randomisation")):
        expected = result[test].p_value
        if expected is None:
            if column(key) is not None:
                sys.exit(f"{name} {key}: expected null for the baseline; found {column(key)}")
            continue
        variance = max(expected * (1 - expected), 1 / DRAWS)
        expect_near(f"{name} {key}", column(key), expected, DEVIATIONS * math.sqrt(2 * variance / DRAWS))


def main():
    files = make_files()
    systems = ["baseline", "similar", "better"]
    command = ["mh-eval", "bleu", "--format", "json", "--chrf", "--draws", str(DRAWS), systems[0], "reference"]
    for name in systems[1:]:
        command += ["--compare", name]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in process.stdout.splitlines()]
    if [row["system"] for row in rows] != systems:
        sys.exit(f"expected the systems {systems}; found {[row['system'] for row in rows]}")
    results = {}
    for test in ("bs", "ar"):
        metrics = {"BLEU": BLEU(), "chrF2": CHRF()}
        results[test] = PairedTest([(name, files[name]) for name in systems], metrics, [files["reference"]], test, DRAWS)()[1]
    for i, row in enumerate(rows):
        check_system(f"{row['system']} BLEU", row, "", row["score"], {test: results[test]["BLEU"][i] for test in results})
        check_system(f"{row['system']} chrF", row, "chrf_", row["chrf"], {test: results[test]["chrF2"][i] for test in results})
    print(f"{len(rows)} systems agree with sacrebleu; p-values of BLEU: {[row['p_bootstrap'] for row in rows[1:]]}")


if __name__ == "__main__":
    main()
