#!/usr/bin/env python3
"""Runs the fast checks of the sources: includes between folders, method names in the core, branches on the task, the list of
error sites, format, shell scripts, manual pages, the picture of the stages, paths, names and quoted messages in the docs, words to
avoid, parameters of functions, and subjects, words and sizes of commits.

    lint.py             prints a line for each check and a last line `mh-tests: ...`, which ./run test adds to its totals
    lint.py --write     lowers the numbers of words.tsv to the current number of uses of each word; raises none
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = ROOT / "tests/words.tsv"
SKIPPED = 77  # exit status of a script that skips its check
MAX_SUBJECT = 72  # maximum length of the subject of a commit, characters
MAX_FILES = 20  # maximum number of files in a commit, without renamed and recorded files
RECORDED = ("tests/cli/golden/", "tests/cli/recorded/")  # outputs of the tools and of other programs
NUM_COMMITS = 500  # number of commits whose messages and sizes are checked without the branch origin/main
# Earlier commits may violate the rules for commits, and are not checked.
FIRST_CHECKED_PARENT = "d1acc2dfa3d04c297dbed57b8acef9b1de77d2f5"
MAX_PARAMETERS = 7  # maximum number of parameters of a function, as in .clang-tidy, whose check skips tests and CUDA sources and takes long
SUBJECT = re.compile(r"[\w./-]+: ([^\s,]+),? \S.*(?<!\.)")
# A word that does not end in -ed, -ing or a single s, or a verb whose stem has such an ending, such as "embed" or "bring".
IMPERATIVE = re.compile(r"[a-z-]+(?<!ed)(?<!ing)(?<![^s]s)|[a-z]*eed|bias|bring|embed|focus|shed|string")


class Skip(Exception):
    """Raised by a check that is skipped; the text is the reason."""


def files(*patterns):
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())


def run(*command):
    """Runs a command in the root of the repository. Returns its output if it fails, else ""; raises Skip for the exit status SKIPPED."""
    process = subprocess.run([str(part) for part in command], cwd=ROOT, text=True, capture_output=True, check=False)
    if process.returncode == SKIPPED:
        raise Skip(process.stdout.strip().removeprefix("skipped: "))
    return "" if process.returncode == 0 else process.stdout + process.stderr or f"exit status {process.returncode}"


def check_layers():
    return run(sys.executable, "tests/layering.py")


def check_methods():
    return run(sys.executable, "tests/method_names.py")


def check_tasks():
    return run(sys.executable, "tests/task_names.py")


def check_errors():
    return run(sys.executable, "tests/cli/error_sites.py")


def check_format():
    sources = files("lib/**/*.cpp", "lib/**/*.h", "kernels/**/*.cpp", "kernels/**/*.h", "tools/**/*.cpp", "tools/**/*.h", "tests/**/*.cpp",
                    "tests/**/*.h")
    return run("clang-format", "--dry-run", "-Werror", *sources)


def check_shell():
    scripts = [path for path in files("data_scripts/*") if b"sh" in path.read_bytes().split(b"\n", 1)[0]]
    return run("shellcheck", "--external-sources", "run", ".ci/run", "tests/gpu/run.sh", "configs/recipes/expand", *scripts) or run(
        "shellcheck", "--shell=bash", "--severity=warning", "--exclude=SC2034", "tests/cli/helpers.sh", "tests/cli/processes.sh", *files("tests/cli/cases/*.sh"))


def check_manual():
    return run("mandoc", "-T", "lint", "-W", "warning", *files("man/*"))


def check_picture():
    return run(sys.executable, "docs/pictures/attention_layer.py", "--check")


def text_of(path):
    """Returns the text of a file, without the tags of an SVG picture."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return re.sub(r"<[^>]*>", " ", text) if path.suffix == ".svg" else text


def check_paths():
    """Returns one line for each path and each link in the docs that does not exist; skips paths with placeholders such as NAME, and fenced
    code, which has the paths of examples."""
    lines = []
    for page in files("README.md", "CONTRIBUTING.md", "docs/**/*.md", "docs/**/*.svg", "lib/**/*.md"):
        text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
        paths = re.findall(r"`((?:configs|data_scripts|docs|kernels|lib|man|tests|tools)/[^\s`]*)`", text)
        if page.name == "architecture.md":  # its diagrams have paths without backquotes
            paths += re.findall(r"(?<![\w/])(?:kernels|lib|tools)/[\w./*-]+\.(?:cpp|h)\b", text)
        for path in paths:
            if not re.search(r"[A-Z]{3}", path) and not any(list(ROOT.glob(name)) for name in (path, path + ".in")):  # the build makes NAME.h from NAME.h.in
                lines.append(f"{page.relative_to(ROOT)}: expected a path in the repository; found {path}, which does not exist\n")
        for path, anchor in re.findall(r"\]\(([^)#\s:]*)(?:#([^)]*))?\)", text) if page.suffix == ".md" else []:
            target = page.parent / path if path else page
            if not path and not anchor or not target.exists() or (anchor and anchor not in anchors_of(text_of(target))):
                lines.append(f"{page.relative_to(ROOT)}: expected a link to a page and a section that exist; found {path}{'#' * bool(anchor)}{anchor}\n")
    return "".join(lines)


def anchors_of(text):
    """Returns the anchors of the headings of a page: lower case, without punctuation, with a hyphen for each space."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)}


def unknown_names(text, code):
    """Returns the C++ names between backquotes in the text of a page that do not occur in `code`: names with `()`, which `code` must
    declare or call, and qualified names. Ignores template arguments, such as STRUCT."""
    unknown = []
    for name in re.findall(r"`((?:\w+::)*\w+(?:<\w+>)?(?:\(\))?)`", text):
        if "()" not in name and "::" not in name:
            continue
        *scopes, last = re.sub(r"<\w+>", "", name).split("::")
        words = [rf"{word}\b" for word in scopes] + [last.replace("()", r"\(") if "()" in last else rf"{last}\b"]
        unknown += [name] if any(re.search(rf"\b{word}", code) is None for word in words) else []
    return unknown


def check_names():
    """Returns one line for each C++ name in the docs for contributors that the sources do not have."""
    lines = []
    if unknown_names("`f()`, `g()`, `a::B::f`, `a::C`, `h`, `B<STRUCT>`", "namespace a { struct B { void f(int); } }") != ["g()", "a::C"]:
        lines.append("lint.py: expected the unknown names g() and a::C in a page; found others\n")
    code = "\n".join(path.read_text(encoding="utf-8") for folder in ("lib", "kernels", "tools", "tests") for suffix in ("cpp", "cu", "cuh", "h")
                     for path in files(f"{folder}/**/*.{suffix}"))
    for page in files("CONTRIBUTING.md", "docs/architecture.md", "docs/adding-*.md"):
        lines += [f"{page.relative_to(ROOT)}: expected a name of the sources; found {name}; correct it\n"
                  for name in unknown_names(page.read_text(encoding="utf-8"), code)]
    return "".join(lines)


def fixed_parts(message):
    """Returns the fixed texts of an error message: the texts between its values, which are numbers, paths, names of files with a suffix, texts
    in quotes, and the mark …, which replaces a longer text. Leaves out the text before "expected", which names the tool and the input, or
    the text before the message if it does not contain this word."""
    values = r"'[^']*'|\"[^\"]*\"|\S*[\d/]\S*|\S*\w\.\w\S*|…"
    parts = re.split(values, message[message.find("expected"):] if "expected" in message else re.split("error: |warning: ", message)[-1])
    return [part for part in (part.strip(" :;,.()[]") for part in parts) if re.search(r"[a-z]", part)]


def is_current_message(message, recorded, sources):
    """Returns whether the fixed texts of an error message occur in one line of `recorded`, in their order, or in one text of `sources`. A source
    joins the three parts of a message at run time, so each part is sought alone."""
    parts = fixed_parts(message)
    if parts and re.search(".*?".join(re.escape(part) for part in parts), recorded):
        return True
    words = [piece for part in parts for piece in (re.sub("^(expected|found) ", "", piece) for piece in part.split("; ")) if " " in piece]
    return bool(words) and any(all(piece in source for piece in words) for source in sources)


def check_faq():
    """Returns one line for each error message in docs/faq.md that neither tests/cli/errors.txt nor one source has."""
    lines = []
    recorded, sources = "mh-x: error: f: expected 2 lines; found 'a'; use f.txt instead", ['"a larger disk"\n  "full"']
    for message, expected in (("mh-y: error: g: expected 3 lines; found 'b'; use g.txt instead", True), ("error: found 3; a larger disk", True),
                              ("error: g: expected 3 lines; found 'b'; use g.txt again", False), ("error: a smaller disk", False), ("mh-x: error: 3 'b'", False)):
        if is_current_message(message, recorded, sources) != expected:
            lines.append(f"lint.py: expected the message '{message}' to be {'current' if expected else 'outdated'}; found the opposite\n")
    recorded = (ROOT / "tests/cli/errors.txt").read_text(encoding="utf-8", errors="replace")
    sources = [re.sub(r'"\s*\n\s*"', "", path.read_text(encoding="utf-8")) for path in files("lib/**/*.cpp", "tools/**/*.cpp", "data_scripts/*", "run")]
    messages = re.findall(r"^    (\S.*)", (ROOT / "docs/faq.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    if len(messages) < 20:
        lines.append(f"docs/faq.md: expected at least 20 messages in lines with an indentation of 4 spaces; found {len(messages)}\n")
    return "".join(lines + [f"docs/faq.md: expected a message of tests/cli/errors.txt or of the sources; found '{message}'; quote the current message\n"
                            for message in messages if not is_current_message(message, recorded, sources)])


def parameter_counts(text):
    """Yields (name, number of parameters) of the definitions of functions in C++ sources in the format of clang-format. May miss definitions,
    but yields nothing else."""
    text = re.sub(r"//[^\n]*", "", text)
    while (shorter := re.sub(r"<[^<>;{}()]*>|\{[^{};()]*\}(?=[,)])", "", text)) != text:  # template arguments and default values
        text = shorter
    for name, parameters in re.findall(r"^(?!\s*(?:return|else|if|for|while|switch)\b)[ \t]*[\w:][\w:&* \t]*?[ &*](\w+)\(([^(){};]*)\)(?: const)?(?: noexcept)? \{$", text, flags=re.MULTILINE):
        yield name, parameters.count(",") + 1


def check_parameters():
    lines = []
    if list(parameter_counts("Vector f(int a, std::map<int, int> b, int c, int d,\n         int e, int f, Sizes g = {1, 2}, int h = 0) {\n")) != [("f", 8)]:
        lines.append("lint.py: expected 8 parameters in a definition with 8 of them; found another number\n")
    for path in files(*(f"{folder}/**/*.{suffix}" for folder in ("lib", "kernels", "tools", "tests") for suffix in ("cpp", "cu", "cuh", "h"))):
        for name, count in parameter_counts(path.read_text(encoding="utf-8")):
            if count > MAX_PARAMETERS:
                lines.append(f"{path.relative_to(ROOT)}: {name}: expected at most {MAX_PARAMETERS} parameters; found {count}; pass a struct\n")
    return "".join(lines)


def word_rows():
    """Yields (pattern, replacement, allowed number of uses) of each line of words.tsv."""
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pattern, replacement, allowed = line.split("\t")
            yield pattern, replacement, int(allowed)


def plain_words(text):
    """Returns `text` on one line, without comment marks, and with the words of identifiers separated: a space in place of each line
    break with the comment mark after it, and of each underscore, and between the words of CamelCase."""
    text = re.sub(r"\s+(?://|\*|#)?\s*", " ", text)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", " ", text)


def word_uses(pattern, words):
    """Returns the uses of a pattern of words.tsv in the result of plain_words(), in any case."""
    return [match[0] for match in re.finditer(rf"\b{pattern}\b", words, flags=re.IGNORECASE)]


def word_texts():
    """Returns the texts in which the words of words.tsv are counted, as plain_words(). Golden files repeat texts of the sources, and
    are excluded."""
    suffixes = ("build", "cpp", "cu", "h", "in", "md", "py", "sh")
    sources = files(*(f"{folder}/**/*.{suffix}" for folder in ("lib", "kernels", "tools", "tests") for suffix in suffixes),
                    "configs/**/*", "data_scripts/**/*", "man/*", "docs/**/*.md", "docs/**/*.svg", "*.md", "run", "meson*", ".ci/*", "tests/cli/errors.txt")
    return [plain_words(text_of(path)) for path in sources if path not in (pathlib.Path(__file__), WORDS)]


def check_words():
    lines = []
    for text, expected in [("// It comes\n// by", ["comes by"]), ("Behind", ["Behind"]), ("drawnAnew", ["Anew"]), ("how_so_many", ["so many"]),
                           ("HTTPStands", ["Stands"]), ("thousands of stand-ins stand for standards", []), ("comebyte", [])]:
        uses = [use for pattern, _, _ in word_rows() for use in word_uses(pattern, plain_words(text))]
        if uses != expected:
            lines.append(f"lint.py: expected the words to avoid {expected} in '{text}'; found {uses}\n")
    texts = word_texts()
    for pattern, replacement, allowed in word_rows():
        num_uses = sum(len(word_uses(pattern, text)) for text in texts)
        if num_uses > allowed:
            examples = sorted({use for text in texts for use in word_uses(pattern, text)})
            lines.append(f"'{pattern}': expected at most {allowed} uses; found {num_uses}, such as '{examples[0]}'; say instead: {replacement}\n")
    return "".join(lines)


def write_words():
    """Lowers the allowed number of uses of each word in words.tsv to its number of uses."""
    texts = word_texts()
    lines = WORDS.read_text(encoding="utf-8").splitlines()
    for i, line in enumerate(lines):
        if line and not line.startswith("#"):
            pattern, replacement, allowed = line.split("\t")
            lines[i] = f"{pattern}\t{replacement}\t{min(int(allowed), sum(len(word_uses(pattern, text)) for text in texts))}"
    WORDS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def subject_fault(subject):
    """Returns how the subject of a commit differs from `area: imperative verb object`, or ""."""
    match = SUBJECT.fullmatch(subject)
    if match is None:
        return "expected `area: verb object` with a single area and without a full stop; found another form"
    if len(subject) > MAX_SUBJECT:
        return f"expected at most {MAX_SUBJECT} characters; found {len(subject)}"
    return "" if IMPERATIVE.fullmatch(match[1]) else f"expected an imperative verb after the area; found '{match[1]}'"


def message_fault(message):
    """Returns the words of words.tsv in the message of a commit and what to say instead, or "". A message may quote a word between
    backquotes or double quotes."""
    words = plain_words(re.sub(r"`[^`]*`|\"[^\"]*\"", "", message))
    return "; ".join(f"expected a message without '{uses[0]}'; say instead: {replacement}" for pattern, replacement, _ in word_rows()
                     if (uses := word_uses(pattern, words)))


def files_fault(subject, changes):
    """Returns how the files of a commit exceed MAX_FILES, or "". A commit that renames something has no limit. changes: lines of
    `git log --name-status`: a status, a tab and the path, or the old and the new path of a renamed file."""
    if re.match(r"[^:]+: rename ", subject):
        return ""
    paths = [change.split("\t")[1] for change in changes if not change.startswith("R")]
    num_files = sum(not path.startswith(RECORDED) for path in paths)
    return f"expected at most {MAX_FILES} files that are neither renamed nor recorded; found {num_files}" if num_files > MAX_FILES else ""


def recent_commits():
    """Yields (hash, subject, message, changes) of each commit that is not on origin/main, or of the last NUM_COMMITS without such a
    branch; without merges and without FIRST_CHECKED_PARENT and its ancestors. changes: as in files_fault()."""
    def git(*arguments):
        return subprocess.run(["git", "-C", str(ROOT), *arguments], text=True, errors="replace", capture_output=True, check=False)

    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        raise Skip("no git repository; clone the repository, or install git")
    has_main = git("rev-parse", "--verify", "--quiet", "origin/main").returncode == 0
    selection = ["HEAD"] + (["^origin/main"] if has_main else [f"--max-count={NUM_COMMITS}"])
    if git("cat-file", "-e", FIRST_CHECKED_PARENT).returncode == 0:  # a shallow clone may lack the commit
        selection.append(f"^{FIRST_CHECKED_PARENT}")
    log = git("log", "--no-merges", "--name-status", "--find-renames", "--format=%x01%h%x02%s%x02%B%x02", *selection)
    if log.returncode != 0:
        raise Skip(" ".join(log.stderr.split()))
    for commit in log.stdout.split("\1")[1:]:
        name, subject, message, changes = commit.split("\2")
        yield name, subject, message, changes.split("\n\n")[-1].split("\n")[:-1] if changes.strip() else []


def check_commits():
    lines = []
    renames, recorded = ["R100\ta\tb"] * 30, [f"M\t{folder}a/b" for folder in RECORDED] * 30
    for text, fault in [*((subject, subject_fault(subject)) for subject in [
            "tests, lib: add a case", "tests add a case", "tests: add a case.", "tests: adds a case", "tests: added a case",
            "tests: adding a case", "tests: add", "tests:add a case", "tests: " + "add " * 20 + "a case", "more tests: add a case"]),
                        *((message, message_fault(message)) for message in ["base: add a tile\n\nIt is behind the last.", "base: so\nmany", "base: rename kAnew"]),
                        ("21 files", files_fault("base: add a file", ["M\tlib/a"] * 21 + renames))]:
        if not fault:
            lines.append(f"lint.py: expected a fault in the commit '{text}'; found none\n")
    for text, fault in [*((subject, subject_fault(subject)) for subject in [
            "tests/unit: bring cases together", "analysis: scan, rank and swap heads", "lib/io: pass a file", "base: exceed no limit", "cuda/head_mixing: split keys: 2 blocks"]),
                        ("base: replace `behind`", message_fault("base: replace `behind`")),
                        ("20 files", files_fault("base: add a file", ["M\tlib/a"] * 20 + renames + recorded)),
                        ("a rename in 21 files", files_fault("base: rename a key", ["M\tlib/a"] * 21))]:
        if fault:
            lines.append(f"lint.py: expected no fault in the commit '{text}'; found: {fault}\n")
    if lines:
        return "".join(lines)
    for name, subject, message, changes in recent_commits():
        for fault, advice in ((subject_fault(subject), "reword the subject with git rebase or git commit --amend"),
                              (message_fault(message), "reword the message with git rebase or git commit --amend"),
                              (files_fault(subject, changes), "divide the commit")):
            if fault:
                lines.append(f"{name} {subject}: {fault}; {advice}\n")
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        write_words()
        return 0
    checks = {"layers": check_layers, "methods": check_methods, "tasks": check_tasks, "errors": check_errors, "format": check_format, "shell": check_shell,
              "manual pages": check_manual, "picture": check_picture, "paths": check_paths, "names": check_names, "messages of the FAQ": check_faq,
              "words": check_words, "parameters": check_parameters, "commits": check_commits}
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, check in checks.items():
        try:
            output = check()
            verdict, reason = "failed" if output else "passed", ""
        except Skip as skip:
            output, verdict, reason = "", "skipped", f" ({skip})"
        counts[verdict] += 1
        print(f"{verdict}: lint: {name}{reason}\n{output}", end="")
    print("mh-tests: {passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
