#!/usr/bin/env python3
"""Checks that updates with fused attention give the losses of composed attention, for each stage of mh-train and for some
combinations: 100 updates, 200 if MH_FULL is set.

    python fused_losses.py TEXT.mhs

In fp32 the losses of every update may differ by √UPDATES times tolerance.fused_bound(), since the errors of different updates are
independent. This function returns twice the error of the plain model on the composed path plus 8 units in the last place; that error
is the difference from a run in two micro-batches, which adds the gradients in another order. In bf16 the mean losses of the last 50
updates may differ by at most their spread over three seeds of the plain model on the composed path. Exactly the stages in NOT_FUSED
must have no fused implementation. bf16 is tested for the stages in IN_BF16 and for the combinations, and for all
stages if MH_FULL is set.
"""
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

import tolerance

UPDATES = 200 if os.environ.get("MH_FULL") else 100
NOT_FUSED = {"score=synthesizer-dense", "score=synthesizer-random", "mixer=talking-heads"}
COMBINATIONS = [
    {"mixer": "mixhead-b", "normaliser": "sigsoftmax"},
    {"mixer": "mixhead-a", "pairing": "cross-head", "combiner": "gates"},
    {"mixer": "talking-heads", "talking-heads.pre": False},
    {"mixer": "differential", "combiner": "pair-norm"},
    {"combiner": "mae", "mixer": "mean"},
]
IN_BF16 = {"combiner=concatenate", "mixer=mixhead-a", "score=relative", "combiner=alphas", "normaliser=sigsoftmax"}
BASE = """
[model]
backbone = "decoder"
layers = 1
width = 64
ffn_dim = 64
[attention]
heads = 4
[train]
batch.sequence_length = 32
batch.tokens = 512
lr = 5e-4
validation.every = "0u"
checkpoint.every = "0u"
log_every = "1u"
"""


def stages():
    stage_lines = subprocess.run(["mh-train", "--list", "stages"], check=True, capture_output=True, text=True).stdout.splitlines()[1:]
    stages_by_name = {}
    for line in stage_lines:
        kind, name = line.split("\t")[:2]
        stages_by_name[f"{kind}={name}"] = {kind: [name] if kind == "transform" else name}
    excluded_names = {"combiner=pair-norm",  # needs mixer=differential
                      "pairing=own", "score=dot-product", "normaliser=softmax", "mixer=none"}  # stages of the plain model, which combiner=concatenate tests
    stages_by_name = {name: stage for name, stage in stages_by_name.items() if name not in excluded_names}
    stages_by_name["combiner=head-weights"] = {"combiner": "head-weights", "head-weights.weights": [0.5, 1, 1.5, 2]}
    return stages_by_name | {"+".join(f"{k}={v}" for k, v in combination.items()): combination for combination in COMBINATIONS}


def losses(text, stage, path, precision, seed=1, micro_tokens=512):
    folder = pathlib.Path("run")
    shutil.rmtree(folder, ignore_errors=True)
    settings = [("train.attention_path", path), ("train.precision", precision), ("train.length", f"{UPDATES}u"), ("train.batch.micro_tokens", micro_tokens)]
    settings += [(f"attention.{key}", value) for key, value in stage.items()]
    options = [word for key, value in settings for word in ("--set", f"{key}={json.dumps(value)}")]
    process = subprocess.run(["mh-train", "-q", "--threads", "1", "--config", "base.toml", "--train", text, "--out", str(folder),
                          "--seed", str(seed), *options], capture_output=True, text=True, check=False)
    if process.returncode == 2 and path == "fused" and "constraints of the fused path" in process.stderr:
        return None
    if process.returncode != 0:
        sys.exit(f"{stage}, path {path}: expected exit status 0; found {process.returncode}: {process.stderr}")
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row["loss"] for row in entries if "loss" in row]


def mean_of_last_50(losses):
    return sum(losses[-50:]) / 50


def largest_difference(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def main():
    text = sys.argv[1]
    pathlib.Path("base.toml").write_text(BASE, encoding="utf-8")
    plain_losses = [mean_of_last_50(losses(text, {}, "composed", "bf16", seed)) for seed in (1, 2, 3)]
    spread = max(plain_losses) - min(plain_losses)
    composed_error = largest_difference(losses(text, {}, "composed", "fp32"), losses(text, {}, "composed", "fp32", micro_tokens=256))
    all_equal, refused_names = True, set()
    if unknown := IN_BF16 - stages().keys():
        sys.exit(f"expected stages of mh-train in IN_BF16; found {sorted(unknown)}")
    for name, stage in stages().items():
        tests_bf16 = os.environ.get("MH_FULL") or name in IN_BF16 or stage in COMBINATIONS
        for precision in ("fp32", "bf16") if tests_bf16 else ("fp32",):
            fused = losses(text, stage, "fused", precision)
            if fused is None:
                refused_names.add(name)
                break
            composed = losses(text, stage, "composed", precision)
            if len(fused) != UPDATES or composed[-1] > composed[0] - 0.2:
                sys.exit(f"{name}: expected {UPDATES} losses that fall by 0.2 nats; found {len(fused)} losses, from {composed[0]} to {composed[-1]}")
            if precision == "fp32":
                difference = largest_difference(fused, composed)
                allowed = math.sqrt(UPDATES) * tolerance.fused_bound(composed_error, max(composed))
            else:
                difference, allowed = abs(mean_of_last_50(fused) - mean_of_last_50(composed)), spread
            all_equal &= difference <= allowed
            print(f"{name}, {precision}: {difference:.1e}, allowed {allowed:.1e}{'' if difference <= allowed else ': FAIL'}", flush=True)
    if refused_names != NOT_FUSED:
        print(f"expected no fused path for {sorted(NOT_FUSED)}; found none for {sorted(refused_names)}; correct NOT_FUSED: FAIL")
        all_equal = False
    return 0 if all_equal else 1


if __name__ == "__main__":
    sys.exit(main())
