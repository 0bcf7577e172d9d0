#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a run of a model has the same weights for every way to run it:

    digests.py [NAME...] [--program build/ppcli] [--archives FOLDER] [--steps 3]

Compares weights_sha256 with that of one stage on one thread, dropout and all, for 1 to 4 stages, other
schedules, 2 to 4 threads, other micro-batches (not with batch norm), recomputation, other instruction
sets, and processes under mpirun where that is here. What ppcli refuses for a model, as four stages of three layers, is counted apart.
The exit code is 1 if a digest differs, 77 where torch is missing."""

import os
import shutil
import sys
import tempfile

import zoo

zoo.start()
import compare  # noqa: E402
from data import Data  # noqa: E402
from ours import Refused, settings  # noqa: E402

MICROBATCHES = 4
WAYS = {
    "2 stages": "--stages 2", "3 stages": "--stages 3", "4 stages": "--stages 4",
    "gpipe": "--stages 2 --schedule gpipe", "zb-h1": "--stages 3 --schedule zb-h1",
    "interleaved": "--stages 2 --schedule interleaved --set pipeline.chunks=2", "zb-v": "--stages 2 --schedule zb-v",
    "2 threads": "--set run.threads=2", "3 threads": "--set run.threads=3",
    "4 threads, 2 stages": "--stages 2 --set run.threads=4",
    "recompute": "--set pipeline.recompute=all", "recompute, 3 stages": "--stages 3 --set pipeline.recompute=all",
    "avx2": "PPCLI_KERNELS=avx2", "plain C": "PPCLI_KERNELS=base --set run.threads=2",
    "processes": "--stages 2 --launch mpirun",
    "1 micro-batch": "--microbatches 1", "2 micro-batches": "--microbatches 2", "8 micro-batches": "--microbatches 8",
}


def judge(entry, args, folder):
    """Names of the ways that are equal, that differ, and that are refused with why."""
    net, config = compare.prepare(entry, args, folder, Data(entry, folder, args.batch or entry.batch, args.steps),
                                  noise=True, microbatches=MICROBATCHES)
    normed = any(zoo.is_batch_norm(m) for m in net.modules())

    def digest(words):
        threads = [] if "run.threads" in words else ["--set", "run.threads=1"]
        kernels = [w.split("=") for w in words.split() if w.startswith("PPCLI_KERNELS=")]
        words = [w for w in words.split() if not w.startswith("PPCLI_KERNELS=")]
        run = config.train("run", args.steps, *settings("adamw", 1e-3), *threads, *words, env={
            **os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **dict(kernels)})
        return run.summary()["weights_sha256"]
    wanted = digest("")
    equal, differ, refused = [], [], {}
    for name, words in WAYS.items():
        if "micro-batch" in name and (normed or entry.mixes) or "mpirun" in words and not shutil.which("mpirun"):
            continue
        if args.ways and name not in args.ways:
            continue
        try:
            (equal if digest(words) == wanted else differ).append(name)
        except Refused as e:
            refused[name] = str(e)
    return equal, differ, refused


def main():
    p = compare.options(__doc__.splitlines()[0])
    p.set_defaults(steps=3)
    p.add_argument("--archives", help="folder with NAME.pt2")
    p.add_argument("--way", dest="ways", action="append", choices=list(WAYS), help="only this one; repeatable")
    p.add_argument("--verbose", action="store_true", help="why a way was refused")
    args = p.parse_args()
    print("| model | equal | differ | refused |\n|---|---:|---|---|")
    total, bad, without = 0, 0, 0
    for entry in zoo.entries(args.names):
        with tempfile.TemporaryDirectory() as folder:
            try:
                equal, differ, refused = judge(entry, args, folder)
            except Refused as e:
                without += 1
                print("| %s | | | all: %s |" % (entry.name, e), flush=True)
                continue
        total, bad = total + len(equal) + len(differ), bad + len(differ)
        print("| %s | %d | %s | %s |" % (entry.name, len(equal), ", ".join(differ), ", ".join(refused)), flush=True)
        if args.verbose:
            for name, why in refused.items():
                print("  %s: %s" % (name, why))
    print("\n%d digests, %d differ; %d models have none" % (total, bad, without))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
