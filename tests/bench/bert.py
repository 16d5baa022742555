"""What the sections share that measure a BERT of 6 layers of width 384 with random weights."""
import json

from measure import allocator, output, peer_program

# transformers' BERT after [model] and [attention], without an output layer; ends in [train].
TOML = ("backbone = 'bert'\nlayers = 6\nwidth = 384\nffn = 1536\nnorm = 'post'\nactivation = 'gelu'\npositions = 'learned'\n"
        "max_positions = 512\nscale_embedding = false\nbert.segments = 2\nbert.embedding_norm = true\nnorm_epsilon = 1e-12\ninit = 'bert'\n"
        "dropout_embedding = 0.1\ndropout_attention = 0.1\ndropout_ffn = 0.1\ndropout_output = 0.1\n"
        "[attention]\nheads = 12\ndropout = 0.1\n[train]\noptimizer.clip_norm = 1.0\n")


def run_peer(bench, what, rows, **options):
    """Returns the result of transformers' BERT."""
    words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
    return json.loads(output([*peer_program("bert"), what, rows, "--threads", bench.threads, *words], allocator).splitlines()[-1])
