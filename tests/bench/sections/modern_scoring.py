"""Scoring of a text by SmolLM2-135M, n 1024, against transformers; equality of the losses."""
import json
import subprocess
import sys

import modern
from measure import Comparison, TableRow, here, output_of, run, side_of_peer, side_of_project

sys.path.insert(0, str(here.parent / "cli"))
import tolerance


def measure(bench):
    smollm2, n = modern.smollm2(bench), 1024
    if smollm2 is None:
        return
    libraries = modern.Libraries()
    # The difference of two runs excludes the start of mh-eval, which the peer does not count either.
    beginning, beginning_ids = smollm2.make_shard("beginning", modern.first_lines(bench, 5000))
    shard, ids = smollm2.make_shard("scored", modern.first_lines(bench, 80000))
    num_tokens = len(ids.read_text().split()) - len(beginning_ids.read_text().split())
    for precision, bar in (("fp32", 1.1), ("bf16", 1.3)):
        name, nlls = f"scoring with {modern.MODEL}, n {n}, {precision}", []
        evaluation = [bench.tools / "mh-eval", "-q", "--sequence-length", n, "--precision", precision, "--threads", bench.threads, smollm2.checkpoint]
        options = dict(length=n, precision=precision)

        def score():
            seconds = run([*evaluation, shard], stdout=subprocess.DEVNULL)[0] - run([*evaluation, beginning], stdout=subprocess.DEVNULL)[0]
            return {"tokens/s": num_tokens / seconds}

        def score_peer():
            result = bench.run_peer("causal_lm", "score", smollm2.folder, ids, **options)
            nlls.append(result["nll"])
            return {"tokens/s": result["tokens_per_second"]}

        def rows(results):
            yield TableRow(libraries.row_name(f"{name}, against sdpa of transformers", [*evaluation, beginning],
                                              bench.peer_command("causal_lm", "score", smollm2.folder, beginning_ids, **options)),
                           "tokens/s", results[name]["tokens/s"], results["transformers"]["tokens/s"], bar)
            if precision == "fp32":
                score = json.loads(output_of([*evaluation, "--format", "json", shard]))
                bound = tolerance.mean_nll_bound(score, smollm2.checkpoint, n)
                yield TableRow(f"scoring with {modern.MODEL}, mean loss within rounding errors of the mean loss of transformers", "nats",
                               [abs(score["nll"] - nlls[-1])], bound, 1, lower_is_better=True)

        yield Comparison(name, [side_of_project(name, score), side_of_peer("transformers", score_peer)], rows)
