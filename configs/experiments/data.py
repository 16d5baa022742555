"""Prepares the shards of a data set once, by a script of data_scripts and mh-prep."""
import dataclasses
import fcntl
import pathlib
import shlex
import subprocess

from errors import choose, refuse
from tables import read_here, root
from tools import call, say


@dataclasses.dataclass
class Data:
    name: str
    folder: pathlib.Path  # has the shards of train and of each of the splits
    splits: list  # splits with labels
    script: str = ""
    arguments: str = ""
    vocabulary: str = ""  # options of mh-prep vocab; "": the script makes the shards
    preparation: str = ""  # subcommand of mh-prep for the texts
    tokens: int = 0  # tokens of an epoch; 0: unknown
    suffix: str = ""  # of the names of the shards

    def shard(self, split):
        return self.folder / f"{split}{self.suffix}.mhs"

    def missing(self):
        return [self.shard(split) for split in ("train", *self.splits) if not self.shard(split).is_file()]

    def prepare(self, init):
        """Makes the shards, unless they exist. init: the model whose vocabulary GLUE and SQuAD use."""
        if not self.missing():
            return
        if not self.script:
            refuse(f"data {self.name}", f"the shards {', '.join(path.name for path in self.missing())} in {self.folder}", "none",
                   "prepare the shards as configs/recipes/README.md describes, and name their folder by --data")
        script = root / "data_scripts" / self.script
        if not script.is_file():
            refuse(f"data {self.name}", f"the script {script}", "none", "prepare the shards by hand, and name their folder by --data")
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several jobs of one study may begin together
            if self.missing():
                self.make(script, init)

    def make(self, script, init):
        say(f"prepares the data {self.name} in {self.folder}")
        words = {"FOLDER": self.folder, "INIT": init}
        call([script, *(words.get(word, word) for word in shlex.split(self.arguments))], stdout=subprocess.DEVNULL)
        if self.vocabulary:
            vocabulary = self.folder / "vocabulary"
            call(["mh-prep", "vocab", "-q", *self.vocabulary.split(), self.folder / "train.txt", "-o", vocabulary])
            for split in ("train", *self.splits):
                call(["mh-prep", self.preparation, "-q", "--vocab", vocabulary, self.folder / f"{split}.txt", "-o", self.shard(split)])
        if self.missing():
            refuse(f"data {self.name}", f"the shards {', '.join(map(str, self.missing()))} after {self.script}", "none",
                   "repeat the command, or name a folder of shards by --data")


def data_named(name, out, folder=None):
    """Returns a data set of data.tsv whose folder is OUT/data-NAME or the given folder."""
    rows = {row["name"]: row for row in read_here("data.tsv")}
    choose("data", "a data set", name, list(rows), "see configs/experiments/data.tsv")
    row = rows[name]
    return Data(name, folder or out / f"data-{name}", row["splits"].split(), row["script"], row["arguments"], row["vocabulary"], row["preparation"],
                int(row["tokens"] or 0), row["suffix"])
