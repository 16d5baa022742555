#!/usr/bin/env python3
"""Checks that every attention stage and its reference in eager PyTorch give the same log-probabilities from the same weights.

    python stage_equality.py --tools build/tools [--stages mixhead-a,relative]

A stage that samples in training (cross-head, drop-head, hard-concrete, sampled experts) is compared in evaluation mode, where it is
deterministic. mh-train first trains a small model for some updates, so that no mixing matrix is the identity. Exit status 1 if two
log-probabilities differ by more than the rounding errors of two forward passes in fp32, 77 if PyTorch is not installed. Without --stages,
the last line names the stages of mh-train that have no reference: they are skipped, or with --require-peers, as in ./run bench, refused
with exit status 1.
"""
import argparse
import pathlib
import sys
import tempfile

import equality  # exits with 77 if PyTorch is missing

import safetensors.torch
import torch

import corpora
from peers import stages

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import tolerance


def largest_difference(folder, name, tokens, size, threads):
    """Returns the largest difference of two log-probabilities (nats) and the bound on its rounding error."""
    stage = stages.STAGES[name]
    (folder.path / "model.toml").write_text(
        stage.toml(size) + "lr = 1e-2\nlength = '20u'\nlog_every = '1u'\nvalidation.every = '0u'\ncheckpoint.every = '0u'\n")
    folder.run("mh-train", "-q", "--config", "model.toml", "--train", "text.mhs", "--out", name, "--threads", threads)
    folder.run("mh-eval", "-q", "--per-token", f"{name}.tsv", "--threads", threads,
               f"{name}/last.safetensors", "text.mhs", capture_output=True)
    table = [line.split("\t") for line in (folder.path / f"{name}.tsv").read_text(encoding="utf-8").splitlines()]
    column = table[0].index("log_probability")
    project_log_probs = torch.tensor([float(row[column]) for row in table[1:]])

    weights = safetensors.torch.load_file(folder.path / name / "last.safetensors")
    model = stage.model(weights["decoder.embedding.weight"].shape[0], size)
    model.load_project(weights)
    model.eval()
    end_of_line = tokens[-1]  # the last token of the text ends a line
    padded_tokens = torch.cat([end_of_line.view(1), tokens[:-1], end_of_line.expand(-len(tokens) % size.n)])
    with torch.no_grad():
        logits = torch.cat([model(rows) for rows in padded_tokens.view(-1, size.n).split(16)]).flatten(0, 1)[:len(tokens)]
    peer_log_probs = logits.log_softmax(-1).gather(1, tokens.unsqueeze(1)).squeeze(1)
    bound = tolerance.chain_bound(tolerance.pass_roundings(folder.path / name / "last.safetensors", size.n),
                                  peer_log_probs.abs().max().item())
    return (project_log_probs - peer_log_probs).abs().max().item() if len(project_log_probs) == len(peer_log_probs) else float("inf"), bound


def stages_without_peer(folder):
    """Returns the stages of `mh-train --list stages` without a reference in peers/stages.py. The default stages need none of their own: every reference contains them."""
    stage_lines = folder.run("mh-train", "--list", "stages", capture_output=True, text=True).stdout.splitlines()[1:]
    peer_configurations = "\n".join(stage.attention for stage in stages.STAGES.values())
    default_stages = {"own", "dot-product", "softmax", "none", "concatenate"}
    return [name for kind, name, *_ in (line.split("\t") for line in stage_lines)
            if name not in default_stages and not any(f"{kind} = {value}" in peer_configurations for value in (f"'{name}'", f"['{name}']"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tools", required=True, help="folder of the tools")
    parser.add_argument("--stages", help="stages to compare, separated by commas [all with a reference]")
    parser.add_argument("--require-peers", action="store_true", help="fail if a stage of mh-train has no reference")
    parser.add_argument("--threads", type=int, default=2, help="number of threads of mh-train, mh-eval and PyTorch [2]")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    size = stages.ModelSize(layers=2, d=64, h=4, f=128, n=64, batch_tokens=512)
    all_passed = True
    with tempfile.TemporaryDirectory() as name:
        folder = corpora.Folder(args.tools, name)
        folder.make_text_shard(500, 20 * size.batch_tokens - 7)
        tokens = equality.tokens_of(folder)
        for stage in args.stages.split(",") if args.stages else stages.STAGES:
            difference, bound = largest_difference(folder, stage, tokens, size, args.threads)
            passed = difference <= bound
            all_passed &= passed
            print(f"{stage}: largest difference {difference:.2e} nats, allowed {bound:.2e}: {'pass' if passed else 'FAIL'}", flush=True)
        skipped_stages = [] if args.stages else stages_without_peer(folder)
    if skipped_stages and args.require_peers:
        all_passed = False
        print(f"{', '.join(skipped_stages)}: expected a reference in peers/stages.py; found none: FAIL", flush=True)
    elif skipped_stages:
        print(f"without a reference in tests/bench/peers/stages.py, skipped: {', '.join(skipped_stages)}", flush=True)  # tests/cli/run.py prints this line
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main())
