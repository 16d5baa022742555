#!/usr/bin/env python3
"""Compares WordPiece with the package `tokenizers`: ids, offsets in the text, decoded text, and learnt vocabularies.

usage: wordpiece_parity.py FOLDER-OF-PROGRAMS [--few]           on generated text with many kinds of characters
       wordpiece_parity.py FOLDER-OF-PROGRAMS VOCAB.TXT TEXT…   on these texts, with the pieces of BERT's vocab.txt
"""
import itertools
import pathlib
import random
import subprocess
import sys
import unicodedata

import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """the a Haus STRASSE straße ΟΔΟΣ Σ İstanbul ISTANBUL ıi ǅ Ⅷ ﬃ résumé RÉSUMÉ re\u0301sume\u0301 e\u0301\u0316 \u0301a a\u0344\u0316b
    e-mail well-known don't $5 €5 5% a/b c\\d _x_ ~`^|@#+=*:;!? ?! .. «guillemets» „unten“ – — … · ¿qué? ½ ² \u166d \U000111c9
    東京 東京タワー한국어 中文字 㐀a\U00020000b 𫝀x\U0002b820y\U0002b920z 豈 、。 कि क़ தமிழ் ไทย мир Й й Ё ё ά Ἄ שָׁלוֹם مُحَمَّد ￼ 😀 👩‍👩‍👧 🥰 \U0001fae0
    a\u200bb \ufeffx soft\u00adhyphen a\u00a0b a\u3000b a\u2028b a\u2029b a\u202fb a\u1680b a\u180eb x\u0001y x\u000by x\u000cy a\u0085b \u007f a\rb \ufffd a\ufffdb
    \ue000 \ud7a3 각 \u302e\u0323 x\u0323\u302ey \U0001d15e \U0001d165\U0001d16e o\u0328\u0304 \u1734 \u11938 \U00011938 \u07fd a\u07fdb \u08d4\u0316 \u1c89 \U00010d50 K Å
    [SEP] [CLS] [MASK] [UNK] [PAD] ##ing # ## supercalifragilisticexpialidocious""".split(" ")
WORDS = [w.strip("\n") for w in WORDS if w.strip("\n")] + ["x" * 99, "y" * 100, "z" * 101, "é" * 101, "e\u0301" * 60, "ab" * 400, "--" * 30]

programs = pathlib.Path(sys.argv[1])
num_compared = 0


def run(*command, **options):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, **options).stdout


def write_lines(path, lines):
    pathlib.Path(path).write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


def expect(name, actual, expected):
    global num_compared
    num_compared += 1
    if actual != expected:
        sys.exit(f"{name}: expected {ascii(expected)}; found {ascii(actual)}")


def peer_tokenizer(pieces, lowercase, strip):
    """Returns the reference tokenizer of the package. It has no special tokens, so that their names are tokenised as plain text."""
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=strip, lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer


def options_of(lowercase, strip):
    return ([] if lowercase else ["--cased"]) + ([] if strip is None else ["--strip-accents", "yes" if strip else "no"])


def offsets_in_characters(line, byte_offsets):
    """Converts byte offsets in a line to character offsets."""
    starts, at = {}, 0
    for i, c in enumerate(line):
        starts[at] = i
        at += len(c.encode())
    starts[at] = len(line)
    return [(starts[a], starts[b]) for a, b in byte_offsets]


def check_text(name, lines, vocabulary, pieces, lowercase, strip):
    write_lines("text", lines)
    peer = peer_tokenizer(pieces, lowercase, strip)
    separator = pieces.index("[SEP]")
    ids = run("mh-prep", "cat", "--ids", "-", input=run("mh-prep", "-q", "lm", "--threads", 1, "--vocab", vocabulary, "text"))
    ids = [list(map(int, line.split())) for line in ids.decode().split("\n")[:-1]]
    with open("text", "rb") as text:
        offset_lines = run(programs / "wordpiece-offsets", vocabulary, stdin=text).decode().split("\n")[:-1]
    expect(f"{name}: lines", (len(ids), len(offset_lines)), (len(lines), len(lines)))
    encodings = peer.encode_batch(lines, add_special_tokens=False)
    for line, actual, offset_line, encoding in zip(lines, ids, offset_lines, encodings):
        label = f"{name}, lowercase {lowercase}, strip_accents {strip}, {ascii(line)}"
        expect(label, actual, encoding.ids + [separator])
        triples = [tuple(map(int, triple.split(":"))) for triple in offset_line.split()]
        expect(label, [t[0] for t in triples], encoding.ids)
        expect(label, offsets_in_characters(line, [t[1:] for t in triples]), encoding.offsets)
    return encodings


def check_decoded(lines, vocabulary, encodings, peer):
    write_lines("text", lines)
    texts = run("mh-prep", "cat", "-", input=run("mh-prep", "-q", "lm", "--vocab", vocabulary, "text")).decode().split("\n")[:-1]
    for line, text, encoding in zip(lines, texts, encodings):
        expect(f"decoded {ascii(line)}", text, peer.decode(encoding.ids, skip_special_tokens=False))


def line_of(rng):
    words = rng.choices(WORDS, k=rng.choice([0, 1, 1, 2, 3, 5, 8, 20]))
    return "".join(word + rng.choice([" ", " ", " ", "", "  ", "\t"]) for word in words).removesuffix("\r")


def pieces_of(vocabulary):
    return run("mh-prep", "codes", vocabulary).decode().split("\n")[:-1]


def check_generated_text(count):
    rng = random.Random(11)
    lines = [line_of(rng) for _ in range(count)]
    write_lines("learn", lines)
    for lowercase, strip in itertools.product((True, False), (None, True, False)):
        options = options_of(lowercase, strip)
        run("mh-prep", "-q", "vocab", "--type", "wordpiece", "--size", 600, "--alphabet", 200, *options, "-o", "learnt", "learn")
        pieces = pieces_of("learnt")
        encodings = check_text("generated text", lines, "learnt", pieces, lowercase, strip)
        check_decoded(lines, "learnt", encodings, peer_tokenizer(pieces, lowercase, strip))


def check_characters():
    """Compares texts with every assigned character (only a few of Han, Hangul and Tangut) and some unassigned ones, alone and between
    others; the vocabulary has all characters that normalisation can produce."""
    characters = [chr(c) for c in range(0x20, 0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Co", "Cn") or not c % 257 and not 0xD800 <= c < 0xE000]
    characters = [c for c in characters if not ("一" < c < "鿿" or "가" < c < "힣" or "\U00020005" < c < "\U0002a6d0" or "\U00017005" < c < "\U00018cf0")]
    recent_characters = "\u1c89\u1c8a\ua7cb\ua7cc\ua7cd\ua7da\ua7db\ua7dc\u0264\u019b\U00010d50\U00010d70"
    pieces = SPECIAL + sorted({c for c in (*characters, *recent_characters) if not c.isspace()})
    write_lines("all.txt", pieces + [f"##{c}" for c in pieces[5:]])
    lines = [" ".join(f"{c} x{c}y {c}{c} \u302e{c} {c}\u302e\u0301 \U0001d16d{c}\u0323" for c in characters[i:i + 50]) for i in range(0, len(characters), 50)]
    lines += [" ".join(f"x{chr(c)}y" for c in range(i, i + 256)).replace("\n", " ") for i in (1, 0xD700, 0xF900, 0xFF00, 0x1F300)]
    for lowercase, strip in ((True, None), (False, None), (False, True), (True, False)):
        run("mh-prep", "-q", "vocab", "--type", "wordpiece", "--from", "all.txt", *options_of(lowercase, strip), "-o", "all")
        check_text("characters", lines, "all", pieces_of("all"), lowercase, strip)


def check_learnt(rounds):
    """Compares learnt vocabularies. The trainer of tokenizers assigns random ids to characters with ##, and ids break ties between
    equal counts; so the trainer receives the characters as special tokens, in the order of mh-prep."""
    rng = random.Random(13)
    for i in range(rounds):
        letters = rng.choice(["ab", "abc", "abcdefgh", "aäbß東"])
        words = ["".join(rng.choices(letters, k=rng.choice([1, 2, 3, 5, 8, 13]))) for _ in range(rng.choice([1, 5, 40, 200]))]
        lines = [" ".join(rng.choices(words, k=rng.choice([1, 5, 20]))) for _ in range(rng.choice([1, 10, 60]))]
        write_lines("learn", lines)
        size, min_count = rng.choice([40, 60, 200]), rng.choice([1, 1, 2, 5])
        run("mh-prep", "-q", "vocab", "--type", "wordpiece", "--size", size, "--min-count", min_count, "-o", "learnt", "learn")
        actual = pieces_of("learnt")
        peer = peer_tokenizer([], True, None)
        characters = sorted({piece for piece in actual[5:] if len(piece.removeprefix("##")) == 1}, key=actual.index)
        trainer = trainers.WordPieceTrainer(vocab_size=size, min_frequency=min_count, special_tokens=SPECIAL + characters, show_progress=False)
        peer.train_from_iterator(lines, trainer)
        numbers = peer.get_vocab()
        expect(f"learnt, round {i}, size {size}, min count {min_count}, {lines[:3]}", actual, sorted(numbers, key=numbers.get))


def check_vocabulary_file(vocab, texts):
    run("mh-prep", "-q", "vocab", "--type", "wordpiece", "--from", vocab, "-o", "given")
    pieces = pieces_of("given")
    expect("pieces", pieces, pathlib.Path(vocab).read_text(encoding="utf-8").split("\n")[:-1])
    for text in texts:
        lines = pathlib.Path(text).read_bytes().decode("utf-8").replace("\r\n", "\n").removesuffix("\n").split("\n")
        check_text(text, lines, "given", pieces, True, None)


def main():
    files = [word for word in sys.argv[2:] if word != "--few"]
    quick = "--few" in sys.argv
    if files:
        check_vocabulary_file(files[0], files[1:])
    else:
        check_generated_text(100 if quick else 3000)
        check_characters()
        check_learnt(20 if quick else 1000)
    print(f"{num_compared} results equal the results of tokenizers {tokenizers.__version__}")


if __name__ == "__main__":
    main()
