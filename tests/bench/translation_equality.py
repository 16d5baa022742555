#!/usr/bin/env python3
"""Checks that mh-train and eager PyTorch give the same gradients and losses of a translation model from the same weights and batches.

    python translation_equality.py --tools build/tools [--updates 100] [--full]

The pairs have many lengths, so that source and target are padded. Training uses label smoothing, and one embedding matrix for source,
target and output. The gradient of mh-train in the first update is computed from an SGD step with such a large learning rate that the
weights are negligible compared with the step. PyTorch also trains in fp64, which gives the errors of its losses and gradients in fp32
and thereby the bounds on the errors of mh-train (equality.LossComparison, gradient_bound). Exit status 1 if an error exceeds its bound,
77 if PyTorch is not installed.
"""
import sys
import tempfile

import equality  # exits with 77 if PyTorch is missing

import safetensors.torch
import torch

import corpora
import tolerance
from peers import decoder, translation


def gradient_bound(name, peer_gradients, exact_gradients):
    """Returns the bound on the error of the gradient of the tensor `name`: tolerance.fused_bound() of the error of PyTorch in fp32.

    The terms of the gradient of a key bias cancel, since the softmax is invariant to the bias. The gradient of the key weights, a sum of
    the same terms times the inputs, gives the magnitude of the terms.
    """
    magnitude = max(exact_gradients[n].abs().max().item() for n in {name, name.replace(".key.bias", ".key.weight")})
    return tolerance.fused_bound((peer_gradients[name] - exact_gradients[name]).abs().max().item(), magnitude)


def main():
    args = equality.parser_of(__doc__, 100).parse_args()
    num_words, layers, d, h, f, batch = (7996, 3, 256, 8, 1024, 1024) if args.full else (500, 2, 64, 4, 128, 512)
    seed, lr, warmup, smoothing, sgd_lr = 5, 5e-4, 50, 0.1, 1e5
    torch.set_num_threads(args.threads)

    with tempfile.TemporaryDirectory() as name:
        folder = corpora.Folder(args.tools, name)
        folder.make_pair_shard(num_words, 3000 if args.full else 600)
        (folder.path / "model.toml").write_text(
            f"[model]\nbackbone = 'encoder-decoder'\nlayers = {layers}\nwidth = {d}\nffn_dim = {f}\nencoder-decoder.shared_embedding = true\n"
            f"[attention]\nheads = {h}\n[train]\nseed = {seed}\nbatch.tokens = {batch}\nlabel_smoothing = {smoothing}\n"
            "log_every = '1u'\nvalidation.every = '0u'\ncheckpoint.every = '0u'\n")

        def train(out, length, keys):
            """Runs mh-train for `length` updates in the folder `out`. Returns {update: loss} and the final weights. `keys`: keys of [train]."""
            sets = [word for key, value in dict(keys, length=f"'{length}u'").items() for word in ("--set", f"train.{key}={value}")]
            folder.run("mh-train", "-q", "--config", "model.toml", "--train", "pairs.mhs", "--threads", args.threads, "--out", out, *sets)
            return folder.read_losses(out), safetensors.torch.load_file(folder.path / out / "last.safetensors")

        _, initial_weights = train("start", 1, {"lr": "0.0"})
        _, weights_after_sgd = train("descended", 1, {"lr": sgd_lr, "optimizer.rule": "'sgd'", "optimizer.momentum": "0.0"})
        project_losses, _ = train("run", args.updates, {"lr": lr, "schedule.warmup": f"'{warmup}u'", "schedule.warmup_lr": "0.0"})

        models = [translation.EncoderDecoder(initial_weights["decoder.embedding.weight"].shape[0], layers, d, h, f) for _ in range(2)]
        models[1].double()
        project_names = {name for name in initial_weights if name in weights_after_sgd and "optimizer." not in name}
        if differing_names := sorted(project_names ^ set(models[0].tensors())):
            sys.exit(f"translation_equality: expected the same tensors in the checkpoint and in peers/translation.py; found only in one of them: {', '.join(differing_names)}")
        for model in models:
            for name, tensor in model.tensors().items():
                tensor.copy_(initial_weights[name])
        optimizers = [decoder.optimizer_of(model, lr) for model in models]
        batches = translation.Batches(translation.read_pairs(folder.path / "pairs"), batch, seed)
        loss_comparison, largest_gradient_error = equality.LossComparison(), equality.LargestError()
        for update in range(args.updates):
            losses, gradients = [], []
            for model, optimizer in zip(models, optimizers):
                training_loss, unsmoothed_loss = translation.losses(model, *batches(update), smoothing)
                training_loss.backward()
                if update == 0:
                    gradients.append({name: gradient.double() for name, gradient in model.tensors(lambda p: p.grad).items()})
                for group in optimizer.param_groups:
                    group["lr"] = lr * min(1.0, update / warmup)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                losses.append(unsmoothed_loss.item())
            loss_comparison.compare(update + 1, project_losses[update + 1], *losses)
            if update == 0:
                for name, exact_gradient in gradients[1].items():
                    weight, weight_after_sgd = initial_weights[name].double(), weights_after_sgd[name].double()
                    # The weight after the step is rounded once.
                    step_error = tolerance.FP32 * weight_after_sgd.abs().max().item() / sgd_lr
                    largest_gradient_error.add(((weight - weight_after_sgd) / sgd_lr - exact_gradient).abs().max().item(),
                                               gradient_bound(name, *gradients) + step_error, f"of {name}")
    passed = loss_comparison.within_bound() and largest_gradient_error.within_bound()
    print(f"gradients: largest error {largest_gradient_error.text}; {args.updates} updates, loss {project_losses[1]:.4f} to "
          f"{project_losses[args.updates]:.4f}: largest error {loss_comparison.text}: {'pass' if passed else 'FAIL'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
