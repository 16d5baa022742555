"""Compares the hand-written lists of the manual pages, such as the columns of a table, with the names in the sources.

A page explains such names in groups or in sentences, so page_lists.py cannot generate these lists. LISTS has an entry for each
such list. A name of the sources is a text that a regular expression finds in the sources, for example a key of a JSON object.
"""
import re
import sys
from typing import Callable, NamedTuple

from method_pages import ROOT
from page_lists import table

COLUMN = r'(?<!Problem)\{"(\w+)",(?!\s*["&])|\w\["(\w+)"\][^=;\n]* = '  # a key of a JSON object in C++ whose value is no literal text


def names(pattern, *sources):
    """Returns the texts of the groups of the regular expression `pattern` in the sources, which are globs relative to the repository."""
    matches = set()
    for source in sources:
        for path in sorted(ROOT.glob(source)):
            for match in re.finditer(pattern, path.read_text()):
                matches |= set(filter(None, match.groups()))
    return matches


def columns(*sources):
    return names(COLUMN, *sources)


def parts(text, *starts):
    """Returns the parts of a page that begin with one of the lines `starts` and end before the next section or option."""
    lines_in_parts, end = [], None
    for line in text.splitlines():
        if line in starts:
            end = (".Ss", ".Sh") if line.startswith(".S") else (".It Fl", ".Ss", ".Sh")
        elif end and line.startswith(end):
            end = None
        if end:
            lines_in_parts.append(line)
    return "\n".join(lines_in_parts)


def marked(macro, *starts, name=r"[a-z][\w./-]*"):
    """Returns a function that lists the names after the macro in parts of a page; ".It Li nll , loss" has the names nll and loss."""
    def find(text):
        words_after_macro = set()
        for line in parts(text, *starts).splitlines():
            if not line.startswith("."):
                continue
            current_macro = None
            for word in line[1:].split():
                if re.fullmatch(r"[A-Z][a-z]", word):
                    current_macro = word
                elif current_macro == macro and re.fullmatch(name, word):
                    words_after_macro.add(word)
        return words_after_macro
    return find


def words(*starts):
    """Returns a function that lists the words in parts of a page, or in the whole page."""
    return lambda text: set(re.findall(r"\w[\w.-]*\w|\w", parts(text, *starts) if starts else text))


def without_generated_lists(text):
    return re.sub(r'^\.\\" list .*?^\.\\" end of list\n', "", text, flags=re.MULTILINE | re.DOTALL)


def item(text, term):
    """Returns the text of the item `term` of a list, without generated lists."""
    return re.search(rf"^\.It {term}\n(.*?)^\.(?:It |El$)", without_generated_lists(text), re.MULTILINE | re.DOTALL)[1]


def components_in_page(part):
    """Returns a function that lists the components of a part of tokenizer.json in its item of a page, which explains some in parentheses."""
    return lambda text: set(re.findall(r"\b[A-Z]\w+", re.sub(r"\([^()]*\)", "", item(text, part))))


def components_in_sources(part):
    """Returns the components of a part of tokenizer.json that its parser accepts. The error about other components must list the same."""
    path = ROOT / f"lib/text/pipeline/{part}.cpp"
    text = path.read_text()
    accepted = set(re.findall(r'\btype [!=]= "(\w+)"', text)) | (set() if part == "model" else names(r'type\(\) == "(\w+)"', "lib/text/json_node.h"))
    message = re.search(r'"an? [\w-]+ of the type ((?:[^"]|"\s*")*)",\s*type\.empty', text)
    listed = set(re.findall(r"\b[A-Z]\w+", message[1])) if message else set()
    if listed != accepted:
        sys.exit(f"{path.relative_to(ROOT)}: expected an error that lists {', '.join(sorted(accepted))}; found {', '.join(sorted(listed))}; correct the error")
    return accepted


def columns_of_classes(base, *sources):
    """Returns the keys of JSON objects in the classes of the sources that derive from `base`."""
    keys = set()
    for source in sources:
        for path in sorted(ROOT.glob(source)):
            for definition in re.findall(rf"^class \w+ : public {base} \{{\n.*?^\}};", path.read_text(), re.MULTILINE | re.DOTALL):
                keys |= {name for match in re.finditer(COLUMN, definition) for name in match.groups() if name}
    return keys


def heading(source):
    """Returns the columns in the first line of a table that a source writes."""
    return {name for line in names(r'write\("((?:\w+\\t)+\w+)\\n"\)', source) for name in line.split("\\t")}


def statuses():
    text = (ROOT / "lib/base/error.h").read_text()
    return set(re.findall(r"^ *\w+ = (\d+),", re.search(r"enum class Exit\b.*?};", text, re.DOTALL)[0], re.MULTILINE))


def job_tools():
    """Returns the tools that several processes of a job can run."""
    def uses(header, path):
        return f'#include "common/{header}"' in path.read_text()
    # train_setup.h is the part of training that mh-train and mh-finetune share.
    return {f"mh-{path.parent.name}" for path in ROOT.glob("tools/*/*.cpp")
            if path.parent.name != "common" and (uses("processes.h", path) or path.name == "main.cpp" and uses("train_setup.h", path))}


def choices(tools, key):
    """Returns the choices of a key, which are in parentheses at the end of its meaning."""
    return set(next(re.search(r"\(([^()]*)\)$", row["meaning"])[1] for row in table(tools, "keys") if row["key"] == key).split(", "))


def scores(tools, column, *values):
    return {row["score"] for row in table(tools, "scores") if row[column] in values}


def columns_of_metrics(tools):
    """Returns the columns that --metric can add to a table."""
    names_of_scores = scores(tools, "from", "predictions", "translations")
    return {"perplexity"} | names_of_scores | {f"{score}_difference" for score in names_of_scores}


def axis_sizes(tools):
    """Returns the symbols in the shapes of tensors, except the names of keys."""
    keys = {row["key"].split(".")[-1] for row in table(tools, "keys")}
    return set(re.findall(r"[a-z]\w*", " ".join(row["shape"] for row in table(tools, "tensors")))) - keys


class NameList(NamedTuple):
    page: str
    noun: str                 # noun for a name of the list
    names_in_page: Callable   # returns the names in the text of the page
    required: Callable        # returns the names that the page must have; argument: folder of the tools
    allowed: Callable = None  # returns further names that the page may have
    is_exact: bool = True     # whether other names are faults


C_SOURCES = [f"{folder}/**/*{suffix}" for folder in ("lib", "kernels", "tools") for suffix in (".cpp", ".h")]
SCORING = "tools/common/shard_source.cpp"  # columns of several tools
EVALUATION = (".Ss Language models", ".Ss Encoders with a task head", ".Ss Translation models")
TOOLS = ("convert", "eval", "prep", "prune", "spectrum", "swap", "train")
LISTS = [
    NameList("mh-checkpoint.5", "type of tensors", lambda text: set(re.findall(r"\b[A-Z]+\d*\b", " ".join(re.findall(r"^\.Li dtype\n(.*),$", text, re.MULTILINE)))),
             lambda _: names(r'DType::\w+, "(\w+)"', "lib/io/checkpoint.cpp")),
    NameList("mh-checkpoint.5", "key of the metadata", lambda text: set(re.findall(r"multihead\.[a-z]\w*", text)),
             lambda tools: {row["key"] for row in table(tools, "metadata")}),
    NameList("mh-checkpoint.5", "tensor of a memory", lambda text: {name.split(".")[-1] for name in re.findall(r"^memory\.(\S+)", text, re.MULTILINE)},
             lambda _: names(r'"memory\.(seen)"|tensor_name\(\w+, "(\w+)"\)', "lib/model/memories.cpp")),
    NameList("mh-checkpoint.5", "size in shapes",
             lambda text: words(".Ss Tensors of backbones", ".Ss Tensors of stages")(without_generated_lists(text)), axis_sizes, is_exact=False),
    NameList("mh-config.5", "type of keys", marked("Cm", ".Ss Types"),
             lambda tools: {name for row in table(tools, "keys") for name in row["type"].split(" or ")}, is_exact=False),
    *(NameList(page, "kind of attention", words(), lambda _: names(r'return "(\w+\.\w+)";', "lib/attention/attention_kind.cpp"), is_exact=False)
      for page in ("mh-config.5", "mh-prune.1", "mh-spectrum.1")),
    NameList("mh-config.5", "rule of the schedule", lambda text: set(re.findall(r"^\.It (\S+) Ta", text, re.MULTILINE)),
             lambda tools: choices(tools, "train.schedule.rule")),
    NameList("mh-config.5", "start of the decay", words(".Sh LEARNING RATES"), lambda tools: choices(tools, "train.schedule.decay_from"), is_exact=False),
    NameList("mh-environment.7", "exit status", marked("Li", ".Sh EXIT STATUS", name=r"\d"), lambda _: statuses()),
    NameList("mh-environment.7", "variable that the tools read",
             lambda text: marked("Ev", ".Sh ENVIRONMENT", name=r"\w+")(text.split("Variables of the libraries")[0]),
             # The OpenMP runtime reads OMP_NUM_THREADS; the tools only test whether it is set.
             lambda _: names(r'getenv\("(\w+)', *C_SOURCES) - {"OMP_NUM_THREADS"} | names(r'"((?:[A-Z]+_)*[A-Z]+|OMPI_MCA_ess_base_jobid)"', "lib/base/launch.cpp")),
    NameList("mh-environment.7", "tool of a job", lambda text: set(re.findall(r"mh-\w+", re.search(r"describe a process of a job to\n(.*?)\nA script", text, re.DOTALL)[1])),
             lambda _: job_tools()),
    NameList("mh-environment.7", "signal", marked("It", ".Sh SIGNALS", name=r"SIG\w+"),
             lambda _: names(r"\b(SIG[A-Z0-9]+)\b", "lib/base/signals.cpp", "lib/base/signals.h", "lib/base/tool.cpp")),
    NameList("mh-eval.1", "column", marked("Li", *EVALUATION),
             lambda tools: columns("tools/eval/score.cpp", "tools/eval/examples.cpp", "tools/eval/decode.cpp", "lib/task/questions.cpp") |
             scores(tools, "from", "log-probabilities")),
    NameList("mh-eval.1", "protocol", marked("Cm", *EVALUATION), lambda _: names(r'(?:return|\?|:) "([a-z-]+)"', "lib/data/scoring_options.h"), is_exact=False),
    NameList("mh-eval.1", "column of --per-token", words(".It Fl -per-token Ar file"), lambda _: heading("tools/eval/score.cpp"), is_exact=False),
    NameList("mh-eval.1", "column of bleu", marked("Li", ".Ss bleu"), lambda _: columns("tools/eval/bleu.cpp")),
    NameList("mh-eval.1", "column of curves", marked("Li", ".Ss curves"), lambda _: columns("tools/eval/curves.cpp"), is_exact=False),
    NameList("mh-finetune.1", "column", marked("Li", ".Ss Several seeds"), lambda _: columns("tools/finetune/seeds.cpp", "lib/train/seeds.cpp")),
    NameList("mh-prep.1", "property of shards", marked("Li", ".Ss info"),
             lambda _: columns("tools/prep/show.cpp", "lib/text/records/record_text.cpp") |
             columns_of_classes(r"(?:RecordText|WholeShardText)", "lib/text/records/*.cpp")),
    NameList("mh-prep.1", "reason to drop pairs", marked("Li", ".Ss translation"), lambda _: names(r'return "(\w+)";', "lib/text/records/translation.cpp")),
    NameList("mh-prep.1", "metric", words(".It Fl -metrics Ar names"), lambda tools: scores(tools, "records", "examples"), is_exact=False),
    NameList("mh-prune.1", "column", marked("Li", ".Ss Columns", ".Ss scan", ".Ss rank", ".Ss curve"),
             lambda _: columns("tools/prune/s*.cpp", "tools/prune/rank.cpp", "tools/prune/curve.cpp", "tools/common/metric_option.cpp"), columns_of_metrics),
    NameList("mh-prune.1", "mode", words(".Ss scan"), lambda _: names(r'ScanMode::\w+ \? "([\w-]+)"|: "([\w-]+)";', "lib/analysis/scan.cpp"), is_exact=False),
    NameList("mh-shard.5", "key", marked("Li", ".Ss Header", ".Ss Trailer"), lambda _: columns("lib/io/shard_format.cpp")),
    NameList("mh-shard.5", "metric", words(".Ss Kinds of records"), lambda tools: scores(tools, "records", "examples"), is_exact=False),
    NameList("mh-spectrum.1", "column", lambda text: {re.sub(r"^c_\d+", "c_", name) for name in marked("Li", ".Ss Columns", ".Ss experts")(text)},
             lambda _: columns("tools/spectrum/*.cpp", SCORING, "tools/common/metric_option.cpp") | names(r'"(c_(?:first)?)"', "tools/spectrum/rows.cpp") |
             names(r'"(perplexity)" : "(loss)"', "lib/analysis/ablation.cpp"), columns_of_metrics),
    NameList("mh-spectrum.1", "column of --curves", words(".It Fl -curves Ar file"), lambda _: heading("tools/spectrum/rows.cpp"), is_exact=False),
    NameList("mh-swap.1", "column", marked("Li", ".Ss Choice of heads", ".Ss report"), lambda _: columns("tools/swap/*.cpp", SCORING)),
    NameList("mh-train.1", "property of the dry run", marked("Li", ".It Fl -dry-run", ".It Fl -processes Ar n"), lambda _: columns("tools/common/train_setup.cpp", "lib/train/procedures/skip_retain.cpp")),
    NameList("mh-train.1", "key of the log", marked("Li", ".Sh LOG"),
             lambda _: columns("lib/train/trainer.cpp", "lib/train/progress_log.cpp", "lib/train/validation.cpp", "lib/train/model_selection.cpp") |
             names(r'"(swapped|undone)"', "lib/train/procedures/head_rotation.cpp"), lambda _: {"valid_"}),
    NameList("mh-train.1", "file of a run", marked("Pa", ".Sh FILES"),
             lambda _: names(r'"(\w+\.(?:safetensors|toml|jsonl)|lock)"|"(checkpoints/)', "lib/train/*.cpp", "lib/train/*.h")),
    NameList("mh-train.1", "signal", lambda text: set(re.findall(r"\bSIG[A-Z0-9]+", parts(text, ".Sh RESUMING"))),
             lambda _: set(re.findall(r"SIG\w+", " ".join(names(r"kStopSignals\{(.*)\}", "lib/base/signals.h"))))),
    NameList("mh-vocab.5", "key", marked("It", ".Ss Head"),
             lambda _: names(r'read_\w+\("(\w+)"\)|kMagic = "([\w-]+) ', "lib/text/vocabulary_file.cpp")),
    NameList("mh-vocab.5", "type of a model of another project", lambda text: set(re.findall(r"^\.Cm (\S+)", item(text, "type"), re.MULTILINE)),
             lambda tools: names(r'kType = "([\w-]+)"', "lib/text/*.h") - {row["type"] for row in table(tools, "vocabularies")}),
    *(NameList("mh-vocab.5", f"component of {part}", components_in_page(part), lambda _, part=part: components_in_sources(part))
      for part in ("normalizer", "pre_tokenizer", "model", "post_processor", "decoder")),
    *(NameList(f"mh-{tool}.1", "exit status", lambda text: set(re.findall(r"(?:^|; )(\d) ", parts(text, ".Sh EXIT STATUS"), re.MULTILINE)), lambda _: statuses())
      for tool in TOOLS),
]


def faults_of_names(tools, pages):
    """Returns one line for each name that occurs only in the sources, or only in a list of LISTS, and for each list without names."""
    faults = []
    for entry in LISTS:
        present, required = entry.names_in_page((pages / entry.page).read_text()), entry.required(tools)
        if not required:
            faults.append(f"page_names.py: expected a {entry.noun} of {entry.page} in the sources; found none; correct its entry of LISTS")
        faults += [f"{entry.page}: expected the {entry.noun} {name}; found none; add it" for name in sorted(required - present)]
        if entry.is_exact:
            extra_names = present - required - (entry.allowed(tools) if entry.allowed else set())
            faults += [f"{entry.page}: expected a {entry.noun} in the sources; found {name}; remove it" for name in sorted(extra_names)]
    return faults
