"""Commands that write files, for failing_calls.py and kills.py: the inputs and outputs of each command, and the checks after it ended
or was killed."""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SAME_RUN = ROOT / "tests/cli/same_run.py"
OLD_CONTENT = b"the old file\n"  # content of each output before the command

CONFIG = """
[data]
train = "t.mhs"
valid = "t.mhs"
[model]
layers = 2
width = 16
ffn = 16
dropout_ffn = 0.1
[attention]
heads = 4
[train]
length = "200u"
batch.block = 16
batch.tokens = 64
batch.micro_tokens = 32
lr = 0.01
log_every = "20u"
checkpoint.every = "10u"
checkpoint.retain = 2
validation.every = "50u"
"""


@dataclasses.dataclass
class Scenario:
    """A command and its outputs, relative to its working folder. A training run has `run`, its folder, instead of outputs."""
    name: str
    command: str
    outputs: list = dataclasses.field(default_factory=list)
    run: str = ""
    resume: str = ""  # command that continues the interrupted run
    prints: bool = False  # whether the command prints results after it has written its outputs

    @property
    def tool(self):
        return self.command.split()[0]


SCENARIOS = [
    Scenario("prep-vocab", "mh-prep vocab text -o out", ["out"]),
    Scenario("prep-sentencepiece", "mh-prep vocab --type bpe --size 40 text -o out", ["out"]),
    Scenario("prep-lm", "mh-prep lm --vocab v text -o out", ["out"]),
    Scenario("prep-translation", "mh-prep translation --vocab v text text -o out", ["out"]),
    Scenario("train", "mh-train -q --threads 1 --config c.toml --out out", run="out",
             resume="mh-train -q --threads 1 --resume --out out"),
    Scenario("finetune", "mh-finetune -q --threads 1 --init model.safetensors --train t.mhs --valid t.mhs --set train.length=100u --set "
             "train.batch.block=16 --set train.batch.tokens=64 --set train.checkpoint.every=10u --set train.log_every=10u --out out", run="out",
             resume="mh-finetune -q --threads 1 --resume --out out"),
    Scenario("swap", "mh-swap -q model.safetensors --pairs decoder.self:0.1-1.3 -o out", ["out"]),
    Scenario("cut", "mh-prune cut -q model.safetensors --heads 0:1,1:2 -o out", ["out"]),
    Scenario("convert", "mh-convert -q --average model.safetensors model.safetensors -o out", ["out"]),
    Scenario("eval", "mh-eval -q --per-token out model.safetensors t.mhs", ["out"], prints=True),
]


def make_text(count):
    """Returns a text of `count` lines, the same in each call."""
    state, lines = 7, []
    for i in range(count):
        line = []
        for _ in range(1 + i % 11):
            state = state * 75 % 65537
            line.append(f"w{state % 40}")
        lines.append(" ".join(line))
    return "\n".join(lines) + "\n"


def call(command, folder, environment, **options):
    """Runs a command with the tools of `environment`; returns the finished process."""
    return subprocess.run(command.split(), cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", check=False, **options)


def prepare(folder, environment, has_models):
    """Makes the inputs of all scenarios in `folder`."""
    (folder / "text").write_text(make_text(400))
    (folder / "c.toml").write_text(CONFIG)
    commands = ["mh-prep vocab -q text -o v", "mh-prep lm -q --vocab v text -o t.mhs"]
    if has_models:
        commands.append("mh-train -q --threads 1 --config c.toml --out base")
    for command in commands:
        process = call(command, folder, environment)
        if process.returncode != 0:
            sys.exit(f"{command}: {process.stderr}")
    if has_models:
        shutil.copy(folder / "base/best.safetensors", folder / "model.safetensors")
        shutil.rmtree(folder / "base")


class Workplace:
    """A copy of the inputs in which one scenario runs repeatedly, and the outputs of its undisturbed run."""

    def __init__(self, scenario, inputs, folder, environment):
        self.scenario, self.folder, self.environment = scenario, folder, environment
        shutil.copytree(inputs, folder)
        start_time = time.monotonic()
        process = call(scenario.command, folder, environment)
        self.duration = time.monotonic() - start_time  # duration of the undisturbed run, seconds
        if process.returncode != 0:
            sys.exit(f"{scenario.command}: {process.stderr}")
        self.expected = {name: (folder / name).read_bytes() for name in scenario.outputs}
        if scenario.run:
            (folder / scenario.run).rename(folder / "whole")
        self.inputs = {path.name for path in folder.iterdir()} - set(scenario.outputs)

    def reset(self):
        """Removes the files of the last run and restores the old outputs."""
        for path in self.folder.iterdir():
            if path.name not in self.inputs:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name in self.scenario.outputs:
            (self.folder / name).write_bytes(OLD_CONTENT)

    def problems(self, status, killed=False):
        """Returns a text for each problem after a run with exit status `status`: an output that is neither the old nor the new file, a new
        output after an error, a temporary file, or a training run that does not resume to the weights of the undisturbed run."""
        problems = []
        for name in self.scenario.outputs:
            data = (self.folder / name).read_bytes() if (self.folder / name).exists() else b""
            may_be_old = killed or status != 0
            may_be_new = killed or status == 0 or self.scenario.prints
            if not (may_be_old and data == OLD_CONTENT or may_be_new and data == self.expected[name]):
                problems.append(f"{name}: expected the {' or the '.join(['old'] * may_be_old + ['new'] * may_be_new)} file; found {len(data)} other bytes")
        if not killed:
            problems += [f"the temporary file {path.name} is left" for path in self.folder.rglob("*.part*")]
        if self.scenario.run:
            problems += self.resume()
        return problems

    def resume(self):
        """Resumes the training run without faults. Returns an error text if resuming fails or the run differs from the undisturbed run."""
        run = self.folder / self.scenario.run
        command = self.scenario.resume if (run / "config.toml").exists() else self.scenario.command
        if command == self.scenario.command and run.exists():
            shutil.rmtree(run)
        process = call(command, self.folder, self.environment)
        if process.returncode != 0:
            return [f"{command}: exit status {process.returncode}: {process.stderr}"]
        comparison = call(f"{sys.executable} {SAME_RUN} whole {self.scenario.run}", self.folder, self.environment)
        return [] if comparison.returncode == 0 else [f"the resumed run differs: {comparison.stderr.strip().splitlines()[-1]}"]


def parser_of(description):
    """Returns a parser with the options that failing_calls.py and kills.py share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[s.name for s in SCENARIOS], default=[s.name for s in SCENARIOS])
    return parser


def survey_all(args, survey):
    """Calls survey(workplace, args) for each chosen command, as many at a time as there are cores, and prints the reports and the
    last line. Without mh-train in the folder of the tools only mh-prep is tested. Returns the exit status."""
    has_models = (args.tools / "mh-train").exists()
    environment = dict(os.environ, PATH=f"{args.tools.resolve()}:{os.environ['PATH']}", LC_ALL="C.UTF-8", OMP_NUM_THREADS="1")
    chosen = [s for s in SCENARIOS if s.name in args.only and (has_models or s.tool == "mh-prep")]
    failed = 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        folder = pathlib.Path(name)
        inputs = folder / "inputs"
        inputs.mkdir()
        prepare(inputs, environment, has_models)
        reports = pool.map(lambda s: survey(Workplace(s, inputs, folder / s.name, environment), args), chosen)
        for line, problems in reports:
            print(line, flush=True)
            for problem in problems:
                print(f"failed: {problem}", flush=True)
            failed += bool(problems)
    print(f"mh-tests: {len(chosen) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0
