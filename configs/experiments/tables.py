"""Reads the tables of this folder and the recipes of the papers.

tables.tsv     the tables and figures of each paper, the recipes of their rows, and the baseline of each row
training.tsv   the data, the program and the initial model of each recipe
scores.tsv     the columns of results of each recipe, or of each data set at --scale small and in ./run compare
data.tsv       the data sets: script, vocabulary, preparation, splits with labels, tokens of an epoch
small.tsv      the definition of --scale small: data, body and updates of each recipe
compare.tsv    the corpora of ./run compare
"""
import dataclasses
import fnmatch
import functools
import pathlib
import re

from errors import choose, refuse

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent
recipes = root / "configs/recipes"


@functools.cache
def read(path):
    """Returns the rows of a tab-separated table as dictionaries of its columns."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    columns = lines[0].split("\t")
    for line in lines[1:]:
        if line.count("\t") != len(columns) - 1:
            refuse(path, f"{len(columns)} columns in each row", line, "correct the row")
    return [dict(zip(columns, line.split("\t"))) for line in lines[1:]]


def read_here(name):
    return read(here / name)


def training_length(recipe):
    """Returns (length, tokens per update) of a recipe PAPER/RECIPE at its own scale, from configs/recipes/training.tsv."""
    row = next((row for row in read(recipes / "training.tsv") if fnmatch.fnmatch(recipe, row["recipes"])), None)
    return (row["length"], int(row["tokens per update"])) if row else ("", 0)


def substituted(name, pattern, text):
    """Returns a name with the text that * in the pattern matches in place of its *, or None if the pattern does not match the text."""
    match = re.fullmatch(fnmatch.translate(pattern).replace(".*", "(.*)"), text)
    return match and (name.replace("*", match.group(1)) if match.groups() else name)


def matching(name, key):
    """Returns all rows of a table of this folder that have the first pattern in the column `rows` that matches `key`."""
    rows = read_here(name)
    pattern = next((row["rows"] for row in rows if fnmatch.fnmatch(key, row["rows"])), None)
    return [row for row in rows if row["rows"] == pattern]


@dataclasses.dataclass
class Table:
    """A table or figure of a paper."""
    paper: str
    name: str  # such as table2
    content: str
    patterns: list  # patterns of the recipes of its rows
    baselines: list  # "PATTERN=RECIPE", where * in RECIPE is the text that * in PATTERN matches
    figure: str  # "" or "points"
    analysis: str  # command on the trained models whose table is printed too, or ""

    @property
    def title(self):
        return f"{self.paper}/{self.name}"

    def recipes(self):
        """Returns the recipes of the table, in the order of the patterns."""
        rows = recipes_of(self.paper)
        return [row for pattern in self.patterns for row in rows if fnmatch.fnmatch(row["recipe"], pattern)]

    def baseline(self, recipe):
        """Returns the name of the recipe that a recipe is compared with, or ""."""
        for rule in self.baselines:
            pattern, name = rule.split("=")
            baseline = substituted(name, pattern, recipe)
            if baseline:
                return baseline if baseline != recipe else ""
        names = [row["recipe"] for row in self.recipes() if recipe.startswith(row["recipe"] + "-")]
        return min(names, key=len, default="")

    def short_name(self, recipe):
        return recipe.removeprefix(self.name + "-")


def papers():
    return list(dict.fromkeys(row["table"].split("/")[0] for row in read_here("tables.tsv")))


@functools.cache
def recipes_of(paper):
    return read(recipes / f"{paper}.tsv")


@functools.cache
def tables_of(paper):
    tables = {}
    for row in read_here("tables.tsv"):
        name = row["table"].split("/")
        if name[0] == paper:
            tables[name[1]] = Table(*name, row["content"], row["recipes"].split(), row["baselines"].split(), row["figure"], row["analysis"])
    return tables


def find_table(paper, name):
    choose("reproduce", "a paper", paper, papers(), "list the papers: ./run reproduce --list")
    tables = tables_of(paper)
    choose(f"reproduce {paper}", "a table or figure", name, list(tables), f"list the tables: ./run reproduce --list {paper}")
    return tables[name]


@dataclasses.dataclass
class Score:
    """A column of results."""
    column: str  # heading, such as "test perplexity"
    split: str
    measure: str  # key of mh-eval --format json
    model: str  # "best", or "average": the mean of the first five checkpoints of the run
    options: str  # options of mh-eval; SPLIT is the path of the split without its suffix


def scores_of(key):
    """Returns the columns of results of a recipe PAPER/RECIPE or a data set data/NAME."""
    return [Score(row["column"], row["split"], row["measure"], row["model"], row["options"]) for row in matching("scores.tsv", key)]


LOWER_IS_BETTER = re.compile(r"perplexity|bits|loss|nll")


def lower_is_better(column):
    return bool(LOWER_IS_BETTER.search(column))


def published_value(text):
    """Returns (number, lower is better) of a text such as "perplexity, dev / test: 21.45 / 20.54", or None without a number. The number is
    that of the test set if the text has both sets, otherwise the first."""
    head, _, figures = text.partition(": ")
    numbers = re.findall(r"-?\d+(?:\.\d+)?", re.sub(r" ± [\d.]+", "", figures))
    if not numbers:
        return None
    index = 1 if "dev / test" in head and len(numbers) > 1 else 0
    return float(numbers[index]), lower_is_better(head)
