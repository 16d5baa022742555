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
    args = parser.parse_args()
    num_words, layers, d, h, f, batch = (7996, 3, 256, 8, 1024, 1024) if args.full else (500, 2, 64, 4, 128, 512)
    seed, lr, warmup, smoothing, sgd_lr = 5, 5e-4, 50, 0.1, 1e5
    torch.set_num_threads(args.threads)

    with tempfile.TemporaryDirectory() as name:
        folder = corpora.Folder(args.tools, name)
        folder.pairs(num_words, 3000 if args.full else 600)
        (folder.path / "model.toml").write_text(
            f"[model]\nbackbone = 'encoder-decoder'\nlayers = {layers}\nwidth = {d}\nffn = {f}\nencoder-decoder.shared_embedding = true\n"
            f"[attention]\nheads = {h}\n[train]\nseed = {seed}\nbatch.tokens = {batch}\nlabel_smoothing = {smoothing}\n"
            "log_every = '1u'\nvalidation.every = '0u'\ncheckpoint.every = '0u'\n")

        def train(out, length, keys):
            """Runs mh-train for `length` updates in the folder `out`. Returns {update: loss} and the final weights. `keys`: keys of [train]."""
            sets = [word for key, value in dict(keys, length=f"'{length}u'").items() for word in ("--set", f"train.{key}={value}")]
            folder.run("mh-train", "-q", "--config", "model.toml", "--train", "pairs.mhs", "--threads", args.threads, "--out", out, *sets)
            return folder.log(out), safetensors.torch.load_file(folder.path / out / "last.safetensors")

        _, initial_weights = train("start", 1, {"lr": "0.0"})
        _, weights_after_sgd = train("descended", 1, {"lr": sgd_lr, "optimizer.rule": "'sgd'", "optimizer.momentum": "0.0"})
        project_losses, _ = train("run", args.updates, {"lr": lr, "schedule.warmup": f"'{warmup}u'", "schedule.warmup_lr": "0.0"})

        model = translation.EncoderDecoder(initial_weights["decoder.embedding.weight"].shape[0], layers, d, h, f)
        peer_tensors = model.tensors()
        project_names = {name for name in initial_weights if name in weights_after_sgd and "optimizer." not in name}
        if differing_names := sorted(project_names ^ set(peer_tensors)):
            sys.exit(f"translation_equality: expected the same tensors in the checkpoint and in peers/translation.py; found only in one of them: {', '.join(differing_names)}")
        for name, tensor in peer_tensors.items():
            tensor.copy_(initial_weights[name])
        optimizer = decoder.optimizer_of(model, lr)
        batches = translation.Batches(translation.read_pairs(folder.path / "pairs"), batch, seed)
        largest_difference, worst_update, largest_gradient_difference, worst_tensor = 0.0, 0, 0.0, ""
        for update in range(args.updates):
            training_loss, unsmoothed_loss = translation.losses(model, *batches(update), smoothing)
            training_loss.backward()
            if update == 0:
                for name, gradient in model.tensors(lambda p: p.grad).items():
                    # 1e-4: the softmax is invariant to the key bias, whose gradient is thus only rounding error.
                    largest_entry = max(gradient.abs().max().item(), 1e-4)
                    difference = ((initial_weights[name] - weights_after_sgd[name]) / sgd_lr - gradient).abs().max().item() / largest_entry
                    if not difference <= largest_gradient_difference:
                        largest_gradient_difference, worst_tensor = difference, name
            for group in optimizer.param_groups:
                group["lr"] = lr * min(1.0, update / warmup)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            difference = abs(unsmoothed_loss.item() - project_losses[update + 1])
            if not difference <= largest_difference:
                largest_difference, worst_update = (math.inf if math.isnan(difference) else difference), update + 1
    passed = largest_difference <= args.tolerance and largest_gradient_difference <= args.gradient
    print(f"gradients: largest difference {largest_gradient_difference:.2e} of the largest entry, of {worst_tensor}, allowed {args.gradient:g}; {args.updates} updates, loss "
          f"{project_losses[1]:.4f} to {project_losses[args.updates]:.4f}: largest difference {largest_difference:.2e} nats at update {worst_update}, allowed {args.tolerance:g}: "
          f"{'pass' if passed else 'FAIL'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
