"""Means, sample standard deviations, and paired differences with their intervals."""
import math
import statistics

# 0.975 quantiles of Student's t distribution for 1, 2, ... degrees of freedom.
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
               2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


def t_quantile(degrees):
    if degrees <= len(T_QUANTILES):
        return T_QUANTILES[degrees - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)  # Cornish-Fisher


def mean(values):
    return statistics.mean(values) if values else None


def deviation(values):
    return statistics.stdev(values) if len(values) > 1 else None


def difference(values, baseline_values):
    """Returns (mean, lower end, upper end, signs) of the differences seed by seed, with the 95% interval of Student's t, which one seed does
    not have. The arguments: {seed: value}."""
    seeds = [seed for seed in values if seed in baseline_values]
    differences = [values[seed] - baseline_values[seed] for seed in seeds]
    if not differences:
        return None, None, None, ""
    centre = statistics.mean(differences)
    signs = " ".join("+" if d > 0 else "-" if d < 0 else "0" for d in differences)
    if len(differences) < 2:
        return centre, None, None, signs
    half = t_quantile(len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    return centre, centre - half, centre + half, signs
