"""Training of a translation model, 3 + 3 layers of width 256, on pairs with the lengths of Multi30k; equality of its losses in PyTorch."""
import subprocess
import sys

import corpora
from measure import Check, Comparison, TableRow, here, print_progress, property_row, side_of_peer, side_of_project


def measure(bench):
    entries, warm, updates, batch_tokens = 8000, 5, 60, 2048
    pairs = corpora.Folder(bench.tools, bench.new_folder())
    pairs.make_pair_shard(entries - 4, 8000)
    for dropout in (0.2, 0.0):
        toml = ("[model]\nbackbone = 'encoder-decoder'\nlayers = 3\nwidth = 256\nffn_dim = 1024\nencoder-decoder.shared_embedding = true\n" +
                "".join(f"dropout_{place} = {dropout}\n" for place in ("embedding", "attention", "ffn")) +
                f"[attention]\nheads = 8\n[train]\nbatch.tokens = {batch_tokens}\nlabel_smoothing = 0.1\n")
        project_name = f"translation training, 3 + 3 layers, dropout {dropout:g}"

        def rows(results):
            # The project and the peer train on the same batches; the peer counts the target tokens.
            speeds = [tokens / seconds for tokens, seconds in zip(results["PyTorch"]["tokens"], results[project_name]["s"])]
            yield TableRow(project_name, "target tokens/s", speeds, results["PyTorch"]["tokens/s"], 1.2)

        yield Comparison(f"translation training, dropout {dropout:g}", [
            side_of_project(project_name, lambda: {"s": bench.train(pairs.path / "pairs.mhs", toml, warm, updates)[0]}),
            side_of_peer("PyTorch", lambda: bench.train_peer("translation", pairs=pairs.path / "pairs", rows=entries, dropout=dropout,
                                                     batch_tokens=batch_tokens, warm=warm, updates=updates))], rows)

    def losses():
        print_progress("comparing 100 updates of a translation model in mh-train and PyTorch")
        process = subprocess.run([sys.executable, here / "translation_equality.py", "--tools", bench.tools, "--full",
                               "--threads", str(bench.threads)], check=False, capture_output=True, text=True)
        print_progress((process.stdout + process.stderr).strip().splitlines()[-1])
        yield property_row("translation training, gradients and losses within the error of PyTorch in fp32", process.returncode == 0)

    yield Check(losses)
