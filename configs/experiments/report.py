"""Tabulates means, deviations and paired differences, with a footer of commit, data, seeds and commands."""
import collections

from errors import refuse
from paired import deviation, difference, mean
from runs import shown
from tables import lower_is_better, published_value

OTHER_SIZE = "published (other data, other size)"


def number(value, digits=4, sign=""):
    return "-" if value is None else f"{value:{sign}.{digits}f}"


def sign_of(value):
    return "+" if value > 0 else "-" if value < 0 else "0"


def direction(row, baseline, found, low, high):
    """Compares the sign of the published difference to the baseline with the measured sign; both signs are of an improvement, + for better.
    low, high: ends of the interval of the measured difference, or None."""
    pair = [published_value(text) for text in (row.published, baseline.published)]
    if None in pair or found is None:
        return "-"
    (value, lower), (baseline_value, _) = pair
    published = (baseline_value - value) if lower else (value - baseline_value)
    agreement = "agrees" if sign_of(published) == sign_of(found) else "differs"
    reservation = ", one seed" if low is None else ", interval includes 0" if low <= 0 <= high else ""
    return f"published {sign_of(published)}, found {sign_of(found)}: {agreement}{reservation}"


def provenance(jobs):
    """Returns the lines of commits, tools, data and seeds of finished runs, and of missing runs. Refuses finished runs with different data of one name."""
    runs = [(job, result) for job in jobs if (result := job.result())]
    folders = {}  # {shard: {checksum: folder of a run}}
    for job, result in runs:
        for split, checksum in result.checksums.items():
            folders.setdefault(f"{job.row.data.name}, {job.row.data.shard(split).name}", {}).setdefault(checksum, job.out)
    for shard, folder_of in folders.items():
        if len(folder_of) > 1:
            refuse(f"data {shard}", "the same shard in all runs", ", ".join(f"checksum {checksum} in {folder}" for checksum, folder in folder_of.items()),
                   "remove the runs of the other data, or use another --out")
    lines = [] if not runs else ["configurations: commit " + ", ".join(sorted({result.commit for _, result in runs})), "tools: " + ", ".join(sorted({result.tools for _, result in runs})),
                                "seeds: " + ", ".join(map(str, sorted({result.seed for _, result in runs})))]
    lines += sorted(f"data: {shard}, checksum {checksum}" for shard, folder_of in folders.items() for checksum in folder_of)
    totals = collections.Counter(job.row.name for job in jobs)
    missing = totals - collections.Counter(job.row.name for job, _ in runs)
    return lines + [f"not run: {name}: {number_left} of {totals[name]} runs" for name, number_left in missing.items()]


class Report:
    """The table of a study. results: {row name: [Result]}; small: the published numbers belong to other data and sizes."""

    def __init__(self, rows, results, small):
        self.rows = [row for row in rows if results.get(row.name)]
        self.results = results
        self.small = small
        self.columns = list(dict.fromkeys(score.column for row in self.rows for score in row.columns()))

    def values(self, row, column):
        return {result.seed: result.scores[column] for result in self.results[row.name] if column in result.scores}

    def heading(self):
        columns = ["row", "data", "parameters", "seeds"]
        for column in self.columns:
            columns += [column, "sd"]
        columns += ["compared with", "difference", "low", "high", "signs", "seconds"]
        if any(row.published for row in self.rows):
            columns += [OTHER_SIZE, "direction"] if self.small else ["published"]
        return columns

    def line(self, row):
        results = self.results[row.name]
        fields = [row.name, row.data.name, str(results[0].parameters), str(len(results))]
        for column in self.columns:
            values = list(self.values(row, column).values())
            fields += [number(mean(values)), number(deviation(values))]
        baseline = next((other for other in self.rows if other.name == row.baseline and other is not row), None)
        column = row.columns()[-1].column if row.columns() else ""
        found, low, high, signs = difference(self.values(row, column), self.values(baseline, column)) if baseline else (None, None, None, "")
        fields += [baseline.name if baseline else "-", *(number(value, sign="+") for value in (found, low, high)), signs or "-",
                   f"{mean([result.seconds for result in results]):.0f}"]
        if any(other.published for other in self.rows):
            fields.append(row.published or "-")
            if self.small:
                better = None if found is None else -found if lower_is_better(column) else found
                fields.append(direction(row, baseline, better, low, high) if baseline else "-")
        return fields

    def footer(self, jobs):
        """Returns the lines below the table."""
        lines = ["difference: mean of the last column of results minus that of the compared row, seed by seed; low, high: 95% interval of Student's t"]
        lines += provenance(jobs)
        for row in self.rows:
            job = next(job for job in jobs if job.row is row and job.result())
            lines.append(f"command of {row.name}: {job.printed(shown)}")
        return lines

    def text(self, jobs, form):
        lines = [self.heading(), *(self.line(row) for row in self.rows)]
        return FORMATS[form](lines, self.footer(jobs))


def tsv(lines, footer):
    return "".join("\t".join(line) + "\n" for line in lines) + "".join(f"# {line}\n" for line in footer)


def markdown(lines, footer):
    def row(fields):
        return "| " + " | ".join(field.replace("|", "\\|") for field in fields) + " |\n"
    rule = row(["---" if index < 2 else "---:" for index in range(len(lines[0]))])
    return row(lines[0]) + rule + "".join(map(row, lines[1:])) + "\n" + "".join(f"- {line}\n" for line in footer)


LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
         "^": r"\textasciicircum{}", "±": r"$\pm$", "<": r"$<$", ">": r"$>$"}


def latex(lines, footer):
    def row(fields):
        return " & ".join("".join(LATEX.get(letter, letter) for letter in field) for field in fields) + " \\\\\n"
    return (f"\\begin{{tabular}}{{ll{'r' * (len(lines[0]) - 2)}}}\n\\toprule\n{row(lines[0])}\\midrule\n{''.join(map(row, lines[1:]))}\\bottomrule\n"
            "\\end{tabular}\n" + "".join(f"% {line}\n" for line in footer))


FORMATS = {"tsv": tsv, "markdown": markdown, "latex": latex}  # functions of the lines of a table, the first its heading, and of the lines below it
