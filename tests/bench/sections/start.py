"""Start-up time of a tool: mh-prep --version."""
import statistics
import subprocess
import time

from measure import Comparison, Row, project


def measure(bench):
    ours = "start of mh-prep --version"

    def median_start():
        times = []
        for _ in range(20):
            began = time.perf_counter()
            subprocess.run([bench.tools / "mh-prep", "--version"], check=True, stdout=subprocess.DEVNULL)
            times.append(1000 * (time.perf_counter() - began))
        return {"ms": statistics.median(times)}

    yield Comparison(ours, [project(ours, median_start)], lambda results: [Row(f"{ours}, against the bound 20 ms", "ms", results[ours]["ms"], 20.0, 1, less=True)])
