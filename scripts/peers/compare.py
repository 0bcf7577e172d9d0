#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs ppcli and its peers in turns on the same problem and prints a Markdown table.

  scripts/peers/compare.sh --case c1                 PEERS_PYTHON=... names the Python with torch
  scripts/peers/compare.sh --case c2 --only 1f1b     rows whose name has 1f1b, and those they need
  scripts/peers/compare.sh --case g3 --rehearsal     a GPU's case, tiny and on the processor

In each block every entry runs once; the order turns round from block to block (A B C C B A), so
that a machine which gets slower harms all alike. The ratio of a row is the median over the blocks
of (rate of ppcli / rate of the row), both of the same block: above 1, ppcli is faster. A peer with
a schedule is set against ppcli under that schedule, other rows against the config's. What is not
installed here is a row that says so. DIR/compare.json has every block and every command line; it is
written after each block, so that what was measured stays when --limit ends the rest."""

import argparse
import json
import math
import os
import platform
import selectors
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import common
import compare_cases

SERVER_LIMIT = 150  # seconds until a peer has compiled what it wants to
FIRST_STEPS = 2  # of ppcli, before anything is known of its speed
# Of two that began with the same weights and data; products of less than f32 are less equal.
LOSSES_AGREE = {None: 1e-4, "f32": 1e-4, "tf32": 2e-3, "bf16": 2e-2}
ABSENT = 69   # exit code of ppcli: what the run needs is not here
PYTHON = os.environ.get("PEERS_PYTHON") or "python3"


class Skipped(Exception):
    pass


class Late(Skipped):
    """What --limit ended: what was measured before counts."""


class Failed(Exception):
    pass


def reason_in(line):
    """What a program said last, without who said it."""
    for before in ("skipped: ", "ppcli: error: "):
        line = line[len(before):] if line.startswith(before) else line
    return line


class Clock:
    """What --limit leaves."""
    end = math.inf
    turn = math.inf  # of the entry that warms up

    @classmethod
    def left(cls, at_most):
        left = min(at_most, min(cls.end, cls.turn) - time.monotonic())
        if left < 1:
            raise Late("no time left (--limit)")
        return left

    @classmethod
    def give(cls, part):
        """From now on there is no more than this part of what is left: what takes minutes to compile
        leaves time for the others."""
        now = time.monotonic()
        cls.turn = now + part * (cls.end - now)


def run(words, seconds):
    """What a program prints, or Skipped or Failed with its own last line as the reason."""
    limit = Clock.left(300 + 20 * seconds)
    p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = p.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        Clock.left(math.inf)
        raise Failed("no end after %d s" % limit) from None
    finally:
        if p.poll() is None:
            p.terminate()
            try:
                p.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.communicate()
    last = err.strip().splitlines()[-1] if err.strip() else "exit code %d" % p.returncode
    if p.returncode in (common.SKIPPED, ABSENT):
        raise Skipped(reason_in(last))
    if p.returncode:
        raise Failed(last)
    return out


class Ppcli:
    """`ppcli train` on made-up data for a given number of steps."""

    def __init__(self, case, entry, args):
        stages, schedule, *more = entry.words
        self.args, self.dir = args, os.path.join(args.out, case.name + "-" + entry.key)
        config = os.path.join(args.out, case.name + ".ini")
        with open(config, "w", encoding="utf-8") as f:
            f.write(case.config)
        self.words = [args.program, case.measured_by, config, "--quiet",
                      "--stages", stages, "--schedule", schedule,
                      "--set", "data.dataset=" + case.dataset, "--set", "data.test_samples=16",
                      "--set", "data.train_samples=%d" % case.samples,
                      "--set", "checkpoint.every_epochs=0", "--set", "checkpoint.at_end=off", *more]
        if case.weights:
            self.words += ["--set", "train.init=" + case.weights]
        self.same_start = case.same_start
        self.precision = case.precision_of(entry)
        self.batch = case.batch
        self.said = None
        self.steps = args.steps or FIRST_STEPS

    def warm_up(self):
        while True:
            rate, seconds = self.once(self.steps)
            if self.args.steps:
                return
            if seconds > 0.1 * self.args.seconds:
                break
            # On a GPU a step may take 50 microseconds, and each start seconds.
            self.steps = max(4 * self.steps, round(0.15 * self.args.seconds * rate / self.batch))
        # One more, and one in 20, for the window that is left out.
        self.steps = 1 + math.ceil(1.05 * self.args.seconds * rate / self.batch)

    def once(self, steps):
        self.command = self.words + ["--overwrite", "--dir", self.dir, "--epochs", "1000000",
                                     "--max-steps", str(steps), "--log-every",
                                     str(math.ceil(steps / 20))]
        run(self.command, self.args.seconds)
        with open(os.path.join(self.dir, "metrics.jsonl"), encoding="utf-8") as f:
            windows = [r for r in map(json.loads, f) if r["type"] == "step"]
        if self.same_start and steps == FIRST_STEPS and not self.said:
            self.said = {"losses": [w["loss"] for w in windows], "precision": self.precision}
        # The first window holds the first touch of all memory; peers have steps for that.
        windows = windows[1:] or windows
        seconds = sum(w["samples"] / w["samples_per_second"] for w in windows)
        return sum(w["samples"] for w in windows) / seconds, seconds

    def block(self):
        return self.once(self.steps)[0]


class Bench(Ppcli):
    """`ppcli bench` of one row: its speed, and its bubble beside the simulated one."""

    def warm_up(self):
        self.said = {"bubbles": []}

    def block(self):
        path = self.dir + ".json"
        seconds = 0.02 * self.args.steps if self.args.steps else self.args.seconds
        self.command = self.words + ["--repeat", "1", "--time", "%g" % seconds, "--no-ceilings",
                                     "--format", "json", "-o", path]
        run(self.command, self.args.seconds)
        with open(path, encoding="utf-8") as f:
            row = json.load(f)["rows"][-1]  # behind one stage with all cores
        if row["check"] == "INVALID":
            raise Failed("the weights are not those of one stage")
        self.said["bubbles"].append([row["bubble_measured"], row["bubble_predicted"]])
        return row["samples_per_second"]


class Peer:
    """A script of this folder, started anew for each block."""

    def __init__(self, entry, args):
        script, *words = entry.words
        self.args = args
        self.words = [PYTHON,
                      os.path.join(compare_cases.HERE, script), *words, "--blocks", "1"]
        if args.steps:
            self.words += ["--steps", str(args.steps)]

    def once(self, seconds):
        self.command = self.words + ["--seconds", "%g" % seconds]
        self.said = json.loads(run(self.command, seconds).strip().splitlines()[-1])
        return self.said["samples_per_second"]

    def warm_up(self):
        """Finds out whether it is here, and brings its files into memory."""
        self.once(self.args.seconds / 4)

    def block(self):
        return self.once(self.args.seconds)


class Server(Peer):
    """A script that stays: it compiles and captures once, and measures a block when asked."""

    def __init__(self, entry, args):
        super().__init__(entry, args)
        self.process = None

    def start(self):
        self.command = self.words + ["--serve"]
        self.told = tempfile.TemporaryFile("w+")  # a pipe that nobody reads would stop it when full
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, text=True, bufsize=1,
                                        stdout=subprocess.PIPE, stderr=self.told)

    def once(self, seconds):
        if not self.process:
            self.start()
        try:
            self.process.stdin.write("%g\n" % seconds)
        except BrokenPipeError:
            pass  # it has ended, and says why below
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            limit = Clock.left(SERVER_LIMIT + 20 * seconds)
            if not ready.select(limit):
                Clock.left(math.inf)
                raise Failed("no answer for %d s" % limit)
        line = self.process.stdout.readline()
        if not line:
            raise self.reason()
        self.said = json.loads(line)
        return self.said["samples_per_second"]

    def reason(self):
        self.process.communicate()
        self.told.seek(0)
        err = self.told.read()
        last = err.strip().splitlines()[-1] if err.strip() else "it ended without a word"
        if self.process.returncode == common.SKIPPED:
            return Skipped(reason_in(last))
        return Failed(last)

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def runner_of(case, entry, args):
    if entry.who == "ppcli":
        return (Bench if case.measured_by == "bench" else Ppcli)(case, entry, args)
    return (Server if entry.words[0] in compare_cases.SERVERS else Peer)(entry, args)


def make_weights(case, args):
    """The file that ppcli begins with, as PyTorch does; None where there is no PyTorch to make it."""
    path = os.path.join(args.out, case.name + ".safetensors")
    try:
        run([PYTHON, os.path.join(compare_cases.HERE, "torch_gpu.py"), "--write", path,
             *case.problem()], 0)
    except (Skipped, Failed) as e:
        say("%s: no weights that all begin with: %s" % (case.name, e))
        return None
    return path


def close(runner):
    if isinstance(runner, Server):
        runner.close()


def measure(case, entries, args, keep):
    """rows[key]: dict of what an entry gave. keep(rows): called whenever there is more."""
    rows, alive = {}, {}
    case.weights = make_weights(case, args) if case.makes_weights else None
    for e in entries:
        runner = runner_of(case, e, args)
        rows[e.key] = {"case": case.name, "key": e.key, "who": e.who, "label": e.label,
                       "base": e.base, "blocks": []}
        Clock.give(0.5)
        if attempt(rows[e.key], runner.warm_up, e) is False:
            close(runner)
        else:
            alive[e.key] = runner
    Clock.give(1)
    for block in range(args.blocks):
        order = [e for e in entries if e.key in alive]
        for e in order if block % 2 == 0 else reversed(order):
            say("%s: block %d of %d: %s" % (case.name, block + 1, args.blocks, e.label))
            rate = attempt(rows[e.key], alive[e.key].block, e)
            if rate is False:
                close(alive.pop(e.key))
            else:
                rows[e.key]["blocks"].append(rate)
                rows[e.key]["said"] = getattr(alive[e.key], "said", None)
                rows[e.key]["command"] = alive[e.key].command
            compare_losses(rows.values())
            keep(rows.values())
    for runner in alive.values():
        close(runner)
    if case.weights:
        os.remove(case.weights)
    return rows


def compare_losses(rows):
    """Peers that start from the same numbers must come to the same losses."""
    told = [r for r in rows if (r.get("said") or {}).get("losses")]
    for r in told[1:]:
        first, mine = told[0]["said"]["losses"], r["said"]["losses"]
        near = max(LOSSES_AGREE[x["said"].get("precision")] for x in (told[0], r))
        if any(not abs(a - b) <= near * abs(a) for a, b in zip(first, mine)):
            r["failed"] = "losses %s, but %s in '%s'" % (mine, first, told[0]["label"])


def attempt(row, what, entry):
    """what(), or False with the reason in the row."""
    try:
        return what()
    except Late as e:
        if not row["blocks"]:
            row["skipped"] = str(e)
    except Skipped as e:
        row["skipped"] = str(e)
    except (Failed, OSError, ValueError, KeyError) as e:
        row["failed"] = "%s" % e
    say("%s: %s" % (entry.key, row.get("skipped") or row.get("failed") or "stopped (--limit)"))
    return False


def spread(row):
    """The largest difference of two runs of one entry with nothing between them: the last of a
    block that went backwards and the first of the next one. Smaller differences say nothing."""
    b = row["blocks"]
    pairs = [(b[i], b[i + 1]) for i in range(1, len(b) - 1, 2)]
    return max((abs(x / y - 1) for x, y in pairs), default=None)


def bubbles(row):
    """Two more cells where ppcli bench has measured."""
    both = zip(*(row.get("said") or {})["bubbles"])
    return ["%.1f %%" % (100 * statistics.median(b)) for b in both]


def print_table(rows, case, rehearsal, out):
    bench = case.measured_by == "bench"
    print("| case | what | %s/s, median | min | max | ppcli is x times as fast |%s" % (
        case.unit, " bubble | simulated |" if bench else ""), file=out)
    print("|---|---|---:|---:|---:|---:|" + ("---:|---:|" if bench else ""), file=out)
    missing = set()
    for row in rows.values():
        cells = row["label"], "", "", "", ""
        if "skipped" in row:
            if (row["who"], row["skipped"]) in missing:
                continue
            missing.add((row["who"], row["skipped"]))
            cells = "%s: skipped: %s" % (row["who"], row["skipped"]), "", "", "", ""
        elif "failed" in row:
            cells = "%s: failed: %s" % (row["label"], row["failed"]), "", "", "", ""
        else:
            b = row["blocks"]
            rates = ["%.0f" % (r * case.per_sample) for r in (statistics.median(b), min(b), max(b))]
            cells = row["label"], *rates, "" if rehearsal else ratio(row, rows), *(bubbles(row) if bench else ())
        print("| %s |" % " | ".join([row["case"], *(c.replace("|", "/") for c in cells)]), file=out)


def ratio(row, rows):
    """Text of the last column; the number goes into the row."""
    key = next(iter(rows)) if row["who"] == "ppcli" else row["base"]
    base = rows.get(key)
    if not base or "failed" in base or not (base["blocks"] and row["blocks"]):
        return ""
    row["ratio"] = statistics.median(b / r for b, r in zip(base["blocks"], row["blocks"]))
    with_which = base["label"].split(", ")[-1] if key != next(iter(rows)) else ""
    return "%.2f%s" % (row["ratio"], " (%s)" % with_which if with_which else "")


def describe(program):
    """The machine and the program, in a few lines that go above the tables."""
    cpu = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            cpu = next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    load = os.getloadavg()[0]
    facts = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "cpu": cpu,
             "cores": common.cores(), "load": round(load, 2),
             "ppcli": subprocess.run([program, "version"], capture_output=True, text=True,
                                     check=True).stdout.splitlines(),
             "environment": {k: v for k, v in os.environ.items()
                             if k.startswith(("OPENBLAS_", "OMP_", "MKL_", "PEERS_", "SHALLOWSPEED_"))}}
    if load > 0.5:
        facts["warning"] = "load %.1f before the start: other programs are running" % load
    return facts


def choose(case, only):
    """The entries whose key or label has one of the words, and the ones they are divided by."""
    if not only:
        return case.entries
    wanted = {e.key for e in case.entries if any(w in e.key or w in e.label for w in only)}
    wanted |= {e.base for e in case.entries if e.key in wanted}
    return [e for e in case.entries if e.key in wanted]


def say(text):
    print("compare: " + text, file=sys.stderr, flush=True)


def parse(cases):
    root = os.path.join(compare_cases.HERE, "..", "..")
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default=os.path.join(root, "build"), help="build folder (build)")
    p.add_argument("--program", metavar="FILE", help="ppcli itself, instead of --build")
    p.add_argument("--case", choices=[*cases, "all"], default="all")
    p.add_argument("--out", default=os.path.join(root, "runs", "peers"), metavar="DIR",
                   help="where compare.json goes (runs/peers)")
    p.add_argument("--only", action="append", metavar="WORD", help="only rows with it; repeatable")
    p.add_argument("--seconds", type=float, default=2.0, help="of one block (2)")
    p.add_argument("--steps", type=common.positive, help="steps of one block, instead of --seconds")
    p.add_argument("--blocks", type=common.positive, default=7, help="(7)")
    p.add_argument("--limit", type=float, metavar="SECONDS", help="nothing begins later, and what "
                   "has been measured is told")
    p.add_argument("--rehearsal", action="store_true", help="a GPU's cases with tiny nets on the "
                   "processor: whether everything starts")
    args = p.parse_args()
    if args.limit:
        Clock.end = time.monotonic() + args.limit
    if args.rehearsal and not args.steps:
        args.steps, args.blocks = FIRST_STEPS, 1
    wanted = args.program or os.path.join(args.build, "ppcli")
    args.program = shutil.which(wanted)
    if not args.program:
        p.error("no ppcli in %s (--build)" % args.build if wanted.startswith(args.build)
                else "no program %s (--program)" % wanted)
    return args


def main():
    rehearsal = "--rehearsal" in sys.argv
    cases = compare_cases.cases(rehearsal)
    args = parse(cases)
    facts = describe(args.program)
    everything = []
    for name, value in facts.items():
        print("%s: %s" % (name, "; ".join(value) if isinstance(value, list) else value))
    os.makedirs(args.out, exist_ok=True)
    path = os.path.join(args.out, "compare.json")

    def keep(rows):
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump({"schema": 1, **facts, "rehearsal": rehearsal, "blocks": args.blocks,
                       "seconds": args.seconds, "rows": [*everything, *rows]}, f, indent=1)
            f.write("\n")
        os.replace(path + ".new", path)

    for case in cases.values() if args.case == "all" else [cases[args.case]]:
        rows = measure(case, choose(case, args.only), args, keep)
        print("\n%s: %s, batch %d, %d micro-batches, %s%s\n" % (
            case.name, case.sizes, case.batch, case.microbatches, case.optimizer,
            ": a rehearsal, whose speeds mean nothing" if rehearsal else ""))
        print_table(rows, case, rehearsal, sys.stdout)
        first = next(iter(rows.values()), None)
        again = spread(first) if first else None
        if again is not None:
            print("\n%s twice in a row differs by up to %.1f %%: a smaller difference is a tie."
                  % (first["label"], 100 * again))
        sys.stdout.flush()
        everything += rows.values()
        keep([])
    say("wrote " + path)
    return 1 if any("failed" in row for row in everything) else 0


if __name__ == "__main__":
    sys.exit(main())
