"""Question answering on SQuAD's dev set with a 6-layer BERT, against transformers; needs the data set in MH_DATA."""
import json
import subprocess

import bert
from measure import Comparison, TableRow, print_progress, run, side_of_peer, side_of_project


def measure(bench):
    """Measures forward passes, answer search and scoring, on five articles or on all (--full)."""
    questions, vocabulary = bench.data_file("squad-1.1/dev.json.zst"), bench.data_file("bert-base-uncased/vocab.txt.zst")
    if questions is None or vocabulary is None:
        print_progress("MH_DATA has no SQuAD or no vocabulary of BERT; skipping question answering")
        return
    text, pieces, shard, windows = (bench.folder / f"squad.{end}" for end in ("json", "txt", "mhs", "rows"))
    dataset = json.loads(subprocess.run(["zstd", "-dcq", questions], check=True, capture_output=True).stdout)
    text.write_text(json.dumps({"version": dataset["version"], "data": dataset["data"][:None if bench.full else 5]}))
    run(["zstd", "-qd", vocabulary, "-o", pieces])
    run([bench.tools / "mh-prep", "-q", "squad", "--wordpiece", pieces, "-o", shard, text])
    windows.write_bytes(subprocess.run([bench.tests / "squad-print", "windows", shard, "384", "128", "64"], check=True, capture_output=True).stdout)
    checkpoint = bench.make_checkpoint("spans", shard, f"[model]\nbert.head = 'span'\n{bert.TOML}batch.sequence_length = 384\nbatch.rows = 2\n")
    project_name = "answering questions of SQuAD's dev set"
    evaluation = [bench.tools / "mh-eval", "-q", checkpoint, shard, "--threads", bench.threads, "--device", bench.device]

    def peer_side(attention):
        def measure_answers():
            result = bench.run_peer("bert", "answer", windows, attention=attention)
            return {"s": result["seconds"], "questions": result["questions"]}

        return side_of_peer(attention, measure_answers)

    def rows(results):
        for attention in ("sdpa", "eager"):
            yield TableRow(f"answering {results[attention]['questions'][-1]} questions of SQuAD's dev set, against {attention}", "s",
                      results[project_name]["s"], results[attention]["s"], 1.5, lower_is_better=True)

    yield Comparison("SQuAD", [
        side_of_project(project_name, lambda: {"s": run(evaluation, stdout=subprocess.DEVNULL)[0]}),
        peer_side("sdpa"), peer_side("eager")], rows)
