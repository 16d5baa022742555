"""Configuration of the sections that measure a BERT encoder with 6 layers of width 384 and random weights."""

# Configuration of BERT as in transformers, without the task head: keys of [model], then [attention] and [train]. Benchmark
# sections prepend further lines of [model] and append keys of [train].
TOML = ("backbone = 'bert'\nlayers = 6\nwidth = 384\nffn_dim = 1536\nnorm = 'post'\nactivation = 'gelu'\npositions = 'learned'\n"
        "max_positions = 512\nscale_embedding = false\nbert.segments = 2\nbert.embedding_norm = true\nnorm_epsilon = 1e-12\ninit = 'bert'\n"
        "dropout_embedding = 0.1\ndropout_attention = 0.1\ndropout_ffn = 0.1\ndropout_output = 0.1\n"
        "[attention]\nheads = 12\ndropout = 0.1\n[train]\noptimizer.clip_norm = 1.0\n")
