"""Start-up time of a tool: mh-prep --version."""
import statistics
import subprocess
import time

from measure import Comparison, TableRow, side_of_project


def measure(bench):
    project_name = "start of mh-prep --version"

    def median_start():
        times = []
        for _ in range(20):
            start_time = time.perf_counter()
            subprocess.run([bench.tools / "mh-prep", "--version"], check=True, stdout=subprocess.DEVNULL)
            times.append(1000 * (time.perf_counter() - start_time))
        return {"ms": statistics.median(times)}

    yield Comparison(project_name, [side_of_project(project_name, median_start)], lambda results: [
        TableRow(f"{project_name}, against the bound 20 ms", "ms", results[project_name]["ms"], 20.0, 1, lower_is_better=True)])
