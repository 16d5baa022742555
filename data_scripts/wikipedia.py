"""Extracts the articles of a dump of Wikipedia as sentences.
The script wikipedia calls this program and describes its files. The language is English.

usage: wikipedia.py FOLDER DUMP
Needs Python 3.9 and the packages mwparserfromhell 0.7.2 and sacremoses 0.2.0. Exit status: 0, or 1 after an error.

One process reads the XML as a stream that keeps one part in memory; one process per core parses the markup of parts. Each of them has a child that
calls the parser, since a parser in C cannot be interrupted: a page that takes too long costs a child, and the article is left out with a message.
"""
import bz2
import concurrent.futures
import ctypes
import fcntl
import multiprocessing
import os
import re
import signal
import sys
import threading
import xml.etree.ElementTree as ElementTree

# Size of the wikitext of a part, characters. Tests set MH_TEST_PART_SIZE, so that a small dump has several parts.
PART_SIZE = int(os.environ.get("MH_TEST_PART_SIZE") or 32 << 20)
# Time limit of a page, seconds. The parser takes quadratic time on unclosed markup: 14 s for 3,000 unclosed templates. Tests set a lower limit.
PAGE_SECONDS = float(os.environ.get("MH_TEST_PAGE_SECONDS") or 120)
SENTENCE_ENDS = ".?!…"
CLOSING = "\"')]}’”»"
OPENING = "\"'([{‘“«¿¡"
ACRONYM = re.compile(r"\.[A-Z-]+\.$")  # U.S.
# Abbreviations before numbers that are frequent in Wikipedia and missing from Moses' list.
NUMERIC_PREFIXES = {"c", "ca", "ch", "fig", "Fig", "figs", "Figs", "p", "vol", "Vol"}
REDIRECT = re.compile(r"\s*#redirect\b", re.IGNORECASE)
# Elements whose text is no part of a sentence. Those of BLOCKS end a paragraph, and so do those of DROPPED_BLOCKS.
DROPPED = {"ref", "math", "chem", "ce", "code", "hiero", "includeonly", "templatestyles", "img"}
DROPPED_BLOCKS = {"references", "gallery", "syntaxhighlight", "source", "pre", "score", "timeline", "table", "caption", "tr", "td", "th", "imagemap", "graph", "mapframe",
                  "maplink", "templatedata", "categorytree", "inputbox", "noinclude", "ul", "ol", "li", "dl", "dt", "dd"}
BLOCKS = {"p", "div", "center", "blockquote", "poem", "hr", "section", "h1", "h2", "h3", "h4", "h5", "h6"}
DROPPED_NAMESPACES = {"file", "image", "category"}
# The beginning of an interlanguage link, [[fr:Paris]]; no title such as [[CSI: Miami]], no link such as [[doi:10.1000/1]].
LANGUAGE = re.compile(r"(?!(?:doi|lex|mw|rfc|wmf):)(?:[a-z]{2,3}(?:-[a-z]{2,10})*|simple):\S")
# Markup that remains because it is not closed; a sentence with it is left out.
MARKUP = re.compile(r"\[\[|\]\]|\[https?:|\{\{|\}\}|\{\||\||<[A-Za-z/!]|==")
SOURCE = """dump\t{name}
bytes\t{size}
part_size\t{part_size}
markup\tmwparserfromhell 0.7.2, without templates, tables, references and lists
sentences\tthe rule of wikipedia.py with the English prefixes of sacremoses 0.2.0
"""


KILLED = "expected the processes that read markup to end; found one that was killed; free memory, and call the script again, which continues"


class Fault(Exception):
    """An error whose text states what was expected, what was found, and what to do."""


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


# Markup -----------------------------------------------------------------------------------------------------------------------------

def strip_quotes(line):
    """Returns a line without the quotes that mark bold and italic text. As in MediaWiki, one quote of a bold mark is an apostrophe if both kinds of
    marks have no end, as in ''Titanic'''s captain."""
    pieces = re.split("('{2,})", line)
    if len(pieces) == 1:
        return line
    lengths = {}
    for i in range(1, len(pieces), 2):
        length = len(pieces[i])
        lengths[i] = 3 if length == 4 else min(length, 5)
        pieces[i - 1] += "'" * (length - lengths[i])
    if all(sum(length in (kind, 5) for length in lengths.values()) % 2 for kind in (2, 3)):
        def rank(i):  # after a word of one letter, after another word, after a space
            end = pieces[i - 1][-2:]
            return 2 if end[-1:] in ("", " ") else 0 if end[0] == " " else 1
        bold = [i for i, length in lengths.items() if length == 3]
        if bold:
            pieces[min(bold, key=rank) - 1] += "'"
    return "".join(pieces[::2])


def link_text(link):
    """Returns the text that a [[link]] shows; or "" for files, categories and links to other languages."""
    title = str(link.title).strip()
    namespace, colon, _ = title.partition(":")
    if (colon and namespace.strip().lower() in DROPPED_NAMESPACES) or LANGUAGE.match(title):
        return ""
    text = plain(link.text).rpartition("|")[2] if link.text is not None else ""
    return text or plain(link.title).strip().lstrip(":")


def tag_text(tag):
    name = str(tag.tag).strip().lower()
    if name in DROPPED:
        return ""
    if name in DROPPED_BLOCKS:
        return "\n\n"
    if name == "br":
        return " "
    text = plain(tag.contents) if tag.contents is not None else ""
    return f"\n\n{text}\n\n" if name in BLOCKS else text


def plain(code):
    """Returns the text of parsed markup. An empty line ends a paragraph."""
    from mwparserfromhell import nodes

    pieces, in_item = [], False  # in_item: within the line of a list item
    for node in code.nodes:
        kind = type(node)
        if kind is nodes.Text:
            text = node.value
            if in_item:
                _, newline, text = text.partition("\n")
                in_item = not newline
            pieces.append(text)
        elif kind is nodes.Heading:
            pieces.append("\n\n")
        elif kind is nodes.Tag and node.wiki_markup and node.wiki_markup[0] in "*#:;":
            in_item = True
            pieces.append("\n\n")
        elif in_item:
            continue
        elif kind is nodes.Tag:
            pieces.append(tag_text(node))
        elif kind is nodes.Wikilink:
            pieces.append(link_text(node))
        elif kind is nodes.ExternalLink:
            pieces.append(plain(node.title) if node.title is not None else "" if node.brackets else str(node.url))
        elif kind is nodes.HTMLEntity:
            pieces.append(node.normalize())
    return "".join(pieces)  # without comments, templates and their arguments


def paragraphs(text):
    """Yields the paragraphs of the markup of a page, each as one line."""
    import mwparserfromhell

    lines = []
    for line in [*plain(mwparserfromhell.parse(text, skip_style_tags=True)).split("\n"), ""]:
        line = strip_quotes(re.sub("__[A-Z]+__|[\\0-\x08\x0e-\x1f\x7f]", "", line)).strip()
        if line and line[0] not in "|!=":  # rows of a table that is not closed, headings with other characters after them
            lines.append(line)
        elif lines:
            # Brackets and spaces that remain of templates: "Paris ( ; born 1900)".
            paragraph = re.sub(r"\(\s*[,;:]+\s*", "(", re.sub(r"\s*[,;:]+\s*\)", ")", " ".join(lines)))
            yield re.sub(r"\s+(?=[,;)]|\.(?:\s|$))", "", re.sub(r"\(\s*\)", "", re.sub(r"\(\s+", "(", paragraph)))
            lines = []


def document(splitter, text):
    """Returns the sentences of an article, one per line, and an empty line; or "" if it has none. Also returns the number of sentences left out."""
    found = [sentence for paragraph in paragraphs(text) for sentence in splitter.sentences(paragraph) if any(map(str.isalnum, sentence))]
    kept = [sentence for sentence in found if not MARKUP.search(sentence)]
    return "".join(f"{sentence}\n" for sentence in kept) + "\n" if kept else "", len(found) - len(kept)


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


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def start_worker(lock):
    lock.close()  # the main process alone holds the lock
    end_with_parent()


def send_documents(pages, connection):
    """Sends (document, number of sentences left out, message about an error) for each page. Runs in a child of a worker."""
    end_with_parent()
    splitter = Splitter()
    for _, text in pages:
        try:
            result = (*document(splitter, text), "")
        except Exception as error:  # unusual markup: a bug of the parser
            result = ("", 0, f"the parser fails with {type(error).__name__}: {error}")
        connection.send(result)


def receive_documents(pages):
    """Yields the results of send_documents, from as many children as needed, one after the other."""
    context, splitter, first = multiprocessing.get_context("fork"), Splitter(), 0
    while first < len(pages):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=send_documents, args=(pages[first:], sender))
        child.start()
        sender.close()
        try:
            while first < len(pages):
                first += 1
                if not receiver.poll(PAGE_SECONDS):
                    yield "", 0, f"the parser needs more than {PAGE_SECONDS:g} s"
                    break
                try:
                    yield receiver.recv()
                except EOFError:
                    child.join()
                    if child.exitcode == -signal.SIGKILL:
                        raise Fault(KILLED) from None
                    yield "", 0, f"the parser ends with status {child.exitcode}"
                    break
        finally:
            child.kill()
            child.join()
            receiver.close()


def write_part(path, pages):
    """Writes the articles of a part. Returns messages about the articles left out, and the number of sentences left out in the others."""
    from mwparserfromhell import parser

    if not parser.use_c:
        raise Fault("expected mwparserfromhell with its parser in C; found the parser in Python, which is more than ten times slower; install a compiler of C, "
                    "and mwparserfromhell again")
    documents, messages, num_sentences = [], [], 0
    for (title, _), (text, num_left_out, message) in zip(pages, receive_documents(pages)):
        documents.append(text)
        num_sentences += num_left_out
        if message:
            messages.append(f"the article '{title}' is left out: {message}")
    write_file(path, "".join(documents))
    return messages, num_sentences


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
                if "redirect" not in fields and "ns" in fields and fields["ns"].text == "0" and texts and not REDIRECT.match(texts[0]):
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
    num_articles = num_parts = num_left_out = num_sentences = 0
    window = threading.Semaphore(num_workers + 2)  # bounds the parts in memory
    context = multiprocessing.get_context("fork")
    pending, executor = [], concurrent.futures.ProcessPoolExecutor(num_workers, mp_context=context, initializer=start_worker, initargs=(lock,))
    is_stopped = True  # by a signal

    def finish(future):
        nonlocal num_left_out, num_sentences
        messages, num_incomplete = future.result()
        for message in messages:
            log(message)
        num_left_out += len(messages)
        num_sentences += num_incomplete

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
        raise Fault(KILLED) from None
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
    if num_left_out or num_sentences:
        log(f"left out in this call: {num_left_out} articles that cannot be parsed, {num_sentences} sentences with markup that is not closed")
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
    if len(sys.argv) != 3:
        sys.exit(f"wikipedia.py: expected the arguments FOLDER and DUMP; found {len(sys.argv) - 1} arguments; run data_scripts/wikipedia, which calls this program")
    try:
        main(*sys.argv[1:])
    except Fault as fault:
        log(str(fault))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
