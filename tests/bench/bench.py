#!/usr/bin/env python3
"""Compares the speed and memory of multihead with other packages (peers). Each round measures the project and the peer in turn.

Prints a tab-separated table: what, unit, the project's median, the peer's median, the median of the per-round ratio (above 1: the
project is better), the 95% bootstrap interval of that median, the bar (the required ratio), and whether the lower end of the interval
reaches the bar. A row whose peer cannot run on this machine (torch.compile without a C compiler) ends in `skip`. Exit status 1 if a
bar is missed.

Training runs use random text and a new process per round; the clock starts after the first updates. The project is timed by the
times at which the lines of its log appear. For speed, a peer runs with glibc settings that keep freed memory (MALLOC_*), which make
the peer faster; the peak memory of its training is measured without these settings, since they increase it.

The sections of SmolLM2-135M read its folder from MH_SMOLLM2; if this variable is unset, data_scripts/smollm2 makes the folder once.

    ./run bench --only attention,start --rounds 3
    bench.py --tools FOLDER --device cuda --only attention
"""
import argparse
import math
import signal
import statistics
import sys
import tempfile

import sections
from measure import Bench, bootstrap_interval
from sections import attention


def print_row(row):
    """Prints a row of the table. Returns whether the row reaches its bar; True for a skipped row."""
    if row.peer is None:
        print(f"{row.name}\t{row.unit}\t-\t-\t-\t-\t-\t{row.bar:g}\tskip", flush=True)
        return True
    is_fixed_bound = not isinstance(row.peer, list)
    peers = [row.peer] * len(row.project) if is_fixed_bound else row.peer
    ratios = [(b / a if a else math.inf) if row.lower_is_better else a / b for a, b in zip(row.project, peers)]
    low, high = bootstrap_interval(ratios)
    print(f"{row.name}\t{row.unit}\t{statistics.median(row.project):.4g}\t{'-' if is_fixed_bound else f'{statistics.median(peers):.4g}'}\t"
          f"{statistics.median(ratios):.3f}\t{low:.3f}\t{high:.3f}\t{row.bar:g}\t{'pass' if low >= row.bar else 'FAIL'}", flush=True)
    return low >= row.bar


class PrintLines(argparse.Action):
    """An option that prints the lines from the function `const` and exits. A closed pipe ends the program silently."""

    def __call__(self, parser, *_):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        print("\n".join(self.const()))
        parser.exit()


def section_lines():
    return [f"{name}\t{description}" for name, description in sections.listing()]


def parser_of(doc, rounds):
    """Returns a parser of the options that bench.py and versions.py share."""
    width = max(len(name) for name, _ in sections.listing())
    descriptions = "".join(f"  {name:<{width}} {description}\n" for name, description in sections.listing())
    parser = argparse.ArgumentParser(description=doc, epilog=f"sections:\n{descriptions}", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"number of rounds of each comparison [{rounds}]")
    parser.add_argument("--threads", type=int, default=2, help="number of threads of each measured program [2]")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"],
                        help="device of the sections that measure training, attention, question answering and beam search; training memory is compared only on the CPU [cpu]")
    parser.add_argument("--only", metavar="A,B", help="sections to run, separated by commas [all]")
    parser.add_argument("--list", nargs=0, action=PrintLines, const=section_lines, help="print the sections, one per line, and exit")
    parser.add_argument("--stages", metavar="A,B", help="attention stages of the section `stages` [all]")
    parser.add_argument("--full", action="store_true", help="measure the memory of mh-prep for 1 GB of text instead of 200 MB, and use the complete dev set of SQuAD")
    return parser


def modules_of(parser, names):
    """Returns the modules of the sections that `names`, the value of --only, lists; ends the program if a name is unknown."""
    try:
        return sections.modules_of(names)
    except ValueError as error:
        return parser.error(f"--only: {error}")


def main():
    parser = parser_of(__doc__, 5)
    parser.add_argument("--list-compiled", nargs=0, action=PrintLines, const=attention.compiled_gpu_arguments,
                        help="print the arguments of each GPU measurement of peers/attention.py that uses torch.compile, and exit")
    parser.add_argument("--tools", required=True, help="folder of the tools; the benchmark programs are in the folder tests beside it")
    args = parser.parse_args()
    modules, all_passed = modules_of(parser, args.only), True
    print("what\tunit\tproject\tpeer\tratio\tlower\tupper\tbar\tverdict", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.tools, folder, args)
        for module in modules:
            for step in module.measure(bench):
                for row in step.measure_rows(args.rounds):
                    all_passed &= print_row(row)
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main())
