#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's pipelining tutorial in one process, and configs/transformer-pytorch.ini beside it.

  pipelining-tutorial.py --who torch,ppcli --epochs 2 --program build/ppcli

All is as the tutorial has it: 32 samples of 500 ones, random targets, 4 micro-batches, the mean loss of
each, SGD with momentum, an epoch is one step. Printed is the sum of the 4 losses, as there. Each program
draws its own initial values and targets. --whole: PyTorch takes the 32 samples at once; with
batch_first = false attention then goes over 32 samples, not 8, which is another function.

PyTorch needs torch; without it the exit code is 77."""

import argparse
import configparser
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
CONFIG = os.path.join(ROOT, "configs", "transformer-pytorch.ini")
sys.path.insert(0, os.path.join(ROOT, "scripts", "peers"))
import common  # noqa: E402  (its folder is known only now)


def say(who, epoch, losses, seconds, tokens):
    print("%s: epoch: %d losses: %.4f, %.1f s, %.0f tokens/s"
          % (who, epoch, losses, seconds, tokens / seconds), flush=True)


def by_torch(args, keys):
    common.need("torch")
    import torch
    import torch_parts
    import torch_transformers
    torch_parts.prepare(args.threads)
    torch.manual_seed(args.seed)
    net = torch_transformers.of_config(keys["model"]).train()
    shape = keys["train"].getint("batch_size"), keys["model"].getint("block_size")
    x = torch.ones(shape, dtype=torch.long)
    y = torch.randint(0, keys["model"].getint("vocab_size"), shape)
    opt = torch.optim.SGD(net.parameters(), lr=keys["train"].getfloat("lr"),
                          momentum=keys["train"].getfloat("momentum"))
    pieces = keys["pipeline"].getint("microbatches")
    for epoch in range(args.epochs):
        start = time.perf_counter()
        opt.zero_grad()
        loss = torch_parts.backward(net, x, y, 1 if args.whole else pieces)
        opt.step()
        say("PyTorch" + (", whole batch" if args.whole else ""), epoch, pieces * float(loss),
            time.perf_counter() - start, y.numel())


def by_ppcli(args, keys):
    with tempfile.TemporaryDirectory() as folder:
        words = [args.program, "train", CONFIG, "--dir", folder + "/run", "--quiet", "--epochs",
                 str(args.epochs), "--log-every", "1", "--set", "checkpoint.at_end=off", "--set",
                 "train.seed=%d" % args.seed, *args.word]
        if subprocess.run(words, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, check=False).returncode != 0:
            sys.exit("failed: " + " ".join(words))
        with open(folder + "/run/metrics.jsonl", encoding="utf-8") as f:
            steps = [r for r in map(json.loads, f) if r["type"] == "step"]
    for epoch, r in enumerate(steps):
        say("ppcli", epoch, keys["pipeline"].getint("microbatches") * r["loss"],
            r["samples"] / r["samples_per_second"],
            r["samples"] * keys["model"].getint("block_size"))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--who", type=lambda t: t.split(","), default=["torch", "ppcli"])
    p.add_argument("--epochs", type=common.positive, default=2)
    p.add_argument("--threads", type=common.positive, default=common.cores(), help="of PyTorch")
    p.add_argument("--whole", action="store_true", help="PyTorch: all samples at once")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--program", default=os.path.join(ROOT, "build", "ppcli"))
    p.add_argument("--word", action="append", default=[], help="one more for ppcli; repeatable")
    args = p.parse_args()
    ways = {"torch": by_torch, "ppcli": by_ppcli}
    if not set(args.who) <= set(ways):
        p.error("--who: torch, ppcli or both")
    keys = configparser.ConfigParser(inline_comment_prefixes=(";",))
    with open(CONFIG, encoding="utf-8") as f:
        keys.read_file(f)
    for who in args.who:
        ways[who](args, keys)


if __name__ == "__main__":
    main()
