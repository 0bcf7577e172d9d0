#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast ppcli trains models of the zoo beside eager PyTorch:

    speed.py [NAME...] [--program build/ppcli] [--threads 2] [--batch 32] [--blocks 5] [--seconds 2]

Both take the same batches and AdamW, on the same number of threads, one stage. They take turns, block by
block; printed are the medians in steps a second and their ratio (above 1: ppcli is faster), with the
smallest and largest ratio of a turn. Nothing is judged. The first steps of a block do not count. PyTorch
is taken on one thread where that is faster. On a machine that does something else too the ratio means nothing: the
load is printed."""

import os
import statistics
import sys
import tempfile
import time

import zoo

zoo.start()
import torch  # noqa: E402

import compare  # noqa: E402
from data import Data  # noqa: E402
from ours import Refused, settings  # noqa: E402

PARTS = 5  # of a block; the first is to warm up


class Eager:
    def __init__(self, net, data):
        self.net, self.data = net, data
        self.take = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def seconds(self, steps):
        start = time.perf_counter()
        for i in range(steps):
            x, y = self.data.batches[i % len(self.data.batches)]
            self.take.zero_grad(set_to_none=True)
            loss = zoo.loss_of(self.net, x, y)
            loss.backward()
            loss.item()
            self.take.step()
        return time.perf_counter() - start

    def rate(self, part, threads):
        """On so many threads, or on one where that is faster, as for small tensors and on a busy machine."""
        rates = []
        for n in {1, threads}:
            torch.set_num_threads(n)
            self.seconds(part)
            rates.append((PARTS - 1) * part / self.seconds((PARTS - 1) * part))
        return max(rates)


def rate_of_ppcli(config, part):
    run = config.train("run", PARTS * part, "--epochs", 100000, *settings("adamw", 1e-4, weight_decay=0.01),
                       "--set", "run.log_every=%d" % part, "--set", "checkpoint.at_end=off", "--set",
                       "checkpoint.every_epochs=0")
    with_time = [r for r in run.records() if r["step"] % part == 0]
    return (with_time[-1]["step"] - with_time[0]["step"]) / (with_time[-1]["seconds"] - with_time[0]["seconds"])


def measure(entry, args, folder):
    """Rates of ppcli and of PyTorch, a pair for each turn."""
    torch.set_num_threads(1)
    trial = Eager(entry.net(noise=True), Data(entry, folder, args.batch, 2))
    part = max(1, round(args.seconds / PARTS / (trial.seconds(6) / 6)))
    data = Data(entry, folder, args.batch, PARTS * part)
    net, config = compare.prepare(entry, args, folder, data, True, True, more=[
        "--set", "run.threads=%d" % args.threads])
    eager = Eager(net, data)
    return [(rate_of_ppcli(config, part), eager.rate(part, args.threads)) for _ in range(args.blocks)]


def main():
    p = compare.options(__doc__.splitlines()[0])
    p.set_defaults(batch=32)
    p.add_argument("--blocks", type=int, default=5)
    p.add_argument("--seconds", type=float, default=2.0, help="of one block")
    args = p.parse_args()
    torch.set_flush_denormal(True)
    print("| model | ppcli, steps/s | PyTorch, steps/s | ratio | of a turn |\n|---|---:|---:|---:|---|")
    ratios = []
    for entry in zoo.entries(args.names):
        with tempfile.TemporaryDirectory() as folder:
            try:
                pairs = measure(entry, args, folder)
            except Refused as e:
                print("| %s | refused: %s | | | |" % (entry.name, e), flush=True)
                continue
        ours, theirs = (statistics.median(v) for v in zip(*pairs))
        each = sorted(a / b for a, b in pairs)
        ratios.append(ours / theirs)
        print("| %s | %.2f | %.2f | %.2f | %.2f to %.2f |" % (entry.name, ours, theirs, ratios[-1], each[0], each[-1]),
              flush=True)
    if ratios:
        print("\n%d models, median ratio %.2f, %d faster; load %.1f" % (
            len(ratios), statistics.median(ratios), sum(r > 1 for r in ratios), os.getloadavg()[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
