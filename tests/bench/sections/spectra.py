"""Singular values of 16 attention matrices, against numpy and torch."""
from measure import Comparison, TableRow, output_of, peer_program, side_of_peer, side_of_project


def measure(bench):
    count, n = 16, 512
    matrices, values = bench.folder / "matrices", bench.folder / "values"
    program = peer_program("spectrum")
    output_of([*program, "make", matrices, count, n])
    project_name = f"singular values of 512 x 512, batch of {count}"

    def milliseconds(*command):
        return {"ms": float(output_of(command))}

    def rows(results):
        for name in ("numpy", "torch"):
            yield TableRow(f"{project_name}, against {name}", "ms", results[project_name]["ms"], results[name]["ms"], 1.5, lower_is_better=True)
        difference, bound = map(float, output_of([*program, "check", matrices, count, n, values]).split())
        yield TableRow("singular values, cumulative curves within rounding errors of numpy in fp64", "difference", [difference], bound, 1, lower_is_better=True)

    yield Comparison("singular values", [
        side_of_project(project_name, lambda: milliseconds(bench.tests / "spectrum-bench", matrices, count, n, bench.threads, values)),
        side_of_peer("numpy", lambda: milliseconds(*program, "numpy", matrices, count, n, bench.threads)),
        side_of_peer("torch", lambda: milliseconds(*program, "torch", matrices, count, n, bench.threads))], rows)
