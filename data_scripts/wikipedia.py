"""Extracts the articles of a dump of Wikipedia as sentences.
The script wikipedia calls this program and describes its files. The language is English.

usage: wikipedia.py FOLDER DUMP
Needs Python 3.9 and the packages wikiextractor 3.1.0 and sacremoses 0.2.0. Exit status: 0, or 1 after an error.

The XML is parsed here, as a stream that keeps one page in memory: the program of wikiextractor expects each tag in a line of its own, reports no XML
that is cut, drops articles whose title begins with "Template", and does not end if a page makes one of its processes fail. This program calls the
function of wikiextractor for the markup of one page, with a time limit for each page.
"""
import bz2
import concurrent.futures
import ctypes
import fcntl
import html
import multiprocessing
import os
import re
import signal
import sys
import threading
import xml.etree.ElementTree as ElementTree

# Size of the wikitext of a part, characters. Tests set MH_TEST_PART_SIZE, so that a small dump has several parts.
PART_SIZE = int(os.environ.get("MH_TEST_PART_SIZE") or 32 << 20)
PAGE_SECONDS = 120  # time limit of a page; the regular expressions of wikiextractor may take very long on damaged markup
SENTENCE_ENDS = ".?!…"
CLOSING = "\"')]}’”»"
OPENING = "\"'([{‘“«¿¡"
ACRONYM = re.compile(r"\.[A-Z-]+\.$")  # U.S.
# Abbreviations before numbers that are frequent in Wikipedia and missing from Moses' list.
NUMERIC_PREFIXES = {"c", "ca", "ch", "fig", "Fig", "figs", "Figs", "p", "vol", "Vol"}
SOURCE = """dump\t{name}
bytes\t{size}
part_size\t{part_size}
markup\twikiextractor 3.1.0, without templates and lists
sentences\tthe rule of wikipedia.py with the English prefixes of sacremoses 0.2.0
"""


class Fault(Exception):
    """An error whose text states what was expected, what was found, and what to do."""


class PageTimeout(Exception):
    """Raised by the signal handler when a page exceeds its time limit."""


def log(message):
    print(f"wikipedia: {ascii(message)[1:-1] if not message.isprintable() else message}", file=sys.stderr)


# Sentences --------------------------------------------------------------------------------------------------------------------------

class Splitter:
    """Splits English text into sentences by the rule of Moses' split-sentences.perl: a word ends a sentence if it ends in a full stop, a question
    mark or an exclamation mark, before closing quotes and brackets, and the next word begins with an upper-case letter, or after a full stop with a
    digit; except abbreviations such as Mr., No. 5, c. 1900 and U.S."""

    def __init__(self):
        from sacremoses.corpus import NonbreakingPrefixes  # imported after the fork of a worker; the main process needs no packages

        entries = list(NonbreakingPrefixes().words("en"))
        self.prefixes = {entry for entry in entries if " " not in entry}
        self.numeric_prefixes = NUMERIC_PREFIXES | {entry.split()[0] for entry in entries if entry.endswith("#NUMERIC_ONLY#")}

    def ends_sentence(self, word, next_word):
        stem, next_stem = word.rstrip(CLOSING), next_word.lstrip(OPENING)
        if not stem or stem[-1] not in SENTENCE_ENDS or not next_stem:
            return False
        if not (next_stem[0].isupper() or (stem[-1] == "." and next_stem[0].isdigit())):
            return False
        if stem[-1] != "." or stem != word or stem.endswith(".."):
            return True
        name = stem[:-1].lstrip(OPENING)
        if name in self.prefixes or (name in self.numeric_prefixes and next_stem[0].isdigit()):
            return False
        return not ACRONYM.search(stem)

    def sentences(self, paragraph):
        """Yields the sentences of a paragraph. A rest without a sentence end, such as a heading or the words before a list, is dropped."""
        words, begin = paragraph.split(), 0
        for i, word in enumerate(words):
            if self.ends_sentence(word, words[i + 1] if i + 1 < len(words) else "A"):
                yield " ".join(words[begin:i + 1])
                begin = i + 1
        if begin < len(words) and (words[-1].rstrip(CLOSING) or " ")[-1] in SENTENCE_ENDS:
            yield " ".join(words[begin:])  # the last word is an abbreviation


def document(splitter, clean_markup, text):
    """Returns the sentences of an article, one per line, and an empty line; or "" if it has none."""
    sentences = [sentence for paragraph in clean_markup(text) for sentence in splitter.sentences(html.unescape(paragraph))]
    return "".join(f"{sentence}\n" for sentence in sentences) + "\n" if sentences else ""


# Parts ------------------------------------------------------------------------------------------------------------------------------

def write_file(path, text):
    """Writes a file, which appears under its name when it is complete."""
    part = f"{path}.part"
    try:
        with open(part, "w", encoding="utf-8", newline="\n", errors="replace") as file:
            file.write(text)
        os.replace(part, path)
    except OSError as error:
        try:
            os.remove(part)
        except OSError:
            pass
        raise Fault(f"{path}: expected a writable file; found: {error.strerror}; free disk space or choose another folder; a second call continues") from None


def start_worker(lock):
    lock.close()  # the main process alone holds the lock
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: the worker ends with the main process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def raise_timeout(_signal, _frame):
    raise PageTimeout


def write_part(path, pages):
    """Writes the articles of a part, and returns messages about the pages that wikiextractor cannot read."""
    from wikiextractor.clean import clean_markup

    splitter, documents, messages = Splitter(), [], []
    signal.signal(signal.SIGALRM, raise_timeout)
    for title, text in pages:
        signal.alarm(PAGE_SECONDS)
        try:
            documents.append(document(splitter, clean_markup, text))
        except PageTimeout:
            messages.append(f"the article '{title}' is left out: wikiextractor needs more than {PAGE_SECONDS} s")
        except Exception as error:  # a bug of wikiextractor on unusual markup
            messages.append(f"the article '{title}' is left out: wikiextractor fails with {type(error).__name__}: {error}")
        finally:
            signal.alarm(0)
    write_file(path, "".join(documents))
    return messages


def count_part(path):
    """Returns the numbers of documents, sentences and words of a part."""
    documents = sentences = words = 0
    with open(path, "rb") as file:
        for line in file:
            if line == b"\n":
                documents += 1
            else:
                sentences += 1
                words += line.count(b" ") + 1
    return documents, sentences, words


# The dump ---------------------------------------------------------------------------------------------------------------------------

def open_dump(path):
    try:
        with open(path, "rb") as file:
            magic = file.read(3)
        if magic == b"BZh":
            return bz2.open(path, "rb")
        if magic[:1] == b"<":
            return open(path, "rb")
    except OSError as error:
        raise Fault(f"{path}: expected a readable dump; found: {error.strerror}; pass the file of a dump, or its URL") from None
    raise Fault(f"{path}: expected a dump of Wikipedia (.xml.bz2 or .xml); found a file that begins with {magic!r}; pass the file pages-articles-multistream.xml.bz2 of a dump")


def local_name(element):
    return element.tag.rpartition("}")[2]


def articles(path):
    """Yields (title, wikitext) of each page of the namespace 0 that is no redirect."""
    root = None
    try:
        with open_dump(path) as stream:
            for event, element in ElementTree.iterparse(stream, events=("start", "end")):
                if root is None:
                    root = element
                    if local_name(root) != "mediawiki":
                        raise Fault(f"{path}: expected the element mediawiki; found {local_name(root)}; pass the dump of the articles, pages-articles")
                if event == "start" or local_name(element) != "page":
                    continue
                fields = {local_name(child): child for child in element}
                texts = [child.text or "" for child in fields.get("revision", ()) if local_name(child) == "text"]
                if "redirect" not in fields and "ns" in fields and fields["ns"].text == "0" and texts:
                    yield (fields["title"].text if "title" in fields else None) or "", texts[0]
                root.clear()
    except ElementTree.ParseError as error:
        raise Fault(f"{path}: expected the complete XML of a dump; found: {error}; download the dump again, and choose another folder") from None
    except (EOFError, OSError) as error:
        raise Fault(f"{path}: expected a complete bzip2 file; found: {getattr(error, 'strerror', None) or error}; download the dump again, and choose another folder") from None


def parts(path):
    """Yields the articles of each part: consecutive articles up to the size of a part."""
    pages, size = [], 0
    for title, text in articles(path):
        pages.append((title, text))
        size += len(text)
        if size >= PART_SIZE:
            yield pages
            pages, size = [], 0
    if pages:
        yield pages


def extract(folder, path, lock):
    """Writes the missing parts while `lock`, a file, is locked, and returns the number of articles and of parts."""
    num_workers = len(os.sched_getaffinity(0))
    num_articles = num_parts = 0
    window = threading.Semaphore(num_workers + 2)  # bounds the parts in memory
    context = multiprocessing.get_context("fork")
    pending, executor = [], concurrent.futures.ProcessPoolExecutor(num_workers, mp_context=context, initializer=start_worker, initargs=(lock,))
    is_stopped = True  # by a signal

    def finish(future):
        for message in future.result():
            log(message)

    try:
        for num_parts, pages in enumerate(parts(path), 1):
            num_articles += len(pages)
            part = os.path.join(folder, f"part-{num_parts - 1:05d}.txt")
            if os.path.exists(part):
                continue
            window.acquire()
            future = executor.submit(write_part, part, pages)
            future.add_done_callback(lambda _: window.release())
            pending.append(future)
            while pending and pending[0].done():
                finish(pending.pop(0))
            if num_parts % 50 == 0:
                log(f"{num_articles} articles read")
        for future in pending:
            finish(future)
        is_stopped = False
    except concurrent.futures.process.BrokenProcessPool:
        raise Fault("expected the processes that read markup to end; found one that was killed; free memory, and call the script again, which continues") from None
    except Exception:
        is_stopped = False
        raise
    finally:
        executor.shutdown(wait=not is_stopped, cancel_futures=True)  # after an error in the dump the started parts are completed
        if is_stopped:
            for process in multiprocessing.active_children():
                process.terminate()
                process.join()
            for name in os.listdir(folder):
                if re.fullmatch(r"part-\d+\.txt\.part", name):
                    os.remove(os.path.join(folder, name))
    return num_articles, num_parts


def main(folder, path):
    counts_path, source_path = os.path.join(folder, "counts.tsv"), os.path.join(folder, "source.tsv")
    try:
        source = SOURCE.format(name=os.path.basename(path), size=os.path.getsize(path), part_size=PART_SIZE)
    except OSError as error:
        raise Fault(f"{path}: expected a readable dump; found: {error.strerror}; pass the file of a dump, or its URL") from None
    if os.path.exists(source_path):
        with open(source_path, encoding="utf-8") as file:
            if file.read() != source:
                raise Fault(f"{folder}: expected the parts of {os.path.basename(path)} with {os.path.getsize(path)} bytes; found parts of another dump or version, which "
                            f"{source_path} describes; choose another folder, or delete this folder")
    else:
        write_file(source_path, source)
    with open(source_path, encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Fault(f"{folder}: expected one process that writes this folder; found another; wait for this process") from None
        if not os.path.exists(counts_path):
            num_articles, num_parts = extract(folder, path, lock)
            counts = [sum(column) for column in zip((0, 0, 0), *(count_part(os.path.join(folder, f"part-{i:05d}.txt")) for i in range(num_parts)))]
            if counts[0] == 0:
                raise Fault(f"{path}: expected articles with sentences; found none in {num_articles} articles; pass the dump of the articles, pages-articles")
            names = ("articles", "parts", "documents", "sentences", "words")
            write_file(counts_path, "".join(f"{name}\t{number}\n" for name, number in zip(names, (num_articles, num_parts, *counts))))
    with open(counts_path, encoding="utf-8") as file:
        log(", ".join(line.strip().replace("\t", ": ") for line in file))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs the finally clauses, which end the workers
    try:
        main(*sys.argv[1:])
    except Fault as fault:
        log(str(fault))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
