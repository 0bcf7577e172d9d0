#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which models of the zoo ppcli takes:

    table.py [NAME...] [--program build/ppcli] [--archives FOLDER] [--explain-only]

Exports each as a user would, with its dropout, asks `ppcli explain`, then trains two steps. Prints a table
in Markdown, what ppcli refused with its words, and sums. --archives: those of export.py, so that nothing is
exported again. The exit code is 77 where torch is missing, else 0: what is refused is no failure."""

import os
import sys
import tempfile

import zoo

zoo.start()
import compare  # noqa: E402
import export  # noqa: E402
from data import Data  # noqa: E402
from ours import Config, Refused, settings  # noqa: E402

STEPS = 2


def judge(entry, args, folder):
    """(exported, explained, trained): each "yes" or why not."""
    path = os.path.join(args.archives or folder, entry.name + ".pt2")
    if not os.path.exists(path):
        why = export.try_export(entry, path)
        if why:
            return why, "", ""
    config = Config(args.program, folder, Data(entry, folder, args.batch or entry.batch, STEPS), path,
                    more=["--set", "run.threads=%d" % args.threads, *args.word])
    try:
        config.call("explain")
    except Refused as e:
        return "yes", str(e), ""
    if args.explain_only:
        return "yes", "yes", ""
    try:
        losses = config.train("run", STEPS, *settings("adamw", 1e-3)).losses()
    except Refused as e:
        return "yes", "yes", str(e)
    return "yes", "yes", "yes" if len(losses) == STEPS else "%d losses" % len(losses)


def main():
    p = compare.options(__doc__.splitlines()[0])
    p.add_argument("--archives", help="folder with NAME.pt2")
    p.add_argument("--explain-only", action="store_true")
    args = p.parse_args()
    sums, reasons = [0, 0, 0], {}
    entries = zoo.entries(args.names)
    print("| model | family | exported | explained | trained |\n|---|---|---|---|---|")
    for entry in entries:
        with tempfile.TemporaryDirectory() as folder:
            row = judge(entry, args, folder)
        for i, word in enumerate(row):
            sums[i] += word == "yes"
        wrong = next((w for w in row if w not in ("yes", "")), None)
        if wrong:
            reasons.setdefault(wrong.replace(entry.name + ".pt2", "NAME.pt2"), []).append(entry.name)
        print("| %s | %s | %s |" % (entry.name, entry.family, " | ".join(w.replace("|", "/") for w in row)), flush=True)
    print("\n%d models: %d exported, %d explained, %d trained" % (len(entries), *sums))
    for why, names in sorted(reasons.items(), key=lambda r: -len(r[1])):
        print("- %s: %s" % (" ".join(names), why))
    return 0


if __name__ == "__main__":
    sys.exit(main())
