"""Trains small models that differ in one method each, with several seeds, and prints one table.

    ./run compare --corpus wikitext2 plain mixhead-a mixhead-b mixhead-b+sigsoftmax > table.tsv
    ./run compare --corpus multi30k plain mixhead-a mae rotation-soft > table.tsv
    ./run compare --corpus mrpc --init bert.safetensors plain mixhead-b cross-head > table.tsv

A method is a file of configs/small/ or configs/methods/, or several joined by +. Some corpora have files of their own, which take
precedence: configs/recipes/CORPUS-small-METHOD.toml for translation, configs/small/glue/METHOD.toml for GLUE tasks,
configs/recipes/bert-small-METHOD.toml for BERT. Each run is

    mh-train --config BODY --config METHOD... --train ... --valid ... --seed N --out OUT/CORPUS/METHOD/seedN

or, for a GLUE task, mh-finetune --init INIT with the same options. mh-eval scores the best model: perplexity or bits per token of
text, BLEU of translations with beam 5, accuracy on masked words for BERT, the measure of a GLUE task. Finished runs are not
repeated, stopped runs are resumed. The table has the mean over seeds and the standard deviation (n - 1), and the differences to the
first method seed by seed; its footer names commit, tools, data, seeds and commands. Repeating the command prints the table again
from the finished runs. A run whose configuration or initial model has changed is refused. The tools must be on the PATH (./run
compare sets it); they are first copied to OUT/tools/CHECKSUM and run from there, so that a later build does not affect the runs.
"""
import pathlib
import re

from data import data_named
from driver import check_init, drive, parser_of
from errors import choose
from runs import Row
from tables import read_here, root, scores_of

configs = root / "configs"
# Matches the settings in the file of a method that fine-tuning cannot change in a given model.
ANOTHER_MODEL = re.compile(r"^(heads|head_size|backbone|score) *=|^include.*backbones", re.MULTILINE)


class Corpus:
    def __init__(self, row):
        self.name, self.program, self.method_path = row["corpus"], row["program"], row["method"]
        self.bodies = [configs / name for name in row["body"].split()]

    def candidates(self, part):
        """Returns the files that may define a method, in order of precedence."""
        own = [configs / self.method_path.replace("NAME", part)] if self.method_path else []
        return [*own, configs / f"small/{part}.toml", configs / f"methods/{part}.toml"]

    def method_names(self):
        """Returns the names of all methods for this corpus."""
        files = [*(configs / "small").glob("*.toml"), *(configs / "methods").glob("*.toml")]
        names = {path.stem for path in files if not (self.program == "mh-finetune" and ANOTHER_MODEL.search(path.read_text(encoding="utf-8")))}
        names -= {path.stem for corpus in corpora().values() for path in corpus.bodies}
        if self.method_path:
            pattern = pathlib.Path(self.method_path.replace("NAME", "*"))
            names |= {path.stem.removeprefix(pattern.stem[:-1]) for path in (configs / pattern.parent).glob(pattern.name)} | {"plain"}
        return sorted(names)

    def files_of(self, method):
        """Returns the configuration files of a method such as mixhead-b+sigsoftmax."""
        files = list(self.bodies)
        for part in method.split("+"):
            if self.method_path and part == "plain":
                continue
            file = next((path for path in self.candidates(part) if path.is_file()), None)
            if file is None:
                choose("compare", f"a method of {self.name}", part, self.method_names(), "see ./run compare --help; ./run study compares configurations of your own")
            files.append(file)
        return list(dict.fromkeys(files))  # without duplicates


def corpora():
    return {row["corpus"]: Corpus(row) for row in read_here("compare.tsv")}


def main(arguments):
    lists = "".join(f"\n  {name}: {', '.join(corpus.method_names())}" for name, corpus in corpora().items())
    parser = parser_of("compare", __doc__, f"methods:{lists}")
    parser.add_argument("methods", nargs="+", metavar="METHOD", help="methods to compare, such as plain, mixhead-a, mixhead-b+sigsoftmax")
    parser.add_argument("--corpus", default="wikitext2", help=f"training corpus: {', '.join(corpora())} [wikitext2]")
    options = parser.parse_args(arguments)
    choose("compare: --corpus", "a corpus", options.corpus, list(corpora()), "choose one of these")
    corpus = corpora()[options.corpus]
    options.out = options.out or pathlib.Path("small")
    options.seeds = options.seeds or "3"
    data = data_named(options.corpus, options.out, options.data)
    rows = [Row(method, options.out / options.corpus / method, corpus.program, corpus.files_of(method), data, scores_of(f"data/{data.name}"),
                baseline=options.methods[0]) for method in dict.fromkeys(options.methods)]
    check_init(rows, options, "compare")
    drive(rows, options)
