#!/usr/bin/env python3
"""Measures the CPU time (ms) of corpus BLEU or chrF in sacrebleu, without reading the files, and prints it with the score; peer of
bleu_bench.

    peers/bleu.py bleu|chrf HYP REF
"""
import sys
import time

from sacrebleu.metrics import BLEU, CHRF


def main():
    hypotheses, references = (open(path, encoding="utf-8", newline="\n").read().split("\n")[:-1] for path in sys.argv[2:4])
    metric = CHRF() if sys.argv[1] == "chrf" else BLEU(force=True)
    start_time = time.process_time()
    score = metric.corpus_score(hypotheses, [references]).score
    print(f"{1000 * (time.process_time() - start_time):.3f} {score:.10f}")


if __name__ == "__main__":
    main()
