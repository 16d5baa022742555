"""Comparisons and their rows, timed programs, shards, configurations and training runs for the benchmark sections.

A section yields steps: a Comparison measures each of its sides once per round, a Check runs once. Both return rows of the table. A
side is a program of the project or of a peer. versions.py measures only the sides of the project, for two versions of the tools.
"""
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable

import corpora

here = pathlib.Path(__file__).resolve().parent
# glibc keeps freed memory under these settings, which makes PyTorch faster on a CPU.
allocator_settings = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_TOP_PAD_": str(64 << 20)}


def print_progress(text):
    """Prints a progress message to standard error."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def bootstrap_interval(ratios, num_draws=10000):
    """Returns the 95% bootstrap interval (low, high) of the median of `ratios`, from `num_draws` resamples."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(num_draws))
    return medians[int(0.025 * num_draws)], medians[int(0.975 * num_draws)]


class UnavailableError(Exception):
    """Raised by a side that cannot run on this machine (torch.compile without a C compiler); the message states the reason."""


@dataclasses.dataclass
class Side:
    """One program, or one setting of it, that a comparison measures once per round.

    `measure` returns metric -> number. The last word of a metric's name is its unit, as in "ms" or "all heads ms". A side of the
    project is named after the measurement; the same measurement has the same name in every comparison.
    """
    name: str
    measure: Callable[[], dict[str, float]]
    is_project: bool


def side_of_project(name, measure):
    return Side(name, measure, True)


def side_of_peer(name, measure):
    return Side(name, measure, False)


@dataclasses.dataclass
class TableRow:
    """One line of the table: one number per round for the project and for its peer."""
    name: str
    unit: str
    project: list[float]
    peer: list[float] | float | None  # a number is a fixed bound in the project's unit; None: the peer cannot run
    bar: float
    lower_is_better: bool = False


@dataclasses.dataclass
class Comparison:
    """A step that measures its sides in turn for a number of rounds. `rows` receives {side: {metric: one number per round}}, with
    None for a side that cannot run."""
    label: str
    sides: list[Side]
    rows: Callable[[dict[str, dict[str, list[float]] | None]], Iterable[TableRow]]

    def measure_rows(self, rounds):
        """Measures all sides in all rounds and returns the rows of the table."""
        results = {side.name: {} for side in self.sides}
        for i in range(rounds):
            print_progress(f"{self.label}, round {i + 1} of {rounds}")
            for side in self.sides:
                metrics = results[side.name]
                if metrics is None:
                    continue
                try:
                    for metric, number in side.measure().items():
                        metrics.setdefault(metric, []).append(number)
                except UnavailableError as reason:
                    if side.is_project:
                        sys.exit(f"bench: {side.name}: {reason}")
                    print_progress(f"{side.name}: {reason}")
                    results[side.name] = None
        return self.rows(results)


class RepeatingProgram(Comparison):
    """A comparison within one program of the project, which runs all rounds itself: `measure(rounds)` returns {metric: number} for
    each round."""

    def __init__(self, label, measure, rows):
        super().__init__(label, [side_of_project(label, lambda: measure(1)[0])], rows)
        self.measure = measure

    def measure_rows(self, rounds):
        print_progress(self.label)
        round_metrics = self.measure(rounds)
        return self.rows({self.label: {metric: [metrics[metric] for metrics in round_metrics] for metric in round_metrics[0]}})


@dataclasses.dataclass
class Check:
    """A step that runs once, independent of the number of rounds."""
    rows: Callable[[], Iterable[TableRow]]

    def measure_rows(self, _):
        return self.rows()


def property_row(name, holds):
    """Returns the row of a property that must hold. `holds`: whether the property holds."""
    return TableRow(name, "all or none", [float(holds)], 1.0, 1)


class PeakMemory(threading.Thread):
    """Polls the peak memory (VmHWM, bytes) of a process until it ends. getrusage would include the memory of this program before
    the exec of the child."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path, self.bytes = f"/proc/{pid}/status", 0
        self.start()

    def run(self):
        while True:
            try:
                with open(self.path, encoding="ascii", errors="replace") as status:
                    lines = [line for line in status if line.startswith("VmHWM:")]
            except OSError:
                return
            if not lines:  # the process has ended and is a zombie until its parent waits for it
                return
            self.bytes = int(lines[0].split()[1]) * 1024
            time.sleep(0.005)


def run(command, **options):
    """Runs a command and returns its wall time in seconds and its peak memory in bytes."""
    start_time = time.perf_counter()
    with subprocess.Popen([str(c) for c in command], **options) as process:
        peak = PeakMemory(process.pid)
        process.wait()
    seconds = time.perf_counter() - start_time
    peak.join()
    if process.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))}: expected exit status 0; found {process.returncode}")
    return seconds, peak.bytes


def output_of(command, environment=None):
    """Runs a command and returns its standard output. `environment`: additional environment variables."""
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, env={**os.environ, **(environment or {})}).stdout


def peer_program(name):
    """Returns the command that runs the program peers/NAME.py."""
    return [sys.executable, "-B", here / "peers" / f"{name}.py"]


def pin_to_one_core(command):
    """Returns the command pinned to the first core that this process may use."""
    return ["taskset", "-c", str(sorted(os.sched_getaffinity(0))[0]), *command]


class LineProgram:
    """A program that answers each input line with one output line. The program starts with the first call of query() and runs until the
    context exits."""

    def __init__(self, *command):
        self.command, self.process = [str(c) for c in command], None

    def query(self, *words):
        """Sends one input line and returns the numbers of the output line. Raises UnavailableError if that line is `failed: REASON`."""
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            sys.exit(f"bench: {' '.join(self.command)}: {' '.join(map(str, words))}: expected an output line; found none, exit status {self.process.wait()}")
        if answer.startswith("failed: "):
            raise UnavailableError(answer)
        return [float(number) for number in answer.split()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()


class LogClock(threading.Thread):
    """Records in `stamps`, {update: seconds}, when the line of each update appears in the log of a training run."""

    def __init__(self, log):
        super().__init__()
        self.log, self.stamps, self.done = log, {}, threading.Event()

    def run(self):
        position = 0
        while not self.done.is_set() or (self.log.exists() and self.log.stat().st_size > position):
            if self.log.exists() and self.log.stat().st_size > position:
                now = time.perf_counter()
                with open(self.log, "rb") as lines:
                    lines.seek(position)
                    chunk = lines.read()
                complete = chunk[:chunk.rfind(b"\n") + 1]
                position += len(complete)
                for line in complete.splitlines():
                    entry = json.loads(line)
                    if "nll" in entry:
                        self.stamps[entry["update"]] = now
            time.sleep(0.005)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join()


class Bench:
    """The tools of one version of the project, the options of the measurements, and a folder for their files."""

    def __init__(self, tools, folder, options):
        self.tools, self.folder = pathlib.Path(tools).resolve(), pathlib.Path(folder)
        self.tests = self.tools.parent / "tests"
        self.threads, self.device, self.stages, self.full = options.threads, options.device, options.stages, options.full

    def new_folder(self):
        return pathlib.Path(tempfile.mkdtemp(dir=self.folder))

    def data_file(self, path):
        """Returns the path of a file in MH_DATA, or None if it is missing."""
        file = pathlib.Path(os.environ.get("MH_DATA", "")) / path
        return file if os.environ.get("MH_DATA") and file.exists() else None

    def make_text(self):
        """Returns the path of the training text of WikiText-2, or of random text if MH_DATA lacks WikiText-2."""
        path = self.folder / "text"
        if not path.exists():
            source = self.data_file("wikitext-2/train.txt.zst")
            if source:
                run(["zstd", "-qd", source, "-o", path])
            else:
                print_progress("MH_DATA has no WikiText-2; measuring with random words instead")
                corpora.write_text(path, 30000, 1500000)
        return path

    def make_shard(self, entries):
        """Returns the path of a shard of random text whose vocabulary has `entries` entries, special tokens included."""
        path = self.folder / f"{entries}.mhs"
        if not path.exists():
            text, vocabulary = self.folder / f"{entries}.txt", self.folder / f"{entries}.vocab"
            corpora.write_text(text, entries - 2, 250000)
            run([self.tools / "mh-prep", "-q", "vocab", "--type", "word", "-o", vocabulary, text])
            run([self.tools / "mh-prep", "-q", "lm", "--vocab", vocabulary, "-o", path, text])
        return path

    def make_checkpoint(self, name, shard, toml):
        """Trains for one update and returns the path of the checkpoint. `toml`: configuration that ends in the section [train]."""
        out, config = self.folder / name, self.folder / f"{name}.toml"
        config.write_text(f"{toml}length = '1u'\nvalidation.every = '0u'\n")
        run([self.tools / "mh-train", "-q", "--config", config, "--train", shard, "--out", out, "--threads", self.threads])
        return out / "last.safetensors"

    def run_processes(self, command, size):
        """Runs a command in `size` processes of one job. Returns the wall time in seconds and the largest peak memory of a process in bytes."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            variables = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
        if size == 1:
            return run(command, stdout=subprocess.DEVNULL)
        with concurrent.futures.ThreadPoolExecutor(size) as pool:
            results = list(pool.map(lambda rank: run(command, stdout=subprocess.DEVNULL,
                                                     env={**os.environ, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}), range(size)))
        return max(seconds for seconds, _ in results), max(peak for _, peak in results)

    def train(self, shard, toml, warm, updates, *options, size=1, threads=None):
        """Runs mh-train in `size` processes for `warm` + `updates` + 1 updates. Returns the seconds of the `updates` updates after the first `warm`, measured
        by the times at which log lines appear, and the peak memory in bytes. `toml`: configuration that ends in [train]."""
        out, config = self.new_folder(), self.folder / "train.toml"
        config.write_text(f"{toml}lr = 5e-4\noptimizer.rule = 'adamw'\nlog_every = '1u'\nvalidation.every = '0u'\ncheckpoint.every = '0u'\n"
                          f"length = '{warm + updates + 1}u'\n")
        with LogClock(out / "run/log.jsonl") as clock:
            _, peak = self.run_processes([self.tools / "mh-train", "-q", "--config", config, "--train", shard, "--out", out / "run",
                                          "--threads", threads or self.threads, "--device", self.device, *options], size)
        return clock.stamps[warm + updates] - clock.stamps[warm], peak

    def throughput(self, shard, toml, batch_tokens, warm, updates, *options, **processes):
        """Returns the tokens per second and the peak memory in MB of train()."""
        seconds, peak = self.train(shard, toml, warm, updates, *options, **processes)
        return {"tokens/s": updates * batch_tokens / seconds, "MB": peak / 1e6}

    def train_language_model(self, entries, precision, warm=3, updates=10, **processes):
        """Trains the language model of the section `training`; returns the metrics of throughput()."""
        toml = ("[model]\nlayers = 4\nwidth = 256\nffn_dim = 1024\n[attention]\nheads = 8\n[train]\nbatch.sequence_length = 256\nbatch.tokens = 4096\n")
        return self.throughput(self.make_shard(entries), toml, 4096, warm, updates, "--precision", precision, **processes)

    def peer_command(self, program, *arguments, **options):
        """Returns the command that runs peers/PROGRAM.py with the threads and the device of the project."""
        options.update(threads=self.threads, device=self.device)
        words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)]
        return [*peer_program(program), *arguments, *words]

    def run_peer(self, program, *arguments, is_tuned=True, **options):
        """Runs peers/PROGRAM.py and returns the JSON object in its last line. `is_tuned`: whether to use the allocator settings that make
        PyTorch faster and increase its peak memory."""
        return json.loads(output_of(self.peer_command(program, *arguments, **options), allocator_settings if is_tuned else None).splitlines()[-1])

    def train_peer(self, program, is_tuned=True, **options):
        """Runs the training of peers/PROGRAM.py as run_peer() does. Returns its tokens per second, its peak memory in MB and, for
        translation, its target tokens."""
        result = self.run_peer(program, is_tuned=is_tuned, **options)
        metrics = {"tokens/s": result["tokens_per_second"], "MB": result["peak"] / 1e6}
        return {**metrics, "tokens": result["tokens"]} if "tokens" in result else metrics
