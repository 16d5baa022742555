"""Tokenisation speed of mh-prep with a tokenizer.json on one core, without the start, against tokenizers; equality of the ids."""
import sys

import modern
from measure import here, output_of
from sections import prep

# Family of train_tokenizer.py, form of its tokenizer, bar.
FAMILIES = [("llama-3", "byte-level BPE", 6), ("t5", "unigram language model", 6), ("llama-2", "BPE without pre-tokenisation", 3)]


def measure(bench):
    text, beginning = bench.make_text(), bench.folder / "beginning"
    beginning.write_bytes(modern.first_lines(bench, 1000))
    megabytes = (text.stat().st_size - beginning.stat().st_size) / 1e6
    for family, form, bar in FAMILIES:
        folder, shard = bench.folder / family, bench.folder / f"{family}.mhs"
        output_of([sys.executable, "-B", here / "train_tokenizer.py", family, text, folder])

        def speed():
            start_seconds = prep.seconds_of_prep(bench, folder, bench.folder / "beginning.mhs", beginning)
            return {"MB/s": megabytes / (prep.seconds_of_prep(bench, folder, shard, text) - start_seconds)}

        yield prep.against_tokenizers(bench, f"mh-prep, {form} of 32000 as in {family}, one core", speed, (folder / "tokenizer.json", text, shard), bar,
                                      f"; {modern.processor()}")
