"""The lists of manual pages that are made from what the tools print.

In a page the list is between the lines
    .\\" list NAME: made by tests/cli/manual.py --write
    .\\" end of list
"""
import itertools
import re

import method_pages

BEGIN, END = '.\\" list {}: made by tests/cli/manual.py --write\n', '.\\" end of list\n'


def sentence(text):
    """The text with a capital letter and a full stop, unless it begins with the name of something."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def roff(text):
    """The text as lines that roff prints unchanged, a sentence each."""
    text = re.sub(r"\. (?=[A-Z])", ".\n", text.replace("\\", "\\e"))
    return "\\&" + text if text.startswith((".", "'")) else text


def tagged(rows):
    """A list of terms with a text each."""
    return ".Bl -tag -width Ds\n" + "".join(f".It {term}\n{text}\n" for term, text in rows) + ".El\n"


def literal(lines):
    return ".Bd -literal\n" + "".join(roff(line.rstrip()) + "\n" for line in lines) + ".Ed\n"


def columns(rows):
    """Rows of cells as lines, each column but the last as wide as its widest cell."""
    widths = [max(map(len, cells)) for cells in itertools.zip_longest(*rows, fillvalue="")][:-1]
    return ["  ".join([cell.ljust(width) for cell, width in zip(row, [*widths, 0])]) for row in rows]


def keys(tools):
    rows = method_pages.table_of(tools / "mh-train", "--list", "keys")
    return tagged((f"Cm {row['key']}", f"{roff(sentence(row['meaning']))}\n({row['type']}; {row['default']})") for row in rows)


def stages(tools):
    rows = method_pages.table_of(tools / "mh-train", "--list", "stages")
    return tagged((f"Cm {row['stage']} = {row['name']}", roff(sentence(row["does"]))) for row in rows)


def named(what, column):
    return lambda tools: tagged((f"Cm {row[column]}", roff(sentence(row["does"])))
                                for row in method_pages.table_of(tools / "mh-train", "--list", what))


def meanings(what):
    def made(tools):
        rows = method_pages.table_of(tools / "mh-train", "--list", what)
        return tagged((f"Li {row['key']}", roff(row["meaning"])) for row in rows)
    return made


def joined(rows):
    """Rows (name, shape, setting), with a weight and its bias in one."""
    rows = list(rows)
    out = []
    for name, shape, setting in rows:
        stem = name.removesuffix(".bias")
        if out and stem != name and out[-1][0] == stem + ".weight" and out[-1][2] == setting:
            out[-1] = (stem + ".weight, .bias", f"{out[-1][1]}, {shape}", setting)
        else:
            out.append((name, shape, setting))
    return out


def backbone_tensors(tools):
    by_backbone = {}
    for row in method_pages.table_of(tools / "mh-train", "--list", "tensors"):
        kind, name = row["of"].split(" ", 1)
        if kind == "backbone":
            by_backbone.setdefault(name, []).append((row["tensor"], row["shape"], "" if row["setting"] == "-" else row["setting"]))
    text = ""
    for rows, names in itertools.groupby(sorted(by_backbone, key=lambda name: str(by_backbone[name])), key=by_backbone.get):
        text += f".Ss {', '.join(names)}\n" + literal(columns(joined(rows)))
    return text


def stage_tensors(tools):
    meanings_by_stage = {}
    for page in method_pages.pages().values():
        for stage in method_pages.stages_of(page):
            meanings_by_stage[" ".join(stage)] = method_pages.meanings_of(page)
    rows = [row for row in method_pages.table_of(tools / "mh-train", "--list", "tensors") if not row["of"].startswith("backbone ")]
    lines = []
    for stage, group in itertools.groupby(rows, key=lambda row: row["of"]):
        lines += [stage] if not lines else ["", stage]
        cells = [("  " + row["tensor"], row["shape"], meanings_by_stage.get(stage, {}).get(row["tensor"], ""),
                  row["setting"]) for row in group]
        lines += columns([(name, shape, meaning + ("" if setting == "-" else f" [{setting}]")) for name, shape, meaning, setting in cells])
    return literal(lines)


def words_of_help(tool, subcommand, pattern):
    """The names that a line of a subcommand's help lists."""
    def made(tools):
        found = re.search(pattern, method_pages.output_of(tools / tool, subcommand, "--help"))
        names = re.split(r", | or |\|", found.group(1))
        return "".join(f".Cm {name} ,\n" for name in names[:-2]) + f".Cm {names[-2]}\nor\n.Cm {names[-1]} .\n"
    return made


LISTS = {
    "mh-train.1": {"keys": keys, "stages": stages, "backbones": named("backbones", "backbone"),
                   "procedures": named("procedures", "procedure"), "regularisers": named("regularisers", "regulariser")},
    "mhc.5": {"metadata": meanings("metadata"), "training": meanings("training"), "backbone tensors": backbone_tensors,
              "stage tensors": stage_tensors},
    "mh-prune.1": {"measures": words_of_help("mh-prune", "rank", r"measures of importance: (.*)")},
    "mh-prep.1": {"tasks": words_of_help("mh-prep", "glue", r"--task TEXT +(.*)"),
                  "tokenizers": words_of_help("mh-prep", "vocab", r"what a token is \((.*?)\)")},
}


def with_lists(page, text, tools):
    """The page's text with each of its lists as the tools have it, and what is wrong with the lines around them."""
    faults = []
    wanted = LISTS.get(page, {})
    for name in re.findall(r'^\.\\" list (.*?):', text, re.MULTILINE):
        if name not in wanted:
            faults.append(f"{page}: the list {name} is made by nothing")
    for name, made in wanted.items():
        begin = BEGIN.format(name)
        if text.count(begin) != 1 or END not in text.split(begin, 1)[1]:
            faults.append(f"{page}: expected the list {name} once, between its two lines; found {text.count(begin)}")
            continue
        before, rest = text.split(begin, 1)
        text = before + begin + made(tools) + END + rest.split(END, 1)[1]
    return text, faults
