#!/usr/bin/env python3
"""Compares two texts with a tolerance for numbers with a decimal point.

usage: near.py EXPECTED ACTUAL
Results of a model in fp32 differ between processors, which add the same terms in different orders. So a number in ACTUAL may differ
from the number in EXPECTED by RELATIVE_TOLERANCE of its magnitude or, since a number may be a difference of larger numbers, by
TOLERANCE_OF_LARGEST of the largest number in the line. Integers and words must be equal. Prints each line that differs; exit
status 1 if a line differs.
"""
import re
import sys

import tolerance

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)(?![\w.])")
# The models of the golden files (2 layers of width 16, up to 16 keys) have chains of at most NUM_ROUNDINGS roundings in a forward pass
# (tolerance.pass_roundings) and losses below MAX_LOSS nats. The relative error of a perplexity is the relative error of its loss, times the loss.
# Differences are differences of means over NUM_TOKENS tokens, whose errors are independent.
NUM_ROUNDINGS, MAX_LOSS, NUM_TOKENS = 512, 5, 296
RELATIVE_TOLERANCE = tolerance.chain_bound(NUM_ROUNDINGS, MAX_LOSS)
TOLERANCE_OF_LARGEST = tolerance.chain_bound(NUM_ROUNDINGS / NUM_TOKENS, MAX_LOSS)


def is_near(expected, actual):
    """Returns whether two lines are equal up to the tolerance of their numbers."""
    if NUMBER.sub("#", expected) != NUMBER.sub("#", actual):
        return False
    numbers = [float(text) for text in NUMBER.findall(expected)]
    largest = max(map(abs, numbers), default=0)
    return all(abs(b - a) <= max(RELATIVE_TOLERANCE * abs(a), TOLERANCE_OF_LARGEST * largest) for a, b in zip(numbers, map(float, NUMBER.findall(actual))))


def differing_lines(expected, actual):
    """Returns the lines that differ, in the format of `diff`."""
    lines = []
    for i in range(max(len(expected), len(actual))):
        a, b = (text[i] if i < len(text) else None for text in (expected, actual))
        if a is None or b is None or not is_near(a, b):
            lines += [f"-{a}"] * (a is not None) + [f"+{b}"] * (b is not None)
    return lines


def main():
    # Self-test: the comparison must detect each kind of difference and accept numbers within the tolerance.
    for expected, actual in (("a\t1.0", "a\t1.001"), ("a\t1.0", "b\t1.0"), ("2", "3"), ("1.0\t2.0", "1.0"), ("0.5", "nan"), ("-1.5", "1.5")):
        assert not is_near(expected, actual), (expected, actual)
    assert is_near('{"nll":12.5,"layer":0}', '{"nll":12.500001,"layer":0}') and is_near("90.0\t0.01", "90.0\t0.01005")
    texts = [open(name, encoding="utf-8").read().splitlines() for name in sys.argv[1:3]]
    lines = differing_lines(*texts)
    print("\n".join(lines), end="\n" if lines else "")
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
