"""Equality of the log-probabilities of every attention stage and its reference in PyTorch."""
import subprocess
import sys

from measure import Check, all_or_none, here, talk


def measure(bench):
    def log_probabilities():
        talk("comparing every stage with PyTorch")
        done = subprocess.run([sys.executable, "-B", here / "stage_equality.py", "--tools", bench.tools, "--threads", str(bench.threads)],
                              check=False, capture_output=True, text=True)
        talk((done.stdout + done.stderr).strip())
        yield all_or_none("log-probabilities of every stage within 1e-4 nats of PyTorch's", done.returncode == 0)

    yield Check(log_probabilities)
