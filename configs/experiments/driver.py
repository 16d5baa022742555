"""Options that all commands share, and the steps from rows to a table."""
import argparse
import dataclasses
import pathlib
import sys

import plots
from configurations import grid_points, split_override
from errors import choose, refuse, refuse_usage
from report import FORMATS, Report
from runs import Job, print_jobs, run_jobs, with_init_jobs
from tools import copy_tools, require_tools


def parser_of(command, description, epilog=None):
    parser = argparse.ArgumentParser(prog=f"./run {command}", description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", help="number of runs per row, with seeds 1, 2, ..., or a list of seeds such as 1,4,7; a list of one seed ends with a comma, such as 4, [3; reproduce --scale paper: 1]")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="value of a configuration key in all rows; repeatable")
    parser.add_argument("--grid", dest="grids", action="append", default=[], metavar="KEY=VALUE,VALUE...",
                        help="a row for each value of a key; repeatable: a row for each combination")
    parser.add_argument("--out", type=pathlib.Path, help="folder of all runs")
    parser.add_argument("--data", type=pathlib.Path, help="folder of prepared shards train.mhs, valid.mhs and test.mhs; default: made by a script of data_scripts")
    parser.add_argument("--init", type=pathlib.Path, help="initial model of fine-tuning")
    parser.add_argument("--threads", type=threads_of, default="0", help="threads of the tools; 0: all cores [0]")
    parser.add_argument("--format", choices=tuple(FORMATS), default="tsv", help="format of the table [tsv]")
    parser.add_argument("--plot", type=pathlib.Path, metavar="FILE", help="picture of the results: .svg, .pdf or .png")
    parser.add_argument("--baseline", help="row that all rows are compared with")
    parser.add_argument("--print", dest="prints", action="store_true", help="print the commands, a line for each run, instead of running them")
    parser.add_argument("--job", type=int, metavar="N", help="run only line N of --print, counted from 1, and print no table; for job arrays")
    parser.add_argument("--table", dest="tabulates", action="store_true", help="print the table of the finished runs without running others")
    return parser


def threads_of(text):
    """Returns the text of a number of threads."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of threads, or 0 for all cores; found {text}; correct --threads")
    return text


def seeds_of(text):
    """Returns the seeds of a number of seeds or of a list of seeds."""
    try:
        numbers = [int(word) for word in str(text).split(",") if word]
    except ValueError:
        numbers = []
    seeds = list(range(1, numbers[0] + 1)) if len(numbers) == 1 and "," not in str(text) else numbers
    if not seeds or min(seeds) < 0 or len(set(seeds)) != len(seeds):
        refuse_usage("--seeds", "a positive number of seeds, or a list of different seeds such as 1,4,7", text, "correct --seeds")
    return seeds


def with_overrides(rows, options):
    """Returns the rows with the values of --set, and a row for each point of --grid."""
    for override in options.overrides:
        split_override(override)
    points = grid_points(options.grids)
    result = []
    for row in rows:
        for point in points:
            suffix = "".join(f"@{override}" for override in [*options.overrides, *point]).replace("/", "_")
            baseline = row.baseline + suffix if row.baseline else ""
            result.append(dataclasses.replace(row, name=row.name + suffix, folder=row.folder.with_name(row.folder.name + suffix), baseline=baseline,
                                              overrides=[*row.overrides, *options.overrides, *point]))
    return result


def check_init(rows, options, command, is_prepared=False):
    """Refuses fine-tuning without a model, and a model without fine-tuning. is_prepared: the model of --init is a published one that a script makes."""
    needs = any(row.program == "mh-finetune" and not row.init for row in rows)
    if is_prepared:
        return
    if needs != (options.init is not None):
        refuse_usage(f"{command}: --init", "a model, which the runs fine-tune" if needs else "none, since no run fine-tunes a model", options.init or "none",
               "name a checkpoint, such as bert.safetensors of data_scripts/bert-base-uncased FOLDER" if needs else "leave --init out")
    if needs and not options.init.is_file():
        refuse_usage(f"{command}: --init", "a model", f"no file {options.init}", "correct the path")


def drive(rows, options, small=False, figure=("", None), analysis=None):
    """Runs the rows that are missing and prints the table. figure: kind and path of the picture that the table always has; analysis: the Analysis
    of the trained models, or None."""
    pictures = [(kind, path) for kind, path in (figure, ("rows", options.plot)) if kind and path]
    if options.plot:
        plots.check_path(options.plot)
    rows = with_overrides(rows, options)
    if options.baseline is not None:
        choose("--baseline", "a row", options.baseline, [row.name for row in rows], "see the first column of the table")
        for row in rows:
            row.baseline = options.baseline
    table_jobs = [Job(row, seed, options.threads, options.init) for seed in seeds_of(options.seeds) for row in rows]
    jobs = with_init_jobs(table_jobs)
    if options.job is not None and not 1 <= options.job <= len(jobs):
        refuse_usage("--job", f"a number from 1 to {len(jobs)}", options.job, "see the lines of --print")
    if options.data and not (options.prints or options.tabulates):
        for row in rows:
            if not row.data.script:
                row.data.prepare()  # refuses a folder without shards
    if not (options.prints or options.tabulates):
        require_tools()
    if not (options.prints or options.job):
        for _, path in pictures:
            plots.check_program(path)
        if analysis:
            analysis.check()
    chosen_jobs = jobs if options.job is None else [jobs[options.job - 1]]
    if options.prints:
        print_jobs(chosen_jobs)
        if analysis:
            for call in analysis.calls(table_jobs):
                print(f"# analysis: {call.printed()}")
        return
    if not options.tabulates:
        tools = copy_tools(options.out / "tools")
        run_jobs(chosen_jobs, tools)
        if options.job is not None:
            return
    results = {}
    for job in table_jobs:
        result = job.result()
        if result:
            results.setdefault(job.row.name, []).append(result)
    if not results:
        refuse("--table", f"finished runs in {options.out}", "none", "leave --table out, or correct --out")
    report = Report(rows, results, small)
    sys.stdout.write(report.text(table_jobs, options.format))
    sys.stdout.flush()
    for kind, path in pictures:
        {"rows": plots.draw_rows, "points": plots.draw_points}[kind](report, path)
    if analysis:
        analysis.run([job for job in table_jobs if job.result()], options)
