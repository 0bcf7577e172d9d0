# SPDX-License-Identifier: Apache-2.0
"""For experiments/cifar-accuracy.py and experiments/text-accuracy.py: the same run with several seeds, by PyTorch
or by ppcli, and its mean."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import common

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def parser(doc, data, threads):
    """data: the option that names the data, and what it is; threads: of PyTorch, by default."""
    p = argparse.ArgumentParser(description=doc.splitlines()[0])
    p.add_argument("who", choices=("torch", "ppcli"))
    p.add_argument(data[0], required=True, metavar=data[1])
    p.add_argument("--seeds", type=lambda t: [int(s) for s in t.split(",")], default=[1, 2, 3])
    p.add_argument("--threads", type=common.positive, default=threads, help="of PyTorch")
    p.add_argument("--program", default=os.path.join(ROOT, "build", "ppcli"))
    p.add_argument("--word", action="append", default=[], help="one more for ppcli; repeatable")
    return p


def train(args, config, words):
    """Train with ppcli; its summary."""
    with tempfile.TemporaryDirectory() as folder:
        path, run = os.path.join(folder, "net.ini"), os.path.join(folder, "run")
        with open(path, "w", encoding="utf-8") as f:
            f.write(config)
        words = [args.program, "train", path, "--dir", run, "--quiet", *words, *args.word]
        if subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          check=False).returncode != 0:
            sys.exit("failed: " + " ".join(words))
        with open(os.path.join(run, "summary.json"), encoding="utf-8") as f:
            return json.load(f)


def mean(args, by_torch, by_ppcli, form):
    """form: of what a seed has reached, such as "%.4f"."""
    one = by_torch if args.who == "torch" else by_ppcli
    reached = [one(args, seed) for seed in args.seeds]
    print("%s: mean of %d seeds: %s (%s)" % (args.who, len(reached), form % statistics.mean(reached),
                                             ", ".join(form % r for r in reached)))
