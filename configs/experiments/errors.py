"""Errors of three parts, what was expected, what was found and what to do, and the nearest word to a misspelt name."""
import difflib


class Refusal(Exception):
    """An error of the user's input, of a file or of a tool. `main` prints its text and exits with its status."""

    def __init__(self, subject, expected, found, advice, status=1):
        super().__init__(f"{subject}: expected {expected}; found {found}; {advice}")
        self.found, self.status = found, status


def refuse(subject, expected, found, advice):
    """Refuses data, runs or the machine: exit status 1."""
    raise Refusal(subject, expected, found, advice)


def refuse_usage(subject, expected, found, advice):
    """Refuses the command line, a study or a configuration: exit status 2."""
    raise Refusal(subject, expected, found, advice, 2)


def choose(subject, kind, name, names, advice):
    """Returns the name if it is one of the names; otherwise refuses it and suggests the nearest name."""
    if name in names:
        return name
    near = difflib.get_close_matches(name, list(names), 1, 0.5)
    hint = f"write {near[0]}, or {advice}" if near else advice
    return refuse_usage(subject, f"{kind}, one of {', '.join(names)}" if len(names) <= 12 else kind, name or "an empty name", hint)
