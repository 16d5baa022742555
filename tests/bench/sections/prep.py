"""Tokenisation speed of mh-prep on one core, against sentencepiece, subword-nmt and tokenizers; equality of the ids; peak memory."""
import subprocess
import sys

from measure import (Check, Comparison, PeakMemory, TableRow, output_of, peer_program, pin_to_one_core, print_progress, property_row, run,
                     side_of_peer, side_of_project)


def measure(bench):
    text, model, vocabulary = bench.make_text(), bench.folder / "bpe.model", bench.folder / "words"
    megabytes = text.stat().st_size / 1e6
    run([bench.tools / "mh-prep", "-q", "vocab", "--type", "bpe", "--size", "8000", "-o", model, text])
    run([bench.tools / "mh-prep", "-q", "vocab", "--type", "word", "-o", vocabulary, text])
    yield pieces_and_words(bench, text, megabytes, model, vocabulary)
    yield subwords(bench, text, megabytes)
    yield wordpieces(bench, text, megabytes)
    yield Check(lambda: memory_rows(bench, vocabulary))


def seconds_of_prep(bench, vocabulary, shard, text):
    """Runs mh-prep lm on one core and returns its wall time."""
    return run(pin_to_one_core([bench.tools / "mh-prep", "-q", "lm", "--threads", "1", "--vocab", vocabulary, "-o", shard, text]))[0]


def speed_of_prep(bench, megabytes, vocabulary, shard, text):
    """Runs mh-prep lm on one core and returns its speed. `megabytes`: size of the text."""
    return {"MB/s": megabytes / seconds_of_prep(bench, vocabulary, shard, text)}


def same_ids(bench, shard, ids):
    """Returns whether the lines of a shard have the token ids in the file `ids`, apart from the end-of-line token or [SEP] of mh-prep."""
    printed_ids = subprocess.run([bench.tools / "mh-prep", "cat", "--ids", shard], check=True, capture_output=True).stdout
    return [line.split()[:-1] for line in printed_ids.splitlines()] == [line.split() for line in ids.read_bytes().splitlines()]


def pieces_and_words(bench, text, megabytes, model, vocabulary):
    # Word tokenisation is so fast that 11 MB of text would mostly measure the start of the process.
    long_text = bench.folder / "long"
    with open(long_text, "wb") as out:
        for _ in range(10):
            out.write(text.read_bytes())
    ids, encoded_shard = bench.folder / "ids", bench.folder / "bpe.mhs"
    bpe, words = "mh-prep, BPE of 8000, one core", "mh-prep, words, one core"
    spm_encode = ["spm_encode", f"--model={model}", "--output_format=id", f"--output={ids}", text]

    def rows(results):
        yield TableRow(bpe, "MB/s", results[bpe]["MB/s"], results["spm_encode"]["MB/s"], 8)
        yield property_row("mh-prep, BPE of 8000, ids of all lines equal to spm_encode", same_ids(bench, encoded_shard, ids))
        yield TableRow(f"{words}, against the bound 80 MB/s", "MB/s", results[words]["MB/s"], 80.0, 1)

    return Comparison("mh-prep", [
        side_of_project(bpe, lambda: speed_of_prep(bench, megabytes, model, encoded_shard, text)),
        side_of_peer("spm_encode", lambda: {"MB/s": megabytes / run(pin_to_one_core(spm_encode), stderr=subprocess.DEVNULL)[0]}),
        side_of_project(words, lambda: speed_of_prep(bench, 10 * megabytes, vocabulary, bench.folder / "words.mhs", long_text))], rows)


def subwords(bench, text, megabytes):
    """Compares BPE with the same merges in mh-prep and subword-nmt."""
    vocabulary, codes = bench.folder / "subword", bench.folder / "codes"
    run([bench.tools / "mh-prep", "-q", "vocab", "--type", "subword-nmt", "--merges", "10000", "-o", vocabulary, text])
    codes.write_bytes(subprocess.run([bench.tools / "mh-prep", "codes", vocabulary], check=True, capture_output=True).stdout)
    project_name = "mh-prep, subword-nmt of 10000 merges, one core"
    apply_bpe = [sys.executable, "-m", "subword_nmt.apply_bpe", "-c", codes, "-i", text, "-o", bench.folder / "pieces"]
    return Comparison("mh-prep and subword-nmt", [
        side_of_project(project_name, lambda: speed_of_prep(bench, megabytes, vocabulary, bench.folder / "subword.mhs", text)),
        side_of_peer("subword-nmt", lambda: {"MB/s": megabytes / run(pin_to_one_core(apply_bpe))[0]})],
        lambda results: [TableRow(project_name, "MB/s", results[project_name]["MB/s"], results["subword-nmt"]["MB/s"], 8)])


def wordpieces(bench, text, megabytes):
    """Compares WordPiece in mh-prep and the package `tokenizers`, with BERT's vocabulary or, if MH_DATA lacks it, a vocabulary learnt from
    the text."""
    pieces, vocabulary = bench.folder / "pieces.txt", bench.folder / "wordpiece"
    source = bench.data_file("bert-base-uncased/vocab.txt.zst")
    if source:
        run(["zstd", "-qd", source, "-o", pieces])
        run([bench.tools / "mh-prep", "-q", "vocab", "--type", "wordpiece", "--from", pieces, "-o", vocabulary])
    else:
        run([bench.tools / "mh-prep", "-q", "vocab", "--type", "wordpiece", "--size", "30000", "-o", vocabulary, text])
        pieces.write_bytes(subprocess.run([bench.tools / "mh-prep", "codes", vocabulary], check=True, capture_output=True).stdout)
    shard = bench.folder / "wordpiece.mhs"
    return against_tokenizers(bench, f"mh-prep, WordPiece of {len(pieces.read_bytes().splitlines())}, one core",
                              lambda: speed_of_prep(bench, megabytes, vocabulary, shard, text), (pieces, text, shard), 6)


def against_tokenizers(bench, project_name, speed, files, bar, suffix=""):
    """Returns the comparison of mh-prep with the package `tokenizers`, of speed and ids. `speed` measures mh-prep; files: (tokenizer of the
    peer, text, shard that mh-prep writes); `suffix`: last words of the name of the row."""
    tokenizer, text, shard = files
    ids, megabytes = shard.with_suffix(".ids"), text.stat().st_size / 1e6

    def rows(results):
        yield TableRow(f"{project_name}, against tokenizers{suffix}", "MB/s", results[project_name]["MB/s"], results["tokenizers"]["MB/s"], bar)
        yield property_row(f"{project_name}, ids of all lines equal to tokenizers", same_ids(bench, shard, ids))

    return Comparison(f"{project_name}, and tokenizers", [
        side_of_project(project_name, speed),
        side_of_peer("tokenizers", lambda: {"MB/s": megabytes / float(
            output_of(pin_to_one_core([*peer_program("tokenizer"), tokenizer, text, ids])))})], rows)


def memory_rows(bench, vocabulary):
    """Yields the rows of the peak memory of mh-prep for a small and a large text."""
    text, peaks = bench.make_text().read_bytes(), []
    for megabytes in (10, 1000 if bench.full else 200):
        print_progress(f"mh-prep, {megabytes} MB")
        command = [str(bench.tools / "mh-prep"), "-q", "lm", "--vocab", str(vocabulary), "-o", str(bench.folder / "big.mhs"), "-"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            peak = PeakMemory(process.pid)
            bytes_left = megabytes * 10**6
            while bytes_left > 0:
                bytes_left -= process.stdin.write(text[:bytes_left])
            process.stdin.close()
            process.wait()
        peak.join()
        if process.returncode != 0:
            sys.exit(f"bench: mh-prep lm on {megabytes} MB: expected exit status 0; found {process.returncode}")
        peaks.append(peak.bytes / 1e6)
    yield TableRow(f"mh-prep, memory for {megabytes} MB of text, against the bound 300 MB", "MB", [peaks[1]], 300.0, 1, lower_is_better=True)
    # The bound allows for the expected growth of about one byte per record.
    yield TableRow(f"mh-prep, growth of memory from 10 to {megabytes} MB of text, against the bound 20 MB", "MB", [max(0.1, peaks[1] - peaks[0])], 20.0, 1, lower_is_better=True)
