"""Prepares the shards of a data set once, by a script of data_scripts and mh-prep."""
import dataclasses
import fcntl
import pathlib
import re
import shlex
import subprocess

from errors import Refusal, choose, refuse
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
    mirror: str = ""  # path of the archive below $MH_DATA
    others: dict = dataclasses.field(default_factory=dict)  # {name: Data} of the data sets whose folders `arguments` has as DATA:NAME

    def shard(self, split):
        return self.folder / f"{split}{self.suffix}.mhs"

    def missing(self):
        if self.preparation == "model":
            return [] if self.model().is_file() else [self.model()]
        return [self.shard(split) for split in ("train", *self.splits) if not self.shard(split).is_file()]

    def use_folder(self, folder):
        """Takes the shards from a folder of the user, which no script writes."""
        self.folder, self.script = folder, ""

    def model(self):
        """Returns the file of a data set that is a published model."""
        return self.folder / "bert.safetensors"

    def prepare(self, init=None):
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
        for other in self.others.values():
            other.prepare(init)
        words = {"FOLDER": self.folder, "INIT": init} | {f"DATA:{name}": other.folder for name, other in self.others.items()}
        try:
            call([script, *(words.get(word, word) for word in shlex.split(self.arguments))], stdout=subprocess.DEVNULL)
            if self.vocabulary:
                vocabulary = self.folder / "vocabulary"
                call(["mh-prep", "vocab", "-q", *self.vocabulary.split(), self.folder / "train.txt", "-o", vocabulary])
                for split in ("train", *self.splits):
                    call(["mh-prep", self.preparation, "-q", "--vocab", vocabulary, self.folder / f"{split}.txt", "-o", self.shard(split)])
        except Refusal as refusal:
            self.refuse_missing(f"none, because of the error above ({refusal.found})")
        if self.missing():
            self.refuse_missing(f"none after {self.script}")

    def refuse_missing(self, found):
        """Refuses data that the script could not make, and names the script, its usage and the place of the archive in the mirror."""
        text = (root / "data_scripts" / self.script).read_text(encoding="utf-8", errors="replace")
        usage = re.search(r"^# usage: (data_scripts/.+)$", text, re.MULTILINE)
        places = [f"put {self.mirror} (also .zst) into the folder MH_DATA and repeat the command"] if self.mirror else []
        places.append(f"run {usage.group(1) if usage else 'data_scripts/' + self.script} with a copy of the files, where FOLDER is {self.folder}")
        places.append("name a folder of shards by --data")
        refuse(f"data {self.name}", f"the files {', '.join(path.name for path in self.missing())} in {self.folder}", found, ", or ".join(places))


def data_named(name, out, folder=None):
    """Returns a data set of data.tsv whose folder is OUT/data-NAME or the given folder."""
    rows = {row["name"]: row for row in read_here("data.tsv")}
    choose("data", "a data set", name, list(rows), "see configs/experiments/data.tsv")
    row = rows[name]
    others = {other: data_named(other, out) for other in re.findall(r"\bDATA:([\w-]+)", row["arguments"])}
    data = Data(name, out / f"data-{row['folder'] or name}", row["splits"].split(), row["script"], row["arguments"], row["vocabulary"],
                row["preparation"], int(row["tokens"] or 0), row["suffix"], row["mirror"], others)
    if folder:
        data.use_folder(folder)
    return data
