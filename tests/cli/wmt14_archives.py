"""Writes small archives of the form of WMT14's. usage: wmt14_archives.py google ARCHIVE | wmt14_archives.py raw FOLDER

google: the archive of Google's preprocessed set, segmented by a reference implementation of byte-pair encoding; google-old: with merges that lack
the version line. raw: the archives of statmt.org.
"""
import gzip
import io
import sys
import tarfile

MERGES = [("e", "r</w>"), ("l", "o"), ("lo", "w"), ("&", "a"), ("&a", "p"), ("low", "er</w>"), ("o", "p</w>")]
WORDS = {"en": ("low", "lower", "&apos;s", "co-op", "."), "de": ("tief", "tiefer", "&amp;", "Koop", ".")}


def segment(word):
    """Returns the subwords of a word, each but the last with the mark @@."""
    symbols = [*word[:-1], word[-1] + "</w>"]
    for pair in MERGES:
        i = 0
        while i + 1 < len(symbols):
            if (symbols[i], symbols[i + 1]) == pair:
                symbols[i:i + 2] = ["".join(pair)]
            i += 1
    return " ".join(symbols).replace(" ", "@@ ").removesuffix("</w>")


def write(archive, texts):
    with gzip.GzipFile(archive, "wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as file:
        for name, text in texts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            file.addfile(member, io.BytesIO(text.encode()))


def google(archive, version="#version: 0.2\n"):
    texts = {"vocab.bpe.32000": "unused\n"}
    for language, words in WORDS.items():
        lines = [" ".join(words[(i * k) % 5] for k in range(1, 6)) for i in range(20)]
        texts[f"train.tok.clean.bpe.32000.{language}"] = "".join(" ".join(map(segment, line.split())) + "\n" for line in lines)
        texts[f"newstest2013.tok.{language}"] = "".join(f"{line}\n" for line in lines[:3])
        texts[f"newstest2014.tok.{language}"] = "".join(f"{line} 2014\n" for line in lines[3:5])
    write(archive, {**texts, "bpe.32000": version + "".join(f"{left} {right}\n" for left, right in MERGES)})


def raw(folder):
    def pairs(name, num_lines):
        english = ["“Well-known” law", "It’s R&D\u0007 (Mr. X)", "one"] + [f"Line {i} of {name}." for i in range(3, num_lines)]
        german = ["„Wohl-bekannt“ Recht", "Es ist F&E (Hr. X)", "eins zwei drei vier"] + [f"Zeile {i} von {name}." for i in range(3, num_lines)]
        return {"en": english, "de": german}

    def texts(path, name, num_lines):
        return {f"{path}.{language}": "\n".join(lines) + "\n" for language, lines in pairs(name, num_lines).items()}

    def sgm(language):
        segments = {"en": ("It’s well-known", "R&amp;D in the U.S."), "de": ("Es ist’s Wohl-bekannt", "F&amp;E in den U.S.")}[language]
        return "<srcset>\n<doc>\n" + "".join(f'<seg id="{i}">{text} </seg>\n' for i, text in enumerate(segments, 1)) + "</doc>\n</srcset>\n"

    write(f"{folder}/training-parallel-europarl-v7.tgz", texts("training/europarl-v7.de-en", "Europarl", 60))
    write(f"{folder}/training-parallel-commoncrawl.tgz", texts("commoncrawl.de-en", "Crawl", 30))
    write(f"{folder}/training-parallel-nc-v12.tgz", texts("training/news-commentary-v12.de-en", "News", 20))
    write(f"{folder}/training-parallel-nc-v11.tgz", texts("training-parallel-nc-v11/news-commentary-v11.de-en", "News", 20))
    write(f"{folder}/test-full.tgz", {f"test-full/newstest2014-deen-{kind}.{language}.sgm": sgm(language) for kind, language in (("src", "en"), ("ref", "de"))})
    write(f"{folder}/dev.tgz", {**texts("dev/newstest2013", "Test", 4),
                                **{f"dev/newstest2014-deen-{kind}.{language}.sgm": sgm(language) for kind, language in (("src", "de"), ("ref", "en"))}})


if sys.argv[1] == "google-old":
    google(sys.argv[2], "")
else:
    {"google": google, "raw": raw}[sys.argv[1]](sys.argv[2])
