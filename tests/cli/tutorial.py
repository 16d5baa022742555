#!/usr/bin/env python3
"""Runs the commands of a tutorial and compares their output with the output that the page shows.

usage: tutorial.py NAME [CORPUS-FILE…]     runs docs/tutorial-NAME.md of the checkout $ROOT in the current folder, with the tools on the PATH
       tutorial.py --page FILE             runs another page; for tests of this program

CORPUS-FILE: a file below $MH_DATA (or ../shared/data of the checkout) without .zst. If it is missing, the page is skipped with exit status 77.

All ```sh blocks of a page are one program of `bash -euo pipefail`, which starts without the tools on its PATH. In them,
  - /path/to/multihead/build/tools and $multihead/build/tools are the folder of the tools under test,
  - any other /path/to/multihead is the checkout,
  - `$multihead/run` with compare, reproduce or study runs the driver of experiments with the tools under test, without a build.
A block of another language, such as ```console or ```toml, is neither run nor compared.

A ```text block shows the standard output of the last ```sh block before it; every line of the output, unless a line `...` stands for any number of
lines. ```text messages shows its standard error instead. In a line, words must be equal and any white space equals any other.
Numbers:
  - a number with a decimal point or an exponent may differ by RELATIVE_TOLERANCE of the larger of both, or by ABSOLUTE_TOLERANCE,
  - other numbers must be equal,
  - in a block ```text form, and in messages, any number is accepted in place of a number, any duration after `in`, and any speed in bytes,
  - nan is a number of its own. Digits after a letter, such as those of `run1`, belong to a word.
A block ```text sample shows text that a model generates: the output only needs to have a word.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

# Training adds terms in an order that depends on the processor and on the number of threads, and an update amplifies the rounding errors of
# earlier ones, so the models of a page have slightly different results on other machines.
RELATIVE_TOLERANCE = 0.1
ABSOLUTE_TOLERANCE = 0.05
NUMBER = re.compile(r"(?<![A-Za-z_\d.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")
TIME = re.compile(r"\bin (?:\d+[dhms])+|[\d.]+ [kMGT]?B/s")  # a duration, or a speed
FLAGS = {"", "form", "messages", "sample"}


class Block:
    """A ```sh block of a page, and the ```text blocks after it."""

    def __init__(self, line, commands):
        self.line, self.commands = line, commands
        self.shown = []  # (line number, flag, lines) of each text block


def read_blocks(page):
    """Returns the ```sh blocks of a page; raises ValueError for a text block without commands or with an unknown flag, and for a line ``` with an
    indentation or inside a block, whose block would be neither run nor compared."""
    blocks, fence, content, start = [], None, [], 0
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        line = line.rstrip()
        if line.lstrip().startswith(("```", "~~~")) and (line != "```" if fence is not None else not re.match("```[^`]*$", line)):
            raise ValueError(f"{page}:{number}: expected ``` without an indentation at the begin and at the end of each block; found {line}")
        if fence is None:
            if line.startswith("```"):
                fence, content, start = line[3:].split(), [], number + 1
        elif line != "```":
            content.append(line)
        else:
            language, flag = (fence or [""])[0], " ".join(fence[1:])
            if language == "sh":
                blocks.append(Block(start, content))
            elif language == "text":
                if not blocks or flag not in FLAGS:
                    raise ValueError(f"{page}:{start - 1}: expected ```text {'|'.join(sorted(FLAGS - {''}))} after an ```sh block; found {' '.join(fence)}")
                blocks[-1].shown.append((start, flag, content))
            fence = None
    if fence is not None:
        raise ValueError(f"{page}:{start - 1}: expected a block that ends with ```; found none")
    if not blocks:
        raise ValueError(f"{page}: expected ```sh blocks; found none")
    return blocks


def parts_of(line):
    """Returns (kind, text) of the words and numbers of a line, alternately, with single spaces for all white space."""
    parts, end = [], 0
    text = " ".join(line.split())
    for match in NUMBER.finditer(text):
        parts += [("word", text[end:match.start()]), ("number", match[0])]
        end = match.end()
    return parts + [("word", text[end:])]


def is_equal(shown, found, flag):
    """Returns whether a line of a page agrees with a line of the output."""
    a, b = (parts_of(TIME.sub("TIME", line) if flag else line) for line in (shown, found))
    if [kind for kind, _ in a] != [kind for kind, _ in b]:
        return False
    for (kind, x), (_, y) in zip(a, b):
        if kind == "word" or flag == "":
            if x != y and (kind == "word" or not is_near(x, y)):
                return False
    return True


def is_near(x, y):
    """Returns whether two numbers, as texts, agree: numbers with a decimal point or an exponent within the tolerances, others exactly."""
    if not re.search(r"[.e]", x + y):
        return False
    a, b = (float(text.replace(",", "")) for text in (x, y))
    return abs(a - b) <= max(RELATIVE_TOLERANCE * max(abs(a), abs(b)), ABSOLUTE_TOLERANCE)


def first_difference(shown, found, flag):
    """Returns the index of the first line of `shown` that does not agree with the lines `found`, len(shown) if `found` has more lines, or None."""
    if flag == "sample":
        return None if any(line.strip() for line in found) else 0
    position = 0
    for index, line in enumerate(shown):
        if line == "...":
            rest = shown[index + 1:]
            if not rest:
                return None
            results = [first_difference(rest, found[start:], flag) for start in range(position, len(found) + 1)]
            return None if None in results else index + 1 + max(results)
        if position == len(found) or not is_equal(line, found[position], flag):
            return index
        position += 1
    return None if position == len(found) else len(shown)


def substitute(commands, root, tools):
    """Returns the commands of a block with the paths of the checkout and of the tools in place of those of the page."""
    text = "\n".join(commands) + "\n"
    text = re.sub(r"(/path/to/multihead|\$multihead|\$\{multihead\})/build/tools", lambda _: tools, text)
    text = re.sub(r"(/path/to/multihead|\$multihead|\$\{multihead\})/run (?=compare|reproduce|study)", lambda _: f"python3 -B {root}/configs/experiments ", text)
    return text.replace("/path/to/multihead", root)


def run_page(page, root, tools):
    """Runs the blocks of a page in the current folder. Returns the faults of the page, as text."""
    try:
        blocks = read_blocks(page)
    except ValueError as error:
        return f"{error}\n"
    with tempfile.TemporaryDirectory() as outputs:
        script = pathlib.Path(outputs, "script")
        script.write_text("".join(f"exec > '{outputs}/{i}.out' 2> '{outputs}/{i}.err'\ndate +%s > '{outputs}/{i}.begin'\n" +
                                  substitute(block.commands, root, tools) for i, block in enumerate(blocks)), encoding="utf-8")
        path = os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if folder != tools)
        status = subprocess.run(["bash", "-euo", "pipefail", str(script)], stdin=subprocess.DEVNULL, env=dict(os.environ, PATH=path), check=False).returncode
        end = time.time()
        faults = []
        for i, block in enumerate(blocks):
            out, err, begin = (pathlib.Path(outputs, f"{i}.{name}") for name in ("out", "err", "begin"))
            if not begin.exists():
                faults.append(f"{page}:{block.line}: expected commands that run after the blocks before; found an earlier end of the page with exit status 0\n")
                break
            following = pathlib.Path(outputs, f"{i + 1}.begin")
            is_last = not following.exists()
            print(f"{page.name}:{block.line}: {(end if is_last else int(following.read_text())) - int(begin.read_text()):.0f} s")
            lines = {name: path.read_text(encoding="utf-8", errors="replace").rstrip("\n").splitlines() for name, path in (("out", out), ("err", err))}
            if status != 0 and is_last:
                faults.append(f"{page}:{block.line}: expected exit status 0; found {status} from these commands:\n" + "\n".join(block.commands + lines["out"] + lines["err"]) + "\n")
                break
            for line, flag, shown in block.shown:
                found = lines["err" if flag == "messages" else "out"]
                difference = first_difference(shown, found, flag)
                if difference is not None:
                    expected = f"the line: {shown[difference]}" if difference < len(shown) else "the end of the output"
                    faults.append(f"{page}:{line + difference}: expected {expected}\nfound this output; correct the page or the tools:\n" + "\n".join(found) + "\n")
    return "".join(faults)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("name", nargs="?")
    parser.add_argument("corpus_files", nargs="*")
    options = parser.parse_args()
    root = os.environ["ROOT"]
    data = pathlib.Path(os.environ.get("MH_DATA") or pathlib.Path(root, "../shared/data"))
    for name in options.corpus_files:
        if not any((data / (name + suffix)).exists() for suffix in ("", ".zst")):
            print(f"docs/tutorial-{options.name}.md needs {name} in MH_DATA")
            return 77
    if data.is_dir():
        os.environ["MH_DATA"] = str(data.resolve())
    faults = run_page(options.page or pathlib.Path(root, f"docs/tutorial-{options.name}.md"), root, str(pathlib.Path(shutil.which("mh-prep")).parent))
    print(faults, end="")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
