#!/usr/bin/env python3
"""Checks the METHOD.md of each folder of lib/attention/methods, and docs/methods.md, against what mh-train registers.

usage: method_pages.py FOLDER-OF-TOOLS
Prints a line for each fault; exit status 1 if there is a fault. A page must list each stage that the sources of its folder register, with
the options and defaults of `mh-train --list stages` (`manual.py --write` writes them), and each tensor of these stages with its meaning,
which mh-checkpoint(5) repeats. Every path in a page must exist. docs/methods.md must link each METHOD.md, name each procedure and each
regulariser, and state the defaults of `mh-train --list keys` for the keys that it lists.
"""
import csv
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
METHODS = ROOT / "lib" / "attention" / "methods"
OVERVIEW = ROOT / "docs" / "methods.md"
SECTIONS = ("Equations", "Stages", "Tensors", "Elsewhere")
MAX_LINES = 40


def output_of(tool, *arguments):
    process = subprocess.run([tool, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if process.returncode != 0:
        sys.exit(f"{tool} {' '.join(arguments)}: exit status {process.returncode}: {process.stderr.strip()}")
    return process.stdout


def table_of(tool, *arguments):
    """Runs a tool that prints a table; returns one dict {column: text} per row."""
    return list(csv.DictReader(output_of(tool, *arguments).splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def pages():
    """Returns {folder of a method: text of its METHOD.md, '' if there is none}."""
    folders = sorted(folder for folder in METHODS.iterdir() if folder.is_dir())
    return {folder.name: (folder / "METHOD.md").read_text() if (folder / "METHOD.md").exists() else "" for folder in folders}


def stages_of(page):
    """Returns {(stage, name): options} from the table of stages in the text of a page."""
    return {(stage, name): options for stage, name, options in re.findall(r"^\| (\w+) \| `([\w-]+)` \| `(.*)` \|$", page, re.MULTILINE)}


def with_stages(folder, page, stages):
    """Returns the text of a page with a new table of the stages that the sources in `folder` register."""
    sources = "".join(path.read_text() for path in sorted(METHODS.joinpath(folder).glob("*.cpp")))
    constants = dict(re.findall(r'\bconst char\*\s*(?:const\s+)?(\w+)\s*=\s*"([^"]+)"',
                                sources + "".join(path.read_text() for path in METHODS.joinpath(folder).glob("*.h"))))
    entries = [({"position_biases": "position_bias"}.get(registry, registry.removesuffix("s")), name or constants.get(constant))
               for registry, name, constant in re.findall(
                   r'^const Registration<\w+>\s+\w+\(\s*(\w+)\(\),\s*(?:"([^"]+)"|(\w+))', sources, re.MULTILINE)]
    options = {(row["stage"], row["name"]): row["options"] for row in stages}
    rows = "".join(f"| {kind} | `{name}` | `{options.get((kind, name), '-')}` |\n" for kind, name in sorted(entries, key=list(options).index))
    head = "| stage | name | options |\n|---|---|---|\n"
    return re.sub(r"(?<=\n## Stages\n\n)(?:\|.*\n)*", lambda _: head + rows, page)


def write_stages(tool):
    """Writes the table of stages into each METHOD.md."""
    stages = table_of(tool, "--list", "stages")
    for folder, page in pages().items():
        if page:
            (METHODS / folder / "METHOD.md").write_text(with_stages(folder, page, stages))


def meanings_of(page):
    """Returns {tensor: meaning} from the list of tensors in the text of a page."""
    return {name: meaning for names, meaning in re.findall(r"^- ((?:`[\w.]+`(?:, )?)+): (.*)$", page, re.MULTILINE)
            for name in re.findall(r"`([\w.]+)`", names)}


def paths_of(page):
    return re.findall(r"`([\w-]+(?:/[\w.-]+)+\.\w+)`", page)


def faults_of(texts, stages, tensors):
    """Returns one line for each fault in the pages `texts`. `stages`, `tensors`: rows of mh-train --list."""
    faults = []
    for folder, text in texts.items():
        where = f"lib/attention/methods/{folder}/METHOD.md"
        if not text:
            faults.append(f"{where}: expected a page; found none")
            continue
        headings = tuple(re.findall(r"^## (.*)$", text, re.MULTILINE))
        if headings != SECTIONS:
            faults.append(f"{where}: expected the sections {', '.join(SECTIONS)}; found {', '.join(headings)}")
        if "\nSource: " not in text:
            faults.append(f"{where}: expected a line that begins with 'Source: '; found none")
        if text.count("\n") > MAX_LINES:
            faults.append(f"{where}: expected at most {MAX_LINES} lines; found {text.count(chr(10))}")
        faults += [f"{where}: expected paths in the repository; found {path}, which does not exist" for path in paths_of(text) if not (ROOT / path).exists()]
    for row in stages:
        stage, name, options = row["stage"], row["name"], row["options"]
        folders_with_stage = [folder for folder, text in texts.items() if (stage, name) in stages_of(text)]
        if len(folders_with_stage) != 1:
            faults.append(f"{stage} {name}: expected one METHOD.md that lists this stage; found {', '.join(folders_with_stage) or 'none'}")
        for folder in folders_with_stage:
            page_options = stages_of(texts[folder])[stage, name]
            if page_options != options:
                faults.append(f"{folder}/METHOD.md: expected the options `{options}` of {stage} {name}; found `{page_options}`")
    known = {(row["stage"], row["name"]) for row in stages}
    for folder, text in texts.items():
        stages_on_page = stages_of(text)
        faults += [f"{folder}/METHOD.md: expected registered stages; found {' '.join(stage)}" for stage in stages_on_page if stage not in known]
        stage_tensors = {row["tensor"] for row in tensors if tuple(row["of"].split(" ", 1)) in stages_on_page}
        page_tensors = set(meanings_of(text))
        faults += [f"{folder}/METHOD.md: expected the tensor {name} of a stage on this page; found none" for name in sorted(stage_tensors - page_tensors)]
        faults += [f"{folder}/METHOD.md: expected tensors of the stages on this page; found {name}" for name in sorted(page_tensors - stage_tensors)]
    return faults


def faults_of_overview(text, folders, keys, names):
    """Returns one line for each fault in docs/methods.md. keys: {key: default}; names: procedures and regularisers."""
    faults = [f"docs/methods.md: expected a link to {folder}/METHOD.md; found none" for folder in folders if f"/methods/{folder}/METHOD.md)" not in text]
    faults += [f"docs/methods.md: expected the name {name}; found none" for name in names if f"{name}`" not in text and f"{name}]`" not in text]
    listed = 0
    paragraphs = [("", paragraph) for paragraph in re.findall(r"^- \*\*Keys\*\*:(.*?)(?=^- )", text, re.MULTILINE | re.DOTALL)]
    rows = [(f"train.regularisers.{name}", row) for name, row in re.findall(r"^\| `([\w-]+)` (\|.*)$", text, re.MULTILINE)]
    for section, paragraph in paragraphs + rows:
        for key, default in re.findall(r"`([\w.-]+)=([^`]*)`", paragraph):
            full_key = key if key in keys else f"{section}.{key}"  # a key without a section belongs to the section of the key before it
            section = full_key.rpartition(".")[0]
            listed += 1
            if keys.get(full_key) != default:
                faults.append(f"docs/methods.md: expected {full_key}={keys.get(full_key, 'a key of mh-train --list keys')}; found {default}")
    return faults if listed > 0 else [*faults, "docs/methods.md: expected keys with defaults; found none"]


def main():
    tool = pathlib.Path(sys.argv[1]) / "mh-train"
    texts = pages()
    stages, tensors = table_of(tool, "--list", "stages"), table_of(tool, "--list", "tensors")
    faults = faults_of(texts, stages, tensors)
    # The check must find these faults: a missing page, a stage in two pages, wrong options, a missing path, a missing tensor.
    name = "mixhead"
    for broken_texts in ({**texts, name: ""}, {**texts, "twice": texts[name]}, {**texts, name: texts[name].replace('"all"', '"some"')},
                   {**texts, name: texts[name].replace("head_mixing_attention.h", "no.h")},
                   {**texts, name: texts[name].replace("`.mixer.matrix`", "`.mixer.other`")}):
        if len(faults_of(broken_texts, stages, tensors)) <= len(faults):
            faults.append("method_pages.py: expected a fault in a broken page; found none")
    overview = OVERVIEW.read_text(encoding="utf-8")
    keys = {row["key"]: row["default"] for row in table_of(tool, "--list", "keys")}
    names = [row[column] for column in ("procedure", "regulariser") for row in table_of(tool, "--list", f"{column}s")]
    overview_faults = faults_of_overview(overview, texts, keys, names)
    faults += overview_faults
    # The check must find a missing link, a missing name, a wrong default and an unknown key.
    for old, new in (("/mae/METHOD.md", "/no/METHOD.md"), ("skip-retain", "skip"), ("rate=0.1", "rate=0.2"), ("t5.buckets=32", "t5.bins=32"), ("`weight=0.001`", "`weight=0.002`")):
        if len(faults_of_overview(overview.replace(old, new), texts, keys, names)) <= len(overview_faults):
            faults.append(f"method_pages.py: expected a fault in docs/methods.md with {new} in place of {old}; found none")
    print("\n".join(faults) if faults else f"{len(texts)} pages agree with {len(stages)} stages")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
