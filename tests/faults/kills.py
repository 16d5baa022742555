#!/usr/bin/env python3
"""Kills the tools with SIGKILL at random moments and checks that nothing is lost.

    kills.py TOOLS [--kills N] [--full] [--seed S] [--only NAME…]

Each command of scenarios.py, or of its sample without --full, is killed N times, at moments drawn from the duration of an undisturbed
run. Afterwards the output is the complete old file or the complete new file; a training run resumes to the same weights, bit for bit,
as the undisturbed run. A folder that the command creates is absent or complete; the next run of the
command completes it. The last lines are the numbers of kills that each tool and all tools survived, and
`mh-tests: N passed, N failed, 0 skipped`, a test for each command.
"""
import random
import subprocess
import sys

import scenarios


def kill_after(seconds, workplace):
    """Runs the command and kills it after `seconds`. Returns whether the command was still running."""
    workplace.reset()
    try:
        workplace.call(workplace.environment, timeout=seconds)  # ends the process by SIGKILL after `seconds`
        return False
    except subprocess.TimeoutExpired:
        return True


def test_command(workplace, args):
    """Tests a command. Returns its Report."""
    duration = workplace.duration
    rng, kills, problems = random.Random(f"{args.seed} {workplace.scenario.name}"), 0, []
    while kills < args.kills:
        seconds = rng.uniform(0, duration)
        if not kill_after(seconds, workplace):
            duration *= 0.95  # the command ended before the kill, so it now runs faster than the undisturbed run
            continue
        kills += 1
        failures = workplace.find_problems(None, was_killed=True)
        if failures:
            problems.append(f"killed after {seconds:.3f} s: " + "; ".join(failures))
    return scenarios.Report(f"within {duration:.2f} s", kills - len(problems), kills, problems)


def main():
    parser = scenarios.parser_of(__doc__)
    parser.add_argument("--kills", type=int, default=10)
    return scenarios.test_commands(parser.parse_args(), "kills", test_command)


if __name__ == "__main__":
    sys.exit(main())
