"""Tests the significance of differences between rows: null distribution, p values, and Holm's correction.

Under the null hypothesis the runs of a row and of its baseline have one distribution, so runs of the baseline alone, with different seeds, give
the null distribution of their difference: the mean of num_seeds runs minus the mean of num_seeds other runs, for all choices of the runs.
"""
import itertools
import math
import statistics

TOLERANCE = 1e-9  # relative; means of the same numbers in another order differ by rounding


def null_distribution(scores, num_seeds):
    """Returns the differences of the means of all ordered pairs of disjoint sets of num_seeds scores, in ascending order."""
    indices = range(len(scores))
    differences = []
    for first in itertools.combinations(indices, num_seeds):
        rest = [index for index in indices if index not in first]
        mean = statistics.fmean(scores[index] for index in first)
        differences += [mean - statistics.fmean(scores[index] for index in second) for second in itertools.combinations(rest, num_seeds)]
    return sorted(differences)


def p_value(null, difference):
    """Returns the two-sided p value (k + 1) / (n + 1), where k of the n differences of the null distribution are at least as large as the difference."""
    limit = abs(difference) * (1 - TOLERANCE)
    return (sum(abs(other) >= limit for other in null) + 1) / (len(null) + 1)


def holm(p_values, level):
    """Returns {name: (adjusted p value, threshold of the p value, whether it is rejected)} by Holm's step-down procedure.

    The threshold of a name after the first that is not rejected is that of the first, so a name is rejected if and only if its p value is at
    most its threshold.
    """
    names = sorted(p_values, key=lambda name: p_values[name])
    result, adjusted, threshold, rejected = {}, 0.0, 0.0, True
    for rank, name in enumerate(names):
        remaining = len(names) - rank
        adjusted = max(adjusted, min(1.0, remaining * p_values[name]))
        if rejected:
            threshold = level / remaining
            rejected = p_values[name] <= threshold * (1 + TOLERANCE)
        result[name] = (adjusted, threshold, rejected)
    return result


def band(null, threshold):
    """Returns the largest |difference| whose p value is above the threshold; differences outside the band are rejected. Infinity: no difference is rejected."""
    sizes = sorted(map(abs, null), reverse=True)
    count = math.floor(threshold * (len(null) + 1) * (1 + TOLERANCE)) - 1  # number of differences that may be at least as large
    return math.inf if count < 0 else sizes[count] if count < len(sizes) else 0.0


def slope_weights(positions):
    """Returns the weights of the slope of the least-squares line through values at the positions: slope = sum of weight x value."""
    centre = statistics.fmean(positions)
    total = sum((position - centre) ** 2 for position in positions)
    return [(position - centre) / total for position in positions]
