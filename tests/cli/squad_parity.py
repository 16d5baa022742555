#!/usr/bin/env python3
"""Compares SQuAD windows, spans, answers and scores with transformers.

usage: squad_parity.py FOLDER-OF-PROGRAMS VOCAB.TXT SHARD SQUAD.JSON SAMPLE

The token ids of all windows are compared with the fast tokenizer, whose stride is the overlap of two windows. SAMPLE questions,
including those on the longest paragraphs, are also compared with the processor of run_squad.py, whose stride is the distance of two
windows, as in this project and in BERT. Answers from pseudo-random scores are compared with an exhaustive search in two nested loops.
Scores are compared with the script of SQuAD 1.1 and, with every third question unanswerable, with the script of SQuAD 2.0.

A target span may differ from the span of the processor in two cases, which are counted. The processor searches the pieces of the
answer within the words of the answer: if an answer ends within a piece it takes complete words, and if a word contains the answer
twice it takes the first occurrence.
"""
import collections
import json
import pathlib
import re
import string
import subprocess
import sys
import tempfile

import numpy
from transformers import BertTokenizer, BertTokenizerFast
from transformers.data.metrics import squad_metrics
from transformers.data.processors import squad as processor

LENGTH, STRIDE, QUESTION, LONGEST = 384, 128, 64, 30
programs, vocabulary, shard, source = pathlib.Path(sys.argv[1]), *sys.argv[2:5]
sample = int(sys.argv[5])
data = json.loads(pathlib.Path(source).read_text(encoding="utf-8"))["data"]
questions = [(q, p["context"]) for a in data for p in a["paragraphs"] for q in p["qas"]]


def ours(*command):
    return subprocess.run([str(programs / "squad-print"), *map(str, command)], check=True, capture_output=True, text=True).stdout


def expect(what, mine, theirs):
    if mine != theirs:
        sys.exit(f"{what}: expected {ascii(theirs)}; found {ascii(mine)}")


def windows():
    rows = collections.defaultdict(list)
    for number, line in enumerate(ours("windows", shard, LENGTH, STRIDE, QUESTION).splitlines()):
        name, tokens, first, start, end, counts = line.split("\t")
        rows[name].append((number, [int(t) for t in tokens.split()], int(first), (int(start), int(end)), counts))
    return rows


def check_numbers(rows, fast):
    for q, context in questions:
        asked = fast(q["question"], add_special_tokens=False)["input_ids"]
        if len(asked) > QUESTION:
            continue  # the fast tokenizer does not truncate questions, the processor does
        shared = LENGTH - 3 - len(asked) - STRIDE
        made = fast(q["question"], context, truncation="only_second", max_length=LENGTH, stride=shared, return_overflowing_tokens=True)
        expect(q["id"], [row[1] for row in rows[q["id"]]], made["input_ids"])
        types = [[0] * first + [1] * (len(tokens) - first) for _, tokens, first, _, _ in rows[q["id"]]]
        expect(q["id"], types, made["token_type_ids"])


def check_processor(rows, chosen, slow, fast):
    processor.squad_convert_example_to_features_init(slow)
    within, twice, spans = 0, 0, 0
    for q, context in chosen:
        answer = q["answers"][0]
        example = processor.SquadExample(q["id"], q["question"], context, answer["text"], answer["answer_start"], "")
        features = processor.squad_convert_example_to_features(example, LENGTH, STRIDE, QUESTION, "do_not_pad", True)
        mine = rows[q["id"]]
        expect(q["id"], len(mine), len(features))
        for (_, tokens, first, span, counts), f in zip(mine, features):
            expect(q["id"], tokens, f.input_ids)
            expect(q["id"], [0] * first + [1] * (len(tokens) - first), f.token_type_ids)
            expect(q["id"], counts, "".join("1" if f.token_is_max_context[first + i] else "0" for i in range(len(counts))))
            spans += 1
            theirs = (f.start_position, f.end_position)
            if span == theirs:
                continue
            pieces = f.tokens[span[0]:span[1] + 1]
            if span != (0, 0) and pieces != slow.tokenize(answer["text"]) or 0 in (span[0], theirs[0]):
                within += 1
                words = {f.token_to_orig_map[i] for i in range(theirs[0], theirs[1] + 1)} if theirs[0] else set()
                if theirs[0] and span[0]:
                    expect(f"{q['id']}: whole words", {f.token_to_orig_map[i] for i in range(span[0], span[1] + 1)}, words)
            else:
                twice += 1
                expect(f"{q['id']}: the same pieces", pieces, f.tokens[theirs[0]:theirs[1] + 1])
    print(f"{len(chosen)} questions, {spans} windows equal to run_squad.py; spans that differ: {within} with an end within a piece, {twice} with an answer that occurs twice in a word")


def check_answers(rows, chosen, slow, fast, made):
    other = 0
    for q, context in chosen:
        offsets = fast(context, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        best = None
        for window, (row, tokens, first, _, counts) in enumerate(rows[q["id"]]):
            start = [((row * 7919 + i * 104729) % 1009) // 8 for i in range(len(tokens))]
            end = [((row * 6101 + i * 15485863) % 997) // 8 for i in range(len(tokens))]
            for s, here in enumerate(counts):
                if here == "0":
                    continue
                for e in range(s, min(len(counts), s + LONGEST)):
                    score = start[first + s] + end[first + e]
                    if best is None or score > best[0]:
                        best = score, window * STRIDE + s, window * STRIDE + e
        text = context[offsets[best[1]][0]:offsets[best[2]][1]]
        expect(f"{q['id']}: answer", made[q["id"]], text)
        # The post-processing of BERT searches the text of the tokens within the words that contain them.
        example = processor.SquadExample(q["id"], "", context, None, None, "")
        word = [example.char_to_word_offset[offsets[i][0]] for i in best[1:]]
        pieces = fast.convert_ids_to_tokens(fast(context, add_special_tokens=False)["input_ids"][best[1]:best[2] + 1])
        joined = " ".join(pieces).replace(" ##", "").replace("##", "")
        theirs = squad_metrics.get_final_text(joined, " ".join(example.doc_tokens[word[0]:word[1] + 1]), True)
        other += squad_metrics.normalize_answer(theirs) != squad_metrics.normalize_answer(text)
    print(f"{len(chosen)} answers equal to an exhaustive search; {other} differ after BERT's post-processing of the text")


def normalised(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(answer, truth):
    a, b = normalised(answer).split(), normalised(truth).split()
    same = sum((collections.Counter(a) & collections.Counter(b)).values())
    return 2 * same / (len(a) + len(b)) if same else 0.0


def scored(predictions, shard_of):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(predictions, file)
        file.flush()
        return [line.split() for line in ours("score", shard_of, file.name).splitlines()]


def constructed():
    """Returns one prediction per question, in turn: the answer, its first word, the answer in upper case with punctuation, an empty text,
    an article, the answer with other text, and the answer to another question."""
    made = {}
    for i, (q, context) in enumerate(questions):
        text = questions[i - 1][0]["answers"][0]["text"] if i % 7 == 6 else q["answers"][-1]["text"]
        made[q["id"]] = [text, text.split()[0], "The " + text.upper() + "!", "", "the", text + " " + context[:20], text][i % 7]
    return made


def check_scores():
    predictions = {name: text for i, (name, text) in enumerate(constructed().items()) if i % 11}
    exact = sum(any(normalised(predictions[q["id"]]) == normalised(a["text"]) for a in q["answers"]) for q, _ in questions if q["id"] in predictions)
    best = sum(max(f1(predictions[q["id"]], a["text"]) for a in q["answers"]) for q, _ in questions if q["id"] in predictions)
    expect("scores", scored(predictions, shard)[0], [f"{100 * n / len(questions):.10f}" for n in (exact, best)] + [str(len(questions))])


def check_impossible():
    """Compares the scores with every third question unanswerable, as in SQuAD 2.0."""
    predictions = constructed()
    for i, (q, _) in enumerate(questions):
        if i % 3 == 0:
            q.update(answers=[], is_impossible=True, plausible_answers=[])
    with tempfile.TemporaryDirectory() as folder:
        made, squad = f"{folder}/2.0.mhs", f"{folder}/2.0.json"
        pathlib.Path(squad).write_text(json.dumps({"data": data, "version": "v2.0"}), encoding="utf-8")
        subprocess.run(["mh-prep", "squad", "-q", "--unanswerable", "keep", "--wordpiece", vocabulary, squad, "-o", made], check=True)
        examples = [processor.SquadExample(q["id"], "", context, None, None, "", q["answers"], not q["answers"]) for q, context in questions]
        theirs = squad_metrics.squad_evaluate(examples, predictions)
        lines = [[theirs[f"{part}exact"], theirs[f"{part}f1"], theirs[f"{part}total"]] for part in ("", "HasAns_", "NoAns_")]
        for mine, line in zip(scored(predictions, made), lines):
            if any(abs(float(a) - b) > 1e-8 for a, b in zip(mine, line)):
                sys.exit(f"scores of SQuAD 2.0: expected {line}; found {mine}")
    print(f"scores of {len(questions)} questions, {lines[2][2]} of them unanswerable")


all_rows = windows()
expect("questions", set(all_rows), {q["id"] for q, _ in questions})
quick = BertTokenizerFast(vocab_file=vocabulary, model_max_length=512)
plain = BertTokenizer(vocab_file=vocabulary, model_max_length=512)
check_numbers(all_rows, quick)
print(f"{len(questions)} questions, {sum(map(len, all_rows.values()))} windows, {sum(len(r) > 1 for r in all_rows.values())} questions with several windows")
ordered = sorted(questions, key=lambda q: -len(all_rows[q[0]["id"]]))
some = ordered[:sample // 4] + ordered[sample // 4::max(1, (len(ordered) - sample // 4) // max(1, sample - sample // 4))]
check_processor(all_rows, some, plain, quick)
check_answers(all_rows, some[:max(50, sample // 4)], plain, quick, json.loads(ours("made", shard)))
check_scores()
check_impossible()
