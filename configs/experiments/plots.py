"""Draws pictures with gnuplot: results by row, results by parameters, and learning curves."""
import re
import shutil
import subprocess

from errors import refuse
from paired import deviation, mean
from runs import read_log
from tools import say

TERMINALS = {"svg": "svg size 900,600 dynamic background rgb 'white'", "pdf": "pdfcairo size 9,6", "png": "pngcairo size 900,600"}


def check_path(path):
    """Refuses a picture that cannot be drawn, before the runs begin."""
    if path.suffix[1:] not in TERMINALS:
        refuse(f"--plot {path}", "a file that ends in .svg, .pdf or .png", path.suffix or "no ending", "rename the picture")
    if shutil.which("gnuplot") is None:
        refuse(f"--plot {path}", "gnuplot on the PATH", "none", "install the package gnuplot-nox, or leave --plot out")


def quote(text):
    return "'" + str(text).replace("'", "''") + "'"


def draw(path, commands, series):
    """Draws a picture atomically. series: [(style of gnuplot, lines of data)]."""
    part = path.with_name(f"part.{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = "".join(f"$data{index} << EOD\n" + "".join(" ".join(map(str, line)) + "\n" for line in lines) + "EOD\n" for index, (_, lines) in enumerate(series))
    plot = "plot " + ", ".join(f"$data{index} {style}" for index, (style, _) in enumerate(series))
    script = f"set terminal {TERMINALS[path.suffix[1:]]} noenhanced\nset output {quote(part)}\n{commands}\n{blocks}{plot}\n"
    process = subprocess.run(["gnuplot"], input=script, text=True, capture_output=True, check=False)
    if process.returncode != 0 or not part.exists() or part.stat().st_size == 0:
        part.unlink(missing_ok=True)
        refuse(path, "a picture from gnuplot", process.stderr.strip() or "no picture", "install the package gnuplot-nox, or choose another folder")
    part.replace(path)
    say(f"wrote the picture {path}")


def draw_rows(report, path):
    """Draws the last column of results by row, with the standard deviation over seeds."""
    column = report.columns[-1]
    rows = [(row.name, list(report.values(row, column).values())) for row in report.rows]
    lines = [(index, mean(values), deviation(values) or 0) for index, (_, values) in enumerate(rows) if values]
    # A label has a line for each override that not all rows have.
    parts = [name.split("@") for name, _ in rows]
    labels = [[name, *(part for part in overrides if not all(part in other for other in parts))] for name, *overrides in parts]
    tics = ", ".join('"' + "\\n".join(label).replace('"', "'") + f'" {index}' for index, label in enumerate(labels))
    draw(path, f"set ytics ({tics})\nset yrange [{len(rows) - 0.5}:-0.5]\nset offsets graph 0.05, graph 0.05, 0, 0\nset xlabel {quote(column)}\nset grid\nunset key",
         [("using 2:1:3 with xerrorbars pointtype 7", lines)])


def draw_points(report, path):
    """Draws the last column of results by the number of parameters, a line for each series of rows whose names differ in one number."""
    column, series = report.columns[-1], {}
    for row in report.rows:
        values = list(report.values(row, column).values())
        if values:
            series.setdefault(re.sub(r"(-?[a-z]+)\d+$", r"\1", row.name), []).append((report.results[row.name][0].parameters, mean(values)))
    draw(path, f"set xlabel 'parameters'\nset ylabel {quote(column)}\nset grid\nset key outside",
         [(f"using 1:2 with linespoints title {quote(name)}", sorted(lines)) for name, lines in series.items()])


def draw_curves(report, path):
    """Draws the loss in training and in validation by epoch, of the first seed of each row."""
    series = []
    for color, row in enumerate(report.rows, 1):
        first, lines = read_log(report.results[row.name][0].log)
        updates = first.get("updates_per_epoch") or 1
        for key, title, dash in (("nll", "training", 2), ("valid_nll", "validation", 1)):
            points = [(line["update"] / updates, line[key]) for line in lines if key in line]
            if points:
                series.append((f"using 1:2 with lines linecolor {color} dashtype {dash} title {quote(f'{row.name}, {title}')}", points))
    if not series:
        refuse(path, "losses in the logs of the runs", "none", "train longer than one validation")
    draw(path, "set xlabel 'epoch'\nset ylabel 'cross-entropy (nats per token)'\nset grid\nset key outside", series)
