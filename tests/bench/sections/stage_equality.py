"""Equality of the log-probabilities of every attention stage and its reference in PyTorch."""
import subprocess
import sys

from measure import Check, here, print_progress, property_row


def measure(bench):
    def log_probabilities():
        print_progress("comparing every stage with PyTorch")
        process = subprocess.run([sys.executable, "-B", here / "stage_equality.py", "--tools", bench.tools, "--threads", str(bench.threads),
                                  "--require-peers"], check=False, capture_output=True, text=True)
        print_progress((process.stdout + process.stderr).strip())
        yield property_row("log-probabilities of every stage within rounding errors of PyTorch's", process.returncode == 0)

    yield Check(log_probabilities)
