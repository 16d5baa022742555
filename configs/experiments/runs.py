"""Runs the missing runs of all rows and seeds, resumes stopped runs, and scores the models."""
import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

from configurations import fingerprint
from data import Data
from errors import refuse
from tables import root
from tools import call, commit, say, write_atomically


def resolved(path):
    return str(path.resolve())


def shown(path):
    """Returns a path relative to the checkout or to the current folder, whichever contains it."""
    return os.path.relpath(path, root) if path.is_absolute() and path.is_relative_to(root) else str(path)


def quoted(command, show=resolved):
    """Returns a command as bash. show: function that returns the printed form of a path."""
    return " ".join(word if isinstance(word, Bash) else shlex.quote(show(word) if isinstance(word, pathlib.Path) else str(word)) for word in command)


class Bash(str):
    """A word of a command that is printed without quotes, such as <(configs/recipes/expand ...)."""


def expansion(recipe, form=""):
    """Returns the word of a recipe PAPER/RECIPE in printed commands. form: "" or " small"."""
    return Bash(f"<({shlex.quote(f'{root}/configs/recipes/expand')} {recipe}{form})")


@dataclasses.dataclass
class Row:
    """A row of the table of results."""
    name: str
    folder: pathlib.Path  # has seedN for each run
    program: str  # mh-train, mh-finetune, or "score": scores the initial model without training
    configurations: list  # files of --config
    data: Data
    scores: list  # columns of results
    addresses: list = dataclasses.field(default_factory=list)  # words of printed commands in place of the configurations; empty: the files
    overrides: list = dataclasses.field(default_factory=list)  # KEY=VALUE
    baseline: str = ""  # name of the row that this row is compared with
    published: str = ""
    init: "Row | None" = None  # row whose model of the same seed initialises this row, which is trained first
    init_model: str = "best"  # "best" or "average", as in Score
    init_seed: int = 0  # seed of that model; 0: the seed of the run

    def columns(self):
        return [score for score in self.scores if score.split in self.data.splits]


@dataclasses.dataclass
class Result:
    seed: int
    parameters: int
    seconds: float
    scores: dict  # {column: value}
    tools: str
    commit: str
    checksums: dict  # {"train": ..., "valid": ...}
    log: pathlib.Path


@dataclasses.dataclass
class Job:
    row: Row
    seed: int
    threads: str
    init: pathlib.Path = None

    def __post_init__(self):
        if self.row.init:
            self.init = self.init_job().out / f"{self.row.init_model}.safetensors"

    @property
    def out(self):
        return self.row.folder / f"seed{self.seed}"

    @property
    def result_file(self):
        return self.out / "result.json"

    @property
    def log(self):
        return (self.init.parent if self.row.program == "score" else self.out) / "log.jsonl"

    def init_job(self):
        """Returns the job that trains the initial model, or None if no row does."""
        return Job(self.row.init, self.row.init_seed or self.seed, self.threads) if self.row.init else None

    def training(self, configurations):
        """Returns the command that starts the run."""
        option = "--init" if self.row.program == "mh-finetune" else "--from"
        command = [self.row.program, *([option, self.init] if self.init and (self.row.init or self.row.program == "mh-finetune") else [])]
        for configuration in configurations:
            command += ["--config", configuration]
        for override in self.row.overrides:
            command += ["--set", override]
        return [*command, "--train", self.row.data.shard("train"), "--valid", self.row.data.shard("valid"), "--seed", self.seed, "--threads", self.threads,
                "--out", self.out]

    def scoring(self, split, model, options):
        """Returns the command that scores the model on a split."""
        file = self.init if self.row.program == "score" else self.out / f"{model}.safetensors"
        prefix = self.row.data.folder / split
        words = [pathlib.Path(f"{prefix}{word[5:]}") if re.match(r"SPLIT\b", word) else word for word in shlex.split(options)]
        return ["mh-eval", "--format", "json", "--quiet", "--threads", self.threads, *words, file, self.row.data.shard(split)]

    def printed(self, show=resolved):
        """Returns the training and the scoring as one line of bash. show: function that returns the printed form of a path; by default the
        line runs in any folder."""
        commands = [averaging(self.init.parent, show)] if self.row.init and self.row.init_model == "average" else []
        if self.row.program != "score":
            commands.append(quoted(self.training(self.row.addresses or self.row.configurations), show))
        for split, model, options in sorted({(score.split, score.model, score.options) for score in self.row.columns()}):
            if model == "average" and self.row.program != "score":
                commands.append(averaging(self.out, show))
            commands.append(quoted(self.scoring(split, model, options), show))
        return " && ".join(commands)

    def configuration(self):
        """Returns the fingerprint of the configuration, the overrides and the initial model."""
        checksum = fingerprint(self.row.configurations)
        if self.row.overrides:
            checksum += " " + " ".join(self.row.overrides)
        if self.row.init:
            checksum += f" {self.row.init.folder.name} {self.row.init_model} {fingerprint(self.row.init.configurations)}"
        elif self.row.program == "mh-finetune":
            checksum += f" {self.init.stat().st_size} {file_checksum(self.init)}"
        return checksum

    def check_configuration(self, records=False):
        """Refuses a run of another configuration in the folder. records: whether to record the configuration of a new run, which another process
        must not start meanwhile."""
        checksum = self.configuration()
        file = self.out.with_suffix(".configuration")
        if self.out.exists():
            if not file.exists() or file.read_text(encoding="utf-8").strip() != checksum:
                refuse(self.out, "a run with this configuration", "a run with another configuration", "remove the folder, or use another --out")
        elif records:
            write_atomically(file, checksum + "\n")

    def result(self):
        """Returns the result of a finished run, or None."""
        file = self.result_file
        if not file.exists():
            return None
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            if any(score.column not in values["scores"] for score in self.row.columns()):
                return None  # the protocol of the table has a new column
            return Result(self.seed, values["parameters"], values["seconds"], values["scores"], values["tools"], values["commit"], values["checksums"],
                          self.log)
        except (ValueError, KeyError, TypeError):
            return refuse(file, "the result of a run", "other content", "remove the file; the same command then scores the run again")

    @contextlib.contextmanager
    def locked(self):
        """Waits for any other process that runs the job, and locks the job. Yields the file of the lock. A command that inherits this file keeps
        the lock after the end of a killed driver, so that the next driver does not delete the folder of a training that continues."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with open(self.out.with_suffix(".lock"), "w", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"{self.row.name}, seed {self.seed}: waits for another process, which runs it in {self.out}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            self.check_configuration(records=True)
            yield lock

    def run(self, tools):
        """Runs the job unless another process did, and returns the result."""
        with self.locked() as lock:
            return self.result() or self.run_locked(tools, lock)

    def run_locked(self, tools, lock):
        """Trains to the end, resuming a stopped run, scores the model, and returns the result."""
        if self.row.init and self.row.init_model == "average" and not self.init.exists():
            average(self.init.parent)
        if self.row.program == "score":
            self.out.mkdir(parents=True, exist_ok=True)
        elif (self.out / "last.safetensors").exists():
            call([self.row.program, "--resume", "--out", self.out, "--threads", self.threads, "--quiet"], pass_fds=[lock.fileno()])
        else:
            shutil.rmtree(self.out, ignore_errors=True)  # the run stopped before the first checkpoint
            call([*self.training(self.row.configurations), "--quiet"], pass_fds=[lock.fileno()])
        scores, outputs = {}, {}
        for score in self.row.columns():
            key = (score.split, score.model, score.options)
            if key not in outputs:
                if score.model == "average" and self.row.program != "score":
                    average(self.out)
                outputs[key] = json.loads(call(self.scoring(*key), stdout=subprocess.PIPE))
            if score.measure not in outputs[key]:
                refuse(f"mh-eval on {self.row.data.shard(score.split)}", f"the score {score.measure}", f"the scores {', '.join(outputs[key])}",
                       "correct the measure of the column")
            scores[score.column] = outputs[key][score.measure]
        first, lines = read_log(self.log)
        configuration = first.get("configuration", "")
        if self.row.program == "score":
            lines, configuration = [], ""  # of the training of the initial model
        checksums = {split: match.group(1) for split in ("train", "valid") if (match := re.search(rf'^{split}_checksum = "(\w+)"', configuration, re.MULTILINE))}
        for split in {score.split for score in self.row.columns()} - {"train", "valid"}:
            checksums[split] = "sha256:" + file_checksum(self.row.data.shard(split))[:16]
        result = {"tools": tools, "commit": commit(), "seconds": round(sum(line.get("seconds", 0) for line in lines), 1), "parameters": first["parameters"],
                  "scores": scores, "checksums": checksums}
        write_atomically(self.result_file, json.dumps(result) + "\n")
        return self.result()


def averaging(out, show):
    """Returns the command of bash that writes the mean of the first five checkpoints of a run."""
    folder = shlex.quote(show(out))
    return f"ls -v {folder}/checkpoints/*.safetensors | head -n 5 | xargs mh-convert --average > {folder}/average.safetensors"


@functools.cache
def file_checksum(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def average(out):
    """Writes the mean of the first five checkpoints that the run retained."""
    checkpoints = sorted((out / "checkpoints").glob("*.safetensors"), key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])[:5]
    if not checkpoints:
        refuse(out / "checkpoints", "checkpoints to average", "none", "set train.checkpoint.retain in the configuration")
    part = out / f"average.safetensors.{os.getpid()}.part"  # several rows may start from this mean at the same time
    try:
        with open(part, "wb") as file:
            call(["mh-convert", "--average", *checkpoints], stdout=file)
        part.replace(out / "average.safetensors")
    finally:
        part.unlink(missing_ok=True)


def read_log(path):
    """Returns (first line, further lines) of the log of a run."""
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            lines.append(json.loads(line))
        except ValueError:
            refuse(f"{path}, line {number}", "a JSON object", line[:80], "remove the folder of the run; the same command then trains it again")
    if not lines or "parameters" not in lines[0]:
        refuse(path, "a log that begins with the configuration of the run", "another first line", "remove the folder of the run; the same command then trains it again")
    return lines[0], lines[1:]


def with_init_jobs(jobs):
    """Returns the jobs, each after the job that trains its initial model."""
    ordered = {}
    for job in jobs:
        chain = [job]
        while chain[0].row.init:
            chain.insert(0, chain[0].init_job())
        for link in chain:
            ordered.setdefault(link.out, link)
    return list(ordered.values())


def print_jobs(jobs):
    """Prints each job as a line of bash, and records its configuration, so that the driver accepts the run of this line."""
    for job in jobs:
        job.check_configuration(records=True)
        print(job.printed())


def run_jobs(jobs, tools):
    """Runs the jobs that have no result."""
    for index, job in enumerate(jobs):
        job.check_configuration()
        result = job.result()
        if result is None:
            left = sum(other.result() is None for other in jobs) - 1
            say(f"{job.row.name}, seed {job.seed}: run {index + 1} of {len(jobs)}, {left} more to do")
            job.row.data.prepare(job.init)
            result = job.run(tools)
        say(f"{job.row.name}, seed {job.seed}: {', '.join(f'{column} {value:.3f}' for column, value in result.scores.items())}")
