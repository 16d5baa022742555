#!/usr/bin/env python3
"""Compares the speed of two versions of the tools, without peers. Each round measures both versions.

Measures the project's sides of the comparisons of bench.py with the programs of two build folders, and prints a tab-separated table:
what, unit, the old version's median, the new version's median, the median of the per-round ratio new/old of the time (or, in rows
in MB, of the memory), the 95% bootstrap interval of that median, and whether the complete interval lies above 1.02. Exit status 1 if the
complete interval of a row lies above 1.02.

    versions.py build-old build --only attention,training --rounds 10
"""
import contextlib
import math
import pathlib
import statistics
import sys
import tempfile

import bench
from measure import Bench, Comparison, UnavailableError, bootstrap_interval, print_progress

LIMIT = 1.02  # ratio new/old up to which the new version does not count as slower


def ratio_of(unit, old, new):
    """Returns the ratio new/old of two times or memory sizes. Rates (a unit per second) are inverted first."""
    if unit.endswith("/s"):
        old, new = new, old
    return new / old if old else 1.0 if new == old else math.inf


def measure_versions(sides, rounds):
    """Measures a side in the old and the new version. Returns {metric: [(old, new) per round]}. The order of the versions alternates
    between rounds, so that neither version always runs second."""
    values = {}
    for i in range(rounds):
        print_progress(f"{sides[0].name}, round {i + 1} of {rounds}")
        metrics = [None, None]
        for version in (0, 1) if i % 2 == 0 else (1, 0):
            metrics[version] = sides[version].measure()
        for metric in metrics[0]:
            values.setdefault(metric, []).append(tuple(version_metrics[metric] for version_metrics in metrics))
    return values


def print_row(name, metric, pairs):
    """Prints a row of the table. Returns whether the complete interval lies above LIMIT."""
    *qualifier, unit = metric.split()
    ratios = [ratio_of(unit, old, new) for old, new in pairs]
    low, high = bootstrap_interval(ratios)
    old, new = (statistics.median(column) for column in zip(*pairs))
    label = f"{name}, {' '.join(qualifier)}" if qualifier else name
    print(f"{label}\t{unit}\t{old:.4g}\t{new:.4g}\t{statistics.median(ratios):.3f}\t{low:.3f}\t{high:.3f}\t{'yes' if low > LIMIT else 'no'}",
          flush=True)
    return low > LIMIT


def compare(modules, benches, rounds):
    """Measures each side of the project once, even if it occurs in several comparisons. Returns whether the interval of a row is above LIMIT."""
    is_above_limit, measured_names = False, set()
    for module in modules:
        for steps in zip(*(module.measure(version_bench) for version_bench in benches), strict=True):
            if not isinstance(steps[0], Comparison):
                continue
            for sides in zip(*([side for side in step.sides if side.is_project] for step in steps), strict=True):
                if sides[0].name in measured_names:
                    continue
                measured_names.add(sides[0].name)
                try:
                    values = measure_versions(sides, rounds)
                except UnavailableError as reason:
                    print_progress(f"{sides[0].name}: {reason}")
                    continue
                for metric, pairs in values.items():
                    is_above_limit |= print_row(sides[0].name, metric, pairs)
    return is_above_limit


def main():
    parser = bench.parser_of(__doc__, 10)
    parser.add_argument("builds", nargs=2, metavar="FOLDER", help="build folder of the old version, then of the new version")
    args = parser.parse_args()
    modules = bench.modules_of(parser, args.only)
    for build in args.builds:
        if not (pathlib.Path(build) / "tools/mh-train").exists():
            parser.error(f"expected a build folder with tools/mh-train; found none in {build}; build that version first")
    print(f"what\tunit\told\tnew\tnew/old\tlower\tupper\tabove {LIMIT:g}", flush=True)
    with contextlib.ExitStack() as stack:
        benches = [Bench(pathlib.Path(build) / "tools", stack.enter_context(tempfile.TemporaryDirectory()), args) for build in args.builds]
        return 1 if compare(modules, benches, args.rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
