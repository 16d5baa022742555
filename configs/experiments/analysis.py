"""Runs the command of an analysis on the trained models of a table, once for each seed, and prints and stores its results."""
import dataclasses
import hashlib
import pathlib
import shlex
import subprocess
import sys

import plots
from errors import refuse
from report import FORMATS
from runs import average, file_checksum, quoted
from tools import call, say, write_atomically

MAX_ROWS = 500  # maximum number of rows of an analysis that are printed; its files have all rows
WORDS = {"MODELS", "MODEL", "AVERAGE", "LOGS"}


@dataclasses.dataclass
class Call:
    """One call of the command."""
    words: list  # the command
    jobs: list  # the runs whose models or logs it reads
    inputs: list  # the files of these runs, in the order of `jobs`
    result: pathlib.Path
    picture: pathlib.Path  # or None

    def printed(self):
        return quoted(self.words)

    def checksum(self):
        """Returns a checksum of the command and of its inputs."""
        return hashlib.sha256(" ".join([self.printed(), *map(file_checksum, self.inputs)]).encode()).hexdigest()

    def stored(self):
        """Returns the lines of the stored result if it belongs to this command and these inputs, otherwise None."""
        if not self.result.exists() or (self.picture and not self.picture.exists()):
            return None
        first, *lines = self.result.read_text(encoding="utf-8").splitlines()
        return [line.split("\t") for line in lines] if first == f"# {self.checksum()}" else None

    def run(self):
        """Runs the command, unless its result is stored, and returns its table, with the columns row and seed in place of the file names."""
        lines = self.stored()
        if lines is None:
            say(f"analysis: {self.printed()}")
            output = call(self.words, stdout=subprocess.PIPE).decode()
            lines = [line.split("\t") for line in output.splitlines()]
            if len(lines) < 2 or any(len(line) != len(lines[0]) for line in lines):
                refuse(self.printed(), "a table with a heading", output[:80] or "no output", "repeat the command, which continues from here")
            lines = self.named(lines)
            write_atomically(self.result, f"# {self.checksum()}\n" + "".join("\t".join(line) + "\n" for line in lines))
        return lines

    def named(self, lines):
        """Returns the table with the columns row and seed in place of the column of the file names."""
        column = next((index for index, name in enumerate(lines[0]) if name in ("model", "run")), None)
        if column is None and len(self.jobs) > 1:
            refuse(self.printed(), "a column model or run", f"the columns {', '.join(lines[0])}", "correct the column analysis of tables.tsv")
        names = {str(path.resolve()): job for path, job in zip(self.inputs, self.jobs)}
        # The tools name the seed of their sample "seed".
        result = [["row", "seed", *(f"sample_{name}" if name == "seed" else name for index, name in enumerate(lines[0]) if index != column)]]
        for line in lines[1:]:
            job = names.get(str(pathlib.Path(line[column]).resolve())) if column is not None else self.jobs[0]
            if job is None:
                refuse(self.printed(), "the name of an input in each row", line[column], "correct the column analysis of tables.tsv")
            result.append([job.row.name, str(job.seed), *(field for index, field in enumerate(line) if index != column)])
        return result


class Analysis:
    """The column `analysis` of tables.tsv. prefix: path of the results without seed and suffix."""

    def __init__(self, command, prefix):
        self.words, self.prefix = shlex.split(command), prefix

    def check(self):
        """Refuses a picture that cannot be drawn, before the runs begin."""
        if "PLOT" in self.words:
            plots.check_program(self.prefix.with_name(self.prefix.name + ".svg"))

    def calls(self, jobs):
        """Returns the calls for runs: one for each run, or one for each seed and data set."""
        groups = {}
        for job in jobs:
            key = (job.seed, job.row.data.folder) if {"MODELS", "LOGS"} & set(self.words) else (job.seed, job.row.name)
            groups.setdefault(key, []).append(job)
        folders = {job.row.data.folder for job in jobs}
        calls = []
        for (seed, name), group in groups.items():
            part = f"-{group[0].row.name}" if name == group[0].row.name else f"-{group[0].row.data.name}" if len(folders) > 1 else ""
            path = self.prefix.with_name(f"{self.prefix.name}{part}-seed{seed}".replace("/", "_"))
            calls.append(self.call(group, path))
        return calls

    def call(self, jobs, path):
        kind = next(word for word in self.words if word in WORDS)
        name = {"AVERAGE": "average.safetensors", "LOGS": "log.jsonl"}.get(kind, "best.safetensors")
        inputs = [job.out / name for job in jobs]
        picture = path.with_name(path.name + ".svg") if "PLOT" in self.words else None
        row = jobs[0].row
        values = {kind: inputs, "VALID": [row.data.shard("valid")], "TEST": [row.data.shard("test")], "PLOT": [picture],
                  "PROTOCOL": shlex.split(row.columns()[0].options) if row.columns() else []}
        words = [part for word in self.words for part in values.get(word, [word])]
        threads = [] if kind == "LOGS" else ["--threads", jobs[0].threads]
        return Call([*words, *threads], jobs, inputs, path.with_name(path.name + ".tsv"), picture)

    def run(self, jobs, options):
        """Runs the command for the finished runs and prints its tables. With --table only stored results are printed."""
        lines, footer = [], []
        for one in self.calls(jobs):
            if options.tabulates and one.stored() is None:
                say(f"analysis: leaves out {one.result}, which is not stored; leave --table out to run it")
                continue
            for job, path in zip(one.jobs, one.inputs):
                if path.name == "average.safetensors" and not path.exists():
                    average(job.out)
            table = one.run()
            footer.append(f"analysis: {one.printed()} > {one.result}" + (f"; picture: {one.picture}" if one.picture else ""))
            if lines and table[0] != lines[0]:
                refuse(one.printed(), f"the columns {', '.join(lines[0])}", ", ".join(table[0]), "run the rows of this table separately, by --rows")
            lines += table[1:] if lines else table
        if not lines:
            return
        if len(lines) > MAX_ROWS:
            footer.append(f"analysis: {len(lines) - 1} rows, more than the {MAX_ROWS} that are printed; the files have all rows")
            lines = lines[:1]
        sys.stdout.write("\n" + FORMATS[options.format](lines, footer))
        sys.stdout.flush()
