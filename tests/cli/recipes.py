#!/usr/bin/env python3
"""Each recipe of a paper builds, has the parameters that its comment states, and stands in the table of README.md.

usage: recipes.py FOLDER-OF-TOOLS FOLDER-OF-RECIPES [--write]
A recipe is FOLDER/PAPER/NAME.toml and begins with

    # PAPER, TABLE: ROW.
    # Parameters: 156,000,256 (paper: 156M). PUBLISHED NUMBER.

FOLDER/NAME.toml is of no paper; it only has to build, with a vocabulary of 8,000. Prints what is wrong; exit status 1 if
anything is. --write puts the counted parameters into the comments and makes the table anew.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

comment = re.compile(r"# (?P<title>.+)\.\n# Parameters: (?P<count>[\d,]+)(?: \(paper: (?P<paper>[^)]+)\))?\. (?P<published>.+)\n")
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


def order(path):
    """Tables by number: table2 before table10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(path))]


def main():
    tools, folder = map(pathlib.Path, sys.argv[1:3])
    write = "--write" in sys.argv
    recipes = sorted((p for p in folder.glob("*/*.toml") if p.parent.name != "base"), key=order)
    wrong, table = [], "| recipe | experiment | parameters | paper's | published |\n|---|---|---:|---:|---|\n"
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
            table += f"| [{name.with_suffix('')}]({name}) | {said['title']} | {counted} | {said['paper'] or ''} | {said['published'].rstrip('.')} |\n"
    page = folder / "README.md"
    before, _, after = page.read_text().partition(mark)
    if write:
        page.write_text(before + mark + table)
    elif after != table:
        wrong.append(f"{page}: its table is not that of the recipes; make it anew with --write")
    print("\n".join(wrong) if wrong else f"{len(recipes)} recipes, {len(small)} small ones")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
