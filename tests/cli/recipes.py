#!/usr/bin/env python3
"""Checks that each recipe of a paper builds and has the parameter count of its table and the training length of its paper.

usage: recipes.py FOLDER-OF-TOOLS FOLDER-OF-RECIPES [--write]
FOLDER/PAPER.tsv has a row for each recipe of a paper, which FOLDER/expand PAPER/RECIPE converts to TOML. FOLDER/training.tsv has, for
each recipe, the length of training, the tokens per update, the updates of the warm-up and the epochs; the first row whose pattern
matches applies. The column of epochs is filled only for the texts of text_tokens.
FOLDER/NAME.toml belongs to no paper and is only checked to build, with a vocabulary of 8,000. Prints a line for each fault; exit status 1
if there is a fault. --write updates the parameter counts of the tables.
"""
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys

columns = ["recipe", "experiment", "include", "settings", "parameters", "paper", "published"]
# Number of tokens of each training text in the vocabulary of the recipes, ends of lines included.
text_tokens = {"WikiText-103": 103227021, "WikiText-2": 2088628, "LM1B": 798949912}


def expand(folder, name):
    """Returns (TOML of a recipe, "") or ("", error message)."""
    process = subprocess.run([folder / "expand", name], capture_output=True, text=True, check=False)
    return (process.stdout, "") if process.returncode == 0 else ("", process.stderr.strip())


def dry_run(tools, text, *options):
    """Returns (result of `mh-train --dry-run`, "") or ({}, error message). `text`: a configuration in TOML."""
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    process = subprocess.run([tools / "mh-train", "--dry-run", "--format", "json", "--config", "/dev/stdin", *options], input=text,
                             capture_output=True, text=True, check=False, env=environment)
    return (json.loads(process.stdout), "") if process.returncode == 0 else ({}, process.stderr.strip())


def options_of_small_recipe(recipe):
    """Returns options of mh-train for the settings that a small recipe takes from its data and, for fine-tuning, from the checkpoint."""
    model = ["--set", "model.backbone=bert"] if "mh-finetune" in recipe.read_text() else []
    return ["--set", "model.vocabulary_rows=8000", *model]


def agrees_with_paper(parameters, paper_count):
    """Returns whether a parameter count agrees with the count of the paper: exactly, or in millions (rounded or truncated) plus the
    parameters that a method adds. Returns true if the text `paper_count` states a reason for a difference after a comma."""
    exact = re.fullmatch(r"(\d{1,3}(?:,\d{3})+)(, .+)?", paper_count)
    if exact:
        return bool(exact.group(2)) or int(exact.group(1).replace(",", "")) == parameters
    millions = re.fullmatch(r"(\d+)M(?: \+ ([\d,]+))?(, .+)?", paper_count)
    if not millions:
        return False
    if millions.group(3):
        return True
    num_added = int((millions.group(2) or "0").replace(",", ""))
    return int(millions.group(1)) in ((parameters - num_added) // 10**6, round((parameters - num_added) / 10**6))


def training_of(properties, name, experiment):
    """Returns the training of a recipe in the form of the rows of training.tsv. `properties`: result of mh-train --dry-run."""
    tokens = next((count for text, count in text_tokens.items() if experiment.endswith(f"on {text}")), 0)
    settings = [properties["length"], str(properties["tokens_per_update"]), str(properties.get("warmup_updates", 0))]
    if not tokens or name.startswith("fixhead/"):  # fixhead trains on subword pieces, and text_tokens counts words
        return [*settings, ""]
    return [*settings, str(round(properties["updates"] * properties["tokens_per_update"] / tokens, 1))]


def read_table(path):
    """Returns the lines of a tab-separated file as lists of fields."""
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def check_recipe(row, name, properties, training):
    """Yields the faults of a recipe that builds. `properties`: result of mh-train --dry-run; `training`: rows of training.tsv."""
    for column in ("experiment", "published"):
        if not row[column]:
            yield f"{name}: expected an entry in the column {column}; found none"
    # With a length in epochs, the number of updates depends on the data.
    updates = [] if properties["length"].endswith("e") else ["updates"]
    for key in ("parameters", "tokens_per_update", "memory_bytes", *updates):
        if not properties.get(key, 0) > 0:
            yield f"{name}: expected {key} in the output of --dry-run; found none"
    parameters = f"{properties['parameters']:,}"
    if parameters != row["parameters"]:
        yield f"{name}: expected the parameter count of the table, {row['parameters']}; found {parameters}; run recipes.py with --write"
    if row["paper"] and not agrees_with_paper(properties["parameters"], row["paper"]):
        yield f"{name}: expected the parameter count of the paper, {row['paper']}; found {parameters}"
    expected = next((", ".join(fields[1:5]) for fields in training if fnmatch.fnmatch(name, fields[0])), "none")
    actual_training = ", ".join(training_of(properties, name, row["experiment"]))
    if expected != actual_training:
        yield f"{name}: expected the training {expected} of training.tsv; found {actual_training}"


def main():
    tools, folder = map(pathlib.Path, sys.argv[1:3])
    write = "--write" in sys.argv
    training = read_table(folder / "training.tsv")
    papers = {path: read_table(path) for path in sorted(folder.glob("*.tsv")) if path.name != "training.tsv"}
    recipes = [(f"{path.stem}/{fields[0]}", fields) for path, (_, *rows) in papers.items() for fields in rows]
    faults = [] if recipes else [f"{folder}: expected tables PAPER.tsv of recipes; found none"]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        texts = dict(pool.map(lambda recipe: (recipe[0], expand(folder, recipe[0])), recipes))
        distinct = dict.fromkeys(text for text, error in texts.values() if not error)  # some experiments have the same configuration
        built = dict(zip(distinct, pool.map(lambda text: dry_run(tools, text), distinct)))
        small_recipes = sorted(folder.glob("*.toml"))
        for recipe, (_, error) in zip(small_recipes, pool.map(lambda r: dry_run(tools, f'include = "{r.resolve()}"', *options_of_small_recipe(r)), small_recipes)):
            faults += [f"{recipe.name}: {error}"] if error else []
    for name, fields in recipes:
        row, (text, error) = dict(zip(columns, fields)), texts[name]
        properties, error = ({}, error) if error else built[text]
        if error:
            faults.append(f"{name}: {error}")
            continue
        if write:
            fields[columns.index("parameters")] = row["parameters"] = f"{properties['parameters']:,}"
        faults += check_recipe(row, name, properties, training)
    if write:
        for path, rows in papers.items():
            path.write_text("".join("\t".join(fields) + "\n" for fields in rows), encoding="utf-8")
    print("\n".join(faults) if faults else f"{len(recipes)} recipes, {len(small_recipes)} of them small")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
