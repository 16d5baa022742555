"""Equality of the losses of 200 updates in mh-train and PyTorch."""
import subprocess
import sys

from measure import Check, here, print_progress, property_row


def measure(bench):
    def losses():
        print_progress("comparing 200 updates of mh-train and PyTorch")
        process = subprocess.run([sys.executable, here / "equality.py", "--tools", bench.tools, "--full", "--threads", str(bench.threads)],
                              check=False, capture_output=True, text=True)
        print_progress((process.stdout + process.stderr).strip().splitlines()[-1])
        yield property_row("losses of 200 updates within the error of PyTorch in fp32", process.returncode == 0)

    yield Check(losses)
