"""Errors of three parts, what was expected, what was found and what to do, and the nearest word to a misspelt name."""
import difflib


class Refusal(Exception):
    """An error of the user's input, of a file or of a tool. `main` prints its text and exits with status 1."""

    def __init__(self, subject, expected, found, advice):
        super().__init__(f"{subject}: expected {expected}; found {found}; {advice}")
        self.found = found


def refuse(subject, expected, found, advice):
    raise Refusal(subject, expected, found, advice)


def choose(subject, kind, name, names, advice):
    """Returns the name if it is one of the names; otherwise refuses it and suggests the nearest name."""
    if name in names:
        return name
    near = difflib.get_close_matches(name, list(names), 1, 0.5)
    hint = f"write {near[0]}, or {advice}" if near else advice
    return refuse(subject, f"{kind}, one of {', '.join(names)}" if len(names) <= 12 else kind, name or "an empty name", hint)
