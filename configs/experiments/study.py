"""Runs a study: the rows, seeds and overrides that a TOML file lists.

    ./run study FILE.toml

The keys of the file; only data, config and one row are required:

    data = "wikitext2"                     # a data set of configs/experiments/data.tsv, or a folder of shards (./DATA)
    config = ["configs/small/wikitext2.toml"]  # base configurations of all rows, relative to the file or to the checkout
    seeds = 3                              # or a list: [1, 4, 7]
    baseline = "plain"                     # the row that all rows are compared with; default: the first row
    program = "mh-train"                   # or mh-finetune, with the model `init`, or score, which only scores the row `init`
    set = { "train.length" = "500u" }      # overrides of all rows
    grid = { "train.lr" = [1e-3, 3e-3] }   # a row for each combination of these values
    list = [{ "train.lr" = 1e-3 }, { "train.lr" = 3e-3, "attention.heads" = 4 }]  # a row for each of these sets of overrides

    [rows.plain]
    [rows.mixhead-b]
    config = ["configs/methods/mixhead-b.toml"]
    set = { "attention.heads" = 4 }
    [rows.published]
    recipe = "mixhead/table2-vanilla"      # a recipe in place of `config`

    [rows.tuned]
    init = "plain"                         # a row whose model of the same seed initialises this one (mh-train --from, mh-finetune --init)
    init_seed = 1                          # seed of that model, if it is not the seed of the run
    baseline = "mixhead-b"                 # also data and program, as above, for this row alone

    [[scores]]                             # columns; default: those of the data set
    column = "test perplexity"
    split = "test"
    measure = "perplexity"
    options = "--context 96"

Finished runs are not repeated, stopped runs are resumed. The options below take precedence over the file.

A file with [[studies]] is a series of studies with a budget of machine time and a test of each difference; its name is enough for the
series of this checkout, configs/experiments/studies/NAME.toml:

    ./run study open --budget 12h          # prints the order and the estimated hours, and stops at the budget; the same command continues
    ./run study open --table               # the table of the finished runs

series.py and the file describe the keys and the statistics.
"""
import itertools
import json
import pathlib

from configurations import fingerprint, read_toml, settings_of, text_of
from data import Data, data_named
from driver import check_init, drive, parser_of
from errors import choose, refuse_usage
from runs import Row, expansion
from tables import Score, recipes, recipes_of, root, scores_of
from tools import write_atomically

KEYS = ("data", "config", "seeds", "baseline", "program", "init", "set", "grid", "list", "rows", "scores", "out")
ROW_KEYS = ("config", "set", "recipe", "data", "program", "init", "init_seed", "baseline")
PROGRAMS = ("mh-train", "mh-finetune", "score")
SCORE_KEYS = ("column", "split", "measure", "model", "options")


class Study:
    """The content of the file of a study, or of one of the studies of a series, which has more keys."""

    def __init__(self, path, values, more_keys=(), more_row_keys=()):
        self.path, self.values = path, values
        self.check_keys(self.values, (*KEYS, *more_keys), "a key of a study")
        self.require(self.values.get("rows"), dict, "rows", "at least one table [rows.NAME]")
        for name, row in self.values["rows"].items():
            self.require(row, dict, f"rows.{name}", "a table")
            self.check_keys(row, (*ROW_KEYS, *more_row_keys), f"a key of rows.{name}")
            if "/" in name or not name:
                refuse_usage(f"{path}: rows", "names without /", repr(name), "rename the row")
        self.require(self.values.get("data"), str, "data", "the name of a data set or a folder")

    def check_keys(self, table, keys, kind):
        for key in table:
            choose(str(self.path), kind, key, list(keys), "see ./run study --help")

    def require(self, value, kind, key, expected):
        if not isinstance(value, kind) or not value and key == "rows":
            refuse_usage(f"{self.path}: {key}", expected, "nothing" if value is None else repr(value), "see ./run study --help")

    def files(self, names, key):
        names = [names] if isinstance(names, str) else names
        self.require(names, list, key, "a list of files")
        files = []
        for name in names:
            file = next((folder / name for folder in (self.path.parent, root) if (folder / str(name)).is_file()), None)
            if file is None:
                refuse_usage(f"{self.path}: {key}", "a file relative to the study or to the checkout", name, "correct the path")
            files.append(file)
        return files

    def overrides(self, table, key):
        """Returns KEY=VALUE for each entry of a table of overrides."""
        self.require(table, dict, key, 'a table such as { "train.lr" = 1e-3 }')
        return [f"{name}={toml_value(value)}" for name, value in table.items()]

    def points(self):
        """Returns the sets of overrides that each row is run with: the combinations of `grid`, each with each entry of `list`."""
        grid = self.values.get("grid", {})
        self.require(grid, dict, "grid", "a table of lists")
        for name, values in grid.items():
            self.require(values, list, f"grid.{name}", "a list of values")
        axes = [[f"{name}={toml_value(value)}" for value in values] for name, values in grid.items()]
        entries = self.values.get("list", [{}])
        self.require(entries, list, "list", "a list of tables")
        return [[*point, *self.overrides(entry, "list")] for point in itertools.product(*axes) for entry in entries]

    def data(self, out, name=None):
        """Returns the data set of a row, or that of the study."""
        name = name or self.values["data"]
        folder = next((folder / name for folder in (self.path.parent, root) if "/" in name and (folder / name).is_dir()), None)
        if folder is None and "/" not in name and (self.path.parent / name).is_dir():
            refuse_usage(f"{self.path}: data", "the name of a data set, or a folder with a slash", name, f"write ./{name}")
        if folder is None:
            return data_named(name, out)
        splits = [split for split in ("valid", "test") if (folder / f"{split}.mhs").is_file()]
        return Data(folder.name, folder, splits or ["valid"])

    def scores(self, data):
        if "scores" not in self.values:
            columns = scores_of(f"data/{data.name}")
            if not columns:
                refuse_usage(f"{self.path}: scores", f"columns of results, since no table defines columns for the data {data.name}", "none", "add [[scores]]; see ./run study --help")
            return columns
        self.require(self.values["scores"], list, "scores", "tables [[scores]]")
        columns = []
        for table in self.values["scores"]:
            self.check_keys(table, SCORE_KEYS, "a key of [[scores]]")
            for key in ("column", "split", "measure"):
                self.require(table.get(key), str, f"scores.{key}", "a text")
            columns.append(Score(table["column"], table["split"], table["measure"], table.get("model", "best"), table.get("options", "")))
        return columns

    def baselines(self, name):
        """Returns the names of the rows that a row is compared with."""
        names = list(self.values["rows"])
        value = self.values["rows"][name].get("baseline", self.values.get("baseline", names[0]))
        found = value if isinstance(value, list) else [value] if value else []
        for baseline in found:
            choose(f"{self.path}: baseline", "a row", str(baseline), names, "name one of the rows")
        return [baseline for baseline in found if baseline != name]

    def rows(self, out, data, data_out=None):
        """Returns the rows. out: folder of the runs; data_out: folder of the data sets, by default the same."""
        base = self.files(self.values.get("config", []), "config")
        common = self.overrides(self.values.get("set", {}), "set")
        scores, rows, points = self.scores(data), [], self.points()
        for name, table in self.values["rows"].items():
            program = choose(f"{self.path}: program", "a program", table.get("program", self.values.get("program", "mh-train")), list(PROGRAMS), "choose one of them")
            files, addresses = [*base, *self.files(table.get("config", []), f"rows.{name}.config")], []
            if "recipe" in table:
                recipe = recipe_file(table["recipe"], out / "recipes", str(self.path))
                addresses = [expansion(table["recipe"]), *files]
                files = [recipe, *files]
            if not files:
                refuse_usage(f"{self.path}: rows.{name}", "a configuration in `config` or `recipe`", "none", "name a file, or config = [...] for all rows")
            own = self.overrides(table.get("set", {}), f"rows.{name}.set")
            row_data = self.data(data_out or out, table["data"]) if "data" in table else data
            baseline = next(iter(self.baselines(name)), "")
            for point in points:
                suffix = "".join(f"@{override}" for override in point)
                init = None
                if program == "score" and "init" not in table:
                    refuse_usage(f"{self.path}: rows.{name}", "an earlier row in `init`, whose model the program score scores", "none", "add init, or choose mh-train")
                if "init" in table:
                    init = choose(f"{self.path}: rows.{name}.init", "an earlier row", str(table["init"]) + suffix, [row.name for row in rows], "move the row before this one")
                    init = next(row for row in rows if row.name == init)
                row = Row(name + suffix, out / (name + suffix).replace("/", "_"), program, files, row_data, scores, addresses, [*common, *own, *point],
                          baseline + suffix if baseline else "", init=init, init_seed=table.get("init_seed", 0))
                fingerprint(row.configurations)  # refuses a broken file before the first run
                rows.append(row)
        return rows


def recipe_file(name, folder, subject):
    """Writes the configuration of a recipe PAPER/RECIPE to a folder and returns its path."""
    paper, _, recipe = name.partition("/")
    if not (recipes / f"{paper}.tsv").is_file():
        refuse_usage(subject, "a recipe PAPER/RECIPE", name, "see configs/recipes/README.md")
    choose(subject, f"a recipe of {paper}", recipe, [row["recipe"] for row in recipes_of(paper)], f"see configs/recipes/{paper}.tsv")
    row = next(row for row in recipes_of(paper) if row["recipe"] == recipe)
    file = folder / paper / f"{recipe}.toml"
    write_atomically(file, text_of([f"{recipes}/{include}.toml" for include in row["include"].split()], settings_of(row)))
    return file


def toml_value(value):
    """Returns a value as in TOML; texts of --set need no quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def main(arguments):
    parser = parser_of("study", __doc__)
    parser.add_argument("file", type=pathlib.Path, metavar="FILE.toml", help="the study, or the name of a series of this checkout, such as open")
    parser.add_argument("--budget", help="of a series: maximum machine time of all runs, such as 12h or 90m [12h]")
    parser.add_argument("--finished", type=pathlib.Path, metavar="FILE", help="of a series: also keep the finished runs in FILE, and do not repeat runs that FILE has; "
                        "with a copy of FILE, another machine continues the series")
    options = parser.parse_args(arguments)
    series_file = pathlib.Path(__file__).resolve().parent / f"studies/{options.file}.toml"
    if not options.file.is_file() and series_file.is_file():
        options.file = series_file
    elif not options.file.is_file() and not options.file.suffix:
        choose("study", "a file, or the name of a series", str(options.file), sorted(path.stem for path in series_file.parent.glob("*.toml")),
               "name an existing file")
    values = read_toml(options.file)
    if "studies" in values:
        import series  # imports this module

        series.run(options, values)
        return
    for name, value in (("--budget", options.budget), ("--finished", options.finished)):
        if value:
            refuse_usage(name, "a series of studies, a file with [[studies]]", str(options.file), f"leave {name} out")
    study = Study(options.file, values)
    options.out = options.out or pathlib.Path(study.values.get("out", f"study-{options.file.stem}"))
    seeds = study.values.get("seeds", 3)
    options.seeds = options.seeds or ("".join(f"{seed}," for seed in seeds) if isinstance(seeds, list) else str(seeds))
    if options.init is None and "init" in study.values:
        options.init = study.path.parent / study.values["init"]
    data = study.data(options.out)
    if options.data:
        data.use_folder(options.data)
    rows = study.rows(options.out, data)
    check_init(rows, options, "study")
    drive(rows, options)
