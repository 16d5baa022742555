"""Equality of the losses of 200 updates in mh-train and PyTorch."""
import subprocess
import sys

from measure import Check, here, print_progress, property_row


def compare_losses(bench, description, *options):
    """Returns the step that compares the losses of 200 updates of a model by equality.py with `options`."""
    def losses():
        print_progress(f"comparing 200 updates of {description} in mh-train and PyTorch")
        process = subprocess.run([sys.executable, here / "equality.py", "--tools", bench.tools, "--threads", str(bench.threads), *options],
                              check=False, capture_output=True, text=True)
        print_progress((process.stdout + process.stderr).strip().splitlines()[-1])
        yield property_row(f"losses of 200 updates of {description} within the error of PyTorch in fp32", process.returncode == 0)

    return Check(losses)


def measure(bench):
    yield compare_losses(bench, "a decoder", "--full")
