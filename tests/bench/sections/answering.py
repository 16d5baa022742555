"""Question answering on SQuAD's dev set with a 6-layer BERT, against transformers; needs the data set in MH_DATA."""
import json
import subprocess

import bert
from measure import Comparison, Row, peer, project, run, talk


def measure(bench):
    """Measures forward passes, answer search and scoring, on five articles or on all (--full)."""
    questions, vocabulary = bench.data("squad-1.1/dev.json.zst"), bench.data("bert-base-uncased/vocab.txt.zst")
    if questions is None or vocabulary is None:
        talk("MH_DATA has no SQuAD or no vocabulary of BERT; skipping question answering")
        return
    text, pieces, shard, printed = (bench.folder / f"squad.{end}" for end in ("json", "txt", "mhs", "rows"))
    whole = json.loads(subprocess.run(["zstd", "-dcq", questions], check=True, capture_output=True).stdout)
    text.write_text(json.dumps({"version": whole["version"], "data": whole["data"][:None if bench.full else 5]}))
    run(["zstd", "-qd", vocabulary, "-o", pieces])
    run([bench.tools / "mh-prep", "-q", "squad", "--wordpiece", pieces, "-o", shard, text])
    printed.write_bytes(subprocess.run([bench.tests / "squad-print", "windows", shard, "384", "128", "64"], check=True, capture_output=True).stdout)
    checkpoint = bench.checkpoint("spans", shard, f"[model]\nbert.head = 'span'\n{bert.TOML}batch.block = 384\nbatch.rows = 2\n")
    ours = "answering questions of SQuAD's dev set"
    evaluation = [bench.tools / "mh-eval", "-q", checkpoint, shard, "--threads", bench.threads, "--device", bench.device]

    def theirs(attention):
        def answer():
            result = bert.run_peer(bench, "answer", printed, attention=attention)
            return {"s": result["seconds"], "questions": result["questions"]}

        return peer(attention, answer)

    def rows(results):
        for attention in ("sdpa", "eager"):
            yield Row(f"answering {results[attention]['questions'][-1]} questions of SQuAD's dev set, against {attention}", "s",
                      results[ours]["s"], results[attention]["s"], 1.5, less=True)

    yield Comparison("SQuAD", [project(ours, lambda: {"s": run(evaluation, stdout=subprocess.DEVNULL)[0]}), theirs("sdpa"), theirs("eager")], rows)
