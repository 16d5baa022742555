"""BLEU and chrF of 6750 sentences on one core, against sacrebleu: CPU time without reading the files."""
import random

from measure import Comparison, TableRow, output_of, peer_program, pin_to_one_core, property_row, side_of_peer, side_of_project


def measure(bench):
    rng, sides = random.Random(5), [bench.folder / "hyp", bench.folder / "ref"]
    lines = bench.make_text().read_text(encoding="utf-8").split("\n")
    references = [line.strip() for line in lines if 40 < len(line) < 250][:6750]
    if len(references) < 6750:
        references = (references * (1 + 6750 // len(references)))[:6750]
    hypotheses = [" ".join(word for word in line.split() if rng.random() > 0.2) for line in references]
    for path, side in zip(sides, (hypotheses, references)):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    for metric in ("bleu", "chrf"):
        project_name, scores = f"{metric} of 6750 sentences, one core", set()

        def run_metric(command):
            milliseconds, score = output_of(pin_to_one_core([*command, metric, *sides])).split()
            scores.add(score)
            return {"ms": float(milliseconds)}

        def rows(results):
            yield TableRow(f"{project_name}, against sacrebleu", "ms", results[project_name]["ms"], results["sacrebleu"]["ms"], 10, lower_is_better=True)
            yield property_row(f"{metric}, score equal to sacrebleu to ten decimals", len(scores) == 1)

        yield Comparison(metric, [side_of_project(project_name, lambda: run_metric([bench.tests / "bleu-bench"])),
                                  side_of_peer("sacrebleu", lambda: run_metric(peer_program("bleu")))], rows)
