#!/usr/bin/env python3
"""Compares the scores of classes with scikit-learn, of numbers with scipy, and of answers with SQuAD's definition, reimplemented here.

usage: metrics_parity.py FOLDER-OF-PROGRAMS [DEV.JSON]    DEV.JSON: file of SQuAD v1.1; compares only scores of answers from its texts
Ten decimals must be equal.
"""
import collections
import json
import math
import pathlib
import random
import re
import string
import subprocess
import sys
import warnings

import scipy.stats
import sklearn
import sklearn.metrics

programs = pathlib.Path(sys.argv[1])
num_compared = 0


def printed_scores(kind, text):
    process = subprocess.run([programs / "metrics-print", kind], input=text, check=True, capture_output=True, text=True)
    return [line.split() for line in process.stdout.split("\n")[:-1]]


def expect(name, actual, expected):
    global num_compared
    num_compared += 1
    expected = [f"{value:.10f}" for value in expected]
    if [x.replace("-0.0000000000", "0.0000000000").replace("-nan", "nan") for x in actual] != [x.replace("-0.0000000000", "0.0000000000") for x in expected]:
        sys.exit(f"{name}: expected {expected}; found {actual}")


def check_tables(kind, rows_of_tables, scores):
    actual = printed_scores(kind, "".join("".join(f"{a!r} {b!r}\n" for a, b in rows) + "\n" for rows in rows_of_tables))
    if len(actual) != len(rows_of_tables):
        sys.exit(f"{kind}: expected {len(rows_of_tables)} lines; found {len(actual)}")
    for rows, line in zip(rows_of_tables, actual):
        expect(f"{kind} {rows[:20]}", line, scores([a for a, _ in rows], [b for _, b in rows]))


def scores_of_classes(truth, predicted):
    f1 = sklearn.metrics.f1_score(truth, predicted, labels=[1], average="macro", zero_division=0)
    return sklearn.metrics.accuracy_score(truth, predicted), f1, sklearn.metrics.matthews_corrcoef(truth, predicted)


def scores_of_numbers(x, y):
    return scipy.stats.pearsonr(x, y).statistic, scipy.stats.spearmanr(x, y).statistic


def check_classes(rng):
    rows = []
    for _ in range(300):
        classes = rng.choice([[0], [1], [0, 1], [0, 1], [0, 1], [0, 1, 2], [-1, 0, 1, 5]])
        count, accuracy = rng.choice([1, 2, 3, 10, 100, 2000]), rng.choice([0, 0.3, 0.9, 1])
        truth = rng.choices(classes, k=count)
        rows.append([(t, t if rng.random() < accuracy else rng.choice(classes)) for t in truth])
    check_tables("classes", rows, scores_of_classes)


def check_numbers(rng):
    rows = []
    for _ in range(300):
        draw = rng.choice([lambda: rng.gauss(0, 1), lambda: round(rng.uniform(0, 5), 1), lambda: float(rng.randrange(3)), lambda: 4.0,
                            lambda: rng.gauss(1e6, 1), lambda: rng.gauss(0, 1e180)])
        correlation = rng.choice([0, 0.5, 1])
        x = [draw() for _ in range(rng.choice([2, 3, 10, 100, 1500]))]
        rows.append([(a, rng.choice([-1, 1, 1]) * correlation * a + (1 - correlation) * draw()) for a in x])
    rows += [[(1.0, 2.0), (math.inf, 3.0), (5.0, 1.0)], [(1.0, math.nan), (2.0, 1.0), (3.0, 5.0)]]
    check_tables("numbers", rows, scores_of_numbers)


def normalise(answer):
    without_punctuation = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", without_punctuation).split())


def f1(answer, truth):
    words, truth_words = normalise(answer).split(), normalise(truth).split()
    num_shared = sum((collections.Counter(words) & collections.Counter(truth_words)).values())
    if num_shared == 0:
        return 0.0
    precision, recall = num_shared / len(words), num_shared / len(truth_words)
    return 2 * precision * recall / (precision + recall)


def check_answers(questions):
    questions = [[re.sub("[\t\n]", " ", text) for text in question] for question in questions]
    actual = printed_scores("answers", "".join("\t".join(question) + "\n" for question in questions))
    sums = [0.0, 0.0]
    for question, line in zip(questions, actual):
        answer, truth = question[0], question[1:]
        scores = max(float(normalise(answer) == normalise(gold_answer)) for gold_answer in truth), max(f1(answer, gold_answer) for gold_answer in truth)
        expect(f"answers {ascii(question)}", line, scores)
        sums = [a + b for a, b in zip(sums, scores)]
    expect("all answers", actual[len(questions)], [100 * value / len(questions) for value in sums])


def generated_questions(rng):
    words = """the The THE a A an An anthem x cat Cat's cats the-cat (the) the. .the th.e a_b a1 1 1,000 $5 e\u0301 a\u0301 \u00e1 a\u2013b the\u2019s “the” ½ ² a² Ⅷ ٣
        a\u00a0b \u3000 ΑΣ ΑΣ. İ ß ǅ ﬁ 東京 a東 _the_ the_ 😀the \u200bthe the\u0323 \x1fa a\x0bb""".split(" ")
    words = [word.strip("\n") for word in words]

    def text():
        return rng.choice([" ", "", "  "]).join(rng.choices(words, k=rng.choice([0, 1, 2, 3, 8])))

    questions = []
    for _ in range(2000):
        truth = [text() for _ in range(rng.choice([1, 2, 3]))]
        questions.append([rng.choice([text(), rng.choice(truth), rng.choice(truth).upper() + ".", f"{rng.choice(truth)} {text()}"]), *truth])
    characters = [chr(c) for c in range(0x21, 0x110000) if (re.match(r"\w", chr(c)) or c < 0x3000) and not 0xD800 <= c < 0xE000]
    return questions + [[f"a{c}the a {c}a", f"{c} a{c}"] for c in characters if c not in "\x85\u2028\u2029"]


def questions_of_squad(path, rng):
    """Yields [answer, gold answers...] of each question. The answer is a gold answer, another span of the text, or the first
    gold answer with a further word."""
    for article in json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            words = paragraph["context"].split(" ")
            for question in paragraph["qas"]:
                truth = [answer["text"] for answer in question["answers"]]
                begin = rng.randrange(len(words))
                yield [rng.choice([rng.choice(truth), " ".join(words[begin:begin + 5]), f"{truth[0]} {words[begin]}"]), *truth]


def main():
    warnings.simplefilter("ignore")
    rng = random.Random(17)
    if len(sys.argv) > 2:
        check_answers(list(questions_of_squad(sys.argv[2], rng)))
    else:
        check_classes(rng)
        check_numbers(rng)
        check_answers(generated_questions(rng))
    print(f"{num_compared} rows equal the rows of scikit-learn {sklearn.__version__}, scipy {scipy.__version__} and SQuAD v1.1")


if __name__ == "__main__":
    main()
