"""Training of a decoder with RMSNorm, rotary positions, grouped heads and SwiGLU, against eager PyTorch and torch.compile; equality of its losses."""
import subprocess

import modern
from measure import Comparison, TableRow, UnavailableError, side_of_peer, side_of_project
from sections import equality

PEERS = {"eager PyTorch": "no", "torch.compile": "yes"}  # value of --compiled of peers/modern_decoder.py


def measure(bench):
    from peers import modern_decoder  # needs PyTorch
    size, entries, batch_tokens, warm = modern_decoder.ModelSize(), 8000, 4096, 2
    shard, libraries = bench.make_shard(entries), modern.Libraries()
    yield equality.compare_losses(bench, "a modern decoder", "--modern")
    for n in (256, 1024):
        toml = size.toml(n, batch_tokens)
        for precision, updates, bar in (("fp32", 4, 1.15), ("bf16", 8, 1.4)):  # enough updates for about 4 seconds
            description = f"training of a modern decoder, n {n}, {precision}"
            options = dict(rows=entries, length=n, batch_tokens=batch_tokens, precision=precision)

            def measure_project():
                return bench.throughput(shard, toml, batch_tokens, warm, updates, "--precision", precision)

            def measure_peer(compiled):
                try:
                    return bench.train_peer("modern_decoder", compiled=compiled, warm=warm, updates=updates, **options)
                except subprocess.CalledProcessError as error:
                    raise UnavailableError(f"exit status {error.returncode}: {error.stderr.strip().splitlines()[-1:]}") from error

            def rows(results):
                # Trains with the configuration of the last run of the project.
                project_command = [bench.tools / "mh-train", "-q", "--config", bench.folder / "train.toml", "--train", shard, "--out", bench.new_folder() / "run",
                                   "--threads", bench.threads, "--precision", precision, "--set", "train.length='1u'"]
                for name, compiled in PEERS.items():
                    peer_command = bench.peer_command("modern_decoder", compiled=compiled, warm=0, updates=1, **options)
                    peer, row_name = results[name], f"{description}, against {name}"
                    if peer is not None:
                        row_name = libraries.row_name(row_name, project_command, peer_command)
                    yield TableRow(row_name, "tokens/s", results[description]["tokens/s"], peer and peer["tokens/s"], bar)

            yield Comparison(description, [side_of_project(description, measure_project),
                                           *(side_of_peer(name, lambda compiled=compiled: measure_peer(compiled)) for name, compiled in PEERS.items())], rows)
