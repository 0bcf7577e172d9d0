# SPDX-License-Identifier: Apache-2.0
"""What the peers share: the words that describe a problem, timing in blocks, one line of JSON.

A peer is another program that trains the same network with the same batch and micro-batches. Each
one is a script that prints one JSON line for each way it ran, or ends with 77 and one line that
says what is missing here."""

import argparse
import importlib.util
import json
import os
import re
import statistics
import sys
import time

SKIPPED = 77


def skip(reason):
    """End this script: what it needs is not here."""
    print("skipped: " + reason, file=sys.stderr)
    sys.exit(SKIPPED)


def need(*modules):
    for name in modules:
        if importlib.util.find_spec(name) is None:
            skip("no Python module %s in %s" % (name, sys.executable))


def sizes_of(text):
    """784-512x16-10, or as in a config 784 512*16 10: a list of integers."""
    sizes = []
    for word in re.split(r"[-,\s]+", text.strip()):
        found = re.fullmatch(r"(\d+)(?:[x*](\d+))?", word)
        if not found:
            raise argparse.ArgumentTypeError("'%s' in '%s': not a size" % (word, text))
        sizes += [int(found.group(1))] * int(found.group(2) or 1)
    if len(sizes) < 2 or min(sizes) < 1:
        raise argparse.ArgumentTypeError("'%s': two sizes or more, each at least 1" % text)
    return sizes


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("'%s': at least 1" % text)
    return value


def options(description):
    """A parser with what describes the problem and the measurement."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--sizes", type=sizes_of, default=sizes_of("784-512x16-10"), metavar="A-BxN-C",
                   help="widths of the layers (784-512x16-10)")
    p.add_argument("--batch", type=positive, default=512, help="samples of one step (512)")
    p.add_argument("--microbatches", type=positive, default=16, help="pieces of a batch (16)")
    p.add_argument("--lr", type=float, default=0.01, help="learning rate (0.01)")
    p.add_argument("--samples", type=positive, default=16384, help="size of the data set (16384)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--seconds", type=float, default=2.0, help="of one block (2)")
    p.add_argument("--steps", type=positive, help="steps of one block, instead of --seconds")
    p.add_argument("--blocks", type=positive, default=7, help="timed blocks (7)")
    return p


def setting(text):
    key, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError("'%s': not KEY=VALUE" % text)
    return key, value


def net_options(description):
    """Those of a peer that makes its net from the keys of [model]."""
    p = options(description)
    p.add_argument("--model", type=setting, required=True, action="append", metavar="KEY=VALUE",
                   help="a key of the config's [model]; repeatable")
    p.add_argument("--threads", type=positive, default=cores())
    optimizer_option(p)
    return p


def optimizer_option(parser):
    parser.add_argument("--optimizer", choices=("sgd", "momentum", "adam", "adamw"), default="sgd")


def check(parser, args):
    if args.batch % args.microbatches:
        parser.error("--microbatches must divide --batch")
    # Whole batches only: every step does the same work.
    args.samples = max(args.batch, args.samples // args.batch * args.batch)


def measure(step, args, agree=lambda n: n, barrier=lambda: None):
    """Samples per second of each block of steps. Among several processes, every one calls this:
    `agree` gives all of them the first one's number, `barrier` lets them start together."""
    def timed(n):
        barrier()
        start = time.perf_counter()
        for _ in range(n):
            step()
        barrier()
        return time.perf_counter() - start

    if args.steps:
        n = args.steps
        timed(min(n, 3))
    else:
        # The first steps allocate, connect and choose kernels; the next ones tell how long one is.
        timed(2)
        n, seconds = 1, timed(1)
        if agree(int(seconds < 0.1 * args.seconds)):
            n = agree(round(0.2 * args.seconds / seconds))
            seconds = timed(n)
        n = agree(max(1, round(args.seconds * n / seconds)))
    return [n * args.batch / timed(n) for _ in range(args.blocks)]


def report(peer, version, args, blocks, **more):
    """The JSON line of one run."""
    line = {"peer": peer, "version": version, "python": sys.version.split()[0],
            "samples_per_second": float("%.5g" % statistics.median(blocks)),
            "blocks": [float("%.5g" % b) for b in blocks], "sizes": args.sizes, "batch": args.batch,
            "microbatches": args.microbatches}
    line.update(more)
    print(json.dumps(line), flush=True)


def cores():
    return len(os.sched_getaffinity(0))
