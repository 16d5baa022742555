"""Peer of the encoder benchmarks: BERT of transformers with random weights and the size of a small published model.

    peers/bert.py train ROWS --attention sdpa --pad 128      ROWS: output of example-rows; prints one line of JSON
    peers/bert.py answer WINDOWS --attention sdpa            WINDOWS: output of `squad-print windows`

train: classification with shuffled batches, padded to --pad tokens or, with --pad 0, to the longest row of the batch; fused AdamW,
gradients clipped. answer: windows in the order of their questions, so that the windows of a paragraph are adjacent; each batch is
padded to its longest window; then the best spans of each window, and for each question the best span over its windows.
"""
import argparse
import json
import os
import random
import time

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
import numpy
import torch
import transformers

SHAPE = dict(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)


def pad_rows(rows, width, fill):
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def inputs_of(rows, device, pad=0):
    """Returns the model inputs of a batch, padded to `pad` tokens or to the longest row. rows: list of (token ids, length of the first segment)."""
    width = pad or max(len(tokens) for tokens, _ in rows)
    inputs = {"input_ids": pad_rows([tokens for tokens, _ in rows], width, 0),
              "token_type_ids": pad_rows([[0] * first + [1] * (len(tokens) - first) for tokens, first in rows], width, 0),
              "attention_mask": pad_rows([[1] * len(tokens) for tokens, _ in rows], width, 0)}
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def train(args):
    with open(args.rows, encoding="ascii") as lines:
        rows = [[int(word) for word in line.split()] for line in lines]
    rows = [(max(0, label), (tokens, first)) for label, first, *tokens in rows]
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**SHAPE, attn_implementation=args.attention)).train().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, eps=1e-6, weight_decay=0.0, fused=True)
    rng, order, num_rows, start_time = random.Random(1), [], 0, 0
    for update in range(args.warm + args.updates):
        if update == args.warm:
            start_time = time.perf_counter()
        if len(order) < args.batch:
            order = rng.sample(rows, len(rows))
        batch, order = order[:args.batch], order[args.batch:]
        labels = torch.tensor([label for label, _ in batch], device=args.device)
        loss = model(**inputs_of([row for _, row in batch], args.device, args.pad), labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        num_rows += len(batch) if update >= args.warm else 0
    print(json.dumps({"rows_per_second": num_rows / (time.perf_counter() - start_time)}))


def best_spans(start, end, first, count=20, longest=30):
    """Returns the best spans, [(score, start, end)], of a window whose paragraph begins at `first` and ends before the last token."""
    start, end = start[first:-1], end[first:-1]
    starts = numpy.argsort(-start)[:count]
    ends = numpy.argsort(-end)[:count]
    lengths = ends[None, :] - starts[:, None]
    scores = numpy.where((lengths >= 0) & (lengths < longest), start[starts][:, None] + end[ends][None, :], -numpy.inf).ravel()
    return [(scores[i], starts[i // len(ends)], ends[i % len(ends)]) for i in numpy.argsort(-scores)[:count]]


def measure_answers(args):
    names, rows = [], []
    with open(args.rows, encoding="ascii") as lines:
        for line in lines:
            name, tokens, first, *_ = line.split("\t")
            names.append(name)
            rows.append(([int(t) for t in tokens.split()], int(first)))
    model = transformers.BertForQuestionAnswering(transformers.BertConfig(**SHAPE, attn_implementation=args.attention)).eval().to(args.device)
    answers = {}
    with torch.inference_mode():
        model(**inputs_of(rows[:args.batch], args.device)).end_logits.cpu()  # warm-up
        start_time = time.perf_counter()
        for begin in range(0, len(rows), args.batch):
            batch = rows[begin:begin + args.batch]
            outputs = model(**inputs_of(batch, args.device))
            starts, ends = outputs.start_logits.cpu().numpy(), outputs.end_logits.cpu().numpy()
            for i, (tokens, first) in enumerate(batch):
                n = len(tokens)
                answers.setdefault(names[begin + i], []).extend(best_spans(starts[i, :n], ends[i, :n], first))
        best = {name: max(spans) for name, spans in answers.items()}
    print(json.dumps({"seconds": time.perf_counter() - start_time, "questions": len(best)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("action", choices=["train", "answer"])
    parser.add_argument("rows")
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    parser.add_argument("--pad", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--warm", type=int, default=3, help="updates before the clock starts")
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    {"train": train, "answer": measure_answers}[args.action](args)


if __name__ == "__main__":
    main()
