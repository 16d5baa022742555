#!/usr/bin/env python3
"""Checks that mh-train and eager PyTorch give the same losses from the same weights and batches.

    python equality.py --tools build/tools [--updates 200] [--full]

Trains both (fp32, no dropout, mean over scored tokens, Adam) and compares the loss of every update. The initial weights come from
a checkpoint of mh-train; the batches are recomputed here from the documented shuffle. PyTorch also trains in fp64, which gives the
error of its losses in fp32 and thereby the bound on the error of mh-train (LossComparison). Exit status 1 if an error exceeds its bound,
77 if PyTorch is not installed.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import corpora

try:
    import safetensors.torch
    import torch
    import torch.nn.functional as F

    from peers import decoder, modern_decoder, shuffle
except ImportError as error:
    print(f"expected the packages PyTorch and safetensors; found: {error}; install both packages")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import tolerance


class LargestError:
    """The largest of several errors, each divided by its bound."""

    def __init__(self):
        self.ratio, self.text = -1.0, ""

    def add(self, error, bound, name):
        """Adds an error and its bound; `name` says in the printed line where the error occurred."""
        ratio = math.inf if math.isnan(error) else error / bound  # comparisons with NaN are false
        if ratio > self.ratio:
            self.ratio, self.text = ratio, f"{error:.2e} {name}, allowed {bound:.2e}"

    def within_bound(self):
        """Returns whether all errors are within their bounds; False without errors."""
        return 0 <= self.ratio <= 1


class LossComparison(LargestError):
    """Compares the losses of mh-train (fp32) with the losses of PyTorch in fp64.

    The bound at an update is tolerance.fused_bound() of the largest error of PyTorch in fp32 up to this update, since an error in the
    weights persists in later updates.
    """

    def __init__(self):
        super().__init__()
        self.peer_error = 0.0

    def compare(self, update, project_loss, peer_loss, exact_loss):
        """Compares the losses of an update, nats per token. Returns the error of mh-train. `peer_loss`, `exact_loss`: from PyTorch in fp32 and in fp64."""
        self.peer_error = max(self.peer_error, abs(peer_loss - exact_loss))
        error = abs(project_loss - exact_loss)
        self.add(error, tolerance.fused_bound(self.peer_error, exact_loss), f"nats at update {update}")
        return error


def tokens_of(folder):
    """Returns the token ids of the shard `text.mhs` in `folder`, a tensor (tokens)."""
    info_json = folder.run("mh-prep", "-q", "info", "--format", "json", "text.mhs", capture_output=True).stdout
    size = json.loads(info_json)["token_bytes"]
    body = subprocess.run(["zstd", "-dcq", folder.path / "text.mhs"], check=True, capture_output=True).stdout
    return torch.frombuffer(bytearray(body), dtype=torch.uint16 if size == 2 else torch.int32).long()


def parser_of(doc, updates):
    """Returns a parser of the options shared by the equality checks; `updates` is the default of --updates."""
    parser = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    parser.add_argument("--tools", required=True, help="folder of mh-prep and mh-train")
    parser.add_argument("--updates", type=int, default=updates, help=f"number of updates [{updates}]")
    parser.add_argument("--full", action="store_true", help="train the model of the benchmark instead of a small one")
    parser.add_argument("--threads", type=int, default=2, help="number of threads of mh-train and of PyTorch [2]")
    return parser


def main():
    parser = parser_of(__doc__, 200)
    parser.add_argument("--lr", type=float, default=5e-4, help="learning rate after the warm-up [5e-4]")
    parser.add_argument("--warmup", type=int, default=100, help="length of the warm-up in updates [100]")
    parser.add_argument("--tokens", type=int, default=100, help="length of the text in batches [100]")
    parser.add_argument("--modern", action="store_true", help="train the decoder of the section `modern_training`")
    parser.add_argument("--verbose", action="store_true", help="print the loss and its error every ten updates")
    args = parser.parse_args()
    num_words, layers, d, h, f, n, batch = (7996, 4, 256, 8, 1024, 256, 1024) if args.full else (500, 2, 64, 4, 128, 64, 512)
    seed, lr = 5, args.lr
    torch.set_num_threads(args.threads)

    with tempfile.TemporaryDirectory() as name:
        folder = corpora.Folder(args.tools, name)
        folder.make_text_shard(num_words, args.tokens * batch)
        size = modern_decoder.ModelSize(layers, d, h, h // 4, f)
        model_toml = size.toml(n, batch) if args.modern else (
            f"[model]\nlayers = {layers}\nwidth = {d}\nffn_dim = {f}\n[attention]\nheads = {h}\n[train]\nbatch.sequence_length = {n}\nbatch.tokens = {batch}\n")
        (folder.path / "model.toml").write_text(
            f"{model_toml}seed = {seed}\nlr = {lr}\nlog_every = '1u'\nvalidation.every = '0u'\ncheckpoint.every = '0u'\n")
        train = ("mh-train", "-q", "--config", "model.toml", "--train", "text.mhs", "--threads", args.threads)
        # One update with learning rate 0 writes a checkpoint of the initial weights.
        folder.run(*train, "--out", "start", "--set", "train.length='1u'", "--set", "train.lr=0.0")
        folder.run(*train, "--out", "run", "--set", f"train.length='{args.updates}u'",
             "--set", f"train.schedule.warmup='{args.warmup}u'", "--set", "train.schedule.warmup_lr=0.0")
        project_losses = folder.read_losses("run")

        weights = safetensors.torch.load_file(folder.path / "start/last.safetensors")
        tokens = tokens_of(folder)
        vocabulary = weights["decoder.embedding.weight"].shape[0]
        models = [modern_decoder.ModernDecoder(vocabulary, n, size) if args.modern else decoder.Decoder(vocabulary, layers, d, h, f, n) for _ in range(2)]
        for model in models:
            model.load_project(weights)
        models[1].double()
        optimizers = [decoder.optimizer_of(model, lr) for model in models]
        end_of_line = tokens[-1].item()  # the last token of the text ends a line
        inputs = torch.cat([torch.tensor([end_of_line]), tokens])
        blocks, rows = -(-len(tokens) // n), batch // n
        per_epoch = -(-blocks // rows)
        comparison = LossComparison()
        for update in range(args.updates):
            epoch, index = divmod(update, per_epoch)
            if index == 0:
                order = shuffle.shuffled_order(blocks, seed, "batches", epoch)
            x = torch.full((len(order[index * rows:(index + 1) * rows]), n), end_of_line)
            y = torch.full_like(x, -1)
            for i, block in enumerate(order[index * rows:(index + 1) * rows]):
                window = inputs[block * n:block * n + n + 1]
                x[i, :len(window) - 1], y[i, :len(window) - 1] = window[:-1], window[1:]
            losses = []
            for model, optimizer in zip(models, optimizers):
                loss = F.cross_entropy(model(x).view(-1, vocabulary), y.view(-1), ignore_index=-1)
                loss.backward()
                for group in optimizer.param_groups:
                    group["lr"] = lr * min(1.0, update / max(1, args.warmup))
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                losses.append(loss.item())
            error = comparison.compare(update + 1, project_losses[update + 1], *losses)
            if args.verbose and (update + 1) % 10 == 0:
                print(f"update {update + 1}: loss {losses[1]:.6f}, error {error:.2e}", file=sys.stderr)
    passed = comparison.within_bound()
    print(f"{args.updates} updates, loss {project_losses[1]:.4f} to {project_losses[args.updates]:.4f}: largest error {comparison.text}: "
          f"{'pass' if passed else 'FAIL'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
