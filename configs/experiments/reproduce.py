"""Reproduces a table or figure of a paper: data, training, scoring by the protocol of the table, and the table.

    ./run reproduce --list                            # the tables and figures of the papers
    ./run reproduce --list mixhead table2             # the rows of one table
    ./run reproduce mixhead table2 --rows vanilla,vanilla-mixhead-b --scale small
    ./run reproduce mae figure3 --scale small --format markdown

--scale paper trains the recipes of configs/recipes/ unchanged. --scale small trains the recipes with the data, bodies and lengths of
configs/experiments/small.tsv; the published numbers then belong to other data and another size, so the table compares only the
directions of differences. A figure is also drawn to OUT/PAPER-FIGURE-SCALE.svg. If a table has an analysis, such as singular values, its command
reads the trained models; the results are printed and written to OUT/PAPER-TABLE-SCALE-*.tsv, and pictures have a name with the seed. A row
that starts from the model of another row, such as fine-tuning, trains that row first. Finished runs are not repeated, stopped runs are resumed.
--list prints the hours of one seed on this machine: --measure trains each listed recipe for 3 updates of generated text, with as many
tokens as fit into the free memory, at most about 1,024, and stores its speed.
"""
import argparse
import fnmatch
import pathlib
import sys
import tempfile

import speed
from analysis import Analysis
from configurations import small_form, small_text
from data import data_named
from driver import check_init, drive, parser_of
from errors import choose, refuse, refuse_usage
from listing import list_rows, list_tables
from runs import Row, expansion
from study import recipe_file
from tables import find_table, matching, papers, recipes, recipes_of, scores_of, substituted, tables_of
from tools import require_tools, say, write_atomically


def rows_of_recipe(paper, recipe, options, configurations, names):
    """Returns (rows, "") of a recipe, one for each of its data sets, or ([], reason) if it has no rows at the scale. Writes its configuration to a folder.

    names: function that returns the name of a recipe in the table.
    """
    name = f"{paper}/{recipe['recipe']}"
    training, small = matching("training.tsv", name)[0], options.scale == "small"
    form = small_form(name) if small else None
    if small and form is None:
        rows = matching("small.tsv", name)
        return [], "has no small form: it " + rows[0]["reason"] if rows else "has no small form in configs/experiments/small.tsv"
    if small:
        file = configurations / paper / f"{recipe['recipe']}.toml"
        write_atomically(file, small_text(name))
    else:
        file = recipe_file(name, configurations, "reproduce")
    init, init_model = init_row(paper, recipe["recipe"], training, options, configurations)
    address = expansion(name, " small" if small else "")
    folder = options.out / options.scale / paper / recipe["recipe"]
    sets, rows = (form["data"] if small else training["data"]).split(), []
    for data_name in sets:
        data = data_named(data_name, options.out, options.data)
        scores = (scores_of(f"data/{data.name}") if small else scores_of(name)) or scores_of(f"data/{data.name}")
        suffix = f"@{data_name}" if len(sets) > 1 else ""
        rows.append(Row(names(recipe["recipe"]) + suffix, folder.with_name(folder.name + suffix), training["program"], [file], data, scores, [address],
                        baseline=suffix, published=recipe["published"], init=init, init_model=init_model))
    return rows, ""


def init_row(paper, recipe, training, options, configurations):
    """Returns (row, model) that initialises a recipe by the column `init` of training.tsv, or (None, "best")."""
    init, _, model = training["init"].partition(":")
    if not init or init.startswith("data/"):
        return None, "best"
    name = substituted(init, training["rows"].split("/")[1], recipe)
    named = next((row for row in recipes_of(paper) if row["recipe"] == name), None)
    if named is None:
        refuse(f"training.tsv: {training['rows']}", f"a recipe of {paper}", name, "correct the column init")
    own = argparse.Namespace(**{**vars(options), "data": None})
    return rows_of_recipe(paper, named, own, configurations, lambda name: name)[0][0], model or "best"


def chosen(table, text):
    """Returns the recipes that --rows names: names or patterns, with or without the name of the table."""
    found = table.recipes()
    if text is None:
        return found
    names, result = [table.short_name(row["recipe"]) for row in found], []
    for word in text.split(","):
        word = table.short_name(word)
        hits = [row for row, name in zip(found, names) if fnmatch.fnmatch(name, word)]
        if not hits:
            choose(f"reproduce {table.paper} {table.name}: --rows", "a row", word, names, f"list the rows: ./run reproduce --list {table.paper} {table.name}")
        result += [row for row in hits if row not in result]
    return result


def rows_of(table, options, configurations):
    """Returns the rows of a table, and {name of a recipe: reason} of the recipes that have no row at the scale."""
    rows, reasons = [], {}
    for recipe in chosen(table, options.rows):
        found, reason = rows_of_recipe(table.paper, recipe, options, configurations, table.short_name)
        for row in found:
            baseline = table.baseline(recipe["recipe"])
            row.baseline = table.short_name(baseline) + row.baseline if baseline else ""
        rows += found
        if not found:
            reasons[table.short_name(recipe["recipe"])] = reason
    return rows, reasons


def print_list(options, configurations):
    """Prints the list of tables, of a paper or of all papers, or the rows of one table."""
    chosen_papers = papers()
    if options.paper:
        chosen_papers = [choose("reproduce --list", "a paper", options.paper, papers(), "leave the paper out to list all")]
    tables = [find_table(options.paper, options.name)] if options.name else [table for paper in chosen_papers for table in tables_of(paper).values()]
    found = [(table, *rows_of(table, options, configurations)) for table in tables]
    if options.measure:
        require_tools()
        for row in (row for _, rows, _ in found for row in rows):
            speed.measure(row, options.threads)
    sys.stdout.write(list_rows(*found[0], options) if options.name else list_tables(found, options))


def main(arguments):
    parser = parser_of("reproduce", __doc__)
    parser.add_argument("paper", nargs="?", metavar="PAPER", help=f"paper: {', '.join(papers())}")
    parser.add_argument("name", nargs="?", metavar="TABLE", help="table or figure, such as table2 or figure3")
    parser.add_argument("--rows", help="rows, separated by commas; patterns such as vanilla* select several [all]")
    parser.add_argument("--scale", choices=("paper", "small"), default="paper", help="the recipes of the paper, or their small forms [paper]")
    parser.add_argument("--list", action="store_true", help="list tables, or the rows of one, with data, estimated hours and results")
    parser.add_argument("--measure", action="store_true", help="with --list: measure the speed of recipes that have none")
    options = parser.parse_args(arguments)
    options.out = options.out or pathlib.Path("reproduced")
    options.seeds = options.seeds or ("3" if options.scale == "small" else "1")
    if options.list:
        with tempfile.TemporaryDirectory() as folder:
            print_list(options, pathlib.Path(folder))
        return
    if not options.paper or not options.name:
        refuse_usage("reproduce", "a paper and a table, such as mixhead table2", " ".join(filter(None, [options.paper, options.name])) or "none",
                     "list them: ./run reproduce --list")
    table = find_table(options.paper, options.name)
    rows, reasons = rows_of(table, options, options.out / options.scale)
    for name, reason in reasons.items():
        say(f"leaves out {name}, which {reason}")
    if not rows:
        refuse_usage(f"reproduce {table.paper} {table.name}", f"a row that can be trained at --scale {options.scale}", "none", "choose the other scale, or other rows")
    model = published_model(table, rows, options)
    check_init(rows, options, "reproduce", bool(model))
    for row in rows:
        row_hours, _ = speed.hours(row)
        if row_hours and not (options.prints or options.overrides or options.grids):
            say(f"{row.name}: about {row_hours:.1f} hours for each seed")
    prefix = options.out / f"{table.paper}-{table.name}-{options.scale}"
    drive(rows, options, options.scale == "small", (table.figure, prefix.with_name(prefix.name + ".svg")), Analysis(table.analysis, prefix) if table.analysis else None)


def published_model(table, rows, options):
    """Returns the data set of the published model that the runs fine-tune and makes --init name it, or None if --init names a model or no run needs one."""
    inits = {matching("training.tsv", f"{table.paper}/{recipe['recipe']}")[0]["init"] for recipe in chosen(table, options.rows)}
    names = [init.removeprefix("data/") for init in inits if init.startswith("data/")]
    if options.scale == "small" or options.init or not names or not any(row.program == "mh-finetune" and not row.init for row in rows):
        return None
    data = data_named(names[0], options.out)
    if not (options.prints or options.tabulates):
        require_tools()
        data.prepare()
    options.init = data.model()
    return data
