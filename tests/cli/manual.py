#!/usr/bin/env python3
"""Compares the manual pages with the tools and their sources.

usage: manual.py FOLDER-OF-TOOLS FOLDER-OF-PAGES [--write]
Checks that the page of each tool has the options of its --help and no others, with the options of a subcommand in the sections that name
the subcommand; that the page has the subcommands and the choices of each option; that
generated lists equal the output of the tools (page_lists.py), that hand-written lists have the names of the sources (page_names.py),
that meson.build installs every page, and that the meanings of all keys have one form. Prints a line for each fault; exit status 1 if
there is a fault. --write first writes the lists into the pages, and the stages of each method into its METHOD.md.
"""
import pathlib
import re
import subprocess
import sys

import page_lists
import page_names
from method_pages import ROOT, output_of, write_stages


def options_of_help(text):
    return set(re.findall(r"^\s+(?:-\w, ?)?--([a-z][a-z0-9-]*)", text, re.MULTILINE))


def subcommands_of_help(text):
    section = re.search(r"^Subcommands:\n((?: .*\n?)*)", text, re.MULTILINE)
    return re.findall(r"^  ([a-z][a-z0-9-]*)", section.group(1), re.MULTILINE) if section else []


def options_of_page(text):
    options = set()
    for line in text.splitlines():
        if line.startswith(".It Fl"):
            options |= set(re.findall(r"(?<=\s)-([a-z][a-z0-9-]*)", line))
    return options


def option_sections(text, subcommands):
    """Yields (subcommands named by the heading, options, {subcommand: options that it lacks}) of each section of options in a page.

    A heading is "Options of A, B and C" or "Options of all subcommands", perhaps followed by "except A and B"; for other headings no
    subcommand is named. The text of a section states options that a subcommand lacks as the lines ".Cm A", "lacks", ".Fl -option".
    """
    for section in re.split(r"^\.Ss ", text, flags=re.MULTILINE)[1:]:
        heading, body = section.split("\n", 1)
        body = re.split(r"^\.Sh ", body, flags=re.MULTILINE)[0]
        match = re.fullmatch(r"Options of (?:(all subcommands)(?: except )?)?(.*)", heading)
        words = re.split(r", | and ", match[2]) if match and match[2] else []
        if match is None or not set(words) <= set(subcommands):
            named = set()
        else:
            named = set(subcommands) - set(words) if match[1] else set(words)
        lacks = {sub: set(re.findall(r"-([a-z][a-z0-9-]*)", lines))
                 for sub, lines in re.findall(r"^\.Cm (\S+)\nlacks\n((?:\.Fl .*\n|and\n)+)", body, re.MULTILINE)}
        yield named, options_of_page(body), lacks


def faults_of_subcommands(page, help_texts):
    """Returns one line for each option that a page describes for a subcommand that lacks it, or not for a subcommand that has it.

    help_texts: {arguments of a subcommand: its help}; () for the tool, whose options all subcommands accept.
    """
    faults, general = [], options_of_help(help_texts[()])
    subcommands = [arguments[0] for arguments in help_texts if arguments]
    sections = list(option_sections(page.read_text(), subcommands))
    for sub in subcommands:
        actual, described, required = options_of_help(help_texts[sub,]), set(), set()
        for named, options, lacks in sections:
            if not named or sub in named:
                described |= options
            if sub in named:
                required |= options - lacks.get(sub, set())
        faults += [f"{page.name}: expected --{option} in a section of options of {sub}, as in its --help; found none; add it"
                   for option in sorted(actual - described)]
        faults += [f"{page.name}: expected only options of {sub} in the sections that name it; found --{option}; remove it, or write that {sub} lacks it"
                   for option in sorted(required - actual - general)]
    return faults


def macro_words(text):
    """Returns the words on the lines of a page that begin with a macro, such as the choices of an option."""
    return {word for line in text.splitlines() if line.startswith(".") for word in line.split()[1:]}


def choices_of(tool, subcommand, option, entry):
    """Returns the choices of an option: from its help `entry`, or else from the error with which the tool refuses the value `?`."""
    choices = re.search(r"\(([^()\s|]+(?:\|[^()\s|]+)+)\)", entry)
    if choices:
        return choices.group(1).split("|")
    command = [tool, *subcommand, f"--{option}", "?"]
    errors = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False).stderr
    choices = re.search(rf"--{option}: expected one of: (.*?); found", errors)
    return choices.group(1).split(", ") if choices else []


def faults_of_choices(tool, page, subcommands, known_choices):
    """Returns one line for each choice of an option that the page of the tool lacks.

    subcommands: {arguments of a subcommand: its help}. known_choices: {(option, its help): choices} of all tools so far, since a
    run of the tool takes 0.2 s.
    """
    text, faults = page.read_text(), []
    words = macro_words(text)
    for subcommand, help_text in subcommands.items():
        for option, kind, entry_text in re.findall(r"^  (?:-\w, ?)?--([a-z][a-z0-9-]*) ([A-Z]\S*)(.*(?:\n {8,}.*)*)", help_text, re.MULTILINE):
            if kind in ("N", "X", "FILE"):  # numbers and names of files have no choices
                continue
            entries = re.findall(rf"^\.It Fl (?:.* )?-{option}(?: .*)?\n(?:(?!\.It Fl).*\n)*", text, re.MULTILINE)
            if any(re.search(r"as in\n\.Xr mh-", entry) for entry in entries):  # the page refers to another page for the choices
                continue
            if (option, entry_text) not in known_choices:
                known_choices[option, entry_text] = choices_of(tool, subcommand, option, entry_text)
            faults += [f"{page.name}: expected the choice {choice} of --{option}; found none; add it"
                       for choice in known_choices[option, entry_text] if choice not in words]
    return sorted(set(faults))


def faults_of_lists(tools, pages, write):
    faults = []
    for name in sorted(page.name for page in pages.glob("*.[157]")):
        text = (pages / name).read_text()
        generated_text, list_faults = page_lists.with_lists(name, text, tools)
        faults += list_faults
        if write:
            (pages / name).write_text(generated_text)
        elif generated_text != text:
            actual_lines, expected_lines = text.splitlines(), generated_text.splitlines()
            line_index = next((i for i, (x, y) in enumerate(zip(actual_lines, expected_lines)) if x != y), min(len(actual_lines), len(expected_lines)))
            faults.append(f"{name}:{line_index + 1}: expected '{expected_lines[line_index] if line_index < len(expected_lines) else ''}'; found "
                          f"'{actual_lines[line_index] if line_index < len(actual_lines) else ''}'; run tests/cli/manual.py with --write")
    return faults


def faults_of_installation(pages):
    """Returns one line for each page that meson.build does not install."""
    installed_pages = re.findall(r"'man/([^']+)'", (ROOT / "meson.build").read_text())
    return [f"meson.build: expected man/{page.name} in install_man; found none" for page in sorted(pages.iterdir()) if page.name not in installed_pages]


def faults_of_meanings(tools):
    """Returns one line for each configuration key whose meaning has a full stop or begins with a capital letter, both of which the manual
    pages add. A first word with several capital letters, such as BLEU, is allowed."""
    return [f"mh-train --list keys: expected a meaning of {row['key']} without a capital letter and a full stop; found '{row['meaning']}'; "
            "join sentences by a semicolon" for row in page_lists.table(tools, "keys")
            if re.match(r"[A-Z][^A-Z]*?(?: |$)", row["meaning"]) or re.search(r"\.(?: |$)", row["meaning"])]


def main():
    tools, pages = map(pathlib.Path, sys.argv[1:3])
    if "--write" in sys.argv:
        write_stages(tools / "mh-train")
    faults, num_options, choices = faults_of_lists(tools, pages, "--write" in sys.argv), 0, {}
    faults += page_names.faults_of_names(tools, pages) + faults_of_installation(pages) + faults_of_meanings(tools)
    for tool in sorted(tools.glob("mh-*")):
        if not tool.is_file() or tool.suffix:
            continue
        page = pages / f"{tool.name}.1"
        if not page.exists():
            faults.append(f"{page.name}: expected a page for each tool; found none; write it")
            continue
        text = page.read_text()
        help_text = output_of(tool, "--help")
        subcommands = {(): help_text} | {(sub,): output_of(tool, sub, "--help") for sub in subcommands_of_help(help_text)}
        help_options = set().union(*map(options_of_help, subcommands.values()))
        faults += faults_of_choices(tool, page, subcommands, choices) + faults_of_subcommands(page, subcommands)
        for sub in subcommands_of_help(help_text):
            faults += [f"{page.name}: expected the line '{line}' for the subcommand {sub}; found none; add it"
                       for line in (f".Ss {sub}", f".Cm {sub}") if line not in text.splitlines()]
        page_options = options_of_page(text)
        num_options += len(help_options)
        faults += [f"{page.name}: expected the option --{o}, which --help lists; found none; add it" for o in sorted(help_options - page_options)]
        faults += [f"{page.name}: expected only options that --help lists; found --{o}; remove it" for o in sorted(page_options - help_options)]
    if num_options == 0 or not any(choices.values()):
        faults.append("expected tools with options and choices in FOLDER-OF-TOOLS; found none")
    print("\n".join(faults) if faults else f"help and manual agree on {num_options} options")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
