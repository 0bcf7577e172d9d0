# SPDX-License-Identifier: Apache-2.0
"""What parity_torch.py and parity_text.py share. Both programs begin with the weights of one file that
PyTorch made, see the same batches, cut them into the same micro-batches. Compared are the losses of
STEPS steps, the gradients of the first in double precision, and what PyTorch loads, with strict=True,
from ppcli's checkpoint."""

import copy
import glob
import json
import os
import subprocess
import sys
import tempfile

TOLERANCE = 1e-4
STEPS, RATE = 20, 64.0
# A run of ppcli or of PyTorch: losses, gradients of the first step by name, the net afterwards.


class Case:
    """One net and one config. A class of it gives `batches`, and `name` where files have others."""

    def __init__(self, torch, net, scratch, microbatches, text):
        self.torch, self.net, self.scratch, self.microbatches = torch, net, scratch, microbatches
        self.init, self.config = scratch + "/init.safetensors", scratch + "/net.ini"
        from safetensors.torch import save_file
        save_file({self.name(k): v.contiguous() for k, v in net.state_dict().items()}, self.init)
        with open(self.config, "w", encoding="ascii") as f:
            f.write(text + "[run]\nlog_every = 1\n")

    def name(self, key):
        """In files, of a tensor of state_dict()."""
        return key

    def batches(self):
        """Inputs and targets of each step, in ppcli's order, by its definition."""
        raise NotImplementedError

    # --- PyTorch

    def input(self, x, net):
        return x

    def by_torch(self, net, steps=STEPS, optimizer=None, after=lambda: None):
        """optimizer(net) gives the function that takes a step."""
        import torch_parts
        take = optimizer(net) if optimizer else lambda: None
        losses, gradients = [], None
        for (x, y), _ in zip(self.batches(), range(steps)):
            net.zero_grad()
            losses.append(torch_parts.backward(net, self.input(x, net), y,
                                               self.microbatches).item())
            gradients = gradients or {self.name(k): p.grad.clone()
                                      for k, p in net.named_parameters()}
            take()
            after()
        return losses, gradients, net

    # --- ppcli

    def ppcli(self, program, *words):
        p = subprocess.run([program, words[0], self.config, *words[1:]], check=False, text=True,
                           stdin=subprocess.DEVNULL, capture_output=True)
        if p.returncode != 0:
            raise SystemExit("ppcli %s: exit %d: %s" % (" ".join(words), p.returncode, p.stderr))

    def trained(self, program, folder, steps, lr, *words):
        """The tensors of its checkpoint."""
        from safetensors.torch import load_file
        self.ppcli(program, "train", "--quiet", "--dir", folder, "--max-steps", str(steps), "--lr",
                   repr(lr), "--set", "train.init=" + self.init, *words)
        out = {}
        for part in glob.glob("%s/checkpoints/step-%08d/stage-*" % (folder, steps)):
            out.update(load_file(part))
        return {k: t for k, t in out.items() if not k.startswith("optimizer.")}

    def loaded(self, tensors):
        names = {self.name(k): k for k in self.net.state_dict()}
        net = copy.deepcopy(self.net)
        net.load_state_dict({names.get(k, k): t for k, t in tensors.items()}, strict=True)
        return net

    def losses(self, folder):
        with open(folder + "/metrics.jsonl", encoding="utf-8") as f:
            return [r["loss"] for r in map(json.loads, f) if r["type"] == "step"]

    def by_ppcli(self, program, folder, lr, *words):
        after = self.trained(program, folder, STEPS, lr, *words)
        return self.losses(folder), None, self.loaded(after)

    def gradients(self, program, *words):
        """What a step of plain descent took off; a large rate keeps the rounding of weights small."""
        step = self.trained(program, self.scratch + "/one", 1, RATE, *words)
        return {self.name(k): (p.detach().double() - step[self.name(k)].double()) / RATE
                for k, p in self.net.named_parameters()}


class Judge:
    def __init__(self, case):
        self.case, self.bad = case, 0

    def near(self, what, apart, of, tolerance=TOLERANCE):
        far = not apart <= tolerance * of
        self.bad += far
        print("%s%s: %s: %.2g of %.4g apart" % ("FAR: " if far else "", self.case, what, apart, of))

    def tensors(self, what, ours, theirs):
        self.near(what, float((ours.double() - theirs.double()).norm()), float(theirs.norm()))

    def losses(self, ours, theirs, what="losses"):
        if len(ours) != STEPS:
            raise SystemExit("%s: %d losses, expected %d" % (self.case, len(ours), STEPS))
        print("%s: %s of PyTorch: %s" % (self.case, what, " ".join("%.6f" % v for v in theirs[::3])))
        step = max(range(STEPS), key=lambda i: abs(ours[i] - theirs[i]) / theirs[i])
        self.near("%s, step %d" % (what, step + 1), abs(ours[step] - theirs[step]), theirs[step])

    def gradients(self, ours, theirs, each, last):
        """All within TOLERANCE, each by itself within `each`. Some are all rounding: of a bias before
        a norm, for one. The `last` ones can be a hundred times all others: they set no measure."""
        whole = sum(float(g.norm()) ** 2 for g in theirs.values()) ** 0.5
        apart = {k: float((ours[k].double() - g).norm()) for k, g in theirs.items()}
        self.near("gradients of step 1", sum(a * a for a in apart.values()) ** 0.5, whole)
        rest = sum(float(g.norm()) ** 2
                   for g in list(theirs.values())[:len(theirs) - last]) ** 0.5
        of = {k: float(g.norm()) + 0.01 * rest for k, g in theirs.items()}
        worst = max(apart, key=lambda k: apart[k] / of[k])
        self.near("gradient of " + worst, apart[worst], of[worst], each)


def main(needs, judge):
    """judge(torch, case, program, root, scratch) of every CASE in PPCLI ROOT CASE... [--self], program
    None with --self, by an interpreter that can say `needs`: this one or PPCLI_TEST_PYTHON."""
    program, root, *names = [w for w in sys.argv[1:] if w != "--self"]
    if subprocess.run([sys.executable, "-c", needs], stderr=subprocess.DEVNULL,
                      check=False).returncode != 0:
        python = os.environ.pop("PPCLI_TEST_PYTHON", None)
        if not python:
            print("skipped: %s cannot %s (set PPCLI_TEST_PYTHON to one that can)"
                  % (sys.executable, needs))
            return 77
        return subprocess.run([python, *sys.argv], check=False).returncode
    import torch
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(root, "scripts", "peers"))
    torch.set_num_threads(1)
    bad = 0
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            bad += judge(torch, name, None if "--self" in sys.argv else program, root, scratch)
    return 1 if bad else 0
