#!/usr/bin/env python3
"""Checks that mh-train and eager PyTorch give the same gradients and losses of a translation model from the same weights and batches.

    python translation_equality.py --tools build/tools [--updates 100] [--full]

The pairs have many lengths, so that source and target are padded. Training uses label smoothing, and one embedding matrix for source,
target and output. The gradient of mh-train in the first update is computed from an SGD step with such a large learning rate that the
weights are negligible compared with the step. Exit status 1 if two losses differ by more than --tolerance, or two gradients by more
than --gradient times the largest entry of the tensor; 77 if PyTorch is not installed.
"""
import math
import sys
import tempfile

import equality  # exits with 77 if PyTorch is missing

import safetensors.torch
import torch

import corpora
from peers import decoder, translation


def main():
    parser = equality.parser_of(__doc__, 100)
    parser.add_argument("--gradient", type=float, default=1e-4, help="maximum difference of two gradients, relative to the largest entry of the tensor [1e-4]")
    a = parser.parse_args()
    words, layers, d, h, f, batch = (7996, 3, 256, 8, 1024, 1024) if a.full else (500, 2, 64, 4, 128, 512)
    seed, lr, warmup, smoothing, leap = 5, 5e-4, 50, 0.1, 1e5
    torch.set_num_threads(a.threads)

    with tempfile.TemporaryDirectory() as name:
        folder = corpora.Folder(a.tools, name)
        folder.pairs(words, 3000 if a.full else 600)
        (folder.path / "model.toml").write_text(
            f"[model]\nbackbone = 'encoder-decoder'\nlayers = {layers}\nwidth = {d}\nffn = {f}\nencoder-decoder.shared_embedding = true\n"
            f"[attention]\nheads = {h}\n[train]\nseed = {seed}\nbatch.tokens = {batch}\nlabel_smoothing = {smoothing}\n"
            "log_every = '1u'\nvalidation.every = '0u'\ncheckpoint.every = '0u'\n")

        def train(out, length, keys):
            """Runs mh-train for `length` updates in the folder `out`. Returns {update: loss} and the final weights. `keys`: keys of [train]."""
            sets = [word for key, value in dict(keys, length=f"'{length}u'").items() for word in ("--set", f"train.{key}={value}")]
            folder.run("mh-train", "-q", "--config", "model.toml", "--train", "pairs.mhs", "--threads", a.threads, "--out", out, *sets)
            return folder.log(out), safetensors.torch.load_file(folder.path / out / "last.safetensors")

        _, start = train("start", 1, {"lr": "0.0"})
        _, descended = train("descended", 1, {"lr": leap, "optimizer.rule": "'sgd'", "optimizer.momentum": "0.0"})
        ours, _ = train("run", a.updates, {"lr": lr, "schedule.warmup": f"'{warmup}u'", "schedule.warmup_lr": "0.0"})

        model = translation.EncoderDecoder(start["decoder.embedding.weight"].shape[0], layers, d, h, f)
        mine = model.tensors()
        absent = [name for name in start if name in descended and "optimizer." not in name and name not in mine]
        if absent or any(name not in start for name in mine):
            sys.exit(f"translation_equality: expected a tensor in peers/translation.py for every tensor of the checkpoint; found none for {absent}")
        for name, tensor in mine.items():
            tensor.copy_(start[name])
        optimizer = decoder.optimizer_of(model, lr)
        batches = translation.Batches(translation.read_pairs(folder.path / "pairs"), batch, seed)
        worst, at, off, where = 0.0, 0, 0.0, ""
        for update in range(a.updates):
            trained, plain = translation.losses(model, *batches(update), smoothing)
            trained.backward()
            if update == 0:
                for name, gradient in model.tensors(lambda p: p.grad).items():
                    # The softmax is invariant to the bias of the keys, so the gradient of this bias is only rounding error.
                    largest = max(gradient.abs().max().item(), 1e-4)
                    difference = ((start[name] - descended[name]) / leap - gradient).abs().max().item() / largest
                    if not difference <= off:
                        off, where = difference, name
            for group in optimizer.param_groups:
                group["lr"] = lr * min(1.0, update / warmup)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            difference = abs(plain.item() - ours[update + 1])
            if not difference <= worst:
                worst, at = (math.inf if math.isnan(difference) else difference), update + 1
    verdict = worst <= a.tolerance and off <= a.gradient
    print(f"gradients: largest difference {off:.2e} of the largest entry, of {where}, allowed {a.gradient:g}; {a.updates} updates, loss "
          f"{ours[1]:.4f} to {ours[a.updates]:.4f}: largest difference {worst:.2e} nats at update {at}, allowed {a.tolerance:g}: "
          f"{'pass' if verdict else 'FAIL'}")
    return 0 if verdict else 1


if __name__ == "__main__":
    sys.exit(main())
