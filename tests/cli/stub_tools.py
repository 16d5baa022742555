#!/usr/bin/env python3
"""Stands in for the tools in cases of the driver of experiments: trains nothing and scores a model by the names of its configurations and its seed.

usage: NAME-OF-A-TOOL ARGUMENT..., by a link with the name of the tool. MH_STUB_FAIL=TEXT: a training whose command contains TEXT fails.
MH_STUB_STOP=FILE: a training writes "begun" to FILE, and "saved" half a second after SIGTERM.
A score is 50, minus 3 with mixhead-b among the configurations, plus noise of standard deviation 0.2 that depends on the folder and the seed.
"""
import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import time

name, arguments = pathlib.Path(sys.argv[0]).name, sys.argv[1:]


def values(option):
    return [value for key, value in zip(arguments, arguments[1:]) if key == option]


def files(suffix):
    return [word for word in arguments if word.endswith(suffix)]


def wait_for_stop(file):
    def save(*_):
        time.sleep(0.5)
        file.write_text("saved", encoding="utf-8")
        sys.exit(143)
    signal.signal(signal.SIGTERM, save)
    file.write_text("begun", encoding="utf-8")
    time.sleep(60)


def train():
    text, out = " ".join(arguments), pathlib.Path(values("--out")[0])
    if "MH_STUB_FAIL" in os.environ and os.environ["MH_STUB_FAIL"] in text:
        sys.exit("stub: made failure")
    if "MH_STUB_STOP" in os.environ:
        wait_for_stop(pathlib.Path(os.environ["MH_STUB_STOP"]))
    for model in values("--init") + values("--from"):
        if not pathlib.Path(model).is_file():
            sys.exit(f"stub: no model {model}")
    seed = values("--seed")[0]
    model = {"command": text, "score": 50 - 3 * ("mixhead-b" in " ".join(values("--config"))) + random.Random(f"{out.parent.name} {seed}").gauss(0, 0.2)}
    (out / "checkpoints").mkdir(parents=True)
    for file in ("best.safetensors", "checkpoints/1.safetensors"):
        (out / file).write_text(json.dumps(model), encoding="utf-8")
    checksum = hashlib.sha256(pathlib.Path(values("--train")[0]).read_bytes()).hexdigest()
    lines = [{"parameters": 7, "configuration": f'train_checksum = "{checksum}"'}, {"update": 1, "nll": 4.0, "seconds": 1.0}]
    (out / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def table(column, paths):
    print(f"{column}\tlayer\tvalue")
    for path in paths:
        print(f"{path}\t0\t{pathlib.Path(path).stat().st_size}")


if "--version" in arguments:
    print(f"{name} stub")
elif name in ("mh-train", "mh-finetune"):
    train()
elif name == "mh-convert":
    sys.stdout.write(pathlib.Path(arguments[-1]).read_text(encoding="utf-8"))
elif name == "mh-eval" and arguments[0] == "curves":
    table("run", files(".jsonl"))
elif name == "mh-eval":
    score = json.loads(pathlib.Path(files(".safetensors")[0]).read_text(encoding="utf-8"))["score"]
    print(json.dumps(dict.fromkeys(("perplexity", "bleu", "accuracy", "f1", "matthews", "bits_per_token", "spearman"), score)))
else:
    table("model", files(".safetensors"))
for plot in values("--plot"):
    pathlib.Path(plot).write_text("<svg/>\n", encoding="utf-8")
