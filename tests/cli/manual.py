#!/usr/bin/env python3
"""Each option of a tool's --help is in its manual page and the other way round, subcommands and keys included.

usage: manual.py FOLDER-OF-TOOLS FOLDER-OF-PAGES [--write]
Prints what is missing where; exit status 1 if anything is. --write makes the list of keys in mh-train.1 anew first.
"""
import pathlib
import re
import subprocess
import sys


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def options_of_help(text):
    return set(re.findall(r"^\s+(?:-\w, ?)?--([a-z][a-z0-9-]*)", text, re.MULTILINE))


def subcommands_of_help(text):
    section = re.search(r"^Subcommands:\n((?: .*\n?)*)", text, re.MULTILINE)
    return re.findall(r"^  ([a-z][a-z0-9-]*)", section.group(1), re.MULTILINE) if section else []


def options_of_page(text):
    found = set()
    for line in text.splitlines():
        if line.startswith(".It Fl"):
            found |= set(re.findall(r"(?<=\s)-([a-z][a-z0-9-]*)", line))
    return found


def keys_for_page(listed):
    """The list of keys as the page has it, from the table of `mh-train --list keys`."""
    text = ".Bl -tag -width Ds\n"
    for line in listed.splitlines()[1:]:
        key, kind, default, meaning = line.split("\t")
        meaning = meaning[0].upper() + meaning[1:] + ("" if meaning.endswith(".") else ".")
        text += f".It Cm {key}\n{meaning}\n({kind}; {default})\n"
    return text + ".El\n"


def main():
    tools, pages = map(pathlib.Path, sys.argv[1:3])
    if "--write" in sys.argv:
        page = pages / "mh-train.1"
        head, rest = re.split(r"(?<=\n)(?=\.Sh CONFIGURATION\n)", page.read_text(), maxsplit=1)
        before, after = re.split(r"\.Bl -tag -width Ds\n.*?\.El\n", rest, maxsplit=1, flags=re.DOTALL)
        page.write_text(head + before + keys_for_page(run(tools / "mh-train", "--list", "keys")) + after)
    wrong, seen = [], 0
    for tool in sorted(tools.glob("mh-*")):
        if not tool.is_file() or tool.suffix:
            continue
        page = pages / f"{tool.name}.1"
        if not page.exists():
            wrong.append(f"{page.name}: the page is missing")
            continue
        text = page.read_text()
        help_text = run(tool, "--help")
        in_help = options_of_help(help_text)
        for sub in subcommands_of_help(help_text):
            in_help |= options_of_help(run(tool, sub, "--help"))
            if f".Ss {sub}" not in text:
                wrong.append(f"{page.name}: does not name the subcommand {sub}")
        in_page = options_of_page(text)
        seen += len(in_help)
        wrong += [f"{page.name}: lacks --{o} of --help" for o in sorted(in_help - in_page)]
        wrong += [f"{page.name}: --{o} is in no --help" for o in sorted(in_page - in_help)]
        if tool.name == "mh-train":
            listed = {line.split("\t")[0] for line in run(tool, "--list", "keys").splitlines()[1:]}
            written = set(re.findall(r"^\.It Cm ([A-Za-z_0-9.-]+)", text, re.MULTILINE))
            wrong += [f"{page.name}: lacks the key {k}" for k in sorted(listed - written)]
            wrong += [f"{page.name}: {k} is no key" for k in sorted(written - listed)]
    if seen == 0:
        wrong.append("no options were found")
    print("\n".join(wrong) if wrong else f"help and manual agree on {seen} options")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
