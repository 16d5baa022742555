#!/usr/bin/env python3
"""Compares mh-eval bleu with sacrebleu, on the files HYP and REF..., or on generated text with many kinds of characters.

usage: bleu_parity.py [--few] [HYP REF...]      --few: tests only every eleventh combination of options
Every score, precision, length and signature must be equal, scores to ten decimals.
"""
import itertools
import json
import pathlib
import random
import subprocess
import sys
import unicodedata

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

WORDS = """the a Haus House STRASSE straße ΟΔΟΣ Σ ΑΣ. ΑΣ' 'ΑΣ ΣΑ İstanbul ISTANBUL ǅ Ⅷ ⓐⓈ ªΣ ΐ ﬃ e-mail well-known a-b-c -x- x- -- -
    3 3.5 1,000 1,000.50 2-3 3- .5 5. 5, , . ... ,, ., '.' it's don't "quoted" (round) [square] {curly} <tag> <skipped> a<skipped>b
    &quot; &amp; &lt;b&gt; &amp;lt; AT&T R&amp;D 50% $5 €5 5€ a/b c\\d _x_ ~ ` ^ | @ # + = * : ; ! ? ?! a.b a,b 1.a a.1 1,a :-)
    ¿qué? «guillemets» „unten“ ‚x‘ – — … · ½ ² ³x x² ٣٫٥ ١٬٠ ५.५ 5。 。 ， 、 東京 ５．５ ５,a 한국 мир Мир МИР 😀 👩‍👩‍👧 e\u0301 \u0301 \u200b \ufeff
    ##AT##-##AT## \u00a0 a\u00a0b \u3000 \u2028 \x1c \x85 \t \x0b \r a\rb \u00ad ŉ K Å ẞ""".split(" ")


def write_text(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


def sentence(rng):
    words = rng.choices(WORDS, k=rng.choice([0, 1, 1, 2, 3, 4, 5, 8, 20, 40]))
    line = "".join(word.replace("\n", "") + rng.choice([" ", " ", " ", "", "  "]) for word in words)
    return line[:-1] if line.endswith("\r") else line


def add_noise(line, rng):
    words = line.split(" ")
    for _ in range(rng.randrange(1 + len(words) // 3)):
        at = rng.randrange(len(words))
        words[at:at + rng.randrange(3)] = rng.choices(WORDS, k=rng.randrange(3))
        if not words:
            return ""
    line = " ".join(words).replace("\n", "")
    return line[:-1] if line.endswith("\r") else line


def make_files(lines):
    """Writes a hypothesis file and two reference files of `lines` generated lines each. Returns the file names."""
    rng = random.Random(3)
    hypothesis = [sentence(rng) for _ in range(lines)]
    sides = [hypothesis, *([add_noise(line, rng) for line in hypothesis] for _ in range(2))]
    for name, side in zip(("hyp", "ref", "ref2"), sides):
        write_text(pathlib.Path(name), side)
    return ["hyp", "ref", "ref2"]


def make_characters():
    """Writes two files and returns their names: `all` has every assigned character (of Han and Hangul only a few) next to sigmas,
    digits and letters; `lower` has the same text lowercased by Python."""
    characters = [chr(c) for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and chr(c) not in "\n\r"]
    characters = [c for c in characters if not ("一" < c < "鿿" or "가" < c < "힣" or c > "\U00020000")]
    lines = [" ".join(f"{c}Σ AΣ{c} A{c}Σ AΣ{c}B 1{c}2 a{c}b .{c}. {c}" for c in characters[i:i + 8]) + " ." for i in range(0, len(characters), 8)]
    write_text(pathlib.Path("all"), lines)
    write_text(pathlib.Path("lower"), [line.lower() for line in lines])
    return ["all", "lower"]


def read(path):
    return pathlib.Path(path).read_bytes().decode("utf-8").removesuffix("\n").split("\n")


def mh_eval_rows(options, files):
    process = subprocess.run(["mh-eval", "bleu", "--format", "json", *options, *files], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in process.stdout.split("\n") if line]


num_compared = 0


def expect_equal(name, a, b):
    global num_compared
    num_compared += 1
    a, b = ([f"{x:.10f}" if isinstance(x, float) else x for x in side] for side in (a, b))
    if a != b:
        sys.exit(f"{name}: expected {b}, as from sacrebleu; found {a}")


def signature(text):
    return text.replace("version:mh-", "version:").rsplit(":", 1)[0]


def check(files, options, by_sentence, **settings):
    words = 2 if "--chrf-words" in options else 0
    bleu = BLEU(effective_order=by_sentence, force=True, **settings)
    chrf = CHRF(word_order=words, lowercase=settings["lowercase"])
    hypothesis, *references = map(read, files)
    if by_sentence:
        sacrebleu_scores = [[metric.sentence_score(line, list(others)) for metric in (bleu, chrf)]
                  for line, *others in zip(hypothesis, *references)]
    else:
        sacrebleu_scores = [[metric.corpus_score(hypothesis, references) for metric in (bleu, chrf)]]
    rows = mh_eval_rows([*options, "--sentence"] if by_sentence else options, files)
    if len(rows) != len(sacrebleu_scores):
        sys.exit(f"{options}: expected {len(sacrebleu_scores)} rows; found {len(rows)}")
    for i, (a, (b, c)) in enumerate(zip(rows, sacrebleu_scores)):
        expect_equal(f"{files}, {options}, row {i + 1}",
             [float(a["score"]), *map(float, a["precisions"]), float(a["brevity_penalty"]), float(a["length_ratio"]), a["hypothesis_tokens"],
              a["reference_tokens"], signature(a["signature"]), float(a["chrf"]), signature(a["chrf_signature"])],
             [float(b.score), *map(float, b.precisions), float(b.bp), float(b.ratio), b.sys_len, b.ref_len,
              signature(str(bleu.get_signature())), float(c.score), signature(str(chrf.get_signature()))])


def check_all(files, quick):
    smoothings = [("exp", None), ("floor", None), ("floor", 0.01), ("add-k", None), ("add-k", 2.5), ("none", None)]
    combinations = itertools.product(("13a", "intl", "char", "none"), smoothings, (False, True), (False, True), range(2, 1 + len(files)), (0, 2))
    for i, (tokenizer, (smooth, value), lowercase, by_sentence, num_files, words) in enumerate(combinations):
        if quick and i % 11:
            continue
        options = ["--tokenize", tokenizer, "--smooth", smooth, "--chrf"]
        options += ["--smooth-value", str(value)] if value else []
        options += ["--lowercase"] if lowercase else []
        options += ["--chrf-words", "2"] if words else []
        check(files[:num_files], options, by_sentence, tokenize=tokenizer, smooth_method=smooth, smooth_value=value, lowercase=lowercase)


def main():
    files = [word for word in sys.argv[1:] if word != "--few"]
    quick = "--few" in sys.argv
    if not files:
        check(make_characters(), ["--tokenize", "intl", "--lowercase", "--chrf"], True, tokenize="intl", lowercase=True)
    check_all(files or make_files(40 if quick else 300), quick)
    print(f"{num_compared} rows equal the rows of sacrebleu {sacrebleu.__version__}")


if __name__ == "__main__":
    main()
