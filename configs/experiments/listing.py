"""Lists the tables of the papers and their rows, with data, estimated hours and finished runs."""
import speed
from configurations import small_form
from report import FORMATS
from tables import training_length


def num_results(row):
    return len(list(row.folder.glob("seed*/result.json")))


def hours_text(rows):
    """Returns the sum of the estimated hours of one seed of the rows; "at least" if some rows are unmeasured."""
    estimates = [speed.hours(row) for row in rows]
    total, reasons = sum(value or 0 for value, _ in estimates), [reason for value, reason in estimates if value is None]
    if not reasons:
        return f"{total:.2g}" if rows else "-"
    return f"at least {total:.2g}" if total else reasons[0]


def write(lines, options, notes=()):
    footer = [*notes, "hours: one seed of all rows on this machine, from measured speeds of updates of about 1,024 tokens; --measure measures. updates: ~ computed from the tokens of an epoch. results: rows with a finished run",
              f"scale: {options.scale}; machine: {speed.processor()}; runs: {options.out}"]
    return FORMATS[options.format](lines, footer)


def list_tables(found, options):
    """Lists tables. found: [(table, its rows, {name of a recipe: why it has no row at the scale})]."""
    lines = [["table", "rows", "data", "hours", "results", "content", "analysis"]]
    for table, rows, reasons in found:
        data = ", ".join(dict.fromkeys(row.data.name for row in rows)) or "-"
        lines.append([table.title, f"{len(rows)} of {len(rows) + len(reasons)}", data, hours_text(rows), str(sum(num_results(row) > 0 for row in rows)), table.content,
                      table.analysis.partition(" -")[0].partition(" AVERAGE")[0] or "-"])
    return write(lines, options, filter(None, (speed.note(row) for _, rows, _ in found for row in rows)))


def updates_text(name, row, options):
    """Returns the number of updates of a recipe PAPER/RECIPE: stated, or computed from the tokens of an epoch, with ~; otherwise the epochs."""
    length, tokens_per_update = (small_form(name)["updates"], 0) if options.scale == "small" else training_length(name)
    if length.endswith("e") and tokens_per_update and row.data.tokens:
        return f"~{round(int(length[:-1]) * row.data.tokens / tokens_per_update)}"
    return length.removesuffix("u") if row.program != "score" else "0"


def list_rows(table, rows, reasons, options):
    """Lists the rows of a table. reasons: {name of a recipe: why it has no row at the scale}."""
    experiments = {table.short_name(recipe["recipe"]): recipe for recipe in table.recipes()}
    lines = [["row", "recipe", "data", "updates", "hours", "results", "compared with", "experiment", "published"]]
    for row in rows:
        recipe = experiments[row.name.split("@")[0]]
        name = f"{table.paper}/{recipe['recipe']}"
        hours, reason = speed.hours(row)
        lines.append([row.name, name, row.data.name, updates_text(name, row, options), reason if hours is None else f"{hours:.2g}", str(num_results(row)),
                      row.baseline or "-", recipe["experiment"], recipe["published"]])
    notes = [f"left out: {name}, which {reason}" for name, reason in reasons.items()]
    return write(lines, options, [*notes, *filter(None, map(speed.note, rows))])
