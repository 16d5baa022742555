#!/usr/bin/env python3
"""Checks that only lib/task/ branches on the task, and that each task has its files.

- Code of lib and tools outside lib/task/ and lib/data/ must not test the type of a corpus, dataset or task (get_if,
  holds_alternative, visit, casts).
- Code outside lib/task/ must not compare or switch over the task head of an encoder (model.bert.head) or the type of the examples of a
  backbone (model::ExampleType); lib/model/, which defines the types of examples, may compare them.
- Code outside lib/task/ must not compare the name of a score (task::ScoreSpec); lib/text/records/, which makes shards, may.
- The record kinds (kExamplesKind and so on) are used only in the two sources of a task, lib/task/TASK.cpp and its records
  (lib/text/records/TASK.*), and lib/io/ contains no name of a kind.
- Each task TASK registered in lib/task/TASK.cpp has its records in lib/text/records/TASK.h and TASK.cpp, which register their kind, and
  neither folder has a folder for a task.
"""
import re
import sys

from method_names import ROOT, code_of, files

TYPES = r"(?:const\s+)?(?:mh::)?(?:data|task)::\w+|(?:Text|Pairs|Examples|\w*Dataset|\w*Task)"


def score_names():
    """Returns the names of the scores that the tasks declare in scores()."""
    names = []
    for path in files("lib/task/*.cpp"):
        text = code_of(path.read_text(encoding="utf-8"))
        constants = dict(re.findall(r'\bconst char\* (\w+) = "([^"]+)"', text))
        declarations = re.findall(r"\bscores\(\) const override \{\s*return \{(.*?)\};", text, re.DOTALL)
        if len(declarations) != len(re.findall(r"\bscores\(\)[^;{]*\boverride\b", text)):
            sys.exit(f"{path.relative_to(ROOT)}: expected scores() to return a braced list; found another form; write the list in the return statement")
        for declaration in declarations:
            names += [name or constants[constant] for name, constant in re.findall(r'\{(?:\.name = )?(?:"(\w+)"|(\w+))', declaration)]
    return list(dict.fromkeys(names))


SCORES = "|".join(score_names())
ENTRY = re.compile(r"const Registration<\w+>\s+\w+\(\s*tasks\(\),\s*\"([^\"]+)\"")
KIND_ENTRY = re.compile(r"const Registration<\w+>\s+\w+\(\s*io::record_kinds\(\),\s*k\w+Kind\b")
KIND = re.compile(r"\bk[A-Z]\w*Kind = \"([^\"]+)\"")


def task_names():
    """Returns {file of lib/task that registers tasks: their names}."""
    return {path: names for path in files("lib/task/*.cpp") if (names := ENTRY.findall(code_of(path.read_text(encoding="utf-8"))))}


TASKS = [name for names in task_names().values() for name in names]
RECORDS = tuple(f"lib/text/records/{name.replace('-', '_')}." for name in TASKS)
TASK_SOURCES = tuple(str(path.relative_to(ROOT)) for path in task_names())
KINDS = "|".join(kind for path in files("lib/text/records/*.h") for kind in KIND.findall(path.read_text(encoding="utf-8")))
RULES = [
    (re.compile(rf"\b(?:get|get_if|holds_alternative|dynamic_cast|dynamic_pointer_cast|static_pointer_cast)<\s*(?:const\s+)?(?:{TYPES})\b"),
     ("lib/task/", "lib/data/"), "use the interface of the task or dataset"),
    (re.compile(r"\bstd::visit\b"), ("lib/task/", "lib/data/"), "use the interface of the task or dataset"),
    (re.compile(r"\b[Hh]ead\b(?:\"[)\]])?(?:\.get<[^>]*>\(\))?\s*[!=]=\s*\"|switch\s*\([^)]*\bhead\)"),
     ("lib/task/",), "call task::task_of(model) and use the interface of the task"),
    (re.compile(r"(?:[!=]=|\bcase)\s*(?:\w+::)*ExampleType::"),
     ("lib/task/", "lib/model/"), "call task::task_of(model) and use the interface of the task"),
    (re.compile(rf'[!=]=\s*"(?:{SCORES})"|\bmetric\w*\s*[!=]=\s*"(?!loss"|perplexity")'), ("lib/task/", "lib/text/records/"),
     "use the properties of task::score_spec(name)"),
    (re.compile(r"\bk[A-Z]\w*Kind\b"), (*TASK_SOURCES, *RECORDS),
     "use io::record_kind(kind), text::record_texts() or task::task_of_kind(kind)"),
]
# In lib/io/, which reads and writes shards of every kind, a string literal that equals the name of a kind is a fault, too.
IO_RULE = (re.compile(rf'"(?:{KINDS})"'), "use a property of io::RecordKind")


def faults_of(path, text):
    """Returns one error line for each place where `text`, the content of the file `path`, branches on the task."""
    faults = []
    code = re.sub(r"#\s*include[^\n]*", "", code_of(text))
    for rule, folders, advice in RULES:
        if path.startswith(folders):
            continue
        for match in rule.finditer(code):
            faults.append(f"{path}: expected no branch on the task; found '{match[0]}'; {advice}")
    if path.startswith("lib/io/"):
        faults += [f"{path}: expected no kind of records; found {match[0]}; {IO_RULE[1]}" for match in IO_RULE[0].finditer(code)]
    return faults


def task_faults():
    """Returns one error line for each missing or misplaced file of a task."""
    faults = []
    for path, names in task_names().items():
        for name in names:
            stem = name.replace("-", "_")
            if path.stem != stem:
                faults.append(f"{path.relative_to(ROOT)}: expected the registration of task '{name}' in lib/task/{stem}.cpp; found it in this file; move it")
            header, source = (ROOT / "lib/text/records" / (stem + suffix) for suffix in (".h", ".cpp"))
            for file in (header, source):
                if not file.exists():
                    faults.append(f"{file.relative_to(ROOT)}: expected the records of task '{name}'; found none")
            if source.exists() and len(KIND_ENTRY.findall(source.read_text(encoding="utf-8"))) != 1:
                faults.append(f"{source.relative_to(ROOT)}: expected the registration of one kind of records; found another number")
    for folder in ("lib/task", "lib/text/records"):
        faults += [f"{path.relative_to(ROOT)}: expected the code of a task in files; found a folder; name each file by its task or format"
                   for path in sorted((ROOT / folder).iterdir()) if path.is_dir()]
    num_registrations = sum(len(re.findall(r"\bRegistration<", path.read_text(encoding="utf-8"))) for path in files("lib/task/*.cpp"))
    if len(TASKS) != num_registrations:
        faults.append(f"lib/task: expected a name for each of {num_registrations} tasks; found {len(TASKS)}")
    return faults


def main():
    faults = task_faults()
    sources = files("lib/**/*", "tools/**/*")
    for path in sources:
        faults += faults_of(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
    broken_examples = [("lib/train/x.cpp", "if (const auto* pairs = std::get_if<data::Pairs>(&corpus)) {}"),
              ("tools/eval/x.cpp", "if (std::holds_alternative<task::Text>(corpus)) {}"),
              ("lib/analysis/x.cpp", "const auto* text = dynamic_cast<const data::Text*>(&corpus);"),
              ("lib/train/x.cpp", "std::visit(print, corpus);"), ("lib/train/x.cpp", 'if (model.bert.head == "span") {}'),
              ("tools/common/x.cpp", "if (model::example_type_of(o) == model::ExampleType::pairs) {}"), ("tools/eval/x.cpp", "return h.kind == text::kExamplesKind;"),
              ("tools/prep/x.cpp", "return h.kind == kPairsKind;"), ("lib/text/records/record_text.cpp", "return h.kind == kPairsKind;"),
              ("lib/io/shard.h", "return kind == kPairsKind;"), ("lib/io/shard.h", 'return kind == "translation";'),
              ("lib/task/task.cpp", "io::require_kind(header, name, text::kExamplesKind);"),
              ("lib/train/x.cpp", 'if (model.bert.head != "span") {}'), ("lib/huggingface/x.cpp", 'return settings.at("model.bert.head") != "words";'),
              ("lib/huggingface/x.cpp", 'return settings["model.bert.head"].get<std::string>() == "words";'),
              ("lib/train/x.cpp", 'if (name == "bleu") {}'), ("tools/common/x.cpp", 'if (metric_ == "chrf") {}')]
    for path, text in broken_examples:
        if len(faults_of(path, text)) != 1:
            faults.append(f"task_names.py: expected a fault in {path}: {text}; found {faults_of(path, text)}")
    for path, text in [("lib/task/x.cpp", 'return model.bert.head == "span";'), ("lib/io/x.cpp", "std::get_if<Dict>(&all)"),
                       ("lib/train/x.cpp", "// by std::visit"), ("lib/text/records/translation.cpp", "kind == kPairsKind"),
                       ("lib/train/x.cpp", 'metric == "loss"')]:
        if faults_of(path, text):
            faults.append(f"task_names.py: expected no fault in {path}: {text}")
    print("\n".join(faults), end="\n" if faults else "")
    print(f"{len(TASKS)} tasks, {len(sources)} sources, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
