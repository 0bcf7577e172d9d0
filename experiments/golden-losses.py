#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses of the first steps as PyTorch computes them, for tests/pipe/test_torch_losses.c.

Trains the same small network on data/mnist-sample with torch, from the same initial values and in
the same order of samples: both are recomputed here from their definition in include/ppcli/base/base.h,
so this is a second implementation, not a copy of the first one's numbers.

usage: golden-losses.py [--check RUN_DIR CASE] > tests/golden/torch-losses.txt
With --check: compare the losses in RUN_DIR/metrics.jsonl (run.log_every = 1) with torch's.
"""
import gzip
import json
import math
import os
import sys

import numpy as np
import torch

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "scripts", "peers"))
import ppcli_numbers  # noqa: E402  (its folder is known only now)

SIZES = [784, 64, 48, 32, 10]
BATCH, STEPS, SEED = 128, 20, 1
# name: activation, optimizer, lr, other settings; the settings of the C test are the same
CASES = {
    "sgd": ("relu", "sgd", 0.1, {}),
    "momentum": ("tanh", "momentum", 0.05, {"momentum": 0.9, "weight_decay": 0.001}),
    "adam": ("gelu", "adam", 0.001, {}),
    "adamw": ("relu", "adamw", 0.002, {"weight_decay": 0.1}),
    "adam-decay": ("relu", "adam", 0.002, {"weight_decay": 0.01}),
    "clip": ("relu", "sgd", 0.5, {"clip_norm": 0.25}),
    "smooth": ("relu", "momentum", 0.05, {"momentum": 0.9, "nesterov": True, "label_smoothing": 0.1}),
    "sum": ("tanh", "sgd", 0.02, {"parts": 4, "lr_schedule": "multistep", "milestones": [7, 12]}),
    "cosine": ("tanh", "sgd", 0.2, {"warmup_steps": 5, "lr_schedule": "cosine"}),
}
def data():
    folder = os.path.join(ROOT, "data", "mnist-sample")
    with gzip.open(os.path.join(folder, "train-images-idx3-ubyte.gz")) as f:
        images = np.frombuffer(f.read()[16:], dtype=np.uint8).reshape(-1, 784)
    with gzip.open(os.path.join(folder, "train-labels-idx1-ubyte.gz")) as f:
        labels = np.frombuffer(f.read()[8:], dtype=np.uint8)
    x = torch.from_numpy(images.astype(np.float32) * np.float32(1.0 / 255.0))
    return x, torch.from_numpy(labels.astype(np.int64))


def model(activation):
    act = {"relu": torch.nn.ReLU, "gelu": torch.nn.GELU, "tanh": torch.nn.Tanh}[activation]
    layers = []
    for i, (n_in, n_out) in enumerate(zip(SIZES, SIZES[1:])):
        last = i == len(SIZES) - 2
        linear = torch.nn.Linear(n_in, n_out)
        w = ppcli_numbers.weight(np, np.arange, np.float32, SEED, i, n_in, n_out,
                                 "none" if last else activation)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(w))
            linear.bias.zero_()
        layers += [linear] if last else [linear, act()]
    return torch.nn.Sequential(*layers)


def rate(lr, more, t):
    warm = more.get("warmup_steps", 0)
    if t <= warm:
        return lr * t / warm
    if more.get("lr_schedule") == "cosine":
        return lr * 0.5 * (1 + math.cos(math.pi * (t - 1 - warm) / (STEPS - warm)))
    if more.get("lr_schedule") == "multistep":
        parameter = torch.optim.SGD([torch.zeros(1)], lr=lr)
        schedule = torch.optim.lr_scheduler.MultiStepLR(parameter, more["milestones"], gamma=0.1)
        for _ in range(1, t):
            parameter.step()
            schedule.step()
        return schedule.get_last_lr()[0]
    return lr


def losses(case):
    activation, kind, lr, more = CASES[case]
    torch.set_num_threads(1)
    net, (x, y) = model(activation), data()
    decay = more.get("weight_decay", 0.0)
    if kind in ("sgd", "momentum"):
        opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=more.get("momentum", 0.0),
                              weight_decay=decay, nesterov=more.get("nesterov", False))
    else:
        opt = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](
            net.parameters(), lr=lr, weight_decay=decay)
    order, out = ppcli_numbers.permutation(np, np.arange, SEED, len(y), 0), []
    for t in range(1, STEPS + 1):
        rows = order[(t - 1) * BATCH:t * BATCH]
        for group in opt.param_groups:
            group["lr"] = rate(lr, more, t)
        opt.zero_grad()
        # "parts": the sum of the means of so many micro-batches of equal size
        parts = more.get("parts", 1)
        smoothing = more.get("label_smoothing", 0.0)
        loss = sum(torch.nn.functional.cross_entropy(net(x[r]), y[r], label_smoothing=smoothing)
                   for r in torch.tensor(rows).chunk(parts))
        loss.backward()
        if "clip_norm" in more:
            torch.nn.utils.clip_grad_norm_(net.parameters(), more["clip_norm"])
        opt.step()
        out.append(loss.item() / parts)
    return out


def check(run_dir, case):
    with open(os.path.join(run_dir, "metrics.jsonl")) as f:
        ours = [r["loss"] for r in map(json.loads, f) if r["type"] == "step"]
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, losses(case)))
    print("%s: %d steps, largest relative difference %.3g" % (case, len(ours), worst))
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--check":
        sys.exit(check(sys.argv[2], sys.argv[3]))
    print("# case and the loss of steps 1..%d; torch %s; made by experiments/golden-losses.py"
          % (STEPS, torch.__version__))
    for name in CASES:
        print(name, " ".join("%.9g" % v for v in losses(name)))
