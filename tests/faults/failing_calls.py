#!/usr/bin/env python3
"""Runs the tools while one of their system calls or large allocations fails and checks that nothing is lost.

    failing_calls.py TOOLS LIBRARY [--full] [--only NAME…]

TOOLS: folder of the tools; LIBRARY: libfail-call.so. For each command of scenarios.py and each of its calls, or, without --full, for the
commands of the sample and for calls drawn with a fixed seed:
  - EINTR and short writes do not change the result;
  - any other error ends the tool with status 1 or 4, or 3 if the message names an input that cannot be read for another reason than a
    lack of memory, with a message that says why; the output is the old file. Except for the functions in FATAL_FUNCTIONS, the tool may also succeed, with its complete output. A
    folder that cannot be synced gives a warning;
  - a command killed before a rename leaves the old file or the new file (kills.py kills at random moments);
  - no temporary file is left, and a training run resumes to the same weights as an undisturbed one.
A disk that is full from some write on must have the same effect. In an undisturbed run the tool writes, renames to and removes
only its outputs, temporary files beside them and files in its run folder, whatever paths its inputs contain.

fail_call.cpp lists the calls that can fail, and the other calls with the reasons. ERRORS, PREP_ERRORS and PLOT_ERRORS list the errors. Large
allocations have at least 64 KiB (mh-prep) or 1 MiB (other tools); every tool with a model makes at least one. Without --full, each tool with
a model meets fewer errors of a function than mh-prep, since all tools open, read and write files by the same functions.
Prints a line for each command with the number of failing calls that it survived, a line for each problem, the numbers of failing calls that each
tool and all tools survived, and a last line `mh-tests: N passed, N failed, 0 skipped`, a test for each command.
"""
import os
import pathlib
import random
import signal
import subprocess
import sys

import scenarios

# The errors with which each function fails (fail_call.cpp). KILL kills the command before the call.
ERRORS = {"open": ["EMFILE", "ENOSPC", "EDQUOT", "ENOMEM", "EIO", "EINTR"], "read": ["EIO", "ENOMEM", "EINTR"],
          "write": ["ENOSPC", "EIO", "EDQUOT", "EINTR", "short"], "fsync": ["EIO", "ENOSPC", "EDQUOT", "EINTR"], "fsyncfolder": ["EIO"],
          "rename": ["EIO", "ENOSPC", "EDQUOT", "KILL"], "mkdir": ["ENOSPC", "EDQUOT", "EIO"], "mmap": ["ENOMEM"],
          "close": ["EIO", "ENOSPC", "EDQUOT", "EINTR"], "malloc": ["ENOMEM"], "chmod": ["EPERM"], "opendir": ["EMFILE", "ENOMEM"],
          "readdir": ["EIO"], "unlink": ["EIO", "KILL"], "ftruncate": ["EIO"], "flock": ["ENOLCK"]}
# Without --full: number of errors of a function, drawn for each command of mh-prep; the other functions fail with each of their errors.
SAMPLED_ERRORS = {"open": 2, "read": 2, "fsync": 3, "rename": 3, "mkdir": 1, "close": 2, "opendir": 1}
# The same for each command of a tool with a model, whose start takes longer; the other functions fail with one of their errors.
MODEL_SAMPLED_ERRORS = {"write": 3, "rename": 2}
# Further errors for mh-prep. waitpid can fail only by EINTR, since the child exists.
PREP_ERRORS = {"fsyncfolder": ["EIO", "EINTR"], "closeother": ["EIO", "EINTR"], "stat": ["EIO"], "fstat": ["EIO"], "fchmod": ["EPERM"], "realpath": ["EIO"],
               "socketpair": ["EMFILE"], "pipe": ["EMFILE"], "fork": ["EAGAIN", "ENOMEM"], "poll": ["ENOMEM", "EINTR"],
               "send": ["ENOMEM", "EINTR"], "waitpid": ["EINTR"], "thread": ["EAGAIN"]}
# Further errors for commands that run gnuplot.
PLOT_ERRORS = {"pipe": ["EMFILE"], "waitpid": ["EINTR"], "memfd": ["EMFILE"], "lseek": ["EIO"], "spawn": ["EAGAIN", "ENOMEM"]}
HARMLESS_ERRORS = {"EINTR", "short"}  # errors after which a correct caller repeats the call
# Functions whose failure no tool may take for success. Not in this set are, for example, functions that also serve a check or an
# estimate which the tool can do without (open, stat, fstat, opendir, readdir), reads of a child's messages, closing files whose data is
# already read or synced (closeother), and removing the name of the owner from a lock file (ftruncate).
FATAL_FUNCTIONS = {"write", "fsync", "rename", "mkdir", "close", "malloc", "fchmod", "chmod", "flock", "lseek", "memfd", "spawn", "realpath",
                   "socketpair", "pipe", "fork", "poll", "send", "thread"}
# Functions whose failure may give status 3, for an unreadable input, unless the system lacks memory (ENOMEM).
READING_FUNCTIONS = {"open", "read", "mmap", "stat", "fstat"}
PREP_ALLOCATION_BYTES = 1 << 16  # smallest allocation of mh-prep that fails, bytes; the other tools: 1 MiB
TIMEOUT_SECONDS = 60  # seconds for each run of a command
SAMPLE_SIZE = 1  # number of failing calls for each function and error, without --full
CAUSES = ("no space left", "input/output error", "disk quota exceeded", "cannot allocate memory", "out of memory", "too many open files",
          "operation not permitted", "resource temporarily unavailable", "no locks available")
SYNC_WARNING = "its name may not survive a power failure"


def read_counts(file):
    """Returns {function: number of calls} of a process that ended by itself, or {} of a killed process, and removes the file."""
    if not file.exists():
        return {}
    counts = {function: int(count) for function, count in (line.split() for line in file.read_text().splitlines())}
    file.unlink()
    return counts


def environment_of(workplace, library, **variables):
    """Returns the environment of a command with the library fail_call.so."""
    if workplace.scenario.tool == "mh-prep":
        variables["MH_FAULT_ALLOCATION"] = str(PREP_ALLOCATION_BYTES)
    # Keeps the libraries of LD_PRELOAD, since the command `./run errors` sets it to a library of its own.
    libraries = ":".join([str(library), *filter(None, [os.environ.get("LD_PRELOAD")])])
    return dict(workplace.environment, LD_PRELOAD=libraries, **variables)


def run_undisturbed(workplace, library):
    """Runs the command without a fault. Returns the number of calls of each function and the paths that the command wrote, renamed to or
    removed."""
    workplace.reset()
    counts, writes = workplace.folder.with_suffix(".counts"), workplace.folder.with_suffix(".writes")
    process = workplace.call(environment_of(workplace, library, MH_FAULT_COUNTS=str(counts), MH_FAULT_WRITES=str(writes)))
    if process.returncode != 0:
        sys.exit(f"{workplace.scenario.command}: {process.stderr}")
    return read_counts(counts), writes.read_text().splitlines() if writes.exists() else []


def foreign_writes(workplace, paths):
    """Returns the paths that are neither an output of the command, nor a temporary file beside an output, nor in the run folder."""
    folder, scenario = workplace.folder.resolve(), workplace.scenario
    outputs = [folder / name for name in workplace.outputs]
    if "MH_THROWS" in os.environ:  # the record of ./run errors
        outputs.append(pathlib.Path(os.environ["MH_THROWS"]))
    run = folder / scenario.run_folder if scenario.run_folder else None

    def is_allowed(text):
        path = (folder / text).resolve()
        return (any(part == output or part.parent == output.parent and part.name.startswith(output.name + ".part")
                    for output in outputs for part in (path, *path.parents))
                or run is not None and path.is_relative_to(run) or text == "/dev/null")
    return sorted({path for path in paths if not is_allowed(path)})


def check_fault(workplace, library, fault):
    """Runs the command with a fault. Returns a text for each problem."""
    function, n, error = fault.split(":")
    workplace.reset()
    counts = workplace.folder.with_suffix(".counts")
    try:
        process = workplace.call(environment_of(workplace, library, MH_FAULT=fault, MH_FAULT_COUNTS=str(counts)), timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return [f"did not end within {TIMEOUT_SECONDS} s"]
    status = process.returncode
    was_reached = read_counts(counts).get(function, 0) >= int(n.rstrip("+"))  # may be false, since the number of reads of a child's reply varies
    problems = []
    if error == "KILL" and status == -signal.SIGKILL:
        return workplace.find_problems(None, was_killed=True)
    if status < 0:
        problems.append(f"ended by {signal.Signals(-status).name}")
    elif error in HARMLESS_ERRORS and status != 0:
        problems.append(f"expected success; found exit status {status}: {process.stderr.strip()}")
    elif status == 0 and was_reached and function in FATAL_FUNCTIONS and error not in HARMLESS_ERRORS:
        problems.append("expected an error; found success")
    elif status == 0 and was_reached and function == "fsyncfolder" and error not in HARMLESS_ERRORS and SYNC_WARNING not in process.stderr:
        problems.append("expected a warning; found none")
    elif status != 0:
        is_unreadable_input = function in READING_FUNCTIONS and error != "ENOMEM" and workplace.names_input(process.stderr)
        if status not in {1, 4} and not (status == 3 and is_unreadable_input):
            problems.append(f"exit status {status}: {process.stderr.strip()}")
        if f"{workplace.scenario.tool}: error: " not in process.stderr or not any(cause in process.stderr.lower() for cause in CAUSES):
            problems.append(f"expected a message with the cause; found: {process.stderr.strip()}")
    return problems + workplace.find_problems(status)


def faults_of(counts, errors_of, sampled_errors, rng):
    """Yields the faults to test: each call of each function with each of its errors in `errors_of`. If `sampled_errors` is not None, yields only a
    sample: SAMPLE_SIZE calls of each function, with sampled_errors(function) of its errors. The call of unlink is the last, since a run repeats
    an earlier removal that failed."""
    for function, errors in errors_of.items():
        num_errors = len(errors) if sampled_errors is None else min(sampled_errors(function), len(errors))
        for error in sorted(rng.sample(errors, num_errors)):
            calls = range(1, counts[function] + 1)
            sample = calls[-SAMPLE_SIZE:] if function == "unlink" else sorted(rng.sample(calls, min(SAMPLE_SIZE, len(calls))))
            for n in calls if sampled_errors is None else sample:
                yield f"{function}:{n}:{error}"
                if function == "write" and error == "ENOSPC":
                    yield f"{function}:{n}+:{error}"


def test_command(workplace, args):
    """Tests a command. Returns its Report."""
    scenario, library = workplace.scenario, str(args.library.resolve())
    has_model = scenario.tool != "mh-prep"
    counts, written_paths = run_undisturbed(workplace, library)
    num_tested, num_survived, problems = 0, 0, []
    foreign = foreign_writes(workplace, written_paths)
    if foreign:
        problems.append(f"expected writes only to outputs; found {', '.join(foreign)}")
    if has_model and counts["malloc"] == 0:
        problems.append("expected allocations of at least 1 MiB; found none; define the functions of the allocator in fail_call.cpp")
    errors_of = ERRORS | ({} if has_model else PREP_ERRORS) | (PLOT_ERRORS if scenario.required_program == "gnuplot" else {})

    def sampled_errors(function):
        return MODEL_SAMPLED_ERRORS.get(function, 1) if has_model else SAMPLED_ERRORS.get(function, len(errors_of[function]))
    for fault in faults_of(counts, errors_of, None if args.full else sampled_errors, random.Random(f"{args.seed} {scenario.name}")):
        num_tested += 1
        failures = check_fault(workplace, library, fault)
        num_survived += not failures
        if failures:
            problems.append(f"MH_FAULT={fault}: " + "; ".join(failures))
    call_counts = ", ".join(f"{count} {function}" for function, count in counts.items() if count > 0)
    return scenarios.Report(f"({call_counts})", num_survived, num_tested, problems)


def main():
    parser = scenarios.parser_of(__doc__)
    parser.add_argument("library", type=pathlib.Path)
    return scenarios.test_commands(parser.parse_args(), "failing calls", test_command)


if __name__ == "__main__":
    sys.exit(main())
