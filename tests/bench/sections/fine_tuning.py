"""Fine-tuning of a 6-layer BERT on sentence-pair classification, against transformers."""
import random
import subprocess

import bert
from measure import Comparison, TableRow, run, side_of_peer, side_of_project


def measure(bench):
    pieces = bench.folder / "bert.txt"
    pieces.write_text("".join(f"{word}\n" for word in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(30517)]))
    yield fine_tuning(bench, pieces, "128 tokens each", lambda rng: 70, {"at random": ("", 1.2)}, [("sdpa", 128), ("eager", 128)])
    # The peer pads rows to 128 tokens, as the example script of transformers does, or to the longest row of a batch.
    yield fine_tuning(bench, pieces, "as long as MRPC's", lambda rng: min(60, max(5, round(rng.gauss(25, 6.4)))),
                      {"at random": ("", 1.2), "with length bucketing": ("batch.bucket_updates = 16\n", 1.8)}, [("sdpa", 128), ("sdpa", 0)])


def fine_tuning(bench, pieces, lengths, length_of, batchings, peers, warm=3, updates=10, batch=32):
    """Returns the comparison of training on sentence pairs with length_of(rng) words per sentence. batchings: {label of a batching:
    (its keys of [train], bar)}; peers: [(attention implementation, padded length, or 0 for the longest row of a batch)]."""
    rng, name = random.Random(2), lengths.replace(" ", "-")
    text, shard, rows_file = (bench.folder / f"{name}.{end}" for end in ("tsv", "mhs", "rows"))
    with open(text, "w", encoding="ascii") as out:
        for _ in range(3000):
            sides = [" ".join(f"w{rng.randrange(30517)}" for _ in range(length_of(rng))) for _ in range(2)]
            out.write("\t".join([*sides, str(rng.randrange(2))]) + "\n")
    run([bench.tools / "mh-prep", "-q", "examples", "--wordpiece", pieces, "--no-header", "--text", "1", "--text-b", "2", "--label", "3",
         "--labels", "0,1", "-o", shard, text])
    rows_file.write_bytes(subprocess.run([bench.tests / "example-rows", shard, "128"], check=True, capture_output=True).stdout)
    toml = f"[model]\nbert.head = 'classes'\nbert.classes = 2\n{bert.TOML}batch.sequence_length = 128\nbatch.rows = {batch}\n"

    def name_of(batching):
        return f"fine-tuning, rows {lengths}, updates {batching}"

    def project_side(batching, keys):
        return side_of_project(name_of(batching), lambda: {"rows/s": updates * batch / bench.train(shard, toml + keys, warm, updates)[0]})

    def peer_side(attention, pad):
        return side_of_peer(f"{attention}, {pad}", lambda: {"rows/s": bench.run_peer(
            "bert", "train", rows_file, attention=attention, pad=pad, batch=batch, warm=warm, updates=updates)["rows_per_second"]})

    def rows_of(results):
        for batching, (_, bar) in batchings.items():
            for attention, pad in peers:
                yield TableRow(f"{name_of(batching)}, against {attention}, padded to {pad or 'the longest row of a batch'}", "rows/s",
                          results[name_of(batching)]["rows/s"], results[f"{attention}, {pad}"]["rows/s"], bar)

    return Comparison(f"fine-tuning, rows {lengths}", [*(project_side(batching, keys) for batching, (keys, _) in batchings.items()),
                                                       *(peer_side(attention, pad) for attention, pad in peers)], rows_of)
