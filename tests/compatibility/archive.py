#!/usr/bin/env python3
"""Archives the files and losses of a version, and checks that a later version reads the files and reproduces the losses.

    archive.py make TOOLS ARCHIVE       trains every combination with the tools in TOOLS and writes files and losses to ARCHIVE
    archive.py check TOOLS ARCHIVE [--full] [--only TEXT]
                                        reads the files and recomputes the losses, which must agree up to rounding (TOLERANCE);
                                        without --full and --only a subset of the combinations
    archive.py same OLD NEW [--only TEXT]
                                        trains every combination with both versions of the tools; numbers and tensors must be
                                        equal bit for bit

A combination is a backbone, a method of configs/methods and a procedure. Its run takes 20 updates and is interrupted after 10.
For a combination that the tools refuse, the archive records the exit status; later versions must refuse it too.
"""
import argparse
import concurrent.futures
import hashlib
import json
import lzma
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/cli"))
import tolerance

UPDATES = 20
# Results from machines with different vector instructions differ by rounding errors. A forward pass of a model of the archive has a chain of
# at most NUM_ROUNDINGS roundings (tolerance.pass_roundings), a backward pass as many. Losses and gradients are means over BATCH_TOKENS
# tokens, whose errors are independent. Scores have the errors of one forward pass over more tokens.
NUM_ROUNDINGS, BATCH_TOKENS = 1024, 32
TOLERANCE = tolerance.chain_bound(2 * UPDATES * NUM_ROUNDINGS / BATCH_TOKENS, 1)  # relative

# The configuration of every run, with the key names of the version that made the archive. Later versions translate
# renamed keys, here and in the archived files.
MODEL = """
[model]
layers = 2
width = 8
ffn = 8
dropout_embedding = 0.1
dropout_attention = 0.1
dropout_ffn = 0.1
[attention]
heads = 4
head_size = 2
dropout = 0.1
[train]
length = "10u"
horizon = "20u"
block = 8
batch_tokens = 32
micro_tokens = 16
lr = 0.01
warmup = "4u"
schedule = "inverse-sqrt"
clip = 1.0
log_every = "1u"
validate_every = "10u"
"""
BACKBONES = {
    "decoder": "",
    "adaptive": "[model]\ninput_cutoffs = [8, 12]\noutput_cutoffs = [8, 12]\ncutoff_factor = 2\ntied = true\ntied_projections = true\n",
    "transformer-xl": 'include = "CONFIGS/backbones/transformer-xl.toml"\n[model]\nmemory = 8\n',
    "encoder-decoder": '[model]\nbackbone = "encoder-decoder"\n[train]\nblock = 24\nbatch_tokens = 48\nmicro_tokens = 24\n',
    "bert": '[model]\nbackbone = "bert"\nhead = "words"\n[train]\nblock = 24\nbatch_tokens = 48\nmicro_tokens = 24\n',
}
PROCEDURES = {
    "none": "",
    "block-coordinate": "[train.procedures.block-coordinate]\nevery = 2\n",
    "skip-retain": '[train.procedures.skip-retain]\nuntil = "5u"\n[train]\nvalidate_every = "2u"\n',
    "head-rotation": '[train.procedures.head-rotation]\nmode = "hard"\nstart = 2\nfrequency = 1\nk = 2\nend = 40\n'
                     '[train]\nbatch_tokens = 256\nmicro_tokens = 128\nvalidate_every = "1e"\n',
}
EXTRA_COMBINATION = ("decoder", "mae", "block-coordinate")
METHODS = ["none"] + sorted(path.stem for path in (ROOT / "configs/methods").glob("*.toml"))
# Additional settings of methods whose defaults do not fit the small models of MODEL.
METHOD_SETTINGS = {name: "[attention.mae]\nhidden = 4\n" for name in ("mae", "mae-joint")}


def combinations(only=""):
    return [
        combination for combination in ((backbone, method, procedure) for backbone in BACKBONES for method in METHODS
                                        for procedure in PROCEDURES) if only in name_of(combination)
    ]


def name_of(combination):
    return "+".join(combination)


def keeps_model(combination):
    """Returns whether the archive has the best model of a combination. It has the models of every backbone with every method, and of every
    backbone with every procedure."""
    _, method, procedure = combination
    return procedure == "none" or method == "none"


def keeps_state(combination):
    """Returns whether the archive has the training state of a combination. It has the states of every method with the decoder, and of every
    backbone with every procedure; all states would make the archive too large."""
    backbone, method, procedure = combination
    return method == "none" or (procedure == "none" and backbone == "decoder")


def is_in_default_subset(combination):
    """Returns whether a combination is checked without --full. This subset has each method, backbone and procedure at least once, and
    EXTRA_COMBINATION, since block coordinate descent refuses models without gates."""
    if combination == EXTRA_COMBINATION:
        return True
    backbone, method, procedure = combination
    index = METHODS.index(method) + list(PROCEDURES).index(procedure)
    return keeps_model(combination) and index % len(BACKBONES) == list(BACKBONES).index(backbone)


class Tools:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        # Tools of another checkout use the configurations of that checkout, since the key names may differ.
        own_configs = self.folder.parent.parent / "configs"
        self.configs = own_configs if own_configs.is_dir() else ROOT / "configs"
        # The version that made the archive, and the versions until dropout_index was added, draw dropout by the index in the padded batch.
        keys = self.run("mh-train", "--list", "keys", expected=(0, 2)).stdout
        self.dropout = '[train]\ndropout_index = "padded"\n' if "dropout_index" in keys else ""

    def run(self, tool, *arguments, expected=(0,), folder=None):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        process = subprocess.run([str(self.folder / tool), *map(str, arguments)], capture_output=True, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, env=environment, cwd=folder, check=False)
        if process.returncode not in expected:
            raise RuntimeError(f"{tool} {' '.join(map(str, arguments))}: exit status {process.returncode}: {process.stderr.strip()}")
        return process


def text_lines():
    """Yields lines of a text with few words, drawn by a linear congruential generator with a fixed seed."""
    state, words = 1, "the cat sat on a mat and so did no dog at all".split()
    for _ in range(60):
        line = []
        for _ in range(4 + state % 3):
            state = (state * 1103515245 + 12345) % 2**31
            line.append(words[(state >> 16) % len(words)])
        yield " ".join(line)


def make_shards(tools, folder):
    """Makes a shard of each kind in `folder`, and byte-level shards of text and pairs. Character vocabularies keep the models small."""
    folder.mkdir(parents=True)
    lines = list(text_lines())

    def write(name, text):
        (folder / name).write_text(text, encoding="utf-8")

    write("text", "\n".join(lines) + "\n")
    write("reversed", "\n".join(line[::-1] for line in lines) + "\n")
    write("documents", "\n".join(line + ("\n" if i % 4 == 3 else "") for i, line in enumerate(lines)) + "\n")
    write("vocab.txt", "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(" ".join(lines).split()))]) + "\n")
    write("mrpc.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + "".join(
        f"{i % 2}\t{i}\t{i}\t{line}\t{lines[i - 1]}\n" for i, line in enumerate(lines[:24])))
    paragraphs = [{"context": line, "qas": [{"id": str(i), "question": "who " + line.split()[1],
                                            "answers": [{"text": line.split()[0], "answer_start": 0}]}]}
                  for i, line in enumerate(lines[:12])]
    write("squad.json", json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    for command in ("vocab --type char text -o char.vocab", "vocab --type byte text -o byte.vocab",  #
                    "lm --vocab char.vocab text -o lm.mhs", "lm --vocab byte.vocab text -o lm-bytes.mhs",
                    "translation --vocab char.vocab text reversed -o pairs.mhs",
                    "translation --vocab byte.vocab text reversed -o pairs-bytes.mhs",
                    "mlm --wordpiece vocab.txt documents -o documents.mhs",
                    "glue --task mrpc --wordpiece vocab.txt mrpc.tsv -o examples.mhs",
                    "squad --wordpiece vocab.txt squad.json -o questions.mhs"):
        tools.run("mh-prep", *command.split(), folder=folder)  # relative names, since a shard records the names of its sources


def shard_of(backbone):
    return {"encoder-decoder": "pairs.mhs", "bert": "documents.mhs"}.get(backbone, "lm.mhs")


def write_config(tools, folder, combination):
    """Writes the configuration of a combination into `folder`. Returns the arguments of mh-train that read it."""
    backbone, method, procedure = combination
    parts = {"backbone": BACKBONES[backbone], "procedure": PROCEDURES[procedure], "dropout": tools.dropout}
    files = [folder / "model.toml"]
    files[0].write_text(MODEL, encoding="utf-8")
    if method != "none":
        files.append(tools.configs / f"methods/{method}.toml")
        parts["method"] = METHOD_SETTINGS.get(method, "")
    for part, text in parts.items():
        files.append(folder / f"{part}.toml")
        files[-1].write_text(text.replace("CONFIGS", str(tools.configs)), encoding="utf-8")
    return [argument for file in files for argument in ("--config", file)]


def losses_by_update(run):
    """Returns {update: loss} of the folder `run`, in the order of its log.jsonl."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return {str(line["update"]): line["loss"] for line in lines if "tokens_per_second" in line}


def resume_run(tools, shards, run, combination):
    shard = shards / shard_of(combination[0])
    tools.run("mh-train", "-q", "--threads", 1, "--resume", "--out", run, "--train", shard, "--valid", shard, "--set",
              f"train.length={UPDATES}u")
    return losses_by_update(run)


def start_training(tools, shards, folder, combination):
    """Trains a combination for the first 10 updates, in folder/run. Returns 0, or 2 if mh-train refuses the combination."""
    folder.mkdir(parents=True)
    shard = shards / shard_of(combination[0])
    return tools.run("mh-train", "-q", "--threads", 1, *write_config(tools, folder, combination), "--train", shard, "--valid", shard, "--out",
                     folder / "run", expected=(0, 2)).returncode


def score_model(tools, model, shard):
    """Returns the numbers that mh-eval prints for a model, by name."""
    process = tools.run("mh-eval", "-q", "--threads", 1, "--format", "json", model, shard)
    return {name: value for name, value in json.loads(process.stdout.splitlines()[0]).items() if isinstance(value, (int, float))}


def prune_first_head(tools, model, pruned, backbone):
    """Prunes the first head of the first layer of `model`. Returns 0, or 2 if mh-prune refuses to."""
    head = {"encoder-decoder": "decoder.self:0:0"}.get(backbone, "0:0")
    return tools.run("mh-prune", "cut", "-q", model, "--heads", head, "-o", pruned, expected=(0, 2)).returncode


def train_combination(tools, shards, folder, combination):
    """Trains a combination and returns its losses and scores.

    Writes to `folder`: run (all 20 updates), interrupted (copy of run after 10 updates), pruned.safetensors and bf16 (a bf16 run).
    """
    status = start_training(tools, shards, folder, combination)
    if status != 0:
        return {"refused": status}
    run, shard = folder / "run", shards / shard_of(combination[0])
    shutil.copytree(run, folder / "interrupted")
    result = {"losses": resume_run(tools, shards, run, combination)}
    if keeps_model(combination):
        best = folder / "interrupted/best.safetensors"
        result["score"] = score_model(tools, best, shard)
        status = prune_first_head(tools, best, folder / "pruned.safetensors", combination[0])
        result["pruned"] = {"refused": status} if status else score_model(tools, folder / "pruned.safetensors", shard)
    if combination[1:] == ("none", "none"):
        tools.run("mh-train", "-q", "--threads", 1, *write_config(tools, folder, combination), "--precision", "bf16", "--train", shard, "--valid",
                  shard, "--out", folder / "bf16")
        result["bf16"] = score_model(tools, folder / "bf16/best.safetensors", shard)
    return result


def require_some(chosen_combinations):
    if not chosen_combinations:
        sys.exit("archive.py: --only: expected a part of the name BACKBONE+METHOD+PROCEDURE of a combination; found no combination with this text; choose another text")
    return chosen_combinations


def run_each(chosen_combinations, work):
    """Runs work(combination) on all cores and yields (name, result) in the order of `chosen_combinations`."""
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from zip(map(name_of, chosen_combinations), pool.map(work, chosen_combinations))


def make_archive(arguments):
    tools = Tools(arguments.tools)
    with tempfile.TemporaryDirectory() as work_folder:
        work_folder = pathlib.Path(work_folder)
        make_shards(tools, work_folder / "shards")
        results = dict(run_each(combinations(), lambda combination: train_combination(
            tools, work_folder / "shards", work_folder / "all" / name_of(combination), combination)))
        for combination in combinations():
            name, run_folder, archived_folder = name_of(combination), work_folder / "all" / name_of(combination), work_folder / "archived" / name_of(combination)
            if "refused" in results[name] or not keeps_model(combination):
                continue
            archived_folder.mkdir(parents=True)
            if keeps_state(combination):
                shutil.copytree(run_folder / "interrupted", archived_folder / "run")
            else:
                (archived_folder / "run").mkdir()
                shutil.copy(run_folder / "interrupted/best.safetensors", archived_folder / "run")
            if (run_folder / "pruned.safetensors").exists() and keeps_state(combination) and combination[2] == "none":
                shutil.copy(run_folder / "pruned.safetensors", archived_folder)
            if (run_folder / "bf16").exists() and combination[0] in ("decoder", "bert"):
                shutil.copy(run_folder / "bf16/best.safetensors", archived_folder / "bf16.safetensors")
        (work_folder / "archived/results.json").write_text(json.dumps(results), encoding="utf-8")
        shutil.move(work_folder / "shards", work_folder / "archived/shards")
        with tarfile.open(arguments.archive, "w:xz", preset=9) as archive:
            for path in sorted((work_folder / "archived").rglob("*"), key=lambda path: (path.name, str(path))):
                member = archive.gettarinfo(path, str(path.relative_to(work_folder / "archived")))
                member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
                with (open(path, "rb") if path.is_file() else open(os.devnull, "rb")) as data:
                    archive.addfile(member, data if path.is_file() else None)
        num_refused = sum("refused" in result for result in results.values())
        print(f"{arguments.archive}: {os.path.getsize(arguments.archive)} bytes, {len(results)} combinations, {num_refused} of them refused")


def find_differences(expected, actual, relative_tolerance):
    """Yields one line for each difference of two results."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            if key not in expected or key not in actual:
                yield f"{key}: expected {expected.get(key)}; found {actual.get(key)}"
            else:
                yield from (f"{key}: {line}" for line in find_differences(expected[key], actual[key], relative_tolerance))
    elif isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        if not math.isclose(expected, actual, rel_tol=relative_tolerance):
            yield f"expected {expected!r}; found {actual!r}"
    elif expected != actual:
        yield f"expected {expected!r}; found {actual!r}"


def recompute_results(tools, shards, archived_folder, folder, combination, recorded):
    """Recomputes losses and scores of a combination from its archived files in `archived_folder`, for comparison with `recorded`.
    Removes the bf16 score from `recorded` if the archive lacks the bf16 model."""
    if "refused" in recorded or not (archived_folder / "run").exists():
        status = start_training(tools, shards, folder, combination)
        return {"refused": status} if status else {"losses": losses_by_update(folder / "run")}
    shard, result = shards / shard_of(combination[0]), {}
    if keeps_state(combination):
        shutil.copytree(archived_folder / "run", folder / "resumed")
        result["losses"] = resume_run(tools, shards, folder / "resumed", combination)
    else:
        start_training(tools, shards, folder, combination)
        result["losses"] = losses_by_update(folder / "run")
    result["score"] = score_model(tools, archived_folder / "run/best.safetensors", shard)
    status = prune_first_head(tools, archived_folder / "run/best.safetensors", folder / "pruned.safetensors", combination[0])
    result["pruned"] = {"refused": status} if status else score_model(tools, folder / "pruned.safetensors", shard)
    if (archived_folder / "pruned.safetensors").exists() and \
            score_model(tools, archived_folder / "pruned.safetensors", shard) != result["pruned"]:
        result["pruned"] = "the archived pruned model and the model pruned by these tools have different scores"
    if (archived_folder / "bf16.safetensors").exists():
        result["bf16"] = score_model(tools, archived_folder / "bf16.safetensors", shard)
    else:
        recorded.pop("bf16", None)
    return result


def check_archive(arguments):
    tools = Tools(arguments.tools)
    num_different = 0
    with tempfile.TemporaryDirectory() as work_folder:
        work_folder = pathlib.Path(work_folder)
        try:
            with tarfile.open(arguments.archive) as archive:
                archive.extractall(work_folder / "archived")
        except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
            sys.exit(f"archive.py: {arguments.archive}: expected an archive that `archive.py make` wrote; found: {error}; pass another archive")
        results = json.loads((work_folder / "archived/results.json").read_text(encoding="utf-8"))
        shards = work_folder / "archived/shards"
        for shard in sorted(shards.glob("*.mhs")):
            tools.run("mh-prep", "info", "-q", shard)
        # Checks only archived combinations: the archive has no results for methods that were added later.
        archived_combinations = [tuple(name.split("+")) for name in results if arguments.only in name]
        chosen_combinations = require_some([combination for combination in archived_combinations
                                            if arguments.full or arguments.only or is_in_default_subset(combination)])

        def work(combination):
            recorded = dict(results[name_of(combination)])
            actual = recompute_results(tools, shards, work_folder / "archived" / name_of(combination),
                                       work_folder / "new" / name_of(combination), combination, recorded)
            if "losses" in actual and "losses" in recorded:  # a run without an archived training state has only the first 10 updates
                recorded["losses"] = {update: loss for update, loss in recorded["losses"].items() if update in actual["losses"]}
            return list(find_differences(recorded, actual, TOLERANCE))

        for name, lines in run_each(chosen_combinations, work):
            num_different += bool(lines)
            for line in lines:
                print(f"{name}: {line}")
        print(f"{len(chosen_combinations)} combinations, {num_different} differ")
    return num_different


def tensors_checksum(path):
    """Returns the SHA-256 of the tensors of a checkpoint; its metadata may differ between versions."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode() + data[start:]).hexdigest()


def check_same(arguments):
    num_different = 0
    with tempfile.TemporaryDirectory() as work_folder:
        work_folder = pathlib.Path(work_folder)
        versions = {"old": Tools(arguments.old), "new": Tools(arguments.new)}
        for version, tools in versions.items():
            make_shards(tools, work_folder / version / "shards")
        for path in sorted((work_folder / "old/shards").iterdir()):
            if path.read_bytes() != (work_folder / "new/shards" / path.name).read_bytes():
                num_different += 1
                print(f"{path.name}: differs")
        chosen_combinations = require_some(combinations(arguments.only))

        def work(combination):
            results, checksums = [], []
            for version, tools in versions.items():
                folder = work_folder / version / "runs" / name_of(combination)
                results.append(train_combination(tools, work_folder / version / "shards", folder, combination))
                checksums.append({str(path.relative_to(folder)): tensors_checksum(path) for path in sorted(folder.rglob("*.safetensors"))})
                shutil.rmtree(folder)
            return [*find_differences(*results, 0), *find_differences(*checksums, 0)]

        for name, lines in run_each(chosen_combinations, work):
            num_different += bool(lines)
            for line in lines:
                print(f"{name}: {line}")
        print(f"{len(chosen_combinations)} combinations, {num_different} differ")
    return num_different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, positional in {"make": ("tools", "archive"), "check": ("tools", "archive"), "same": ("old", "new")}.items():
        command = commands.add_parser(name)
        for argument in positional:
            command.add_argument(argument)
        command.add_argument("--only", default="", help="text that the name of a combination must contain, such as decoder+mae; default: all combinations")
        command.add_argument("--full", action="store_true", help="check all combinations")
    arguments = parser.parse_args()
    return 1 if {"make": make_archive, "check": check_archive, "same": check_same}[arguments.command](arguments) else 0


if __name__ == "__main__":
    sys.exit(main())
