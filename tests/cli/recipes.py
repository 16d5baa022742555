#!/usr/bin/env python3
"""Checks that each recipe of a paper builds, has the parameter count of its comment and the training length of its paper, and is
listed in the table of README.md.

usage: recipes.py FOLDER-OF-TOOLS FOLDER-OF-RECIPES [--write]
A recipe is FOLDER/PAPER/NAME.toml and begins with

    # PAPER, TABLE: ROW.
    # Parameters: 156,000,256 (paper: 156M). PUBLISHED NUMBER.

FOLDER/NAME.toml belongs to no paper and must only build, with a vocabulary of 8,000. Prints a line for each fault; exit status 1
if there is a fault. --write updates the parameter counts in the comments and the table.
"""
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys

comment = re.compile(r"# (?P<title>.+)\.\n# Parameters: (?P<count>[\d,]+)(?: \(paper: (?P<paper>[^)]+)\))?\. (?P<published>.+)\n")
# The training of each recipe, from the papers, their published code, and the choices stated in the comments of base recipes:
# (length, tokens per update, warm-up in updates, epochs of the text). The first matching pattern applies. For pairs and
# examples the updates per epoch depend on the data, so a length in epochs has no fourth entry.
training = {
    # fairseq's examples and the released script of Transformer-XL; half of Baevski & Auli's batch
    "mixhead/table1-vanilla*": ("50000u", 65536, 4000, 31.7),
    "mixhead/table1-transformer-xl*": ("200000u", 9000, 0, 17.4),
    "mixhead/table1-*": ("286000u", 36864, 16000, 102.1),  # Transformer-Baevski and Synthesizer
    "mixhead/table2-vanilla*": ("20000u", 9216, 4000, 88.2),
    "mixhead/table2-transformer-xl*": ("20000u", 9000, 0, 86.2),
    "mixhead/table3-baevski*": ("286000u", 36864, 16000, 13.2),
    "mixhead/table3-transformer-xl*": ("500000u", 7168, 20000, 4.5),
    "mixhead/table4-*": ("50e", 4096, 4000),
    "mixhead/text-long*": ("50e", 4096, 4000),
    "mixhead/table5-*-mixhead-b": ("5e", 4096, 0),  # 32 rows of 128 tokens; the warm-up is 10% of the updates
    "mixhead/table5-*": ("3e", 4096, 0),
    "mixhead/table6-mixhead-b": ("5e", 9216, 0),  # 24 rows of 384
    "mixhead/table6": ("2e", 9216, 0),
    "mixhead/table[789]-*": ("286000u", 36864, 16000, 102.1),
    "mixhead/table10-*": ("286000u", 36864, 16000, 102.1),
    # WMT14: the baseline as in fairseq's issue 346, the others with twice its warm-up
    "mae/table2-base": ("100000u", 32768, 4000),
    "mae/table[25]-*": ("100000u", 32768, 8000),
    "mae/table3-*": ("50e", 4096, 8000),
    "mae/table4-*": ("286000u", 73728, 16000, 204.3),
    "mae/table7-noft": ("100000u", 32768, 8000),
    "mae/table7-scratch": ("52000u", 4096, 8000),
    "mae/table7-ftall": ("12000u", 4096, 0),
    "mae/table7-*": ("1000u", 4096, 0),
    "mae/figure2-ftall": ("12000u", 4096, 0),
    "mae/figure2-*": ("1000u", 4096, 0),
    "mae/figure3-*": ("60e", 4096, 8000),
    # updates = hours of training / seconds per batch; table 2: the published script
    "skip-cross-head/table1": ("500000u", 30720, 4000),
    "skip-cross-head/table2": ("1200000u", 16384, 16000, 190.5),
    "skip-cross-head/table4-*": ("3e", 4096, 0),
    "skip-cross-head/table5-both": ("688000u", 25600, 16000, 170.6),
    "skip-cross-head/table5-transformer-xl": ("560000u", 25600, 16000, 138.9),
    "skip-cross-head/table5-phase1": ("496000u", 25600, 16000, 123.0),
    "skip-cross-head/table5-*": ("624000u", 25600, 16000, 154.8),
    "skip-cross-head/table6-beta-0": ("560000u", 25600, 16000, 138.9),
    "skip-cross-head/table6-*": ("624000u", 25600, 16000, 154.8),
    "skip-cross-head/table[78]-*": ("496000u", 25600, 16000, 123.0),
    "skip-cross-head/table9-*": ("624000u", 25600, 16000, 154.8),
    "skip-cross-head/table10-*-sch": ("624000u", 25600, 16000, 154.8),
    "skip-cross-head/table10-*": ("560000u", 25600, 16000, 138.9),
    # from memory: 250,000 updates on LM1B, 500,000 updates of 1024 rows for BERT
    "fixhead/figure[13]*": ("250000u", 65536, 10000),
    "fixhead/*": ("500000u", 131072, 5000),
    "rotation/*": ("50e", 4096, 4000),
}
# Tokens of each training text in the vocabulary of the recipes, ends of lines included.
text_tokens = {"WikiText-103": 103227021, "WikiText-2": 2088628, "LM1B": 798949912}
mark = "<!-- The table below is written by tests/cli/recipes.py. -->\n"


def dry_run(tools, recipe, *options):
    """Returns (result of `mh-train --dry-run`, "") or ({}, error message)."""
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run([tools / "mh-train", "--dry-run", "--format", "json", "--config", recipe, *options], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, check=False, env=environment)
    return (json.loads(done.stdout), "") if done.returncode == 0 else ({}, done.stderr.strip())


def of_small(recipe):
    """Returns options of mh-train for the settings that a small recipe takes from its data and, for fine-tuning, from the checkpoint."""
    model = ["--set", "model.backbone=bert"] if "mh-finetune" in recipe.read_text() else []
    return ["--set", "model.vocabulary_rows=8000", *model]


def agrees(counted, paper):
    """Returns whether a parameter count agrees with the count of the paper: exactly, or in millions (rounded or truncated) plus the
    parameters that a method adds. Returns true if the text `paper` states a reason for a difference after a comma."""
    exact = re.fullmatch(r"(\d{1,3}(?:,\d{3})+)(, .+)?", paper)
    if exact:
        return bool(exact.group(2)) or int(exact.group(1).replace(",", "")) == counted
    millions = re.fullmatch(r"(\d+)M(?: \+ ([\d,]+))?(, .+)?", paper)
    if not millions:
        return False
    if millions.group(3):
        return True
    added = int((millions.group(2) or "0").replace(",", ""))
    return int(millions.group(1)) in ((counted - added) // 10**6, round((counted - added) / 10**6))


def trained(found, name, title):
    """Returns the training of a recipe in the form of the entries of `training`. `found`: result of mh-train --dry-run."""
    tokens = next((count for text, count in text_tokens.items() if title.endswith(f"on {text}")), 0)
    resolved = (found["length"], found["tokens_per_update"], found.get("warmup_updates", 0))
    if not tokens or name.parts[0] == "fixhead":  # fixhead trains on subword pieces, and text_tokens counts words
        return resolved
    return (*resolved, round(found["updates"] * found["tokens_per_update"] / tokens, 1))


def describe_training(length, tokens, warmup, epochs=None):
    """Returns the description of a training for the table."""
    count, unit = f"{int(length[:-1]):,}", {"u": "updates", "e": "epochs"}[length[-1]]
    text = f"{count} updates of {tokens:,} tokens" if unit == "updates" else f"{count} epochs, {tokens:,} tokens an update"
    return text + (f" ({epochs:g} epochs)" if epochs else "") + (f", warm-up {warmup:,}" if warmup else "")


def order(path):
    """Returns a sort key with numbers in numeric order: table2 before table10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(path))]


def main():
    tools, folder = map(pathlib.Path, sys.argv[1:3])
    write = "--write" in sys.argv
    recipes = sorted((p for p in folder.glob("*/*.toml") if p.parent.name != "base"), key=order)
    wrong, table = [], "| recipe | experiment | training | parameters | paper's | published |\n|---|---|---|---:|---:|---|\n"
    if not recipes:
        wrong.append(f"{folder}: expected recipes FOLDER/PAPER/NAME.toml; found none")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        built = list(pool.map(lambda recipe: dry_run(tools, recipe), recipes))
        small = sorted(folder.glob("*.toml"))
        for recipe, (_, error) in zip(small, pool.map(lambda r: dry_run(tools, r, *of_small(r)), small)):
            wrong += [f"{recipe.name}: {error}"] if error else []
    for recipe, (found, error) in zip(recipes, built):
        name, text = recipe.relative_to(folder), recipe.read_text()
        said = comment.match(text)
        if not said:
            wrong.append(f"{name}: expected a first comment with experiment, parameters and published number; found none")
        elif error:
            wrong.append(f"{name}: {error}")
        else:
            # With a length in epochs, the number of updates depends on the data.
            updates = [] if found.get("length", "").endswith("e") else ["updates"]
            wrong += [f"{name}: expected {key} in the output of --dry-run; found none"
                      for key in ("parameters", "tokens_per_update", "memory_bytes", *updates) if not found.get(key, 0) > 0]
            counted = f"{found['parameters']:,}"
            if write and counted != said["count"]:
                start, end = said.span("count")
                recipe.write_text(text[:start] + counted + text[end:])
            elif counted != said["count"]:
                wrong.append(f"{name}: expected the parameter count of the comment, {said['count']}; found {counted}; run recipes.py with --write")
            if said["paper"] and not agrees(found["parameters"], said["paper"]):
                wrong.append(f"{name}: expected the parameter count of the paper, {said['paper']}; found {counted}")
            training_of = trained(found, name, said["title"])
            expected = next((value for pattern, value in training.items() if fnmatch.fnmatch(str(name.with_suffix("")), pattern)), None)
            if expected is None:
                wrong.append(f"{name}: expected its training in tests/cli/recipes.py; found none for {describe_training(*training_of)}")
            elif expected != training_of:
                wrong.append(f"{name}: expected {describe_training(*expected)}; found {describe_training(*training_of)}")
            table += f"| [{name.with_suffix('')}]({name}) | {said['title']} | {describe_training(*training_of)} | {counted} | {said['paper'] or ''} | {said['published'].rstrip('.')} |\n"
    page = folder / "README.md"
    before, _, after = page.read_text().partition(mark)
    if write:
        page.write_text(before + mark + table)
    elif after != table:
        wrong.append(f"{page}: expected the table of all recipes; found another; run recipes.py with --write")
    print("\n".join(wrong) if wrong else f"{len(recipes)} recipes, {len(small)} small ones")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
