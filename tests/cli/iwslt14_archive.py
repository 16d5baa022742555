"""Writes a small archive of the form of IWSLT14. usage: iwslt14_archive.py ARCHIVE PAIR [TRAINING-SOURCE TRAINING-TARGET]

The training text has all kinds of lines that data_scripts/iwslt14 treats separately, or consists of the lines of the two files.
"""
import gzip
import io
import pathlib
import sys
import tarfile

TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")


def training_lines():
    """Returns the pairs of lines: tags, 64 pairs that clean-pairs keeps (titles and descriptions included), and four pairs that it drops."""
    pairs = [("<url>http://x</url>", "<url>http://y</url>"), ("<keywords>a, b</keywords>", "<keywords>c</keywords>"), ("<talkid>1</talkid>",) * 2,
             ("<title>Über Autos</title>", "<title>About cars</title>"), ("<description>TED | Gespräch</description>", "<description>TED | talk</description>"),
             ("Zwei\u00a0 Wörter | hier", "Two words | here"), ("Er mag R&amp;D.", "He likes R&amp;D."), ("In der E.U.", "In the E.U."), ("Σ ΟΣ \ufeff’", "Σ ΟΣ it’s"),
             ("", "An empty side"), ("kurz", "three words here"), ("lang " * 176, "long " * 176), ('"' * 900, '"' * 900)]
    return pairs + [(f"Satz Nummer {i}, Haus{i % 7}.", f"Sentence number {i}, House{i % 7}.") for i in range(58)]


def xml_of(test, language):
    segments = [f"{test} sagt: R&amp;D’s U.S." if language != "en" else f"{test} says: R&amp;D’s U.S.", "<b> hier" if language != "en" else "<b> here"]
    body = "".join(f'<seg id="{i}">  {text} </seg>\n' for i, text in enumerate(segments, 1))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<doc docid="1">\n<title>T</title>\n{body}</doc>\n</mteval>\n'


def main():
    archive, pair, *files = sys.argv[1:]
    texts = [pathlib.Path(file).read_text(encoding="utf-8") for file in files] or ["\n".join(side) + "\n" for side in zip(*training_lines())]
    with gzip.GzipFile(archive, "wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as file:
        def add(name, text):
            member = tarfile.TarInfo(f"{pair}/{name}")
            member.size = len(text.encode())
            file.addfile(member, io.BytesIO(text.encode()))

        for language, text in zip(pair.split("-"), texts):
            add(f"train.tags.{pair}.{language}", text)
            for test in TESTS:
                if "TEDX" not in test or pair == "de-en":
                    add(f"IWSLT14.{test}.{pair}.{language}.xml", xml_of(test, language))


main()
