#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/peers counts on. One part a run:

    check_peers.py ROOT parts      sizes, cuts and cases; needs no peer
    check_peers.py ROOT losses     PyTorch trains the same with every schedule (77 without PyTorch)
    check_peers.py ROOT start PPCLI  the GPU's peer begins as ppcli does (77 without PyTorch)
    check_peers.py ROOT rehearsal PPCLI  the GPU's nets, tiny, with the losses of ppcli (77 likewise)

$PEERS_PYTHON names the Python that has torch."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time


def check(what, found, expected):
    if found == expected:
        return 0
    print("%s: %r, expected %r" % (what, found, expected))
    return 1


def parts():
    import common
    import compare
    import compare_cases
    import torch_pipelining
    bad = check("sizes", common.sizes_of("784-512x3-10"), [784, 512, 512, 512, 10])
    bad += check("sizes of a config", common.sizes_of("784 512*3 10"), [784, 512, 512, 512, 10])

    sizes = [784, 128, 127, 126, 125, 124, 123, 10]
    work = [(3 if i else 2) * a * b for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
    for n in range(1, len(work) + 1):
        largest = {first: max(sum(work[a:b]) for a, b in zip((0,) + first, first + (len(work),)))
                   for first in itertools.combinations(range(1, len(work)), n - 1)}
        cut = tuple(torch_pipelining.cuts(sizes, n))
        bad += check("first layer of %d parts" % n, cut[0], 0)
        bad += check("largest of %d parts" % n, largest[cut[1:]], min(largest.values()))

    case = compare_cases.cases()["c2"]
    bad += check("c2", (case.sizes, case.batch, case.microbatches), ("784 512*16 10", 512, 16))
    case = compare_cases.cases()["resnet50"]
    bad += check("resnet50", case.net(), ["--model", "type=resnet", "--model", "depth=50",
                                          "--model", "classes=1000"])
    bad += check("two orders, whole and in pieces",
                 sorted(e.key for e in case.entries if e.who == "PyTorch"),
                 ["torch-channels_last-m1", "torch-channels_last-m4", "torch-contiguous-m1",
                  "torch-contiguous-m4"])

    clock, time.monotonic = time.monotonic, lambda: 1000.0
    compare.Clock.end = 1100.0
    compare.Clock.give(0.5)
    bad += check("half of what is left", compare.Clock.left(1000), 50)
    compare.Clock.give(1)
    bad += check("all of it", compare.Clock.left(1000), 100)
    time.monotonic = clock
    case = compare_cases.cases()["gpt-char-large"]
    bad += check("rates of tokens", (case.unit, case.per_sample, case.microbatches),
                 ("tokens", 256, 4))

    for name, case in compare_cases.cases().items():
        keys = [e.key for e in case.entries]
        bad += check(name + ": keys of their own", len(set(keys)), len(keys))
        for e in case.entries:
            bad += check("%s after its base" % e.key, keys.index(e.base) <= keys.index(e.key), True)

    for name in ("g1", "g2"):
        case = compare_cases.cases()[name]
        for e in case.entries:
            bad += check("%s in its base's precision" % e.key, case.precision_of(e) in e.base
                         if e.who == "ppcli" else e.words[4] in e.base, True)

    rows = {"a": {"who": "ppcli", "base": "a", "label": "a", "blocks": [30, 20, 10]},
            "b": {"who": "peer", "base": "a", "label": "b", "blocks": [10, 10, 10]}}
    bad += check("median of the paired ratios", compare.ratio(rows["b"], rows), "2.00")
    bad += check("spread of neighbours", compare.spread({"blocks": [9, 20, 16, 10, 10]}), 0.25)
    bad += check("one block has no neighbours", compare.spread({"blocks": [9]}), None)

    rows = [{"label": str(x), "said": {"losses": [2.0, x]}} for x in (1.0, 1.00001, 1.1)]
    compare.compare_losses(rows)
    bad += check("other losses fail", ["failed" in r for r in rows], [False, False, True])
    return 1 if bad else 0


def losses(folder):
    """Of three steps, by each PyTorch script."""
    import torch_pipelining
    python = os.environ.get("PEERS_PYTHON") or sys.executable
    problem = ["--sizes", "20-16x6-5", "--batch", "32", "--microbatches", "4", "--lr", "0.1",
               "--steps", "3", "--blocks", "1"]
    runs = [["torch_accumulate.py", "--threads", "1"]]
    runs += [["torch_pipelining.py", "--schedule", s] for s in torch_pipelining.SCHEDULES]
    first, bad, skipped = None, 0, 0
    for script, *words in runs:
        p = subprocess.run([python, os.path.join(folder, script), *words, *problem],
                           capture_output=True, text=True, check=False)
        if p.returncode == 77:
            skipped += 1
            print(p.stderr.strip())
            continue
        if p.returncode:
            print("%s: exit %d: %s" % (words, p.returncode, p.stderr))
            return 1
        said = json.loads(p.stdout)["losses"]
        first = first or said
        bad += check("%s: 3 losses" % words, len(said), 3)
        near = all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(first, said))
        bad += check("%s: losses %s near %s" % (words, said, first), near, True)
    return 1 if bad else 77 if skipped == len(runs) else 0


def start(folder, ppcli):
    """Same weights, same data, same order: so the same first losses, here on the processor."""
    python = os.environ.get("PEERS_PYTHON") or sys.executable
    p = subprocess.run([python, os.path.join(folder, "torch_gpu.py"), "--device", "cpu", "--sizes",
                        "50-64x2-10", "--batch", "64", "--microbatches", "2", "--samples", "512",
                        "--lr", "0.05", "--steps", "1", "--blocks", "1"],
                       capture_output=True, text=True, check=False)
    if p.returncode:
        print(p.stderr.strip())
        return p.returncode
    theirs = json.loads(p.stdout)["losses"]
    with tempfile.TemporaryDirectory() as out:
        words = ["model.sizes=50 64*2 10", "data.dataset=synthetic", "data.train_samples=512",
                 "data.test_samples=16", "train.optimizer=sgd", "train.lr=0.05",
                 "pipeline.microbatches=2", "run.backend=cpu", "checkpoint.at_end=off"]
        config = os.path.join(out, "empty.ini")
        open(config, "w").close()
        sets = [w for setting in words for w in ("--set", setting)]
        subprocess.run([ppcli, "train", config, *sets, "--batch-size", "64", "--max-steps", "3",
                        "--log-every", "1", "--dir", os.path.join(out, "run"), "-q"], check=True,
                       capture_output=True)
        with open(os.path.join(out, "run", "metrics.jsonl"), encoding="utf-8") as f:
            ours = [r["loss"] for r in map(json.loads, f) if r["type"] == "step"]
    bad = check("3 losses", (len(ours), len(theirs)), (3, 3))
    near = all(abs(a - b) <= 1e-6 * abs(a) for a, b in zip(ours, theirs))
    return 1 if check("losses %s near %s" % (theirs, ours), near, True) or bad else 0


def rehearsal(folder, ppcli):
    """Every way of running a transformer; a ResNet, a GPT-2 and the pipeline begin."""
    python = os.environ.get("PEERS_PYTHON") or sys.executable
    if subprocess.run([python, "-c", "import torch, torchvision"], capture_output=True,
                      check=False).returncode:
        print("skipped: %s has no torch and torchvision" % python)
        return 77
    bad = 0
    for words in (["g4"], ["g3", "--only", "eager"], ["gpt2", "--only", "eager"], ["g5"]):
        with tempfile.TemporaryDirectory() as out:
            p = subprocess.run([sys.executable, os.path.join(folder, "compare.py"), "--case", *words,
                                "--rehearsal", "--program", ppcli, "--out", out], check=False,
                               env={**os.environ, "PEERS_PYTHON": python}, capture_output=True,
                               text=True)
            bad += check("%s: exit code, after %s%s" % (words, p.stdout, p.stderr), p.returncode, 0)
            with open(os.path.join(out, "compare.json"), encoding="utf-8") as f:
                rows = json.load(f)["rows"]
        bad += check("%s: rows with a block" % words, [len(r["blocks"]) for r in rows],
                     [1] * len(rows))
        told = [r["said"]["losses"][:2] for r in rows if "losses" in r["said"]]
        near = all(abs(a - b) <= 1e-5 * abs(a) for t in told for a, b in zip(told[0], t))
        bad += check("%s: losses %s near" % (words, told), near, True)
        bad += check("%s: losses of all" % words, len(told), 0 if words == ["g5"] else len(rows))
    return 1 if bad else 0


def main():
    folder = os.path.join(sys.argv[1], "scripts", "peers")
    sys.dont_write_bytecode = True
    sys.path.insert(0, folder)
    if sys.argv[2] in ("start", "rehearsal"):
        return {"start": start, "rehearsal": rehearsal}[sys.argv[2]](folder, sys.argv[3])
    return parts() if sys.argv[2] == "parts" else losses(folder)


if __name__ == "__main__":
    sys.exit(main())
