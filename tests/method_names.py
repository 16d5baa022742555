#!/usr/bin/env python3
"""Checks that the core of the library names no method; it uses methods only through the interfaces of stages, procedures and
regularisers.

The core is lib/base, lib/nn, lib/model, lib/attention without methods/, and lib/train without procedures/ and regularisers/.
Its code (comments are ignored) must contain no registered name of a method, no folder name of attention/methods/, also in
CamelCase, and no include of attention/methods/. The names are read from the registrations and the folders.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE = ("lib/base/**/*", "lib/nn/**/*", "lib/model/**/*", "lib/attention/*", "lib/attention/fused/*", "lib/train/*")
FORMATS = {"lib/base/renamed_keys.cpp"}  # the table of renamed keys and values, which names keys of methods
FOLDERS = "lib/attention/methods"
METHODS = ("lib/attention/methods/**/*", "lib/train/procedures/*", "lib/train/regularisers/*")
ENTRY = re.compile(r"\b(transforms|pairings|scores|position_biases|normalisers|mixers|combiners|procedures|regularisers)\(\),\s*(?:\"([^\"]+)\"|(\w+))")
REGISTRATION = re.compile(r"^const Registration<", re.MULTILINE)

# Names that the core also uses for something that every method may have; only a string literal that equals such a name is a fault:
#   concatenate, mean, none, own, softmax: ordinary words, and functions of the tensor library and of the kernels
#   dot-product: the product of query and key, to which every score adds its terms
#   gates: what every combiner with gates shows to observers (GateObservation)
#   head-weights: the weights by which every combiner that only scales heads multiplies them (Combiner::head_weights())
#   relative: positions by distance, which kernels compute for every score that sets them (Score::set_relative_positions())
WORDS = {"concatenate", "dot-product", "gates", "head-weights", "mean", "none", "own", "relative", "softmax"}
# String literals allowed in a file: other meanings of the word, and the default stage of each kind.
ALLOWED = {
    "lib/attention/options.h": {"own", "dot-product", "softmax", "none", "concatenate"},
    "lib/train/trainable_filter.cpp": {"gates"},  # a word of train.trainable
}
ALLOWED_ANYWHERE = {"none"}  # occurs in errors: "found none"


def files(*patterns):
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.suffix in (".cpp", ".h"))


def code_of(text):
    """Returns C++ source text without its comments, but with its string literals."""
    return re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda match: match.group(1) or "", text, flags=re.DOTALL)


def registered_names():
    """Returns {name of a method: its registry}, and one error line for each registration without a readable name."""
    names, faults, constants, num_registrations, num_entries = {}, [], {}, 0, 0
    texts = {path: code_of(path.read_text(encoding="utf-8")) for path in files(*METHODS)}
    for text in texts.values():
        constants.update(re.findall(r"\bconst char\*\s*(?:const\s+)?(\w+)\s*=\s*\"([^\"]+)\"", text))
    for path, text in texts.items():
        num_registrations += len(REGISTRATION.findall(text))
        for registry, name, constant in ENTRY.findall(text):
            name = name or constants.get(constant, "")
            if not name:
                faults.append(f"{path.relative_to(ROOT)}: expected the value of {constant}, the name of an entry of {registry}(); found none")
            names[name] = registry
            num_entries += 1
    if num_entries != num_registrations:
        faults.append(f"expected a name for each of {num_registrations} registrations in {', '.join(METHODS)}; found {len(names)}: {' '.join(sorted(names))}")
    return names, faults


def folders():
    """Returns {folder name of a method, with "-" for "_": "folder"}."""
    return {path.name.replace("_", "-"): "folder" for path in (ROOT / FOLDERS).iterdir() if path.is_dir()}


def pattern_of(name):
    """Returns a pattern that matches the name as a whole word in any case, with its parts joined by "", "-", "_" or a space,
    and its CamelCase form as a part of an identifier."""
    parts = name.split("-")
    word = "[-_ ]?".join(map(re.escape, parts))
    return re.compile(rf"(?<![A-Za-z0-9])(?i:{word})(?![A-Za-z0-9])|" + "".join(part.capitalize() for part in parts) + "(?![a-z])")


def faults_of(path, text, names):
    """Returns one line for each method that the core file at `path` names or includes."""
    code = code_of(text)
    faults = [f'{path}: expected no include of attention/methods/ in the core; found "{header}"'
              for header in re.findall(r'#\s*include\s+"(attention/methods/[^"]+)"', code)]
    code = re.sub(r"#\s*include[^\n]*", "", code)
    if path in FORMATS:
        return faults
    allowed = ALLOWED.get(path, set()) | ALLOWED_ANYWHERE
    for name, registry in names.items():
        is_named = f'"{name}"' in code and name not in allowed
        if not is_named and name not in WORDS:
            is_named = pattern_of(name).search(code) is not None
        if is_named:
            faults.append(f"{path}: expected no name of a method in the core; found '{name}' ({registry}): call the interface of the stage instead")
    return faults


def main():
    names, faults = registered_names()
    names = folders() | names
    core = files(*CORE)
    for path in core:
        faults += faults_of(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"), names)
    broken_examples = [("lib/model/x.cpp", 'if (options.combiner == "mae") {}'), ("lib/train/x.cpp", 'if (name == "own") {}'),
              ("lib/attention/x.cpp", 'reasons.push_back("TalkingHeads");'), ("lib/attention/x.cpp", "bool is_mixture_of_heads = false;"),
              ("lib/attention/fused/x.cpp", '#include "attention/methods/mae/experts.h"'), ("lib/base/x.cpp", 'key == "mae"'),
              ("lib/attention/fused/x.cpp", "void set_mixhead(MixheadMatrix m);"), ("lib/nn/x.h", "struct DropHeadMask;"),
              ("lib/attention/x.cpp", "softmax_row(SoftmaxKind::sigsoftmax);")]
    for path, text in broken_examples:
        if len(faults_of(path, text, names)) != 1:
            faults.append(f"method_names.py: expected a fault in {path}: {text}; found {faults_of(path, text, names)}")
    for path, text in [("lib/model/x.cpp", '// such as "mae"'), ("lib/train/x.cpp", "softmax(own, mean)"), ("lib/nn/x.h", "RelativePositions relative;"),
                       ("lib/base/renamed_keys.cpp", '"mae"')]:
        if faults_of(path, text, names):
            faults.append(f"method_names.py: expected no fault in {path}: {text}")
    print("\n".join(faults), end="\n" if faults else "")
    print(f"{len(names)} names, {len(core)} files of the core, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
