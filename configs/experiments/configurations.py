"""Expands recipes at either scale, parses overrides, and computes checksums of configurations."""
import hashlib
import itertools
import json
import pathlib
import tomllib

from errors import refuse_usage
from tables import matching, recipes, recipes_of


def read_toml(path):
    try:
        return tomllib.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        return refuse_usage(path, "a configuration in TOML", f"no readable file ({error.strerror})", "correct the path")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return refuse_usage(path, "a configuration in TOML", str(error), "correct the file")


def fingerprint(files):
    """Returns a checksum of the values of configuration files and of the files that they include."""
    checksum = hashlib.sha256()
    for file in map(pathlib.Path, files):
        values = read_toml(file)
        included = values.pop("include", [])
        checksum.update(fingerprint([file.parent / name for name in ([included] if isinstance(included, str) else included)]).encode())
        checksum.update(json.dumps(values, sort_keys=True, default=str).encode())
    return checksum.hexdigest()


def merged(files):
    """Returns the values of configuration files and of the files that they include as nested tables."""
    def update(table, values):
        for key, value in values.items():
            if isinstance(value, dict) and isinstance(table.get(key), dict):
                update(table[key], value)
            else:
                table[key] = value
    result = {}
    for file in map(pathlib.Path, files):
        values = read_toml(file)
        included = values.pop("include", [])
        update(result, merged([file.parent / name for name in ([included] if isinstance(included, str) else included)]))
        update(result, values)
    return result


def text_of(includes, settings):
    """Returns a configuration in TOML that includes files and sets keys."""
    names = ", ".join(json.dumps(str(path)) for path in includes)
    return f"include = [{names}]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items())


def settings_of(row):
    return dict(setting.split("=", 1) for setting in row["settings"].split())


def small_form(name):
    """Returns the row of small.tsv of a recipe PAPER/RECIPE, or None if the recipe has no small form."""
    rows = matching("small.tsv", name)
    return rows[0] if rows and rows[0]["data"] else None


def small_text(name):
    """Returns the configuration of the small form of a recipe PAPER/RECIPE."""
    paper, _, recipe = name.partition("/")
    row = next((row for row in recipes_of(paper) if row["recipe"] == recipe), None) if (recipes / f"{paper}.tsv").is_file() else None
    if row is None:
        refuse_usage(f"recipe {name}", "PAPER/RECIPE, a row of configs/recipes/PAPER.tsv", "none", "see ./run reproduce --list")
    form = small_form(name)
    if form is None:
        refuse_usage(f"recipe {name}", "a small form in configs/experiments/small.tsv", "none", "use --scale paper, or add a row to the table")
    body, replaced, last = [], {}, []
    for word in form["body"].split():
        if "=" in word:
            old, new = word.split("=")
            replaced[old] = new
        elif word.startswith("+"):
            last.append(word[1:])
        elif word != "-":
            body.append(word)
    includes = [*body, *(replaced.get(include, include) for include in row["include"].split()[1:]), *last]
    settings = settings_of(row)
    for word in form["settings"].split():
        key, separator, value = word.partition("=")
        if separator:
            settings.setdefault(key, value)
        else:
            key, _, divisor = word.partition("/")
            if key in settings and key in settings_of(row):
                settings[key] = str(int(settings[key]) // int(divisor))
    settings["train.length"] = json.dumps(form["updates"])
    return text_of([f"{recipes}/{include}.toml" for include in includes if include], settings)


def split_override(text):
    """Returns (key, value) of KEY=VALUE."""
    key, separator, value = text.partition("=")
    if not separator or not key or not value:
        refuse_usage("override", "KEY=VALUE, such as train.lr=1e-3", repr(text), "write a key, =, and a value")
    return key, value


def grid_points(grids):
    """Returns the combinations of the values of all grids as lists of KEY=VALUE; each grid is KEY=VALUE,VALUE..."""
    axes = []
    for grid in grids:
        key, values = split_override(grid)
        axes.append([f"{key}={value}" for value in values.split(",")])
        if "" in values.split(","):
            refuse_usage(f"--grid {grid}", "KEY=VALUE,VALUE...", "an empty value", "remove the comma, or write the value")
    return [list(point) for point in itertools.product(*axes)]
