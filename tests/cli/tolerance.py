"""Bounds on rounding errors for comparisons of printed results, as in tests/oracle/tolerance.h and tests/fixtures/passes.h."""
import math

import checkpoint_header

FP64, FP32 = 2.0 ** -53, 2.0 ** -24  # unit roundoffs: the largest relative error of one rounding


def chain_bound(num_roundings, magnitude, unit_roundoff=FP32):
    """Returns the bound on the difference of two results of magnitude `magnitude`, each after a chain of at most `num_roundings` roundings.

    The errors of the roundings are independent and uniform up to the unit roundoff, so their standard deviation is
    unit_roundoff / √3 (Higham and Mary 2019). The bound is three standard deviations of the sum of the errors of both results.
    """
    return 3 * math.sqrt(2 * num_roundings / 3) * unit_roundoff * abs(magnitude)


def fused_bound(composed_error, magnitude):
    """Returns the bound on the error of a fused result in fp32: twice the error of the composed result or, if it is larger, twice one
    rounding; plus 8 units in the last place."""
    return 2 * max(composed_error, FP32 * abs(magnitude)) + 16 * FP32 * abs(magnitude)


def print_bound(decimals):
    """Returns half a unit of the last printed decimal."""
    return 0.5 * 10.0 ** -decimals


def mean_bound(values):
    """Returns the bound on the difference of two means of `values`, each computed in fp64 as a sum and a quotient."""
    return chain_bound(len(values), max(map(abs, values)), FP64)


def deviation_bound(values):
    """Returns the bound on the difference of two sample standard deviations √(Σ (x - x̄)² / (n - 1)) of n `values` in fp64.

    A difference from the mean has n + 1 roundings of numbers up to the largest value. The squares, the sum, the quotient and the root
    add n + 3 roundings of the deviation, which is at most √(n / (n - 1)) times the largest difference.
    """
    n = len(values)
    return chain_bound(2 * n + 4, math.sqrt(n / (n - 1)) * max(map(abs, values)), FP64)


def spectrum_curve_bound(values, m, n):
    """Returns the bound on the error of each point of the curve c_k of a matrix (m, n) with the singular values `values`, descending:
    Σ δσ_i / Σ σ_i, with the errors δσ_i of tests/fixtures/spectra.h.

    mh-spectrum computes σ_i² from the Gram matrix, with m + n roundings of numbers up to σ_1², and sets values up to 2^-24 σ_1 to 0. The
    reference has up to 10 sweeps of rotations, with m + n roundings each of numbers up to σ_1.
    """
    gram_error = chain_bound(m + n, values[0] ** 2, FP64)
    cutoff = 2.0 ** -48 * values[0] ** 2 + gram_error
    errors = [math.sqrt(2 * cutoff) if v * v <= 2 * cutoff else gram_error / v for v in values]
    return (sum(errors) + len(values) * chain_bound(10 * (m + n), values[0], FP64)) / sum(values)


def spectrum_mean_bounds(n, num_matrices):
    """Returns two bounds, for the mean of the curves c_k and for the mean of a measure of rank, over `num_matrices` matrices with up to n
    singular values. A bound holds for the difference of two means that are computed in fp64 from the same singular values.

    A point c_k has n roundings of Σ σ_i, n of the sum up to k and one of the quotient; the mean over k adds n + 1. An effective rank
    (at most n) is the exponential of an entropy (at most ln n) of n terms; each term has the roundings of a point, of a logarithm and of
    a product.
    """
    num_roundings = 3 * n + 2 + num_matrices + 1
    return chain_bound(num_roundings, 1, FP64), chain_bound(num_roundings + 3, n * (1 + math.log(n)), FP64)


def compare_parts(name, parts, num_roundings):
    """Checks that two forward passes have equal results, up to rounding, and returns the largest difference. `parts`: (name, numbers of one pass,
    numbers of the other pass, magnitude of the numbers from which they are computed, 0 if they are at least as large, error of the other pass,
    0 if it is unknown) for each result.

    The largest of n independent normal errors is about √(2 ln n) standard deviations, and rarely one more. Layers may increase the errors of
    earlier layers; the error of one pass is at most twice that of the other, so both are at most three such errors apart.
    """
    largest_difference = 0
    for part, actual, expected, magnitude, peer_error in parts:
        assert len(actual) == len(expected) > 0, f"{name}: {part}: expected {len(expected)} numbers; found {len(actual)}"
        bound = max(1, (math.sqrt(2 * math.log(len(expected))) + 1) / 3) * chain_bound(num_roundings, max(magnitude, *map(abs, expected)))
        bound = max(bound, 3 * peer_error)
        difference = max(abs(x - y) for x, y in zip(actual, expected))
        assert difference <= bound, f"{name}: {part}: expected a difference of at most {bound:.1e}; found {difference:.1e}"
        largest_difference = max(largest_difference, difference)
    return largest_difference


def pass_roundings(path, max_keys):
    """Returns an upper bound on the length of a chain of roundings in a forward pass of the model in the checkpoint `path`.

    A product adds as many terms as its matrix has columns, a norm adds up its input for the mean and for the variance, and any other
    vector is added or multiplied once. Queries, keys and values are in parallel. An attention layer adds at most as many terms as the
    key matrix has rows for a logit, and `max_keys` terms each for the softmax and for the head output.
    """
    num_roundings = 0
    for name, entry in checkpoint_header.read(path)[0].items():
        shape = entry["shape"]
        if name.startswith(("optimizer.", "memory.")) or not shape or name.endswith(".value.weight"):
            continue
        if name.endswith(".key.weight"):
            num_roundings += shape[0] + 2 * max_keys
        elif len(shape) > 1:
            num_roundings += shape[-1]
        else:
            num_roundings += 2 * shape[0] if name.endswith("norm.weight") else 1
    return num_roundings


def mean_nll_bound(score, path, max_keys):
    """Returns the bound on the difference of two mean losses of the model in the checkpoint `path`, from forward passes in fp32.

    `score`: a JSON object of mh-eval or mh-prune with `tokens`, the number of scored tokens, and `nll`, one of the two losses. The losses
    of different tokens have independent errors, so the error of the mean is the error of one loss divided by the square root of the number of tokens.
    """
    return chain_bound(pass_roundings(path, max_keys) / score["tokens"], score["nll"])
