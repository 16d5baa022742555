#!/usr/bin/env python3
"""Runs the command-line tests: each case is a script of tests/cli/cases, run by bash in its own temporary folder.

usage: run.py FOLDER-OF-TOOLS [PREFIX…]     only cases whose name starts with a PREFIX
A case passes with exit status 0 and is skipped with 77; the last line of its output is then the reason. If a case passes
without comparing with some Python packages, its last line begins with "without" and names them.
The helper `golden` compares outputs with the files of tests/cli/golden/CASE/; a golden file that no case compares is a failure.
tests/cli/errors.txt has the stderr of every command that a case expects to fail, so that all messages can be reviewed in one
file; they must equal the messages of the tools, except for numbers and fingerprints. If a case calls the helper `needs_peers`,
the errors after the call are a second part of its section, which is neither compared nor renewed if the case is skipped or ends
with "without".
With MH_RENEW=1 in the environment the cases rewrite their golden files and their sections of errors.txt:
MH_RENEW=1 run.py FOLDER-OF-TOOLS [PREFIX…]
"""
import concurrent.futures
import difflib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent
tools = pathlib.Path(sys.argv[1]).resolve()
prefixes = tuple(sys.argv[2:]) or ("",)


errors_page = here / "errors.txt"
UNREACHED_TITLE = "error sites that no test reaches"  # the section that error_sites.py writes
PEERS_LINE = "-- with peers\n"  # the line between the parts of a section, as `needs_peers` writes it
renews = os.environ.get("MH_RENEW", "") not in ("", "0")


def unused_golden_files(case, compared_names):
    """Returns one error line for each golden file of a case that is not in `compared_names`; with MH_RENEW=1 deletes these files instead."""
    unused_files = sorted(path for path in (here / "golden" / case.stem).glob("*") if path.name not in compared_names)
    if not renews:
        return "".join(f"FAILED: {path.relative_to(root)}: expected a golden file that the case compares; found an unused "
                       f"file; delete it, or renew: MH_RENEW=1 python3 tests/cli/run.py {sys.argv[1]} {case.stem}\n"
                       for path in unused_files)
    for path in unused_files:
        path.unlink()
    return ""


def read_sections(path):
    """Returns {title: text} of the sections of errors.txt."""
    title, sections = "", {}
    for line in path.read_text().splitlines(keepends=True):
        if line.startswith("== "):
            title = line[3:].strip()
        else:
            sections[title] = sections.get(title, "") + line
    return sections


def mask_numbers(text):
    """Returns `text` with # in place of fingerprints, numbers, temporary folders and the host of a process, which may depend on the machine."""
    text = re.sub(r"/tmp/tmp\w+", "/tmp/#", re.sub(r"(: process \d+ on )[^;\n]+;", r"\1#;", text))
    return re.sub(r"-?\bnan\b|\b[0-9a-f]{16,}\b|\d+([.,:]\d+)*(e[-+]?\d+)?", "#", text)


def distinct_commands(failed_commands, previous=""):
    """Returns a part of a section of errors.txt: each failed command of a tool or data script once, without the commands in `previous`
    and without the lines that zstd, pip and SentencePiece's trainer print, which depend on their versions."""
    # A command starts with a line "$ …" and ends with "exit status N".
    commands, previous_commands = (re.findall(r"^\$ .*?^exit status \d\n", re.sub(r"^(mh-prep: SentencePiece|zstd|ERROR|WARNING): .*\n", "", text, flags=re.MULTILINE),
                                              flags=re.MULTILINE | re.DOTALL) for text in (failed_commands, previous))
    names = "|".join(["mh-[a-z]+", *(re.escape(script.name) for script in sorted((root / "data_scripts").glob("*")))])
    distinct = {mask_numbers(command): command for command in reversed(commands) if re.search(rf"^({names}): ", command, flags=re.MULTILINE)}
    for command in previous_commands:
        distinct.pop(mask_numbers(command), None)
    return "".join(reversed(distinct.values())).replace(str(tools), "tools").replace(f"{root}/", "")


def compare_errors(case, failed_commands, compares_with_peers, sections):
    """Returns an error line if the messages of a case differ from its section of errors.txt; with MH_RENEW=1 replaces the section.

    failed_commands: the commands of the case that failed as expected, each with its stderr and exit status.
    compares_with_peers: whether the case ran to its end. Otherwise, only its part without peers is compared, and nothing if the case did not reach
    `needs_peers`. A section that was never renewed with peers has no second part to compare.
    """
    before, reached, after = failed_commands.partition(PEERS_LINE)
    if not (compares_with_peers or reached):
        return ""
    old, old_mark, old_after = sections.get(case.stem, "").partition(PEERS_LINE)
    text = distinct_commands(before)
    if not compares_with_peers:
        text_after = old_mark + old_after if renews else ""
    else:
        text_after = PEERS_LINE + distinct_commands(after, before) if reached and (renews or old_mark) else ""
        old += old_mark + old_after
    text += text_after
    if renews:
        sections.pop(case.stem, None)
        if text:
            sections[case.stem] = text
        return ""

    old_lines, new_lines = mask_numbers(old).splitlines(True), mask_numbers(text).splitlines(True)
    if old_lines == new_lines:
        return ""
    return (f"FAILED: tests/cli/errors.txt differs (# is a number or a fingerprint); if the new messages are correct, renew: MH_RENEW=1 python3 "
            f"tests/cli/run.py {sys.argv[1]} {case.stem}\n" + "".join(difflib.unified_diff(old_lines, new_lines, "errors.txt", "found", n=0)))


def run_case(case):
    """Runs a case and returns its verdict, its output and its duration in seconds."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as golden:
        compared_file = pathlib.Path(golden, "compared")  # names of the compared golden files, one per line
        errors = pathlib.Path(golden, "errors")  # failed commands with their stderr, written by expect
        for path in (compared_file, errors):
            path.touch()
        environment = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}", ROOT=str(root), LC_ALL="C.UTF-8",
                           GOLDEN=str(here / "golden" / case.stem), GOLDEN_WORK=golden,
                           GOLDEN_RENEW="1" if renews else "", GOLDEN_TOOLS=sys.argv[1])
        environment.setdefault("OMP_NUM_THREADS", "1")  # one thread per case, since as many cases as cores run in parallel
        with subprocess.Popen(["bash", "-euo", "pipefail", "-c", f"source '{here}/helpers.sh'; source '{case}'"],
                              cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=600)
                status = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # kills the child processes too
                status, output = 1, "took longer than 10 minutes\n" + process.communicate()[0]
        if status in (0, 77):
            faults = ""
            if status == 0:
                faults = unused_golden_files(case, set(compared_file.read_text().split()))
                if pathlib.Path(golden, "record").exists():
                    faults += "FAILED: expected golden_record after the last record; found none\n"
            last_line = output.strip().splitlines()[-1:]
            compares_with_peers = status == 0 and not any(line.startswith("without ") for line in last_line)
            faults += compare_errors(case, errors.read_text(errors="replace"), compares_with_peers, sections)
            status, output = 1 if faults else status, output + faults
    return {0: "passed", 77: "skipped"}.get(status, "failed"), output, time.monotonic() - begin


sections = read_sections(errors_page)
counts = {"passed": 0, "failed": 0, "skipped": 0}
cases = [case for case in sorted((here / "cases").glob("*.sh")) if case.name.startswith(prefixes)]
with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
    for case, (verdict, output, seconds) in zip(cases, pool.map(run_case, cases)):
        counts[verdict] += 1
        last_line = output.strip().splitlines()[-1] if output.strip() else ""
        reason = f" ({last_line})" if last_line and (verdict == "skipped" or verdict == "passed" and last_line.startswith("without ")) else ""
        print(f"{verdict}: cli/{case.stem} in {seconds:.0f} s{reason}", flush=True)
        if verdict == "failed":
            print(output, flush=True)

names = {case.stem for case in (here / "cases").glob("*.sh")} | {UNREACHED_TITLE}
if renews:
    sections = {title: text for title, text in sections.items() if title in names or title == ""}
    titles = sorted(sections.keys() - {"", UNREACHED_TITLE}) + [UNREACHED_TITLE] * (UNREACHED_TITLE in sections)
    errors_page.write_text(sections[""] + "".join(f"== {title}\n{sections[title]}" for title in titles))
for title in sorted(sections.keys() - names - {""}):
    counts["failed"] += 1
    print(f"failed: tests/cli/errors.txt: expected sections of cases; found == {title}; delete the section")
for folder in sorted((here / "golden").glob("*")):
    if not (here / "cases" / f"{folder.name}.sh").exists():
        counts["failed"] += 1
        print(f"failed: {folder.relative_to(root)}: expected golden files of a case; found no case {folder.name}.sh; delete the folder")

print("mh-tests: {passed} passed, {failed} failed, {skipped} skipped".format(**counts))
sys.exit(1 if counts["failed"] else 0)
