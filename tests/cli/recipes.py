#!/usr/bin/env python3
"""Each recipe of a paper builds, has the parameters that its comment states, trains for as long as its paper says, and is in
the table of README.md.

usage: recipes.py FOLDER-OF-TOOLS FOLDER-OF-RECIPES [--write]
A recipe is FOLDER/PAPER/NAME.toml and begins with

    # PAPER, TABLE: ROW.
    # Parameters: 156,000,256 (paper: 156M). PUBLISHED NUMBER.

FOLDER/NAME.toml is of no paper; it only has to build, with a vocabulary of 8,000. Prints what is wrong; exit status 1 if
anything is. --write puts the counted parameters into the comments and writes the table again.
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
# How long each recipe trains, from the papers, the code that they name, and the choices that a body's comment states: length,
# tokens in an update, warm-up in updates, epochs of the text. A recipe has the first pattern that it matches. An epoch of
# pairs and of examples is as many updates as their lengths give, so a length in epochs is the whole of it.
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
    "mixhead/table5-*-mixhead-b": ("5e", 4096, 0),  # 32 rows of 128 tokens; the warm-up is a tenth of the updates
    "mixhead/table5-*": ("3e", 4096, 0),
    "mixhead/table6-mixhead-b": ("5e", 9216, 0),  # 24 rows of 384
    "mixhead/table6": ("2e", 9216, 0),
    "mixhead/table[789]-*": ("286000u", 36864, 16000, 102.1),
    "mixhead/table10-*": ("286000u", 36864, 16000, 102.1),
    # the plain model of WMT14 by fairseq's issue 346, the others with twice its warm-up
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
    # hours over seconds a batch; the script of table 2
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
    # recollected: 250,000 updates on LM1B, 500,000 of 1024 rows for BERT
    "fixhead/figure[13]*": ("250000u", 65536, 10000),
    "fixhead/*": ("500000u", 131072, 5000),
    "rotation/*": ("50e", 4096, 4000),
}
# Tokens of a text in the vocabulary of the recipes, a line's end counted.
text_tokens = {"WikiText-103": 103227021, "WikiText-2": 2088628, "LM1B": 798949912}
mark = "<!-- The table below is written by tests/cli/recipes.py. -->\n"


def dry_run(tools, recipe, *options):
    """What mh-train says that it would build, or its error."""
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run([tools / "mh-train", "--dry-run", "--format", "json", "--config", recipe, *options], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, check=False, env=environment)
    return (json.loads(done.stdout), "") if done.returncode == 0 else ({}, done.stderr.strip())


def of_small(recipe):
    """What a recipe of no paper leaves to its data, and to the checkpoint where it is one of fine-tuning."""
    model = ["--set", "model.backbone=bert"] if "mh-finetune" in recipe.read_text() else []
    return ["--set", "model.vocabulary_rows=8000", *model]


def agrees(counted, paper):
    """Whether a count is the paper's: to the last digit, or its millions, rounded or cut, with what a method adds. It need not be
    where the comment says why."""
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
    """How long a recipe trains, by --dry-run: as the entries of `training`."""
    tokens = next((count for text, count in text_tokens.items() if title.endswith(f"on {text}")), 0)
    resolved = (found["length"], found["tokens_per_update"], found.get("warmup_updates", 0))
    if not tokens or name.parts[0] == "fixhead":  # whose pieces are fewer or more than words
        return resolved
    return (*resolved, round(found["updates"] * found["tokens_per_update"] / tokens, 1))


def describe_training(length, tokens, warmup, epochs=None):
    """The same in words."""
    count, unit = f"{int(length[:-1]):,}", {"u": "updates", "e": "epochs"}[length[-1]]
    text = f"{count} updates of {tokens:,} tokens" if unit == "updates" else f"{count} epochs, {tokens:,} tokens an update"
    return text + (f" ({epochs:g} epochs)" if epochs else "") + (f", warm-up {warmup:,}" if warmup else "")


def order(path):
    """Tables by number: table2 before table10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(path))]


def main():
    tools, folder = map(pathlib.Path, sys.argv[1:3])
    write = "--write" in sys.argv
    recipes = sorted((p for p in folder.glob("*/*.toml") if p.parent.name != "base"), key=order)
    wrong, table = [], "| recipe | experiment | training | parameters | paper's | published |\n|---|---|---|---:|---:|---|\n"
    if not recipes:
        wrong.append(f"{folder}: no recipes")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        built = list(pool.map(lambda recipe: dry_run(tools, recipe), recipes))
        small = sorted(folder.glob("*.toml"))
        for recipe, (_, error) in zip(small, pool.map(lambda r: dry_run(tools, r, *of_small(r)), small)):
            wrong += [f"{recipe.name}: {error}"] if error else []
    for recipe, (found, error) in zip(recipes, built):
        name, text = recipe.relative_to(folder), recipe.read_text()
        said = comment.match(text)
        if not said:
            wrong.append(f"{name}: does not begin with its experiment, parameters and published number")
        elif error:
            wrong.append(f"{name}: {error}")
        else:
            # How many updates an epoch has is known with its data.
            updates = [] if found.get("length", "").endswith("e") else ["updates"]
            wrong += [f"{name}: --dry-run does not print {key}"
                      for key in ("parameters", "tokens_per_update", "memory_bytes", *updates) if not found.get(key, 0) > 0]
            counted = f"{found['parameters']:,}"
            if write and counted != said["count"]:
                start, end = said.span("count")
                recipe.write_text(text[:start] + counted + text[end:])
            elif counted != said["count"]:
                wrong.append(f"{name}: its comment says {said['count']} parameters; found {counted}")
            if said["paper"] and not agrees(found["parameters"], said["paper"]):
                wrong.append(f"{name}: the paper has {said['paper']} parameters; found {counted}")
            training_of = trained(found, name, said["title"])
            expected = next((value for pattern, value in training.items() if fnmatch.fnmatch(str(name.with_suffix("")), pattern)), None)
            if expected is None:
                wrong.append(f"{name}: tests/cli/recipes.py does not say how long it trains; found {describe_training(*training_of)}")
            elif expected != training_of:
                wrong.append(f"{name}: expected {describe_training(*expected)}; found {describe_training(*training_of)}")
            table += f"| [{name.with_suffix('')}]({name}) | {said['title']} | {describe_training(*training_of)} | {counted} | {said['paper'] or ''} | {said['published'].rstrip('.')} |\n"
    page = folder / "README.md"
    before, _, after = page.read_text().partition(mark)
    if write:
        page.write_text(before + mark + table)
    elif after != table:
        wrong.append(f"{page}: its table is not that of the recipes; write it again with --write")
    print("\n".join(wrong) if wrong else f"{len(recipes)} recipes, {len(small)} small ones")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
