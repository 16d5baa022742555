#!/usr/bin/env python3
"""Compares SQuAD windows, spans, answers and scores with transformers.

usage: squad_parity.py FOLDER-OF-PROGRAMS VOCAB.TXT SHARD SQUAD.JSON SAMPLE

The token ids of all windows are compared with the fast tokenizer, whose stride is the overlap of two windows. SAMPLE questions,
including those on the longest paragraphs, are also compared with the processor of run_squad.py, whose stride is the distance of two
windows, as in this project and in BERT. Answers from pseudo-random scores are compared with an exhaustive search in two nested loops.
Scores are compared with the definition of SQuAD 1.1, reimplemented here, and, with every third question unanswerable, with the scores
of SQuAD 2.0 in transformers.

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

from transformers import BertTokenizer, BertTokenizerFast
from transformers.data.metrics import squad_metrics
from transformers.data.processors import squad as processor

import tolerance

LENGTH, STRIDE, QUESTION, LONGEST = 384, 128, 64, 30
programs, vocabulary, shard, source = pathlib.Path(sys.argv[1]), *sys.argv[2:5]
sample = int(sys.argv[5])
data = json.loads(pathlib.Path(source).read_text(encoding="utf-8"))["data"]
questions = [(q, p["context"]) for a in data for p in a["paragraphs"] for q in p["qas"]]


def squad_print(*command):
    return subprocess.run([str(programs / "squad-print"), *map(str, command)], check=True, capture_output=True, text=True).stdout


def expect(name, actual, expected):
    if actual != expected:
        sys.exit(f"{name}: expected {ascii(expected)}; found {ascii(actual)}")


def windows():
    rows = collections.defaultdict(list)
    for number, line in enumerate(squad_print("windows", shard, LENGTH, STRIDE, QUESTION).splitlines()):
        name, tokens, first, start, end, context_flags = line.split("\t")
        rows[name].append((number, [int(t) for t in tokens.split()], int(first), (int(start), int(end)), context_flags))
    return rows


def check_token_ids(rows, fast):
    for q, context in questions:
        question_ids = fast(q["question"], add_special_tokens=False)["input_ids"]
        if len(question_ids) > QUESTION:
            continue  # the fast tokenizer does not truncate questions, the processor does
        overlap = LENGTH - 3 - len(question_ids) - STRIDE
        encoding = fast(q["question"], context, truncation="only_second", max_length=LENGTH, stride=overlap, return_overflowing_tokens=True)
        expect(q["id"], [row[1] for row in rows[q["id"]]], encoding["input_ids"])
        types = [[0] * first + [1] * (len(tokens) - first) for _, tokens, first, _, _ in rows[q["id"]]]
        expect(q["id"], types, encoding["token_type_ids"])


def check_processor(rows, sampled_questions, slow, fast):
    processor.squad_convert_example_to_features_init(slow)
    ends_within_piece, repeated_answers, num_windows = 0, 0, 0
    for q, context in sampled_questions:
        answer = q["answers"][0]
        example = processor.SquadExample(q["id"], q["question"], context, answer["text"], answer["answer_start"], "")
        features = processor.squad_convert_example_to_features(example, LENGTH, STRIDE, QUESTION, "do_not_pad", True)
        project_windows = rows[q["id"]]
        expect(q["id"], len(project_windows), len(features))
        for (_, tokens, first, span, context_flags), f in zip(project_windows, features):
            expect(q["id"], tokens, f.input_ids)
            expect(q["id"], [0] * first + [1] * (len(tokens) - first), f.token_type_ids)
            expect(q["id"], context_flags, "".join("1" if f.token_is_max_context[first + i] else "0" for i in range(len(context_flags))))
            num_windows += 1
            processor_span = (f.start_position, f.end_position)
            if span == processor_span:
                continue
            pieces = f.tokens[span[0]:span[1] + 1]
            if span != (0, 0) and pieces != slow.tokenize(answer["text"]) or 0 in (span[0], processor_span[0]):
                ends_within_piece += 1
                words = {f.token_to_orig_map[i] for i in range(processor_span[0], processor_span[1] + 1)} if processor_span[0] else set()
                if processor_span[0] and span[0]:
                    expect(f"{q['id']}: whole words", {f.token_to_orig_map[i] for i in range(span[0], span[1] + 1)}, words)
            else:
                repeated_answers += 1
                expect(f"{q['id']}: the same pieces", pieces, f.tokens[processor_span[0]:processor_span[1] + 1])
    print(f"{len(sampled_questions)} questions, {num_windows} windows equal to run_squad.py; spans that differ: {ends_within_piece} with an end within a piece, {repeated_answers} with an answer that occurs twice in a word")


def check_answers(rows, sampled_questions, slow, fast, predictions):
    different_texts = 0
    for q, context in sampled_questions:
        offsets = fast(context, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        best_span = None
        for window, (row, tokens, first, _, context_flags) in enumerate(rows[q["id"]]):
            start = [((row * 7919 + i * 104729) % 1009) // 8 for i in range(len(tokens))]
            end = [((row * 6101 + i * 15485863) % 997) // 8 for i in range(len(tokens))]
            for s, flag in enumerate(context_flags):
                if flag == "0":
                    continue
                for e in range(s, min(len(context_flags), s + LONGEST)):
                    score = start[first + s] + end[first + e]
                    if best_span is None or score > best_span[0]:
                        best_span = score, window * STRIDE + s, window * STRIDE + e
        text = context[offsets[best_span[1]][0]:offsets[best_span[2]][1]]
        expect(f"{q['id']}: answer", predictions[q["id"]], text)
        # The post-processing of BERT searches the text of the tokens within the words that contain them.
        example = processor.SquadExample(q["id"], "", context, None, None, "")
        word = [example.char_to_word_offset[offsets[i][0]] for i in best_span[1:]]
        pieces = fast.convert_ids_to_tokens(fast(context, add_special_tokens=False)["input_ids"][best_span[1]:best_span[2] + 1])
        joined_text = " ".join(pieces).replace(" ##", "").replace("##", "")
        bert_text = squad_metrics.get_final_text(joined_text, " ".join(example.doc_tokens[word[0]:word[1] + 1]), True)
        different_texts += squad_metrics.normalize_answer(bert_text) != squad_metrics.normalize_answer(text)
    print(f"{len(sampled_questions)} answers equal to an exhaustive search; {different_texts} differ after BERT's post-processing of the text")


def normalise(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(answer, truth):
    a, b = normalise(answer).split(), normalise(truth).split()
    num_shared = sum((collections.Counter(a) & collections.Counter(b)).values())
    return 2 * num_shared / (len(a) + len(b)) if num_shared else 0.0


def scores_of(predictions, shard_path):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(predictions, file)
        file.flush()
        return [line.split() for line in squad_print("score", shard_path, file.name).splitlines()]


def constructed_predictions():
    """Returns one prediction per question, in turn: the answer, its first word, the answer in upper case with punctuation, an empty text,
    an article, the answer with other text, and the answer to another question."""
    predictions = {}
    for i, (q, context) in enumerate(questions):
        text = questions[i - 1][0]["answers"][0]["text"] if i % 7 == 6 else q["answers"][-1]["text"]
        predictions[q["id"]] = [text, text.split()[0], "The " + text.upper() + "!", "", "the", text + " " + context[:20], text][i % 7]
    return predictions


def check_scores():
    predictions = {name: text for i, (name, text) in enumerate(constructed_predictions().items()) if i % 11}
    exact = sum(any(normalise(predictions[q["id"]]) == normalise(a["text"]) for a in q["answers"]) for q, _ in questions if q["id"] in predictions)
    total_f1 = sum(max(f1(predictions[q["id"]], a["text"]) for a in q["answers"]) for q, _ in questions if q["id"] in predictions)
    expect("scores", scores_of(predictions, shard)[0], [f"{100 * n / len(questions):.10f}" for n in (exact, total_f1)] + [str(len(questions))])


def check_impossible():
    """Compares the scores with every third question unanswerable, as in SQuAD 2.0."""
    predictions = constructed_predictions()
    for i, (q, _) in enumerate(questions):
        if i % 3 == 0:
            q.update(answers=[], is_impossible=True, plausible_answers=[])
    with tempfile.TemporaryDirectory() as folder:
        shard_path, squad = f"{folder}/2.0.mhs", f"{folder}/2.0.json"
        pathlib.Path(squad).write_text(json.dumps({"data": data, "version": "v2.0"}), encoding="utf-8")
        subprocess.run(["mh-prep", "squad", "-q", "--unanswerable", "keep", "--wordpiece", vocabulary, squad, "-o", shard_path], check=True)
        examples = [processor.SquadExample(q["id"], "", context, None, None, "", q["answers"], not q["answers"]) for q, context in questions]
        expected = squad_metrics.squad_evaluate(examples, predictions)
        lines = [[expected[f"{part}exact"], expected[f"{part}f1"], expected[f"{part}total"]] for part in ("", "HasAns_", "NoAns_")]
        # A percentage is printed with 10 decimals, and is a sum over the questions, with a quotient and a product, in fp64.
        bound = tolerance.print_bound(10) + tolerance.chain_bound(len(questions) + 2, 100, tolerance.FP64)
        actual_lines = scores_of(predictions, shard_path)
        expect("lines of scores", [len(line) for line in actual_lines], [len(line) for line in lines])
        for actual, line in zip(actual_lines, lines):
            if not all(abs(float(a) - b) <= bound for a, b in zip(actual, line)):
                sys.exit(f"scores of SQuAD 2.0: expected {line}; found {actual}")
    print(f"scores of {len(questions)} questions, {lines[2][2]} of them unanswerable")


all_rows = windows()
expect("questions", set(all_rows), {q["id"] for q, _ in questions})
fast_tokenizer = BertTokenizerFast(vocab_file=vocabulary, model_max_length=512)
slow_tokenizer = BertTokenizer(vocab_file=vocabulary, model_max_length=512)
check_token_ids(all_rows, fast_tokenizer)
print(f"{len(questions)} questions, {sum(map(len, all_rows.values()))} windows, {sum(len(r) > 1 for r in all_rows.values())} questions with several windows")
questions_by_windows = sorted(questions, key=lambda q: -len(all_rows[q[0]["id"]]))
sample_questions = questions_by_windows[:sample // 4] + questions_by_windows[sample // 4::max(1, (len(questions_by_windows) - sample // 4) // max(1, sample - sample // 4))]
check_processor(all_rows, sample_questions, slow_tokenizer, fast_tokenizer)
check_answers(all_rows, sample_questions[:max(50, sample // 4)], slow_tokenizer, fast_tokenizer, json.loads(squad_print("made", shard)))
check_scores()
check_impossible()
