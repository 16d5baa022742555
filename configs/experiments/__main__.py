"""usage: configs/experiments [--without-tools] compare|reproduce|study|expand ...

Runs every row with every seed and set of overrides once, prints a table of the results with the commands of the rows below it, and draws
pictures. `expand PAPER/RECIPE` prints the small form of a recipe, for configs/recipes/expand. With --without-tools, a command that needs
no tools runs to its end, and any other command checks its names and files and ends with status 100 before it needs a tool: `./run` then
builds the tools and repeats the command.
"""
import os
import signal
import sys

if sys.version_info < (3, 11):  # tomllib
    print(f"experiments: error: Python: expected version 3.11 or later; found {'.'.join(map(str, sys.version_info[:3]))}; put a newer python3 first on the PATH",
          file=sys.stderr)
    sys.exit(1)

import compare
import reproduce
import study
import tools
from configurations import small_text
from errors import Refusal, choose
from tools import say


def stop(number, _):
    say("stopped; the same command continues from the last checkpoint")
    sys.exit(128 + number)


def main():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    commands = {"compare": compare.main, "reproduce": reproduce.main, "study": study.main,
                "expand": lambda names: sys.stdout.write(small_text(names[0] if names else ""))}
    arguments = sys.argv[1:]
    if arguments[:1] == ["--without-tools"]:
        tools.ends_before_tools = True
        arguments = arguments[1:]
    try:
        name = choose("experiments", "a command", arguments[0] if arguments else "", list(commands), "see ./run help")
        commands[name](arguments[1:])
        sys.stdout.flush()
        status = 0
    except Refusal as refusal:
        print(f"experiments: error: {refusal}", file=sys.stderr)
        status = refusal.status
    except BrokenPipeError:  # the reader of the output has closed the pipe, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at the exit succeeds
        status = 0
    except OSError as error:
        print(f"experiments: error: {error.filename or 'files'}: expected a readable or writable file; found: {error.strerror or error}; free disk space, or correct the path",
              file=sys.stderr)
        status = 1
    sys.exit(status)


main()
