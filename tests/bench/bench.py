#!/usr/bin/env python3
"""The figures that multihead must reach, against their peers, alternating in one run.

    ./run bench [--rounds 5] [--only training,translation,stages,attention,gpu_training,start,prep,reading,metrics,analysis,beam,encoder,equality,stage_equality] [--full]

Prints a table (tab-separated): what, the project's median, the peer's median, the median of the per-round ratio (above 1: the
project is better), a 95% bootstrap interval of that median, the bar, and whether the lower end clears it. Trainings take
random text, a fresh process for each round, and a clock that starts after the first updates; the project is timed from
outside, by when its log lines appear. The peer runs with glibc's allocator told to keep memory (MALLOC_*), which makes it
faster; its memory is measured without, which makes it smaller.

    bench.py --tools FOLDER --device cuda --only attention

prints the table of attention on a GPU. A row whose peer cannot run there, as torch.compile without a C compiler, ends in `skip`.
"""
import argparse
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import corpora

here = pathlib.Path(__file__).resolve().parent
allocator = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32), "MALLOC_TOP_PAD_": str(64 << 20)}


class Peak(threading.Thread):
    """Peak memory (VmHWM, bytes) of a process, read until it ends: getrusage would count this program's, which forked it."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path, self.bytes = f"/proc/{pid}/status", 0
        self.start()

    def run(self):
        while True:
            try:
                with open(self.path, encoding="ascii", errors="replace") as status:
                    found = [line for line in status if line.startswith("VmHWM:")]
            except OSError:
                return
            if not found:  # ended, not yet waited for
                return
            self.bytes = int(found[0].split()[1]) * 1024
            time.sleep(0.005)


def run(command, **options):
    """Runs a command to its end; seconds and peak memory in bytes."""
    began = time.perf_counter()
    with subprocess.Popen([str(c) for c in command], **options) as process:
        peak = Peak(process.pid)
        process.wait()
    seconds = time.perf_counter() - began
    peak.join()
    if process.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))}: exit status {process.returncode}")
    return seconds, peak.bytes


def interval(ratios, draws=10000):
    """95% bootstrap interval of the median."""
    pick = random.Random(1)
    medians = sorted(statistics.median(pick.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def row(what, unit, project, peer, bar, less=False):
    """project and peer: one number a round. `less`: smaller is better. peer may be a fixed bound in the project's unit."""
    fixed = not isinstance(peer, list)
    peers = [peer] * len(project) if fixed else peer
    ratios = [(b / a if a else math.inf) if less else a / b for a, b in zip(project, peers)]
    low, high = interval(ratios)
    print(f"{what}\t{unit}\t{statistics.median(project):.4g}\t{'-' if fixed else f'{statistics.median(peer):.4g}'}\t"
          f"{statistics.median(ratios):.3f}\t{low:.3f}\t{high:.3f}\t{bar:g}\t{'pass' if low >= bar else 'FAIL'}", flush=True)
    return low >= bar


class Lines:
    """A program that stays open and answers each line with one."""

    def __init__(self, *command):
        self.command = [str(c) for c in command]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        """Its numbers, or why there are none."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            sys.exit(f"bench: {' '.join(self.command)}: {' '.join(map(str, words))}: exit status {self.process.wait()}")
        return answer if answer.startswith("failed: ") else [float(number) for number in answer.split()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Bench:
    def __init__(self, arguments, folder):
        self.a, self.folder = arguments, folder
        self.tools = pathlib.Path(arguments.tools).resolve()
        self.passed = True

    def row(self, *values, **options):
        self.passed &= row(*values, **options)

    def talk(self, text):
        print(f"bench: {text}", file=sys.stderr, flush=True)

    def shard(self, entries):
        """Random text whose vocabulary has so many entries (four are special or the line's end)."""
        path = self.folder / f"{entries}.mhs"
        if not path.exists():
            text, vocabulary = self.folder / f"{entries}.txt", self.folder / f"{entries}.vocab"
            corpora.write_text(text, entries - 2, 250000)
            run([self.tools / "mh-prep", "-q", "vocab", "--type", "word", "-o", vocabulary, text])
            run([self.tools / "mh-prep", "-q", "lm", "--vocab", vocabulary, "-o", path, text])
        return path

    def train(self, entries, precision, warm=3, updates=10):
        """Tokens per second of mh-train, and its peak memory."""
        return self.timed(self.shard(entries), "[model]\nlayers = 4\nwidth = 256\nffn = 1024\n[attention]\nheads = 8\n[train]\nblock = 256\n"
                          "batch_tokens = 4096\n", 4096, warm, updates, "--precision", precision)

    def timed(self, shard, toml, batch_tokens, warm, updates, *options):
        """Tokens per second of mh-train between two lines of its log, and its peak memory. `toml` ends in [train]."""
        seconds, peak = self.seconds(shard, toml, warm, updates, *options)
        return updates * batch_tokens / seconds, peak

    def seconds(self, shard, toml, warm, updates, *options):
        """As timed(), the seconds that all those updates took."""
        out = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        config = self.folder / "train.toml"
        config.write_text(f"{toml}lr = 5e-4\noptimizer = 'adam'\nlog_every = '1u'\nvalidate_every = '0u'\nsave_every = '0u'\n"
                          f"length = '{warm + updates + 1}u'\n")
        log, stamps, done = out / "run/log.jsonl", {}, threading.Event()

        def watch():
            position = 0
            while not done.is_set() or (log.exists() and log.stat().st_size > position):
                if log.exists() and log.stat().st_size > position:
                    now = time.perf_counter()
                    with open(log, "rb") as lines:
                        lines.seek(position)
                        chunk = lines.read()
                    complete = chunk[:chunk.rfind(b"\n") + 1]
                    position += len(complete)
                    for line in complete.splitlines():
                        entry = json.loads(line)
                        if "nll" in entry:
                            stamps[entry["update"]] = now
                time.sleep(0.005)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            _, peak = run([self.tools / "mh-train", "-q", "--config", config, "--train", shard, "--out", out / "run",
                           "--threads", self.a.threads, "--device", self.a.device, *options])
        finally:
            done.set()
            watcher.join()
        return stamps[warm + updates] - stamps[warm], peak

    def peer(self, entries, precision, tuned=True, warm=3, updates=10):
        return self.of_peer("peers/decoder.py", tuned, rows=entries, precision=precision, warm=warm, updates=updates)

    def of_peer(self, program, tuned, **options):
        """Tokens per second of a peer and its peak memory."""
        result = self.result_of_peer(program, tuned, **options)
        return result["tokens_per_second"], result["peak"]

    def result_of_peer(self, program, tuned, **options):
        options.update(threads=self.a.threads, device=self.a.device)
        words = [str(word) for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)]
        done = subprocess.run([sys.executable, "-B", here / program, *words], env=dict(os.environ, **(allocator if tuned else {})),
                              check=True, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])

    def training(self):
        for entries, bars in ((8000, (1.3, 1.0)), (33278, (1.5, 1.15))):
            for precision, bar in zip(("fp32", "bf16"), bars):
                updates = 10 if precision == "fp32" else 20  # about 10 seconds
                speeds, memories = ([], []), ([], [])
                for i in range(self.a.rounds):
                    self.talk(f"training, vocabulary {entries}, {precision}, round {i + 1} of {self.a.rounds}")
                    for mine, tuned in zip(speeds, (self.train(entries, precision, updates=updates), self.peer(entries, precision, updates=updates))):
                        mine.append(tuned[0])
                        if mine is speeds[0]:
                            memories[0].append(tuned[1] / 1e6)
                    if entries == 33278 and self.a.device == "cpu":
                        memories[1].append(self.peer(entries, precision, tuned=False, warm=1, updates=1)[1] / 1e6)
                self.row(f"training, vocabulary {entries}, {precision}", "tokens/s", *speeds, bar)
                if memories[1]:
                    self.row(f"peak memory, vocabulary {entries}, {precision}", "MB", *memories, 2, less=True)

    def translation(self):
        """The small translation model, 3 + 3 layers of width 256, on pairs as long as those of Multi30k: target tokens."""
        entries, warm, updates, batch_tokens = 8000, 5, 60, 2048
        pairs = corpora.Folder(self.tools, tempfile.mkdtemp(dir=self.folder))
        pairs.pairs(entries - 4, 8000)
        for dropout in (0.2, 0.0):
            toml = ("[model]\nbackbone = 'encoder-decoder'\nlayers = 3\nwidth = 256\nffn = 1024\nshared_embedding = true\n" +
                    "".join(f"dropout_{place} = {dropout}\n" for place in ("embedding", "attention", "ffn")) +
                    f"[attention]\nheads = 8\n[train]\nbatch_tokens = {batch_tokens}\nlabel_smoothing = 0.1\n")
            speeds = ([], [])
            for i in range(self.a.rounds):
                self.talk(f"translation training, dropout {dropout:g}, round {i + 1} of {self.a.rounds}")
                seconds, _ = self.seconds(pairs.path / "pairs.mhs", toml, warm, updates)
                peer = self.result_of_peer("peers/translation.py", True, pairs=pairs.path / "pairs", rows=entries, dropout=dropout,
                                           batch_tokens=batch_tokens, warm=warm, updates=updates)
                speeds[0].append(peer["tokens"] / seconds)
                speeds[1].append(peer["tokens_per_second"])
            self.row(f"translation training, 3 + 3 layers, dropout {dropout:g}", "target tokens/s", *speeds, 1.2)
        self.talk("100 updates of a translation model, the project and PyTorch")
        done = subprocess.run([sys.executable, here / "translation_equality.py", "--tools", self.tools, "--full", "--threads", str(self.a.threads)],
                              check=False, capture_output=True, text=True)
        self.talk((done.stdout + done.stderr).strip().splitlines()[-1])
        self.row("its gradients and losses within 1e-4 and 1e-3 nats of PyTorch's", "all or none", [float(done.returncode == 0)], 1.0, 1)

    def stages(self):
        """A step of every stage, and the memory of those that mix probabilities."""
        from peers import stages as peer_stages  # needs PyTorch
        entries, warm, updates = 1000, 1, 4
        if self.a.device != "cpu":
            updates = 20
        for name in self.a.stages.split(",") if self.a.stages else peer_stages.STAGES:
            stage = peer_stages.STAGES[name]
            mixes = name in ("mixhead-a", "mixhead-b")
            sizes = [(peer_stages.Size(n=1024), 1.3), (peer_stages.Size(d=256, f=1024, n=1024), 4.0)] if mixes else [(peer_stages.Size(), 1.0)]
            for size, bar in sizes:
                what = f"{name}, width {size.d}, {size.n} positions"
                speeds, memories = ([], []), ([], [])
                for i in range(self.a.rounds):
                    self.talk(f"{what}, round {i + 1} of {self.a.rounds}")
                    speed, peak = self.timed(self.shard(entries), stage.toml(size), size.batch_tokens, warm, updates)
                    speeds[0].append(speed)
                    memories[0].append(peak / 1e6)
                    options = dict(stage=name, rows=entries, length=size.n, batch_tokens=size.batch_tokens, d=size.d, f=size.f)
                    speeds[1].append(self.of_peer("peers/stages.py", True, warm=warm, updates=updates, **options)[0])
                    if mixes and self.a.device == "cpu":
                        memories[1].append(self.of_peer("peers/stages.py", False, warm=1, updates=1, **options)[1] / 1e6)
                self.row(f"step {what}", "tokens/s", *speeds, bar)
                if memories[1]:
                    self.row(f"memory {what}", "MB", *memories, 1 / 0.7, less=True)

    def attention(self):
        """Attention alone, forward and backward, two rows of 8 heads of 64 under a causal mask."""
        if self.a.device == "cuda":
            self.attention_on_gpu()
            return

        def of(program, kind, n, dtype, batch=2):
            environment = dict(os.environ, **({} if program == "project" else allocator))
            command = ([self.tools.parent / "tests/attention-bench"] if program == "project" else
                       [sys.executable, "-B", here / "peers/attention.py"])
            done = subprocess.run([*command, kind, str(batch), "8", str(n), "64", dtype, str(self.a.threads)], check=True, capture_output=True,
                                  text=True, env=environment)
            return [float(number) for number in done.stdout.split()]

        def alternating(what, mine, theirs, n, dtype, batch=2):
            found = ([], [])
            for i in range(self.a.rounds):
                self.talk(f"attention, {what}, round {i + 1} of {self.a.rounds}")
                for results, (program, kind) in zip(found, (mine, theirs)):
                    results.append(of(program, kind, n, dtype, batch))
            return [[result[0] for result in results] for results in found], [[result[1] for result in results] for results in found]

        for n in (512, 1024, 2048):
            for kind in ("mixhead-a", "mixhead-b"):
                what = f"{kind}, n {n}, fp32, against eager"
                times, memory = alternating(what, ("project", kind), ("peer", kind), n, "fp32")
                self.row(f"attention, {what}", "ms", *times, 5, less=True)
                if n == 2048:
                    self.row(f"attention, {what}, memory besides its results", "MB", *memory, 25, less=True)
            what = f"mixhead-a, n {n}, fp32, against talking heads of x-transformers"
            times, _ = alternating(what, ("project", "mixhead-a"), ("peer", "talking-heads"), n, "fp32")
            self.row(f"attention, {what}", "ms", *times, 5, less=True)
            times, _ = alternating(f"mixhead-a and plain, n {n}", ("project", "mixhead-a"), ("project", "plain"), n, "fp32")
            self.row(f"attention, mixhead-a, n {n}, against our own plain (1.2 times its time)", "ms", *times, 1 / 1.2, less=True)
            for dtype in ("fp32", "bf16"):
                what = f"plain, n {n}, {dtype}, against PyTorch's fused"
                times, _ = alternating(what, ("project", "plain"), ("peer", "sdpa"), n, dtype)
                self.row(f"attention, {what}", "ms", *times, 1, less=True)

        for n in (256, 512, 1024):
            what = f"relative, n {n} and a memory as long, fp32, against eager"
            times, memory = alternating(what, ("project", "relative"), ("peer", "relative"), n, "fp32")
            self.row(f"attention, {what}", "ms", *times, 3, less=True)
        for kind in ("decode-a", "decode-b"):
            what = f"{kind} of 8 rows, 1024 keys, fp32, against eager"
            times, _ = alternating(what, ("project", kind), ("peer", kind), 1024, "fp32", batch=8)
            self.row(f"attention, {what}", "ms", *times, 3, less=True)

    def attention_on_gpu(self):
        """Attention alone on a GPU, bf16, heads of 64 under a causal mask, 16384 tokens; all take turns in each round."""
        # project's, peer's, bar, what is compared: 0 milliseconds, 1 megabytes
        rows = [("mixhead-a", "mixhead-a", 4, 0, "against eager"),
                ("mixhead-a", "mixhead-a-compiled", 2, 0, "against torch.compile"),
                ("mixhead-b", "mixhead-b", 4, 0, "against eager"),
                ("mixhead-a", "sdpa", 1 / 2.2, 0, "against PyTorch's fused, without mixing (2.2 times its time)"),
                ("relative", "relative", 4, 0, "and a memory as long, against eager"),
                ("plain", "sdpa", 1 / 1.03, 0, "against PyTorch's fused (1.03 times its time)"),
                ("kernel", "sdpa", 1 / 1.03, 0, "plain by our own kernel, which a layer leaves to PyTorch"),
                ("cross-head", "cross-head", 1 / 1.03, 0, "against PyTorch's fused of the other heads"),
                ("scaled", "scaled", 1 / 1.03, 0, "alphas and gates, against PyTorch's fused, then scaled"),
                ("mixhead-a", "mixhead-a", 25, 1, "against eager, memory besides its results"),
                ("mixhead-b", "mixhead-b", 25, 1, "against eager, memory besides its results")]
        asked = sorted({("project", mine) for mine, *_ in rows} | {("peer", theirs) for _, theirs, *_ in rows}, key=lambda each: each[::-1])
        with Lines(self.tools.parent / "tests/attention-bench", "-") as project, Lines(sys.executable, "-B", here / "peers/attention.py", "-") as peer:
            for n in (2048, 512):
                for heads in (8, 16):
                    found, failed = {each: [] for each in asked}, {}
                    for i in range(self.a.rounds):
                        self.talk(f"attention on a GPU, n {n}, {heads} heads, round {i + 1} of {self.a.rounds}")
                        for side, kind in asked:
                            if (side, kind) in failed:
                                continue
                            answer = (project if side == "project" else peer).ask(kind, 16384 // n, heads, n, 64, "bf16", "cuda")
                            if isinstance(answer, str):
                                failed[side, kind] = answer
                                self.talk(f"{kind}: {answer}")
                            else:
                                found[side, kind].append(answer)
                    for mine, theirs, bar, which, against in rows:
                        what, unit = f"attention on a GPU, {mine}, n {n}, {heads} heads, bf16, {against}", ("ms", "MB")[which]
                        if ("peer", theirs) in failed:
                            print(f"{what}\t{unit}\t-\t-\t-\t-\t-\t{bar:g}\tskip", flush=True)
                            continue
                        self.row(what, unit, *([max(answer[which], 0.1 * which) for answer in found[each]] for each in (("project", mine), ("peer", theirs))),
                                 bar, less=True)

    def gpu_training(self):
        """A model with Mixhead A that a GPU takes its time for: its updates as one recorded graph."""
        if self.a.device != "cuda":
            self.talk("gpu_training: left out, it is for --device cuda")
            return
        from peers import stages as peer_stages  # needs PyTorch
        size, warm, updates, entries = peer_stages.Size(layers=16, d=1024, h=16, f=4096, n=512, batch_tokens=16384), 5, 20, 8000
        toml = peer_stages.STAGES["mixhead-a"].toml(size) + "precision = 'bf16'\nrecord = true\n"
        options = dict(stage="mixhead-a", rows=entries, length=size.n, batch_tokens=size.batch_tokens, layers=size.layers, d=size.d,
                       h=size.h, f=size.f, precision="bf16", warm=warm, updates=updates)
        for compiled, against, bar in (("no", "eager", 3), ("yes", "torch.compile", 1.3)):
            speeds = ([], [])
            for i in range(self.a.rounds):
                self.talk(f"training on a GPU, against {against}, round {i + 1} of {self.a.rounds}")
                speeds[0].append(self.timed(self.shard(entries), toml, size.batch_tokens, warm, updates)[0])
                speeds[1].append(self.of_peer("peers/stages.py", True, compiled=compiled, **options)[0])
            self.row(f"training on a GPU, mixhead-a, {size.layers} layers of width {size.d}, n {size.n}, bf16, against {against}", "tokens/s", *speeds, bar)

    def start(self):
        times = []
        for _ in range(self.a.rounds):
            each = []
            for _ in range(20):
                began = time.perf_counter()
                subprocess.run([self.tools / "mh-prep", "--version"], check=True, stdout=subprocess.DEVNULL)
                each.append(1000 * (time.perf_counter() - began))
            times.append(statistics.median(each))
        self.row("start of mh-prep --version, of 20 ms", "ms", times, 20.0, 1, less=True)

    def text(self):
        """WikiText-2 where it is, else random text."""
        path = self.folder / "text"
        source = pathlib.Path(os.environ.get("MH_DATA", "")) / "wikitext-2/train.txt.zst"
        if not path.exists():
            if os.environ.get("MH_DATA") and source.exists():
                run(["zstd", "-qd", source, "-o", path])
            else:
                self.talk("WikiText-2 is not there (MH_DATA): random words instead")
                corpora.write_text(path, 30000, 1500000)
        return path

    def on_one_core(self, command, **options):
        core = str(sorted(os.sched_getaffinity(0))[0])
        return run(["taskset", "-c", core, *command], **options)

    def prep(self):
        text, model, vocabulary = self.text(), self.folder / "bpe.model", self.folder / "words"
        size = text.stat().st_size / 1e6
        run([self.tools / "mh-prep", "-q", "vocab", "--type", "bpe", "--size", "8000", "-o", model, text])
        run([self.tools / "mh-prep", "-q", "vocab", "--type", "word", "-o", vocabulary, text])
        # Words go so fast that a text of 11 MB would measure the start of the process.
        long_text = self.folder / "long"
        with open(long_text, "wb") as out:
            for _ in range(10):
                out.write(text.read_bytes())
        mine, words, theirs = [], [], []
        ids, encoded = self.folder / "ids", self.folder / "bpe.mhs"
        prep = [self.tools / "mh-prep", "-q", "lm", "--threads", "1"]
        for i in range(self.a.rounds):
            self.talk(f"mh-prep, round {i + 1} of {self.a.rounds}")
            mine.append(size / self.on_one_core([*prep, "--vocab", model, "-o", encoded, text])[0])
            theirs.append(size / self.on_one_core(
                ["spm_encode", f"--model={model}", "--output_format=id", f"--output={ids}", text], stderr=subprocess.DEVNULL)[0])
            words.append(10 * size / self.on_one_core([*prep, "--vocab", vocabulary, "-o", self.folder / "words.mhs", long_text])[0])
        self.row("mh-prep, BPE of 8000, one core", "MB/s", mine, theirs, 8)
        listed = subprocess.run([self.tools / "mh-prep", "cat", "--ids", encoded], check=True, capture_output=True).stdout
        # mh-prep ends each line with the end-of-line token; spm_encode does not.
        ours = [line.split()[:-1] for line in listed.splitlines()]
        same = ours == [line.split() for line in ids.read_bytes().splitlines()]
        self.row("mh-prep, BPE of 8000, lines with the ids of spm_encode", "all or none", [float(same)], 1.0, 1)
        self.row("mh-prep, words, one core, of 80 MB/s", "MB/s", words, 80.0, 1)
        self.subwords(text, size)
        self.wordpieces(text, size)
        self.memory(vocabulary)

    def subwords(self, text, size):
        """The merges of subword-nmt, applied by mh-prep and by its own program."""
        vocabulary, codes = self.folder / "subword", self.folder / "codes"
        run([self.tools / "mh-prep", "-q", "vocab", "--type", "subword-nmt", "--merges", "10000", "-o", vocabulary, text])
        codes.write_bytes(subprocess.run([self.tools / "mh-prep", "codes", vocabulary], check=True, capture_output=True).stdout)
        mine, theirs = [], []
        for i in range(self.a.rounds):
            self.talk(f"mh-prep and subword-nmt, round {i + 1} of {self.a.rounds}")
            mine.append(size / self.on_one_core(
                [self.tools / "mh-prep", "-q", "lm", "--threads", "1", "--vocab", vocabulary, "-o", self.folder / "subword.mhs", text])[0])
            theirs.append(size / self.on_one_core(
                [sys.executable, "-m", "subword_nmt.apply_bpe", "-c", codes, "-i", text, "-o", self.folder / "pieces"])[0])
        self.row("mh-prep, subword-nmt of 10000 merges, one core", "MB/s", mine, theirs, 8)

    def wordpieces(self, text, size):
        """BERT's pieces where they are, else some learnt from the text, by mh-prep and by the package tokenizers."""
        pieces, vocabulary = self.folder / "pieces.txt", self.folder / "wordpiece"
        source = pathlib.Path(os.environ.get("MH_DATA", "")) / "bert-base-uncased/vocab.txt.zst"
        if os.environ.get("MH_DATA") and source.exists():
            run(["zstd", "-qd", source, "-o", pieces])
            run([self.tools / "mh-prep", "-q", "vocab", "--type", "wordpiece", "--from", pieces, "-o", vocabulary])
        else:
            run([self.tools / "mh-prep", "-q", "vocab", "--type", "wordpiece", "--size", "30000", "-o", vocabulary, text])
            pieces.write_bytes(subprocess.run([self.tools / "mh-prep", "codes", vocabulary], check=True, capture_output=True).stdout)
        mine, theirs = [], []
        ids, encoded = self.folder / "wordpiece.ids", self.folder / "wordpiece.mhs"
        core = str(sorted(os.sched_getaffinity(0))[0])
        for i in range(self.a.rounds):
            self.talk(f"mh-prep and tokenizers, round {i + 1} of {self.a.rounds}")
            mine.append(size / self.on_one_core([self.tools / "mh-prep", "-q", "lm", "--threads", "1", "--vocab", vocabulary, "-o", encoded, text])[0])
            done = subprocess.run(["taskset", "-c", core, sys.executable, "-B", here / "peers/wordpiece.py", pieces, text, ids], check=True,
                                  capture_output=True, text=True)
            theirs.append(size / float(done.stdout))
        entries = len(pieces.read_bytes().splitlines())
        self.row(f"mh-prep, WordPiece of {entries}, one core, against tokenizers", "MB/s", mine, theirs, 6)
        listed = subprocess.run([self.tools / "mh-prep", "cat", "--ids", encoded], check=True, capture_output=True).stdout
        ours = [line.split()[:-1] for line in listed.splitlines()]  # mh-prep ends each line with [SEP]
        self.row("mh-prep, WordPiece, lines with the ids of tokenizers", "all or none",
                 [float(ours == [line.split() for line in ids.read_bytes().splitlines()])], 1.0, 1)

    def memory(self, vocabulary):
        """Peak memory of mh-prep as its input grows."""
        text = self.text().read_bytes()
        peaks = []
        for megabytes in (10, 1000 if self.a.full else 200):
            self.talk(f"mh-prep, {megabytes} MB")
            command = [str(self.tools / "mh-prep"), "-q", "lm", "--vocab", str(vocabulary), "-o", str(self.folder / "big.mhs"), "-"]
            with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
                peak = Peak(process.pid)
                left = megabytes * 10**6
                while left > 0:
                    left -= process.stdin.write(text[:left])
                process.stdin.close()
                process.wait()
            peak.join()
            if process.returncode != 0:
                sys.exit(f"bench: mh-prep lm on {megabytes} MB: exit status {process.returncode}")
            peaks.append(peak.bytes / 1e6)
        self.row(f"mh-prep, memory at {megabytes} MB, of 300 MB", "MB", [peaks[1]], 300.0, 1, less=True)
        # A byte or so for each record is all that grows.
        self.row(f"mh-prep, growth of memory from 10 to {megabytes} MB, of 20 MB", "MB", [max(0.1, peaks[1] - peaks[0])], 20.0, 1, less=True)

    def reading(self):
        shard, shares = self.shard(33278), []
        seconds = 4096 / self.train(8000, "bf16")[0]
        for _ in range(self.a.rounds):
            done = subprocess.run([self.tools.parent / "tests/shard-bench", shard], check=True, capture_output=True, text=True)
            shares.append(float(done.stdout) * 1e-6 / seconds)
        self.row("reading random blocks, share of a bf16 training step, of 1%", "share", shares, 0.01, 1, less=True)

    def metrics(self):
        """BLEU and chrF of 6750 sentences, on one core, against sacrebleu: processor time, once the files are read."""
        pick, sides = random.Random(5), [self.folder / "hyp", self.folder / "ref"]
        lines = self.text().read_text(encoding="utf-8").split("\n")
        references = [line.strip() for line in lines if 40 < len(line) < 250][:6750]
        if len(references) < 6750:
            references = (references * (1 + 6750 // len(references)))[:6750]
        noised = [" ".join(word for word in line.split() if pick.random() > 0.2) for line in references]
        for path, side in zip(sides, (noised, references)):
            path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
        core = str(sorted(os.sched_getaffinity(0))[0])
        for metric in ("bleu", "chrf"):
            times, scores = ([], []), set()
            for i in range(self.a.rounds):
                self.talk(f"{metric}, round {i + 1} of {self.a.rounds}")
                for mine, program in zip(times, ([self.tools.parent / "tests/bleu-bench"], [sys.executable, "-B", here / "peers/bleu.py"])):
                    done = subprocess.run(["taskset", "-c", core, *map(str, program), metric, *map(str, sides)], check=True,
                                          capture_output=True, text=True)
                    spent, score = done.stdout.split()
                    mine.append(float(spent))
                    scores.add(score)
            self.row(f"{metric} of 6750 sentences, one core, against sacrebleu", "ms", *times, 10, less=True)
            self.row(f"{metric}, ten digits behind the point those of sacrebleu", "all or none", [float(len(scores) == 1)], 1.0, 1)

    def equality(self):
        self.talk("200 updates, the project and PyTorch")
        done = subprocess.run([sys.executable, here / "equality.py", "--tools", self.tools, "--full", "--threads", str(self.a.threads)],
                              check=False, capture_output=True, text=True)
        self.talk((done.stdout + done.stderr).strip().splitlines()[-1])
        self.row("losses of 200 updates within 1e-3 nats of PyTorch's", "all or none", [float(done.returncode == 0)], 1.0, 1)

    def spectra(self):
        """Singular values alone, of many matrices."""
        count, n = 16, 512
        matrices, values = self.folder / "matrices", self.folder / "values"
        size, threads = [str(count), str(n)], str(self.a.threads)

        def of(program, *options):
            return float(subprocess.run([*map(str, program), *map(str, options)], check=True, capture_output=True, text=True).stdout or 0)

        peer = [sys.executable, "-B", here / "peers/spectrum.py"]
        of([*peer, "make"], matrices, *size)
        mine, numpys, torches = [], [], []
        for i in range(self.a.rounds):
            self.talk(f"singular values, round {i + 1} of {self.a.rounds}")
            mine.append(of([self.tools.parent / "tests/spectrum-bench"], matrices, *size, threads, values))
            numpys.append(of([*peer, "numpy"], matrices, *size, threads))
            torches.append(of([*peer, "torch"], matrices, *size, threads))
        for name, theirs in (("numpy", numpys), ("torch", torches)):
            self.row(f"singular values of 512 x 512, {count} at once, against {name}", "ms", mine, theirs, 1.5, less=True)
        self.row("their curves, within 1e-6 of numpy's in fp64", "difference", [of([*peer, "check"], matrices, *size, values)], 1e-6, 1, less=True)

    def stage_equality(self):
        self.talk("every stage, the project and PyTorch")
        done = subprocess.run([sys.executable, "-B", here / "stage_equality.py", "--tools", self.tools, "--threads", str(self.a.threads)],
                              check=False, capture_output=True, text=True)
        self.talk((done.stdout + done.stderr).strip())
        self.row("log-probabilities of every stage within 1e-4 nats of PyTorch's", "all or none", [float(done.returncode == 0)], 1.0, 1)

    def model(self, name, shard, toml):
        """A checkpoint of a model that has hardly been trained; `toml` ends in [train]."""
        out = self.folder / name
        config = self.folder / f"{name}.toml"
        config.write_text(f"{toml}length = '1u'\nvalidate_every = '0u'\n")
        run([self.tools / "mh-train", "-q", "--config", config, "--train", shard, "--out", out, "--threads", self.a.threads])
        return out / "last.safetensors"

    def cut(self):
        """The attention layers of a model with half of its heads cut, against the whole one's."""
        for path, mixer in (("fused", "none"), ("composed", "none"), ("composed", "mixhead-a")):
            left, whole = [], []
            for i in range(self.a.rounds):
                self.talk(f"cut heads, {path}, mixer {mixer}, round {i + 1} of {self.a.rounds}")
                done = subprocess.run([self.tools.parent / "tests/cut-bench", path, mixer], check=True, capture_output=True, text=True,
                                      env=dict(os.environ, OMP_NUM_THREADS=str(self.a.threads)))
                for times, time_of in zip((whole, left), done.stdout.split()):
                    times.append(float(time_of))
            self.row(f"attention with half the heads cut, {path}, mixer {mixer}", "ms", left, whole, 1.7, less=True)

    def scan(self):
        """A scan of all heads in one pass, and one evaluation for each."""
        for what, layers, entries, model, attention, train in (
                ("8 layers, vocabulary 8000", 8, 8000, "", "", "block = 256\n"),
                ("12 layers, vocabulary 200", 12, 200, "", "", "block = 256\n"),
                ("8 layers, vocabulary 8000, memory 640", 8, 8000, "backbone = 'transformer-xl'\npositions = 'none'\nmemory = 640\n",
                 "score = 'relative'\n", "batching = 'streams'\nblock = 128\n")):
            toml = f"[model]\n{model}layers = {layers}\nwidth = 256\nffn = 1024\n[attention]\nheads = 8\n{attention}[train]\n{train}"
            block, blocks = (128, 2) if model else (256, 8)
            checkpoint = self.model(what.replace(" ", "-").replace(",", ""), self.shard(entries), toml)
            self.talk(f"scan, {what}")
            done = subprocess.run([self.tools.parent / "tests/scan-bench", checkpoint, self.shard(entries), str(blocks), str(self.a.rounds),
                                   str(self.a.threads), str(block)], check=True, capture_output=True, text=True)
            *rounds, worst = done.stdout.splitlines()
            seconds = [[float(line.split()[i]) for line in rounds] for i in (0, 1)]
            self.row(f"scan of {8 * layers} heads, {what}", "s", *seconds, 1.8, less=True)
            self.row("its losses within 1e-5 of one evaluation for each", "largest", [float(worst)], 1e-5, 1, less=True)

    def beam(self):
        """Beam search of a batch, against two peers with models of the same shape; they alternate by rounds."""
        what = [("project", "fp32"), ("transformers", "fp32"), ("ctranslate2", "fp32"), ("project", "bf16"), ("transformers", "bf16")]
        speeds = {each: [] for each in what}
        threads = str(self.a.threads)
        for i in range(self.a.rounds):
            for (name, precision), times in speeds.items():
                self.talk(f"beam search, {name}, {precision}, round {i + 1} of {self.a.rounds}")
                command = ([self.tools.parent / "tests/beam-bench", "3", threads, precision] if name == "project" else
                           [sys.executable, "-B", here / "peers/beam.py", name, "--precision", precision, "--rounds", "3", "--threads", threads])
                done = subprocess.run(command, check=True, capture_output=True, text=True,
                                      env=dict(os.environ, OMP_NUM_THREADS=threads, **({} if name == "project" else allocator)))
                times.append(statistics.median(float(line) for line in done.stdout.splitlines()))
        for name, precision, bar in (("transformers", "fp32", 3), ("transformers", "bf16", 3), ("ctranslate2", "fp32", 0.5)):
            self.row(f"beam search, 3 + 3 layers, d 256, beam 5, batch 32, {name}, {precision}", "tokens/s",
                     speeds["project", precision], speeds[name, precision], bar)

    def encoder(self):
        """BERT of the shape of the small published one, weights at random: fine-tuning, and SQuAD's dev set."""
        pieces = self.folder / "bert.txt"
        pieces.write_text("".join(f"{word}\n" for word in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(30517)]))
        self.fine_tuning(pieces, "128 tokens each", lambda draw: 70, {"at random": ("", 1.2)}, [("sdpa", 128), ("eager", 128)])
        # What the peer's rows are filled up to is 128, as its example has it, or the longest of their batch.
        self.fine_tuning(pieces, "as long as MRPC's", lambda draw: min(60, max(5, round(draw.gauss(25, 6.4)))),
                         {"at random": ("", 1.2), "alike": ("alike = 16\n", 1.8)}, [("sdpa", 128), ("sdpa", 0)])
        self.answering()

    # transformers' BERT behind [model] and [attention], without a head; ends in [train].
    BERT = ("backbone = 'bert'\nlayers = 6\nwidth = 384\nffn = 1536\nnorm = 'post'\nactivation = 'gelu'\npositions = 'learned'\n"
            "max_positions = 512\nscale_embedding = false\nsegments = 2\nembedding_norm = true\nnorm_epsilon = 1e-12\ninit = 'bert'\n"
            "dropout_embedding = 0.1\ndropout_attention = 0.1\ndropout_ffn = 0.1\ndropout_output = 0.1\n"
            "[attention]\nheads = 12\ndropout = 0.1\n[train]\nclip = 1.0\n")

    def fine_tuning(self, pieces, lengths, length_of, updates_of, peers, warm=3, updates=10, batch=32):
        """Classes of pairs of sentences, so many words each. updates_of: which rows are in an update -> (keys of [train], bar);
        peers: (attention, what rows are filled up to)."""
        draw, name = random.Random(2), lengths.replace(" ", "-")
        text, shard, printed = (self.folder / f"{name}.{end}" for end in ("tsv", "mhs", "rows"))
        with open(text, "w", encoding="ascii") as out:
            for _ in range(3000):
                sides = [" ".join(f"w{draw.randrange(30517)}" for _ in range(length_of(draw))) for _ in range(2)]
                out.write("\t".join([*sides, str(draw.randrange(2))]) + "\n")
        run([self.tools / "mh-prep", "-q", "examples", "--wordpiece", pieces, "--no-header", "--text", "1", "--text-b", "2", "--label", "3",
             "--labels", "0,1", "-o", shard, text])
        printed.write_bytes(subprocess.run([self.tools.parent / "tests/example-rows", shard, "128"], check=True, capture_output=True).stdout)
        toml = f"[model]\nhead = 'classes'\nclasses = 2\n{self.BERT}block = 128\nbatch_rows = {batch}\n"
        mine, theirs = {rows: [] for rows in updates_of}, [[] for _ in peers]
        for i in range(self.a.rounds):
            self.talk(f"fine-tuning, rows {lengths}, round {i + 1} of {self.a.rounds}")
            for rows, (keys, _) in updates_of.items():
                mine[rows].append(updates * batch / self.seconds(shard, toml + keys, warm, updates)[0])
            for speeds, (attention, pad) in zip(theirs, peers):
                speeds.append(self.of_bert("train", printed, attention=attention, pad=pad, batch=batch, warm=warm, updates=updates)
                              ["rows_per_second"])
        for rows, (_, bar) in updates_of.items():
            for speeds, (attention, pad) in zip(theirs, peers):
                self.row(f"fine-tuning, rows {lengths}, updates {rows}, against {attention}, filled up to {pad or 'the longest of a batch'}",
                         "rows/s", mine[rows], speeds, bar)

    def of_bert(self, what, rows, **options):
        words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
        done = subprocess.run([sys.executable, "-B", here / "peers/bert.py", what, rows, "--threads", str(self.a.threads), *words], check=True,
                              capture_output=True, text=True, env=dict(os.environ, **allocator))
        return json.loads(done.stdout.splitlines()[-1])

    def answering(self):
        """Questions of SQuAD's dev set, a part of them or all: forward passes, the search for answers and their score."""
        mirror = pathlib.Path(os.environ.get("MH_DATA", ""))
        if not os.environ.get("MH_DATA") or not (mirror / "squad-1.1/dev.json.zst").exists():
            self.talk("SQuAD is not there (MH_DATA): not measured")
            return
        text, pieces, shard, printed = (self.folder / f"squad.{end}" for end in ("json", "txt", "mhs", "rows"))
        whole = json.loads(subprocess.run(["zstd", "-dcq", mirror / "squad-1.1/dev.json.zst"], check=True, capture_output=True).stdout)
        text.write_text(json.dumps({"version": whole["version"], "data": whole["data"][:None if self.a.full else 5]}))
        run(["zstd", "-qd", mirror / "bert-base-uncased/vocab.txt.zst", "-o", pieces])
        run([self.tools / "mh-prep", "-q", "squad", "--wordpiece", pieces, "-o", shard, text])
        printed.write_bytes(subprocess.run([self.tools.parent / "tests/squad-print", "windows", shard, "384", "128", "64"], check=True,
                                           capture_output=True).stdout)
        checkpoint = self.model("spans", shard, f"[model]\nhead = 'span'\n{self.BERT}block = 384\nbatch_rows = 2\n")
        mine, theirs, questions = [], {"sdpa": [], "eager": []}, 0
        for i in range(self.a.rounds):
            self.talk(f"SQuAD, round {i + 1} of {self.a.rounds}")
            mine.append(run([self.tools / "mh-eval", "-q", checkpoint, shard, "--threads", self.a.threads,
                             "--device", self.a.device], stdout=subprocess.DEVNULL)[0])
            for attention, seconds in theirs.items():
                found = self.of_bert("answer", printed, attention=attention)
                seconds.append(found["seconds"])
                questions = found["questions"]
        for attention, seconds in theirs.items():
            self.row(f"answering {questions} questions of SQuAD's dev set, against {attention}", "s", mine, seconds, 1.5, less=True)

    def analysis(self):
        self.scan()
        self.spectra()
        self.cut()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tools", required=True, help="folder of the tools")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="of both sides' trainings and attention; memory of trainings is measured on the CPU only")
    parser.add_argument("--only", default="training,translation,stages,attention,gpu_training,start,prep,reading,metrics,analysis,beam,encoder,equality,stage_equality", help="parts, with commas between [all]")
    parser.add_argument("--stages", help="of the part `stages`: these alone, with commas between")
    parser.add_argument("--full", action="store_true", help="memory of mh-prep up to 1 GB instead of 200 MB")
    a = parser.parse_args()
    print("what\tunit\tproject\tpeer\tratio\tlower\tupper\tbar\tverdict", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(a, pathlib.Path(folder))
        for part in a.only.split(","):
            getattr(bench, part)()
    return 0 if bench.passed else 1


if __name__ == "__main__":
    sys.exit(main())
