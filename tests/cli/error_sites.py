#!/usr/bin/env python3
"""Lists the error sites that neither a command-line case nor a unit test reaches, in the last section of tests/cli/errors.txt.

    error_sites.py                     checks that the section has at most 40 lines, each an error site of the current sources. Does
                                       not run the tests: only --write finds a new site that no test reaches.
    error_sites.py --write LOG FOLDER  rewrites the section; LOG: the throws of a run of all tests, recorded by
                                       programs/record_throws.cpp; FOLDER: the build folder with debug information

The exit status is 0 if the check passes, and 1 if it fails.

An error site is a `throw` with an operand other than std::logic_error, or a call of a [[noreturn]] function that throws, in lib or
tools. A test reaches a site if a recorded throw, or one of its three innermost callers, is on a line of the site.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "tests/cli/errors.txt"
TITLE = "error sites that no test reaches"
MAX_UNREACHED = 40


def sources():
    return sorted(path for folder in ("lib", "tools") for suffix in ("cpp", "h") for path in (ROOT / folder).rglob(f"*.{suffix}"))


def without_comments_and_literals(text):
    """Returns C++ source text with comments and literals replaced by blanks, so that positions in the text stay valid."""
    pattern = r'R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*|/\*(?:.|\n)*?\*/'
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def throwing_functions(texts):
    names = {name for text in texts.values() for name in re.findall(r"\[\[noreturn\]\][^;({]*?(\w+)\(", text)}
    # Excludes functions that pass on an error of a child process or a handler, and run_and_exit, which ends each tool.
    return names - {"reply", "reply_exception", "on_terminate", "run_and_exit"}


def sites():
    """Yields (file, first line, last line, code) of each error site; line numbers count from 1."""
    originals = {path: path.read_text(encoding="utf-8") for path in sources()}
    texts = {path: without_comments_and_literals(text) for path, text in originals.items()}
    functions = "|".join(sorted(throwing_functions(texts)))
    pattern = re.compile(rf"\bthrow\b(?!\s*;|\s+std::logic_error)|(?<![\w:>~] )(?<![\w:~])(?:{functions})\(")
    for path, text in texts.items():
        for match in pattern.finditer(text):
            line_begin = text.rfind("\n", 0, match.start()) + 1
            if "[[noreturn]]" in text[line_begin:match.start()]:
                continue
            end = statement_end(text, match.start())
            first, last = text.count("\n", 0, match.start()) + 1, text.count("\n", 0, end) + 1
            yield path.relative_to(ROOT), first, last, re.sub(r"\s+", " ", originals[path][match.start():end])


def statement_end(text, begin):
    """Returns the end of the expression at `begin`: the position of the first semicolon, comma or closing bracket outside brackets."""
    depth = 0
    for at in range(begin, len(text)):
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
        if depth < 0 or depth == 0 and text[at] in ";,":
            return at
    return len(text)


def reached_lines(log, folder):
    """Returns {source file: line numbers of the throws in `log` and of their callers}. `folder`: build folder with debug information."""
    offsets = collections.defaultdict(set)
    for line in log.read_text().splitlines():
        for frame in line.split("\t"):
            module, offset = frame.rsplit(" ", 1)
            if pathlib.Path(module).resolve().is_relative_to(folder):
                offsets[module].add(int(offset))
    lines = collections.defaultdict(set)
    for module, values in offsets.items():
        locations = subprocess.run(["addr2line", "-i", "-e", module, *map(hex, sorted(values))], text=True, capture_output=True, check=True).stdout
        for place in locations.splitlines():
            name, _, number = place.split(" ")[0].rpartition(":")
            if number.isdigit():
                path = (folder / name).resolve()
                if path.is_relative_to(ROOT):
                    lines[path.relative_to(ROOT)].add(int(number))
    return lines


def label(path, code):
    return f"{path}: {code if len(code) <= 100 else code[:97] + '...'}"


def section():
    """Returns the lines of the section, or None if the page has no such section."""
    _, title, section_text = PAGE.read_text(encoding="utf-8").partition(f"== {TITLE}\n")
    return section_text.splitlines() if title else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", nargs=2, type=pathlib.Path, metavar=("LOG", "FOLDER"))
    arguments = parser.parse_args()
    if arguments.write:
        reached_lines_of = reached_lines(arguments.write[0], arguments.write[1].resolve())
        all_sites = list(sites())
        unreached_sites = sorted(label(path, code) for path, first, last, code in all_sites if not reached_lines_of[path] & set(range(first, last + 1)))
        text_before, _, _ = PAGE.read_text(encoding="utf-8").partition(f"== {TITLE}\n")
        PAGE.write_text(text_before + f"== {TITLE}\n" + "".join(line + "\n" for line in unreached_sites), encoding="utf-8")
        print(f"{len(all_sites)} error sites; {len(unreached_sites)} not reached")
        return 0
    section_lines = section()
    if section_lines is None:
        print(f"tests/cli/errors.txt: expected a section '== {TITLE}'; found none; run ./run errors, which writes the section")
        return 1
    unknown = collections.Counter(section_lines) - collections.Counter(label(path, code) for path, _, _, code in sites())
    problems = [f"tests/cli/errors.txt: expected an error site of the sources; found {line}\n" for line in unknown.elements()]
    if len(section_lines) > MAX_UNREACHED:
        problems.append(f"tests/cli/errors.txt: expected at most {MAX_UNREACHED} error sites that no test reaches; found {len(section_lines)}\n")
    print("".join(problems), end="")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
