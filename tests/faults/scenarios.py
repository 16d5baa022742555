"""Commands that write files, for failing_calls.py and kills.py: the inputs and outputs of each command, and the checks after it ended
or was killed."""
import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests/cli"))
import same_run  # pylint: disable=wrong-import-position

SAME_RUN = ROOT / "tests/cli/same_run.py"
TIMEOUT_SECONDS = 600  # seconds for each command without a limit of its own, far above its duration on a busy machine
OLD_CONTENT = b"the old file\n"  # content of each output before the command

CONFIG = """
[data]
train = "t.mhs"
valid = "t.mhs"
[model]
layers = 2
width = 16
ffn_dim = 16
dropout_ffn = 0.1
[attention]
heads = 4
[train]
length = "100u"
batch.sequence_length = 16
batch.tokens = 64
batch.micro_tokens = 32
lr = 0.01
log_every = "10u"
checkpoint.every = "10u"
checkpoint.retain = 2
validation.every = "25u"
"""


SMALL = "--set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=8 --set train.batch.tokens=32"
# Settings of a model that mh-convert --to huggingface writes as a model of GPT-2.
GPT2 = f"{SMALL} --set model.positions=learned --set model.max_positions=24 --set model.scale_embedding=false --set model.activation=gelu-tanh"
# Settings of an encoder that answers questions.
SPAN = (f"{SMALL} --set model.backbone=bert --set model.bert.head=span --set model.bert.segments=2 --set squad.max_question_tokens=16 "
        "--set train.batch.sequence_length=64 --set train.batch.tokens=512")

FINETUNE = ("mh-finetune -q --threads 1 --init model.safetensors --train t.mhs --valid t.mhs --set train.batch.sequence_length=16 --set train.batch.tokens=64 "
            "--set train.checkpoint.every=10u --set train.log_every=10u")


@dataclasses.dataclass
class Scenario:
    """A command and its outputs, relative to its working folder. A training run has `run_folder` instead of outputs; with several seeds,
    this folder contains the folders `runs`."""
    name: str
    command: str
    outputs: list = dataclasses.field(default_factory=list)
    new_folder: str = ""  # folder that the command creates; it must not exist before
    stdout: str = ""  # file for the standard output of the command
    run_folder: str = ""
    runs: list = dataclasses.field(default_factory=list)  # folders in `run_folder` of the runs of several seeds
    resume_command: str = ""  # command that continues the interrupted run, or the interrupted runs of several seeds
    writes_after_output: bool = False  # whether the command prints results or writes a further output after it has written an output
    required_program: str = ""  # program without which the command is not tested
    in_sample: bool = True  # whether the command is also tested without --full

    @property
    def tool(self):
        return self.command.split()[0]

    def reads_input(self, name):
        """Returns whether the file or folder `name` is an input of the command."""
        return name in self.command.split() or "c.toml" in self.command and f'"{name}"' in CONFIG


SCENARIOS = [
    Scenario("prep-vocab", "mh-prep vocab text -o out", ["out"]),
    Scenario("prep-sentencepiece", "mh-prep vocab --type bpe --size 40 text -o out", ["out"]),
    Scenario("prep-lm", "mh-prep lm --threads 2 --vocab v text -o out", ["out"]),
    Scenario("prep-translation", "mh-prep translation --threads 2 --vocab v text text -o out", ["out"]),
    Scenario("prep-wordpiece", "mh-prep vocab --type wordpiece --size 60 text -o out", ["out"]),
    Scenario("prep-byte-bpe", "mh-prep vocab --type byte-bpe --from gpt2 -o out", ["out"]),
    Scenario("prep-learn-byte-bpe", "mh-prep vocab --type byte-bpe --size 270 text -o out", ["out"], in_sample=False),
    Scenario("prep-mlm", "mh-prep mlm --threads 2 --wordpiece vocab.txt documents -o out", ["out"]),
    Scenario("prep-glue", "mh-prep glue --threads 2 --task mrpc --wordpiece vocab.txt mrpc.tsv -o out", ["out"]),
    Scenario("prep-examples", "mh-prep examples --threads 2 --text 4 --label 1 --labels 0,1 --vocab w mrpc.tsv -o out", ["out"]),
    Scenario("prep-squad", "mh-prep squad --threads 2 --wordpiece vocab.txt squad.json -o out", ["out"]),
    Scenario("prep-cat", "mh-prep cat t.mhs", stdout="out"),
    Scenario("prep-info", "mh-prep info t.mhs", stdout="out", in_sample=False),
    Scenario("prep-codes", "mh-prep codes w", stdout="out"),
    Scenario("train", "mh-train -q --threads 1 --config c.toml --out out", run_folder="out",
             resume_command="mh-train -q --threads 1 --resume --out out"),
    Scenario("train-shards", "mh-train -q --threads 1 --config c.toml --train t.mhs few.mhs --set data.weights=[2,1] --out out", run_folder="out",
             resume_command="mh-train -q --threads 1 --resume --out out", in_sample=False),
    Scenario("finetune", f"{FINETUNE} --set train.length=100u --set train.validation.every=10u --set train.checkpoint.retain=2 "
             "--set train.checkpoint.retain_by=best --out out",
             run_folder="out", resume_command="mh-finetune -q --threads 1 --resume --out out"),
    Scenario("finetune-seeds", f"{FINETUNE} --set train.length=40u --out out --seeds 3",
             run_folder="out", runs=["seed1", "seed2", "seed3"],
             resume_command=f"{FINETUNE} --set train.length=40u --out out --seeds 3 --resume", in_sample=False),
    Scenario("swap", "mh-swap -q model.safetensors --pairs decoder.self:0.1-1.3 -o out", ["out"]),
    Scenario("swap-optimizer", "mh-swap -q --with optimizer state.safetensors --pairs decoder.self:0.1-1.3 -o out", ["out"], in_sample=False),
    Scenario("cut", "mh-prune cut -q model.safetensors --heads 0:1,1:2 -o out", ["out"]),
    Scenario("convert", "mh-convert -q --average model.safetensors model.safetensors -o out", ["out"]),
    Scenario("convert-huggingface", "mh-convert -q --to huggingface gpt2.safetensors out", new_folder="out"),
    Scenario("eval", "mh-eval -q --per-token out model.safetensors t.mhs", ["out"], writes_after_output=True),
    Scenario("spectrum", "mh-spectrum -q --blocks 4 --curves out.tsv --dump out.safetensors --plot out.svg model.safetensors t.mhs",
             ["out.tsv", "out.safetensors", "out.svg"], writes_after_output=True, required_program="gnuplot"),
    Scenario("convert-fold", "mh-convert -q --fold alphas.safetensors -o out", ["out"], in_sample=False),
    Scenario("convert-folder", "mh-convert -q hf -o out", ["out"], in_sample=False),
    Scenario("eval-hypotheses", "mh-eval -q --beam 2 --max-length-b 10 --hypotheses out translator.safetensors p.mhs", ["out"],
             writes_after_output=True, in_sample=False),
    Scenario("eval-answers", "mh-eval -q --predictions out --best-answers best span.safetensors q.mhs", ["out", "best"],
             writes_after_output=True, in_sample=False),
    Scenario("eval-generate", "mh-eval generate -q --prompts few --length 4 model.safetensors", stdout="out", in_sample=False),
    Scenario("eval-translate", "mh-eval translate -q --beam 2 --max-length-b 10 translator.safetensors few", stdout="out", in_sample=False),
    Scenario("spectrum-experts", "mh-spectrum experts -q experts.safetensors t.mhs", stdout="out", in_sample=False),
    Scenario("prune-scan", "mh-prune scan -q --blocks 4 model.safetensors t.mhs", stdout="out", in_sample=False),
    Scenario("prune-rank", "mh-prune rank -q --by ablation --blocks 4 --plot out.svg model.safetensors t.mhs", ["out.svg"],
             writes_after_output=True, required_program="gnuplot", in_sample=False),
    Scenario("prune-curve", "mh-prune curve -q --by random --step 50% --blocks 4 --plot out.svg model.safetensors t.mhs", ["out.svg"],
             writes_after_output=True, required_program="gnuplot", in_sample=False),
]


@dataclasses.dataclass
class Model:
    """An input of scenarios that is made only if a scenario or a later model reads it."""
    name: str  # file or folder
    commands: list
    weights: str = ""  # for a training run in the folder `run`: the checkpoint of the run that becomes the file `name`


MODELS = [
    Model("model.safetensors", ["mh-train -q --threads 1 --config c.toml --out run"], "best"),
    Model("alphas.safetensors", ["mh-train -q --threads 1 --config c.toml --out run --set attention.combiner=alphas --set train.length=1u"], "last"),
    Model("state.safetensors", ["mh-train -q --threads 1 --config c.toml --out run --set train.length=1u"], "last"),
    Model("experts.safetensors", ["mh-train -q --threads 1 --config c.toml --out run --set attention.combiner=mae --set attention.mae.hidden=8 "
                                  "--set train.length=1u"], "last"),
    Model("gpt2.safetensors", ["mh-prep vocab -q --type byte-bpe --from gpt2 -o b", "mh-prep lm -q --vocab b text -o b.mhs",
                               f"mh-train -q --threads 1 --train b.mhs --out run {GPT2} --set train.length=1u"], "last"),
    Model("hf", ["mh-convert -q --to huggingface gpt2.safetensors hf"]),
    Model("translator.safetensors", ["mh-prep translation -q --vocab v few few -o p.mhs",
                                     f"mh-train -q --threads 1 --train p.mhs --out run {SMALL} --set model.backbone=encoder-decoder "
                                     "--set train.batch.sequence_length=16 --set train.length=1u"], "last"),
    Model("span.safetensors", ["mh-prep squad -q --wordpiece vocab.txt squad.json -o q.mhs",
                               f"mh-train -q --threads 1 --train q.mhs --out run {SPAN} --set train.length=1u"], "last"),
]


def needed_models(scenarios):
    """Returns the models that the scenarios read, and the models that these models need, in the order of MODELS."""
    commands = [scenario.command for scenario in scenarios]
    needed = []
    for model in reversed(MODELS):
        if any(model.name in command.split() for command in commands):
            needed.insert(0, model)
            commands += model.commands
    return needed


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


def call(command, folder, environment, stdout=subprocess.PIPE, timeout=TIMEOUT_SECONDS, **options):
    """Runs a command with the tools of `environment`; returns the finished process. Kills the command after `timeout` seconds and raises
    TimeoutExpired."""
    return subprocess.run(command.split(), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
                          text=True, errors="replace", check=False, timeout=timeout, **options)


def write_gpt2_vocabulary(folder):
    """Writes the vocabulary files of GPT-2 with a piece for each byte and one merge."""
    folder.mkdir()
    printable_bytes = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes whose piece is the character of the same number
    other_bytes = [byte for byte in range(256) if byte not in printable_bytes]
    letters = {**{byte: chr(byte) for byte in printable_bytes}, **{byte: chr(256 + i) for i, byte in enumerate(other_bytes)}}
    pieces = [*(letters[byte] for byte in range(256)), "<|endoftext|>", "\u0120w"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "merges.txt").write_text("#version: 0.2\n\u0120 w\n")


def make_inputs(folder, environment, scenarios):
    """Makes the inputs of the scenarios in `folder`."""
    text = make_text(400)
    lines = text.splitlines()
    (folder / "text").write_text(text)
    (folder / "few").write_text("".join(f"{line}\n" for line in lines[:40]))
    (folder / "documents").write_text("\n\n".join("\n".join(lines[i:i + 8]) for i in range(0, len(lines), 8)) + "\n")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(40))]) + "\n")
    (folder / "mrpc.tsv").write_text("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" +
                                     "".join(f"{i % 2}\t{i}\t{i}\t{lines[i]}\t{lines[i + 1]}\n" for i in range(300)))
    paragraphs = [{"context": line, "qas": [{"id": f"q{i}", "question": lines[i + 1], "answers": [{"text": line.split()[0], "answer_start": 0}]}]}
                  for i, line in enumerate(lines[:300])]
    (folder / "squad.json").write_text(json.dumps({"version": "1.1", "data": [{"title": "T", "paragraphs": paragraphs}]}))
    write_gpt2_vocabulary(folder / "gpt2")
    (folder / "c.toml").write_text(CONFIG)
    commands = ["mh-prep vocab -q text -o v", "mh-prep lm -q --vocab v text -o t.mhs", "mh-prep lm -q --vocab v few -o few.mhs",
                "mh-prep vocab -q --type wordpiece --from vocab.txt -o w"]
    for model in [Model("", commands), *needed_models(scenarios)]:
        for command in model.commands:
            process = call(command, folder, environment)
            if process.returncode != 0:
                sys.exit(f"{command}: {process.stderr}")
        if model.weights:
            shutil.copy(folder / "run" / f"{model.weights}.safetensors", folder / model.name)
            shutil.rmtree(folder / "run")


def read_output(path):
    """Returns the bytes of a file, {relative path: bytes} of the files in a folder, or None if `path` does not exist."""
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return path.read_bytes() if path.exists() else None


def remove_path(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


class Workplace:
    """A copy of the inputs in which one scenario runs repeatedly, and the outputs of its undisturbed run."""

    def __init__(self, scenario, inputs, folder, environment):
        self.scenario, self.folder, self.environment = scenario, folder, environment
        shutil.copytree(inputs, folder)
        start_time = time.monotonic()
        process = self.call(environment)
        self.duration = time.monotonic() - start_time  # duration of the undisturbed run, seconds
        if process.returncode != 0:
            sys.exit(f"{scenario.command}: {process.stderr}")
        self.outputs = [name for name in (*scenario.outputs, scenario.new_folder, scenario.stdout) if name]
        self.expected = {name: read_output(folder / name) for name in self.outputs}
        if scenario.run_folder:
            (folder / scenario.run_folder).rename(folder / "whole")
        self.inputs = {path.name for path in folder.iterdir()} - set(self.outputs)

    def call(self, environment, **options):
        """Runs the command of the scenario; returns the finished process."""
        with (self.folder / self.scenario.stdout if self.scenario.stdout else pathlib.Path(os.devnull)).open("w") as stdout:
            return call(self.scenario.command, self.folder, environment, stdout, **options)

    def reset(self):
        """Removes the files of the last run and restores the old outputs."""
        for path in self.folder.iterdir():
            if path.name not in self.inputs:
                remove_path(path)
        for name in self.scenario.outputs:
            (self.folder / name).write_bytes(OLD_CONTENT)

    def names_input(self, message):
        """Returns whether an error message names an input of the command."""
        return any(self.scenario.reads_input(name) and re.search(rf"[\s/]{re.escape(name)}([:/]|$)", message) for name in self.inputs)

    def find_problems(self, status, was_killed=False):
        """Returns a text for each problem after a run with exit status `status`: an output that is neither the old nor the new file, a new
        output after an error, a temporary file, or a training run that does not resume to the weights of the undisturbed run."""
        problems = []
        may_be_old = was_killed or status != 0
        for name in self.outputs:
            data, expected = read_output(self.folder / name), self.expected[name]
            if name == self.scenario.stdout:
                if not (data == expected or may_be_old and expected.startswith(data)):
                    problems.append(f"standard output: expected {'a part of ' * may_be_old}the complete output; found {len(data)} other bytes")
                continue
            old = OLD_CONTENT if name in self.scenario.outputs else None
            may_be_new = was_killed or status == 0 or self.scenario.writes_after_output
            if not (may_be_old and data == old or may_be_new and data == expected):
                found = "none" if data is None else f"{len(data)} other {'files' if isinstance(data, dict) else 'bytes'}"
                problems.append(f"{name}: expected the {' or the '.join(['old'] * may_be_old + ['new'] * may_be_new)} output; found {found}")
        if not was_killed:
            problems += [f"the temporary file {path.name} is left" for path in self.folder.rglob("*.part*")]
        if self.scenario.run_folder:
            problems += self.resume(is_complete=status == 0)
        if was_killed and self.scenario.new_folder:
            problems += self.rerun_into_new_folder()
        return problems

    def rerun_into_new_folder(self):
        """Runs the command beside the temporary folder of a killed run. Returns an error text if it fails or its folder differs."""
        folder = self.folder / self.scenario.new_folder
        if folder.exists():
            shutil.rmtree(folder)
        process = self.call(self.environment)
        if process.returncode != 0:
            return [f"the next run: exit status {process.returncode}: {process.stderr}"]
        return [] if read_output(folder) == self.expected[folder.name] else ["the folder of the next run differs"]

    def resume(self, is_complete):
        """Resumes the training run without faults unless it is complete; a run without config.toml starts again in its folder. Returns an
        error text if the command fails or the run differs from the undisturbed run."""
        run = self.folder / self.scenario.run_folder
        if not run.exists():
            return []  # the next start of the command equals its first start
        if not is_complete:
            command = self.scenario.resume_command if self.scenario.runs or (run / "config.toml").exists() else self.scenario.command
            process = call(command, self.folder, self.environment)
            if process.returncode != 0:
                return [f"{command}: exit status {process.returncode}: {process.stderr}"]
        try:
            for name in self.scenario.runs or [""]:
                same_run.require_same_runs(self.folder / "whole" / name, run / name)
        except (AssertionError, OSError) as error:
            return [f"the run differs from the undisturbed run: {error}"]
        return []


def parser_of(description):
    """Returns a parser with the options that failing_calls.py and kills.py share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[s.name for s in SCENARIOS], default=[])
    return parser


@dataclasses.dataclass
class Report:
    """The result of the test of one command."""
    details: str  # end of the line of the report
    num_survived: int
    num_tested: int
    problems: list  # a text for each problem


def test_commands(args, kind, test_command):
    """Calls test_command(workplace, args) for each chosen command, as many at a time as there are cores, and prints the Report of each
    command, then the sums of each tool and of all tools, and the last line. `kind`: name of the faults, such as "kills". Without --only and
    --full, only commands of the sample run. Without mh-train in the folder of the tools only mh-prep is tested. Returns the exit status."""
    has_models = (args.tools / "mh-train").exists()
    environment = dict(os.environ, PATH=f"{args.tools.resolve()}:{os.environ['PATH']}", LC_ALL="C.UTF-8", OMP_NUM_THREADS="1")
    chosen = [s for s in SCENARIOS if (s.name in args.only if args.only else s.in_sample or args.full) and (has_models or s.tool == "mh-prep")]
    missing = [s for s in chosen if s.required_program and shutil.which(s.required_program) is None]
    for scenario in missing:
        print(f"skipped: {scenario.name} ({scenario.required_program} is not installed)", flush=True)
        chosen.remove(scenario)
    num_failed, survived, tested = 0, collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        folder = pathlib.Path(name)
        inputs = folder / "inputs"
        inputs.mkdir()
        make_inputs(inputs, environment, chosen)
        reports = pool.map(lambda s: test_command(Workplace(s, inputs, folder / s.name, environment), args), chosen)
        for scenario, report in zip(chosen, reports):
            print(f"{scenario.name}: survived {report.num_survived} of {report.num_tested} {kind} {report.details}", flush=True)
            for problem in report.problems:
                print(f"failed: {scenario.name}: {problem}", flush=True)
            num_failed += bool(report.problems)
            survived[scenario.tool] += report.num_survived
            tested[scenario.tool] += report.num_tested
    for tool in sorted(tested):
        print(f"{tool}: survived {survived[tool]} of {tested[tool]} {kind}")
    print(f"all tools: survived {survived.total()} of {tested.total()} {kind}")
    print(f"mh-tests: {len(chosen) - num_failed} passed, {num_failed} failed, {len(missing)} skipped")
    return 1 if num_failed else 0
