"""Draws pictures with gnuplot: results by row, and results by parameters."""
import re
import shutil
import subprocess

from errors import refuse, refuse_usage
from paired import deviation, mean
from tools import say

TERMINALS = {"svg": "svg size 900,600 dynamic background rgb 'white'", "pdf": "pdfcairo size 9,6", "png": "pngcairo size 900,600"}


def check_path(path):
    """Refuses a file name that is not of a picture."""
    if path.suffix[1:] not in TERMINALS:
        refuse_usage(f"--plot {path}", "a file that ends in .svg, .pdf or .png", path.suffix or "no ending", "rename the picture")


def check_program(path):
    """Refuses a picture that cannot be drawn, before the runs begin."""
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
    """Draws the last column of results of each row by the number of parameters, a line for each series of rows whose names differ in one number."""
    columns, series = [], {}
    for row in report.rows:
        column = row.columns()[-1].column
        values = list(report.values(row, column).values())
        if values:
            columns.append(column)
            name = re.sub(r"(-?[a-z]+)\d+(-[a-z]+)?$", r"\1\2", row.name)
            series.setdefault(name, []).append((report.results[row.name][0].parameters, mean(values)))
    draw(path, f"set xlabel 'parameters'\nset ylabel {quote(', '.join(dict.fromkeys(columns)))}\nset grid\nset key outside",
         [(f"using 1:2 with linespoints title {quote(name)}", sorted(lines)) for name, lines in series.items()])
