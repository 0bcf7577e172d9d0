# SPDX-License-Identifier: Apache-2.0
"""Runs of ppcli on a model of the zoo: the config, the words, what a run leaves behind."""

import glob
import json
import os
import re
import subprocess

from data import SEED

SECONDS = 600  # a run that takes longer hangs


class Refused(Exception):
    """ppcli ended with another code than 0; the text is what it said, in a line."""


class Config:
    """model: keys of [model], separated by blanks; without it the archive is the model. init: a file of
    initial weights, for a model that is no archive."""

    def __init__(self, program, folder, data, archive=None, model=None, init=None, microbatches=1, more=()):
        self.program, self.folder, self.data = program, folder, data
        self.path = folder + "/net.ini"
        lines = ["from = " + archive] if archive else []
        lines += [w.replace("=", " = ", 1).replace(",", " ") for w in (model or "").split()]
        with open(self.path, "w", encoding="utf-8") as f:
            f.write("[data]\n%s[model]\n%s\n[pipeline]\nstages = 1\nmicrobatches = %d\n[train]\nbatch_size = %d\n"
                    "seed = %d\n%s[run]\nlog_every = 1\nbackend = cpu\nlaunch = threads\n"
                    % (data.text, "\n".join(lines), microbatches, data.batch, SEED,
                       "init = %s\n" % init if init else ""))
        self.more = list(more)

    def call(self, *words, env=None, allowed=(0,)):
        """Standard output of ppcli WORD CONFIG WORD...; allowed: codes that are no refusal."""
        p = subprocess.run([self.program, words[0], self.path, *map(str, words[1:]), *self.more], check=False,
                           text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, env=env)
        if p.returncode not in allowed:
            raise Refused("exit %d: %s" % (p.returncode, self.first_error(p.stderr)))
        return p.stdout

    def first_error(self, text):
        """Its line, without the names of folders; a program that died may have none."""
        lines = [line for line in text.splitlines() if line.strip()] or ["said nothing"]
        line = next((line for line in lines if "error:" in line), lines[-1])
        return re.sub(r"(?:/[\w.+-]+)+/(?=[\w.+-]+)", "", line.replace("ppcli: ", "").replace("error: ", ""))[:300]

    def train(self, name, steps, *words, **how):
        """A Run of so many steps."""
        folder = os.path.join(self.folder, name)
        self.call("train", "--quiet", "--dir", folder, "--overwrite", "--max-steps", steps, *words,
                  **how)
        return Run(folder, steps)


class Run:
    def __init__(self, folder, steps):
        self.folder, self.steps = folder, steps

    def summary(self):
        with open(self.folder + "/summary.json", encoding="utf-8") as f:
            return json.load(f)

    def records(self):
        with open(self.folder + "/metrics.jsonl", encoding="utf-8") as f:
            return [r for r in map(json.loads, f) if r["type"] == "step"]

    def losses(self):
        return [r["loss"] for r in self.records()]

    def tensors(self):
        """Of its last checkpoint, by name."""
        from safetensors.torch import load_file
        out = {}
        for part in glob.glob("%s/checkpoints/step-%08d/stage-*" % (self.folder, self.steps)):
            out.update(load_file(part))
        return {k: t for k, t in out.items() if not k.startswith("optimizer.")}


def settings(optimizer, lr, **more):
    words = ["--optimizer", optimizer, "--lr", repr(lr)]
    for key, value in more.items():
        words += ["--set", "train.%s=%s" % (key, value)]
    return words
