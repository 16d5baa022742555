"""Training, evaluation and scans by two processes of one thread, against one process and DistributedDataParallel; bytes sent; train.recompute; memory with train.shard."""
import json
import math
import pathlib
import sys

from measure import Check, Comparison, TableRow, allocator_settings, here, output_of, print_progress, run, side_of_peer, side_of_project

SIZE = 2  # number of processes
# Minimum duration of the one process of an evaluation or a scan, and the duration for which its size is chosen, in seconds. In a shorter run
# the start has a visible part of the time.
MIN_SECONDS, CHOSEN_SECONDS = 60, 80
repetitions = {}  # {name of a measurement: factor of its first size}; versions.py measures both versions with the same factor


def sent_bytes():
    """Returns the number of bytes sent on the loopback interface since the start of the machine."""
    lines = pathlib.Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.split(":")[0].strip() == "lo").split(":")[1].split()[8])


def train_ddp(entries, precision, updates):
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", SIZE, here / "peers/ddp.py", "--rows", entries,
             "--precision", precision, "--updates", updates, "--threads", 1]
    return {"tokens/s": json.loads(output_of([sys.executable, "-B", *words], allocator_settings).splitlines()[-1])["tokens_per_second"]}


def training(bench):
    for precision, updates in (("fp32", 8), ("bf16", 16)):  # enough updates for about 20 seconds
        name = f"training by {SIZE} processes, vocabulary 8000, {precision}"
        sides = [side_of_project(name, lambda: bench.train_language_model(8000, precision, updates=updates, size=SIZE, threads=1)),
                 side_of_peer("one process", lambda: bench.train_language_model(8000, precision, updates=updates, threads=1))]
        if precision == "bf16":
            sides.append(side_of_peer("DDP", lambda: train_ddp(8000, precision, updates)))

        def rows(results):
            tokens = results[name]["tokens/s"]
            yield TableRow(f"{name}, against one", "tokens/s", tokens, results["one process"]["tokens/s"], 1.8)
            if precision == "bf16":
                yield TableRow(f"{name}, against DDP", "tokens/s", tokens, results["DDP"]["tokens/s"], 1.2)

        yield Comparison(name, sides, rows)


def repeated_shard(bench, entries, copies):
    """Returns the path of a shard of `copies` copies of the text of bench.make_shard(entries), with its vocabulary."""
    shard = bench.make_shard(entries)
    path = bench.folder / f"{entries}-{copies}.mhs"
    if copies > 1 and not path.exists():
        text = bench.folder / f"{entries}-{copies}.txt"
        text.write_text((bench.folder / f"{entries}.txt").read_text(encoding="ascii") * copies, encoding="ascii")
        run([bench.tools / "mh-prep", "-q", "lm", "--vocab", bench.folder / f"{entries}.vocab", "-o", path, text])
    return shard if copies == 1 else path


def repetitions_of(name, seconds):
    """Returns the factor with which a measurement takes CHOSEN_SECONDS, from a first measured run with the factor 1. `seconds`: function of the
    factor."""
    if name not in repetitions:
        first_seconds = seconds(1)
        repetitions[name] = max(1, math.ceil(CHOSEN_SECONDS / first_seconds))
        print_progress(f"{name}: one process takes {first_seconds:.1f} s; measuring {repetitions[name]} times its size")
    return repetitions[name]


def evaluation(bench):
    toml = "[model]\nlayers = 8\nwidth = 256\nffn_dim = 1024\n[attention]\nheads = 8\n[train]\nbatch.sequence_length = 256\n"
    checkpoint = bench.make_checkpoint("scale", bench.make_shard(8000), toml)

    def eval_arguments(factor):
        return ["mh-eval", "--sequence-length", 256], repeated_shard(bench, 8000, factor)

    def scan_arguments(factor):  # a batch has 16 blocks, so the processes share an even number of batches
        return ["mh-prune", "scan", "--sequence-length", 256, "--blocks", 32 * factor], bench.make_shard(8000)

    for name, arguments in (("mh-eval", eval_arguments), ("mh-prune scan", scan_arguments)):
        def seconds_of(factor, size):
            (tool, *options), shard = arguments(factor)
            return bench.run_processes([bench.tools / tool, *options, "-q", "--threads", 1, checkpoint, shard], size)[0]

        def seconds(size):
            return {"s": seconds_of(repetitions_of(name, lambda factor: seconds_of(factor, 1)), size)}

        label = f"{name} by {SIZE} processes"

        def rows(results):
            one_process = results["one process"]["s"]
            yield TableRow(label, "s", results[label]["s"], one_process, 1.85, lower_is_better=True)
            yield TableRow(f"{name} by one process, at least {MIN_SECONDS} s", "s", one_process, MIN_SECONDS, 1)

        yield Comparison(label, [side_of_project(label, lambda: seconds(SIZE)), side_of_peer("one process", lambda: seconds(1))], rows)


def trained_parameters(bench, toml, shard, *options):
    """Returns the number of parameters that a configuration trains. `toml`: configuration that ends in [train]."""
    config = bench.folder / "dry-run.toml"
    config.write_text(toml)
    report = output_of([bench.tools / "mh-train", "--dry-run", "--format", "json", "--config", config, "--train", shard, *options])
    return json.loads(report)["trained_parameters"]


def traffic(bench):
    """Compares the bytes that each of N processes sends in an update with 2 (N - 1) / N times the bytes of the gradients (more than 100 MB),
    or with 3 (N - 1) / N times these bytes if the optimiser is sharded."""
    toml = "[model]\nlayers = 4\nwidth = 512\nffn_dim = 2048\n[attention]\nheads = 8\n[train]\nbatch.sequence_length = 32\nbatch.tokens = 96\n"
    shard = bench.make_shard(33278)

    def rows():
        gradient_bytes = 4 * trained_parameters(bench, toml, shard)
        for name, value, factor in (("", "none", 2), (", sharded optimiser", "optimizer", 3)):
            for size in (2, 3):
                sent = []
                for updates in (2, 6):  # the difference excludes the start
                    begin = sent_bytes()
                    bench.train(shard, toml, 1, updates, "--set", f"train.shard={value}", size=size, threads=1)
                    sent.append((sent_bytes() - begin) / size)
                expected = factor * (size - 1) / size * gradient_bytes
                measured = (sent[1] - sent[0]) / 4
                yield TableRow(f"bytes that each of {size} processes sends in an update, of {gradient_bytes / 1e6:.0f} MB{name}", "MB", [measured / 1e6],
                               expected / 1e6, 0.97, lower_is_better=True)

    yield Check(rows)


def memory_of(bench, toml, *options, **processes):
    """Returns the seconds of one update and the peak memory in bytes, less the peak memory of a run with a tiny model."""
    tiny = "[model]\nlayers = 1\nwidth = 8\nffn_dim = 8\n[attention]\nheads = 1\n[train]\nbatch.sequence_length = 8\nbatch.tokens = 32\n"
    shard = bench.make_shard(8000)
    tiny_model_peak = bench.train(shard, tiny, 1, 1, **processes)[1]
    seconds, peak = bench.train(shard, toml, 1, 1, *options, **processes)
    return seconds, peak - tiny_model_peak


def recomputation(bench):
    """Compares training that recomputes the activations of each layer with training that keeps them."""
    toml = "[model]\nlayers = 12\nwidth = 512\nffn_dim = 2048\n[attention]\nheads = 8\n[train]\nbatch.sequence_length = 1024\nbatch.tokens = 16384\n"

    def update(recomputes):
        seconds, memory = memory_of(bench, toml, "--set", f"train.recompute={recomputes}")
        return {"s": seconds, "MB": memory / 1e6}

    name = "update of 12 layers, d 512, n 1024, with train.recompute"

    def rows(results):
        for unit, bar in (("MB", 1 / 0.35), ("s", 1 / 1.35)):
            yield TableRow(name, unit, results[name][unit], results["without"][unit], bar, lower_is_better=True)

    yield Comparison(name, [side_of_project(name, lambda: update("true")), side_of_peer("without", lambda: update("false"))], rows)


def sharding(bench):
    """Compares the peak memory of each of 4 processes with the sum of P (8 + 8 / 4) bytes and the buffer of the exchange, for P parameters in fp32."""
    size = 4
    toml = "[model]\nlayers = 8\nwidth = 1024\nffn_dim = 4096\n[attention]\nheads = 8\n[train]\nbatch.sequence_length = 8\nbatch.tokens = 32\n"

    def rows():
        parameters = trained_parameters(bench, toml, bench.make_shard(8000))
        memory = memory_of(bench, toml, "--set", "train.shard=optimizer", size=size, threads=1)[1]
        yield TableRow(f"peak memory of {size} processes with a sharded optimiser, {parameters / 1e6:.0f}M parameters", "MB", [memory / 1e6],
                       (parameters * (8 + 8 / size) + (25 << 20)) / 1e6, 0.95, lower_is_better=True)

    yield Check(rows)


def measure(bench):
    yield from training(bench)
    yield from evaluation(bench)
    yield from traffic(bench)
    yield from recomputation(bench)
    yield from sharding(bench)
