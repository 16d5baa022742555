#!/usr/bin/env python3
"""Measures the time of singular values in numpy and torch, the peers of spectrum_bench.

    peers/spectrum.py make FILE COUNT N                  writes causal attention matrices (fp32) of random queries and keys
    peers/spectrum.py numpy|torch FILE COUNT N THREADS   prints the time per matrix (ms)
    peers/spectrum.py check FILE COUNT N VALUES          prints the largest difference between the cumulative curve c_k of VALUES and of
                                                         numpy in fp64, and its bound (tolerance.spectrum_curve_bound), for the
                                                         matrix whose difference is largest relative to the bound
"""
import os
import pathlib
import sys
import time


def main():
    action, path, count, n = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if action in ("numpy", "torch"):
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = sys.argv[5]
    import numpy

    if action == "make":
        rng = numpy.random.default_rng(1)
        q, k = (rng.standard_normal((count, n, 64), dtype=numpy.float32) for _ in range(2))
        logits = numpy.where(numpy.tri(n, dtype=bool), q @ k.transpose(0, 2, 1) / 8, -numpy.inf)
        p = numpy.exp(logits - logits.max(-1, keepdims=True))
        (p / p.sum(-1, keepdims=True)).astype(numpy.float32).tofile(path)
        return
    x = numpy.fromfile(path, numpy.float32).reshape(count, n, n)
    if action == "check":
        def curves(values):
            return values.cumsum(-1) / values.sum(-1, keepdims=True)
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "cli"))
        import tolerance

        project_values = numpy.fromfile(sys.argv[5], numpy.float64).reshape(count, n)
        exact_values = numpy.linalg.svd(x.astype(numpy.float64), compute_uv=False)
        differences = abs(curves(project_values) - curves(exact_values)).max(-1)
        bounds = [tolerance.spectrum_curve_bound(values.tolist(), n, n) for values in exact_values]
        worst = (differences / bounds).argmax()
        print(differences[worst], bounds[worst])
        return
    if action == "numpy":
        def values():
            return numpy.linalg.svd(x, compute_uv=False)
    else:
        import torch

        torch.set_num_threads(int(sys.argv[5]))
        matrices = torch.from_numpy(x)

        def values():
            return torch.linalg.svdvals(matrices)
    values()
    start_time = time.perf_counter()
    values()
    print(1000 * (time.perf_counter() - start_time) / count)


if __name__ == "__main__":
    main()
