"""Reproduces a table or figure of a paper: data, training, scoring by the protocol of the table, and the table.

    ./run reproduce --list                            # the tables and figures of the papers
    ./run reproduce --list mixhead table2             # the rows of one
    ./run reproduce mixhead table2 --rows vanilla,vanilla-mixhead-b --scale small
    ./run reproduce mae figure3 --scale small --format markdown

--scale paper trains the recipes of configs/recipes/ unchanged. --scale small trains the recipes with the data, bodies and lengths of
configs/experiments/small.tsv; the published figures then belong to other data and another size, so the table compares only the
directions of differences. A figure is also drawn to OUT/PAPER-FIGURE.svg. Finished runs are not repeated, stopped runs are resumed.
The hours of --list are those of one seed on this machine: --measure trains each listed recipe for 3 updates of generated text and stores
its speed.
"""
import fnmatch
import pathlib
import sys
import tempfile

import speed
from configurations import small_form, small_text
from data import data_named
from driver import check_init, drive, parser_of
from errors import choose, refuse
from listing import list_rows, list_tables
from runs import Row
from study import recipe_file
from tables import find_table, matching, papers, recipes, scores_of, tables_of
from tools import require_tools, say, write_atomically


def row_of(table, recipe, options, configurations):
    """Returns (row, "") of a recipe, or (None, reason) for a recipe that cannot be trained at the scale. Writes its configuration to a folder."""
    name = f"{table.paper}/{recipe['recipe']}"
    training, small = matching("training.tsv", name)[0], options.scale == "small"
    form = small_form(name)
    if small and form is None:
        return None, "has no small form in configs/experiments/small.tsv"
    if not small and not training["data"]:
        return None, "is not trained; configs/recipes/README.md has the command that scores it"
    data = data_named(form["data"] if small else training["data"], options.out, options.data)
    scores = (scores_of(f"data/{data.name}") if small else scores_of(name)) or scores_of(f"data/{data.name}")
    folder = options.out / options.scale / table.paper
    if small:
        file = configurations / table.paper / f"{recipe['recipe']}.toml"
        write_atomically(file, small_text(name))
    else:
        file = recipe_file(name, configurations, "reproduce")
    address = f"<({recipes}/expand {name}{' small' if small else ''})"
    return Row(table.short_name(recipe["recipe"]), folder / recipe["recipe"], training["program"], [file], data, scores, [address],
               baseline=table.short_name(table.baseline(recipe["recipe"])), published=recipe["published"]), ""


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


def rows_of(table, options, configurations, quiet=False):
    rows = []
    for recipe in chosen(table, options.rows):
        row, reason = row_of(table, recipe, options, configurations)
        if row:
            rows.append(row)
        elif not quiet:
            say(f"leaves out {table.short_name(recipe['recipe'])}, which {reason}")
    return rows


def print_list(options, configurations):
    """Prints the list of tables, of a paper or of all papers, or the rows of one table."""
    chosen_papers = papers()
    if options.paper:
        chosen_papers = [choose("reproduce --list", "a paper", options.paper, papers(), "leave the paper out to list all")]
    tables = [find_table(options.paper, options.name)] if options.name else [table for paper in chosen_papers for table in tables_of(paper).values()]
    rows = {table.title: rows_of(table, options, configurations, quiet=True) for table in tables}
    if options.measure:
        require_tools()
        for row in (row for group in rows.values() for row in group):
            speed.measure(row, options.threads)
    sys.stdout.write(list_rows(tables[0], rows[tables[0].title], options) if options.name else list_tables(tables, rows, options))


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
        refuse("reproduce", "a paper and a table, such as mixhead table2", " ".join(filter(None, [options.paper, options.name])) or "none",
               "list them: ./run reproduce --list")
    table = find_table(options.paper, options.name)
    if not table.recipes():
        refuse(f"reproduce {table.paper} {table.name}", "a table with rows to train", "an analysis of trained models" if table.command else "no recipes yet",
               f"train the models of another table, then run: {table.command}" if table.command else "see configs/recipes/README.md")
    rows = rows_of(table, options, options.out / options.scale)
    if not rows:
        refuse(f"reproduce {table.paper} {table.name}", f"a row that can be trained at --scale {options.scale}", "none", "choose the other scale, or other rows")
    check_init(rows, options, "reproduce")
    for row in rows:
        row_hours, _ = speed.hours(row)
        if row_hours is not None and not (options.prints or options.overrides or options.grids):
            say(f"{row.name}: about {row_hours:.1f} hours for each seed")
    drive(rows, options, options.scale == "small", (table.figure, options.out / f"{table.paper}-{table.name}-{options.scale}.svg"))
