"""Runs a series of studies with a budget of machine time, and tests which differences between their rows are significant.

Keys of the file in addition to the keys of ./run study:

    seeds, null_seeds, fresh_seeds, level     # numbers of seeds, and the level of Holm's correction, see below
    [[studies]]  name, null, minutes          # name of the study; its row with null_seeds seeds; estimated minutes of a run
    [studies.rows.NAME]  minutes, seeds       # of this row; baseline may be a list of rows, or "" for no comparison
    [[studies.trends]]  name, rows            # slope of the differences of rows to their baselines over log2 of a number: { ROW = NUMBER }

The row `null` has null_seeds seeds, all others have `seeds` seeds. The differences of the means of disjoint sets of `seeds` runs of the row `null` are the
null distribution of a difference (effects.py). A difference is outside its band if it is significant after Holm's correction for the study; its row and
baseline then get fresh_seeds new seeds. A difference is found if the fresh seeds alone have the same sign and their 95% interval of Student's t excludes
0; the table reports the mean of the fresh seeds, since the first seeds selected the difference. A comparison without all its runs counts in Holm's
correction with a p value of 1, so that the number of comparisons does not depend on the budget.

The variance of ten runs is itself uncertain, so the band selects and the fresh seeds decide.

OUT/spent.tsv has the machine time of each run, also of a stopped or failed one; a killed driver writes none. The series ends when the next run would
exceed the budget. --finished FILE keeps the results and the time of the finished runs also in FILE (finished.py).
"""
import contextlib
import dataclasses
import fcntl
import math
import pathlib
import re
import sys
import time

import finished
from effects import band, holm, null_distribution, p_value, slope_weights
from errors import choose, refuse, refuse_usage
from paired import difference, mean
from report import FORMATS, number, provenance
from runs import Job, print_jobs, with_init_jobs
from study import Study
from tables import lower_is_better
from tools import copy_tools, require_tools, say

KEYS = ("studies", "seeds", "null_seeds", "fresh_seeds", "level")
STUDY_KEYS = ("name", "null", "minutes", "trends")
ROW_KEYS = ("minutes", "seeds")


@dataclasses.dataclass
class Comparison:
    """A difference between rows: of one row and its baseline, or, for a trend, a weighted sum of such differences."""
    name: str
    baseline: str
    terms: list  # [(weight, row, baseline)]

    def rows(self):
        return list(dict.fromkeys(name for _, *pair in self.terms for name in reversed(pair)))

    def differences(self, scores, seeds):
        """Returns {seed: difference}, or None unless all rows have a score of each seed. scores: {row: {seed: score}}."""
        if any(seed not in scores.get(name, {}) for seed in seeds for name in self.rows()):
            return None
        return {seed: sum(weight * (scores[row][seed] - scores[baseline][seed]) for weight, row, baseline in self.terms) for seed in seeds}

    def scale(self):
        """Returns the standard deviation of the difference in units of that of a difference of two rows."""
        return math.sqrt(sum(weight**2 for weight, *_ in self.terms))


class Part:
    """One study of a series."""

    def __init__(self, path, values, series_values, options):
        self.name = str(values.get("name", ""))
        if not re.fullmatch(r"[\w.-]+", self.name):
            refuse_usage(f"{path}: studies.name", "a name of letters, digits, - and .", repr(self.name), "name each of the [[studies]]")
        self.study = Study(path, values, STUDY_KEYS, ROW_KEYS)
        self.minutes = values.get("minutes", 5)
        self.row_values = values["rows"]
        self.options = options
        data = self.study.data(options.out)
        self.rows = {row.name: row for row in self.study.rows(options.out / self.name, data, options.out)}
        self.null = choose(f"{path}: studies.{self.name}.null", "a row", str(values.get("null", next(iter(self.rows)))), list(self.rows), "name one of the rows")
        self.seeds = list(range(1, series_values["seeds"] + 1))
        self.null_seeds = list(range(1, series_values["null_seeds"] + 1))
        first = max(series_values["null_seeds"], series_values["seeds"]) + 1
        self.fresh_seeds = list(range(first, first + series_values["fresh_seeds"]))
        self.level = series_values["level"]
        self.comparisons = [Comparison(name, baseline, [(1, name, baseline)]) for name in self.rows for baseline in self.study.baselines(name)]
        self.comparisons += [self.trend(path, trend) for trend in values.get("trends", [])]

    def trend(self, path, values):
        numbers = values.get("rows", {})
        if not isinstance(numbers, dict) or len(numbers) < 2 or any(not isinstance(n, (int, float)) or n <= 0 for n in numbers.values()):
            refuse_usage(f"{path}: trends.rows", "at least two rows with positive numbers", repr(numbers), "write { ROW = NUMBER, ROW = NUMBER }")
        for name in numbers:
            choose(f"{path}: trends.rows", "a row with a baseline", name, [row for row in self.rows if self.study.baselines(row)], "name one of the rows")
        weights = slope_weights([math.log2(value) for value in numbers.values()])
        return Comparison(f"trend: {values.get('name', self.name)}", "", [(weight, name, self.study.baselines(name)[0]) for weight, name in zip(weights, numbers)])

    def seeds_of_row(self, name):
        if "seeds" in self.row_values[name]:
            return list(range(1, self.row_values[name]["seeds"] + 1))
        return self.null_seeds if name == self.null else self.seeds

    def jobs(self, names, seeds=None):
        jobs = [Job(self.rows[name], seed, self.options.threads) for name in names for seed in seeds or self.seeds_of_row(name)]
        return with_init_jobs(jobs)

    def first_jobs(self):
        """Returns the jobs of the row `null`, then the jobs of the other rows in the order of the file."""
        return self.jobs([self.null, *(name for name in self.rows if name != self.null)])

    def scores(self):
        """Returns {row: {seed: score}}, the last column of results, of the finished runs."""
        column = self.column()
        scores = {}
        for name in self.rows:
            for seed in {*self.seeds_of_row(name), *self.seeds, *self.fresh_seeds}:
                result = Job(self.rows[name], seed, self.options.threads).result()
                if result and column in result.scores:
                    scores.setdefault(name, {})[seed] = result.scores[column]
        return scores

    def column(self):
        return self.rows[self.null].columns()[-1].column

    def tests(self):
        """Returns {comparison name and baseline: (mean difference or None, half-width of the band, p value, adjusted p value, is outside)}."""
        scores = self.scores()
        null_scores = [scores.get(self.null, {}).get(seed) for seed in self.null_seeds]
        null = null_distribution(null_scores, len(self.seeds)) if None not in null_scores else None
        means, p_values = {}, {}
        for one in self.comparisons:
            key = (one.name, one.baseline)
            found = one.differences(scores, self.seeds)
            means[key] = mean(list(found.values())) if found else None
            p_values[key] = p_value(null, means[key] / one.scale()) if null and found else 1.0
        corrected = holm(p_values, self.level)
        return {(one.name, one.baseline): (means[key], band(null, corrected[key][1]) * one.scale() if null else None, p_values[key], *corrected[key][::2])
                for one in self.comparisons for key in [(one.name, one.baseline)]}

    def fresh_jobs(self):
        """Returns the jobs of fresh seeds for the comparisons outside their bands, the smallest p value first."""
        tests = self.tests()
        outside = sorted((one for one in self.comparisons if tests[one.name, one.baseline][4]), key=lambda one: tests[one.name, one.baseline][2])
        names = list(dict.fromkeys(name for one in outside for name in one.rows()))
        return self.jobs(names, self.fresh_seeds)

    def all_jobs(self):
        """Returns the jobs of the first seeds and of the fresh seeds that are known."""
        return list({job.out: job for job in [*self.first_jobs(), *self.fresh_jobs()]}.values())

    def lines(self):
        """Returns a line of the table for each comparison."""
        scores, tests, lines = self.scores(), self.tests(), []
        better = "lower" if lower_is_better(self.column()) else "higher"
        for one in self.comparisons:
            found, half, p, adjusted, outside = tests[one.name, one.baseline]
            values = list(scores.get(one.name, {}).get(seed) for seed in self.seeds)
            low = high = fresh_mean = None
            fresh = one.differences(scores, self.fresh_seeds) if outside else None
            if fresh:
                fresh_mean, low, high, _ = difference(fresh, dict.fromkeys(fresh, 0.0))
            tested = found is not None and half is not None
            lines.append([self.name, one.name, one.baseline or "-", f"{self.column()}, {better} is better", number(mean(values) if None not in values else None),
                          number(found, sign="+"), number(half if half is not None and half < math.inf else None), number(p if tested else None),
                          number(adjusted if tested else None), *(number(value, sign="+") for value in (fresh_mean, low, high)),
                          verdict(found, half, outside, fresh_mean, low, high)])
        return lines


def verdict(found, half, outside, fresh_mean, low, high):
    if found is None or half is None:
        return "not run"
    if not outside:
        return "inside the band"
    if fresh_mean is None:
        return "outside the band, fresh seeds not run"
    return "found" if found * fresh_mean > 0 and (low > 0 or high < 0) else "outside the band, not confirmed"


class Ledger:
    """The machine time of each run: OUT/spent.tsv, with study, row, seed, seconds and whether the run finished."""

    def __init__(self, out):
        self.path = out / "spent.tsv"
        self.lines = []
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                fields = line.split("\t")
                try:
                    self.lines.append((fields[0], fields[1], int(fields[2]), float(fields[3]), fields[4]))
                except (ValueError, IndexError):
                    refuse(self.path, "lines of five columns, study, row, seed, seconds and finished or stopped", repr(line), "correct or remove this line")

    def spent(self):
        """Returns the seconds of all runs."""
        return sum(line[3] for line in self.lines)

    def spent_by(self, study, row, seed):
        """Returns the seconds of one run, with its stopped attempts."""
        return sum(line[3] for line in self.lines if line[:3] == (study, row, seed))

    def seconds(self, part, name):
        """Returns the estimated seconds of a run: the mean of the finished runs of the row, else of the study, else the minutes of the file."""
        def total(line_filter):
            totals = {}
            for study, row, seed, seconds, state in self.lines:
                if line_filter(study, row):
                    entry = totals.setdefault((row, seed), [0, False])
                    entry[0] += seconds
                    entry[1] |= state == "finished"
            return [seconds for seconds, finished in totals.values() if finished]
        own = total(lambda study, row: study == part.name and row == name)
        stated = part.row_values.get(name, {}).get("minutes")
        others = total(lambda study, row: study == part.name and "minutes" not in part.row_values.get(row, {})) if stated is None else []
        return mean(own) or mean(others) or 60 * (stated or part.minutes)

    def add(self, part, job, seconds, state):
        self.lines.append((part.name, job.row.name, job.seed, seconds, state))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{part.name}\t{job.row.name}\t{job.seed}\t{seconds:.1f}\t{state}\n")


def budget_seconds(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([hms])", text)
    if not match or float(match.group(1)) == 0:
        refuse_usage("--budget", "a positive time such as 12h, 90m or 30s", text, "correct --budget")
    return float(match.group(1)) * {"h": 3600, "m": 60, "s": 1}[match.group(2)]


def plan(parts, ledger, budget):
    """Returns the lines of the plan: study, row, seeds to run, hours, hours in all, and whether they fit in the budget."""
    lines, hours = [["order", "study", "row", "finished", "to run", "hours", "in all", "within the budget"]], ledger.spent() / 3600
    for part in parts:
        groups = {}
        for job in part.first_jobs():
            groups.setdefault(job.row.name, []).append(job)
        for name, jobs in groups.items():
            left = [job for job in jobs if job.result() is None]
            own = len(left) * ledger.seconds(part, name) / 3600
            hours += own
            lines.append([str(len(lines)), part.name, name, str(len(jobs) - len(left)), str(len(left)), f"{own:.2f}", f"{hours:.2f}",
                          "-" if not left else "yes" if hours * 3600 <= budget else "no"])
        fresh = [job for job in part.fresh_jobs() if job.result() is None]
        own = sum(ledger.seconds(part, job.row.name) for job in fresh) / 3600
        hours += own
        lines.append([str(len(lines)), part.name, "fresh seeds", "-", str(len(fresh)) if fresh else "none yet", f"{own:.2f}", f"{hours:.2f}",
                      "-" if not fresh else "yes" if hours * 3600 <= budget else "no"])
    return lines


def run_within(part, jobs, ledger, budget, tools, after_run):
    """Runs the jobs that have no result and calls after_run() after each. Returns false if the next one would exceed the budget."""
    for job in jobs:
        job.check_configuration()
        if job.result() is not None:
            continue
        estimate = ledger.seconds(part, job.row.name)
        if ledger.spent() + estimate > budget:
            say(f"{part.name}, {job.row.name}, seed {job.seed}: needs about {estimate / 3600:.2f} hours, {ledger.spent() / 3600:.2f} of {budget / 3600:.2f} are spent")
            return False
        say(f"{part.name}, {job.row.name}, seed {job.seed}: {ledger.spent() / 3600:.2f} of {budget / 3600:.2f} hours spent")
        job.row.data.prepare(job.init)
        with job.locked() as lock:
            if job.result() is not None:
                continue  # finished meanwhile by a command outside of the series
            begin, state = time.monotonic(), "stopped"
            try:
                job.run_locked(tools, lock)
                state = "finished"
            finally:
                ledger.add(part, job, time.monotonic() - begin, state)
        after_run()
    return True


@contextlib.contextmanager
def only_driver(out):
    """Locks the folder of the series, since two drivers would each spend the whole budget. Refuses a second driver."""
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refuse(str(out), "a series that no other process runs", "a process that runs it", "wait for its end; --table prints the table of the finished runs")
        yield


def write(lines, options, footer):
    sys.stdout.write(FORMATS[options.format](lines, footer))
    sys.stdout.flush()


def check_values(path, values):
    for key in values:
        choose(str(path), "a key of a series", key, list(KEYS), "see configs/experiments/series.py")
    numbers = {"seeds": 3, "null_seeds": 10, "fresh_seeds": 5} | {key: values[key] for key in ("seeds", "null_seeds", "fresh_seeds") if key in values}
    for key, value in numbers.items():
        if not isinstance(value, int) or value < 1:
            refuse_usage(f"{path}: {key}", "a positive number of seeds", repr(value), "correct the number")
    if numbers["null_seeds"] < 2 * numbers["seeds"] or numbers["fresh_seeds"] < 2:
        refuse_usage(f"{path}: null_seeds, fresh_seeds", "null_seeds of at least twice `seeds`, and at least 2 fresh_seeds",
                     f"{numbers['null_seeds']} and {numbers['fresh_seeds']}", "correct the numbers")
    level = values.get("level", 0.05)
    if not isinstance(level, float) or not 0 < level < 1:
        refuse_usage(f"{path}: level", "a number between 0 and 1", repr(level), "correct the level")
    if not isinstance(values["studies"], list) or not values["studies"]:
        refuse_usage(f"{path}: studies", "tables [[studies]]", repr(values["studies"]), "see configs/experiments/studies/open.toml")
    return numbers | {"level": level}


def run(options, values):
    """Prints the plan, runs what fits in the budget, and prints the table of differences."""
    for name, value in (("--seeds", options.seeds), ("--set", options.overrides), ("--grid", options.grids), ("--data", options.data), ("--init", options.init),
                        ("--baseline", options.baseline), ("--job", options.job), ("--plot", options.plot)):
        if value:
            refuse_usage(f"study {options.file.stem}: {name}", "a series, which states its rows and seeds", f"{name}", f"leave {name} out, or change the file")
    budget = budget_seconds(options.budget or "12h")
    numbers = check_values(options.file, values)
    options.out = options.out or pathlib.Path(f"study-{options.file.stem}")
    parts = [Part(options.file, dict(study), numbers, options) for study in values["studies"]]
    if len({part.name for part in parts}) != len(parts):
        refuse_usage(f"{options.file}: studies.name", "different names", ", ".join(part.name for part in parts), "rename a study")
    if options.prints:
        if options.finished:
            refuse_usage("--finished", "a command that runs or tabulates the series", "--print", "leave --finished out")
        for part in parts:
            print_jobs(part.first_jobs())
        return
    if options.tabulates and not options.finished:
        write_table(parts, Ledger(options.out), budget, numbers, options)
        return
    if not options.tabulates:
        require_tools()
    with only_driver(options.out):
        ledger = Ledger(options.out)

        def save():
            if options.finished:
                finished.save(options.finished, parts, ledger)

        if options.finished:
            finished.load(options.finished, parts, ledger)
            save()
        if options.tabulates:
            write_table(parts, ledger, budget, numbers, options)
            return
        notes = ["fresh seeds: for the differences outside their bands, which are known after the first seeds",
                 f"spent: {ledger.spent() / 3600:.2f} of {budget / 3600:.2f} hours; the same command continues where it stopped"]
        write(plan(parts, ledger, budget), options, notes)
        tools = copy_tools(options.out / "tools")
        for part in parts:
            if not (run_within(part, part.first_jobs(), ledger, budget, tools, save) and run_within(part, part.fresh_jobs(), ledger, budget, tools, save)):
                break
        print()
        write_table(parts, ledger, budget, numbers, options)


def write_table(parts, ledger, budget, numbers, options):
    """Writes the table of differences of the finished runs."""
    heading = ["study", "row", "compared with", "measure", "mean", "difference", "band", "p", "Holm", "fresh", "low", "high", "result"]
    footer = [f"difference: mean of {numbers['seeds']} seeds minus the same of the compared row; band: differences within ± band are not significant at the level "
              f"{numbers['level']:g} after Holm's correction for the comparisons of the study",
              f"p: from the null distribution, the differences between {numbers['null_seeds']} seeds of " + ", ".join(f"{part.name}/{part.null}" for part in parts),
              f"fresh, low, high: mean of {numbers['fresh_seeds']} fresh seeds and its 95% interval of Student's t; found: the mean has the sign of the difference, and the interval excludes 0",
              "trend: slope of the differences over log2 of the number",
              f"spent: {ledger.spent() / 3600:.2f} of {budget / 3600:.2f} hours; runs: {options.out}"]
    footer += [f"{part.name}: {line}" for part in parts for line in provenance(part.all_jobs())]
    write([heading, *(line for part in parts for line in part.lines())], options, footer)
