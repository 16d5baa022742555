"""Peer of the benchmarks of a published decoder: AutoModelForCausalLM of transformers with scaled_dot_product_attention.

    peers/causal_lm.py score FOLDER IDS --length 1024 --batch 4        tokens per second and nll, nats per token
    peers/causal_lm.py scan FOLDER IDS --length 1024 --heads 3         seconds of an evaluation with one head ablated
    peers/causal_lm.py generate FOLDER IDS --length 256 --batch 8      tokens per second of greedy generation, and the text of its first tokens

FOLDER: a folder of transformers. IDS: token ids, output of `mh-prep cat --ids`; the last one is the end-of-line token, from which the first
token is predicted. Prints one line of JSON. The time of loading the model and of a first call is not counted.
"""
import argparse
import json
import os
import pathlib
import time

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
import tokenizers
import torch
import torch.nn.functional as F
import transformers


def batches_of(ids, length, batch):
    """Returns [(inputs, targets)], tensors of at most `batch` rows of `length` tokens; a shorter last row is a batch of its own."""
    inputs = torch.cat([ids[-1:], ids[:-1]])
    full = len(ids) // length * length
    pairs = list(zip(inputs[:full].view(-1, length).split(batch), ids[:full].view(-1, length).split(batch)))
    return pairs + ([(inputs[None, full:], ids[None, full:])] if full < len(ids) else [])


def nll_sum(model, batches):
    """Returns the sum of the losses of all targets, nats."""
    return sum(F.cross_entropy(model(inputs, use_cache=False).logits.flatten(0, 1).float(), targets.flatten(), reduction="sum").item()
               for inputs, targets in batches)


def score(model, ids, args):
    batches = batches_of(ids, args.length, args.batch)
    nll_sum(model, batches[:1])  # warm-up
    start_time = time.perf_counter()
    nll = nll_sum(model, batches) / len(ids)
    return {"tokens_per_second": len(ids) / (time.perf_counter() - start_time), "nll": nll}


def scan(model, ids, args):
    """Ablates one head each in layers that are evenly spaced, as mh-prune scan does: a head output is multiplied by 0."""
    batches = batches_of(ids, args.length, args.batch)
    nll_sum(model, batches[:1])  # warm-up
    start_time = time.perf_counter()
    for i in range(args.heads):
        projection = model.model.layers[(2 * i + 1) * len(model.model.layers) // (2 * args.heads)].self_attn.o_proj
        scales = torch.ones(projection.in_features, dtype=projection.weight.dtype)
        scales[:model.config.head_dim] = 0
        with projection.register_forward_pre_hook(lambda _, inputs: (inputs[0] * scales,)):
            nll_sum(model, batches)
    return {"seconds": (time.perf_counter() - start_time) / args.heads}


def generate(model, ids, args):
    prompt = torch.cat([ids[-1:], ids[:-1]]).expand(args.batch, -1)

    def run(length):
        start_time = time.perf_counter()
        tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, min_new_tokens=length, max_new_tokens=length,
                                pad_token_id=0)
        return time.perf_counter() - start_time, tokens[0]

    run(8)  # warm-up
    start_seconds = run(1)[0]
    seconds, tokens = run(args.length + 1)
    tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(args.folder) / "tokenizer.json"))
    text = tokenizer.decode(tokens[1:len(ids) + args.compared].tolist(), skip_special_tokens=False)
    text = text.replace(tokenizer.id_to_token(ids[-1].item()), "\n")  # as mh-eval prints the end-of-line token
    return {"tokens_per_second": args.batch * args.length / (seconds - start_seconds), "text": text}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("action", choices=["score", "scan", "generate"])
    parser.add_argument("folder")
    parser.add_argument("ids")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--length", type=int, default=1024, help="score, scan: sequence length; generate: number of tokens after the first")
    parser.add_argument("--batch", type=int, default=4, help="number of sequences in a forward pass")
    parser.add_argument("--heads", type=int, default=3, help="scan: number of evaluations, each with one head ablated")
    parser.add_argument("--compared", type=int, default=50, help="generate: number of generated tokens in the text")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[args.precision]
    model = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=dtype, attn_implementation="sdpa").eval().to(args.device)
    with open(args.ids, encoding="ascii") as lines:
        ids = torch.tensor([int(word) for line in lines for word in line.split()], device=args.device)
    with torch.inference_mode():
        print(json.dumps({"score": score, "scan": scan, "generate": generate}[args.action](model, ids, args)))


if __name__ == "__main__":
    main()
