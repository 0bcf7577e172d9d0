#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch is the judge of convolutional networks:

    parity_torch.py PPCLI ROOT CASE... [--self]

Both programs begin with the weights of one file that PyTorch made, see the same batches, cut them
into the same micro-batches. Compared are the losses of 20 steps, the gradients of the first, the
logits of a test with running statistics, before and after, and the tensors themselves; PyTorch loads
what ppcli saved with strict=True. --self: PyTorch with another order of memory takes the place of
ppcli, which tells how much of a difference is rounding.

A ReLU whose input is rounded to the other side of 0 changes a gradient by far more than rounding
does, and batch norm over few values spreads that: from random initial values two orders of memory in
PyTorch already differ by 4e-3 in the gradients of a resnet18. So the norms of a resnet begin with
scales and shifts that keep most inputs of a ReLU away from 0 (see `condition`), and the gradients are
those of PyTorch in double precision.

The exit code is 77 where no interpreter (this one, PPCLI_TEST_PYTHON) has torch, torchvision and
safetensors."""

import configparser
import copy
import csv
import glob
import gzip
import json
import os
import subprocess
import sys
import tempfile

NEEDS = "import torch, torchvision, safetensors.torch"
TOLERANCE = 1e-4
PIXEL = 5e-3  # of one tensor's gradient: a max pool over two equal pixels took the other one
STEPS, TESTED, RATE = 20, 10, 64.0
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)

# Every op: strides, "same", groups, both norms, four activations, both pools, a residual.
SMALL = " ".join("""conv:16x3 batchnorm relu
 conv:16x3,bias=off groupnorm:4 silu add:3
 maxpool:3/2,pad=same conv:32x3/2,pad=same gelu
 conv:32x3,groups=4,bias=off batchnorm tanh maxpool:3/1,pad=1 avgpool:2
 linear:40 relu linear:10""".split())

# name: [model], rows of a batch, micro-batches, learning rate, stages of ppcli. A rate is as large
# as rounding allows: 20 steps change the losses by tens of percent.
CASES = {
    "small": ("type = sequential\nlayers = " + SMALL, 24, 3, 0.001, 2),
    "small-whole": ("type = sequential\nlayers = " + SMALL, 24, 1, 0.001, 1),
    "resnet18": ("type = resnet\ndepth = 18\nstem = cifar\n", 16, 4, 1e-4, 2),
    "resnet18-group": ("type = resnet\ndepth = 18\nstem = cifar\nnorm = group\n", 8, 2, 1e-4, 2),
    "resnet50-same": ("type = resnet\ndepth = 50\nstride = 1x1\npadding = same\n"
                      "norm_momentum = 0.01\nclasses = 10\n", 64, 4, 1e-5, 2),
    "resnet50": ("type = resnet\ndepth = 50\nclasses = 1000\n", 64, 4, 1e-5, 2),
}


def condition(torch, net):
    """Initial values of the norms: scales around 1, shifts of a few deviations, three of four up;
    what a block adds to its residual is smaller. Running statistics that are not 0 and 1."""
    draw = torch.Generator().manual_seed(7)

    def uniform(n, low, high):
        return low + (high - low) * torch.rand(n, generator=draw)

    blocks = type(net).__name__ == "ResNet"
    for name, m in net.named_modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            n = len(m.running_mean)
            m.running_mean.copy_(uniform(n, -0.1, 0.1))
            m.running_var.copy_(uniform(n, 0.5, 1.5))
            m.num_batches_tracked.fill_(7)
        if isinstance(m, (torch.nn.BatchNorm2d, torch.nn.GroupNorm)):
            n = len(m.weight)
            m.weight.data = uniform(n, 0.75, 1.25)
            m.bias.data = uniform(n, -0.5, 0.5)
            if blocks:
                shift = uniform(n, 2.25, 2.75)
                m.bias.data = torch.where(uniform(n, 0, 1) < 0.75, shift, -shift)
            block = net.get_submodule(name.rsplit(".", 1)[0]) if "." in name else net
            last = "bn3" if hasattr(block, "bn3") else "bn2"
            if blocks and (name.endswith(last) or "downsample" in name):
                m.bias.data = m.bias.data.abs()
            if blocks and name.endswith(last):
                m.weight.data *= 0.25
    if blocks:
        net.fc.weight.data *= 0.1


class Case:
    def __init__(self, torch, root, name, scratch):
        import torch_nets
        self.torch, self.nets, self.scratch = torch, torch_nets, scratch
        model, self.batch, self.microbatches, self.lr, self.stages = CASES[name]
        parser = configparser.ConfigParser()
        parser.read_string("[model]\n" + model)
        torch.manual_seed(1)
        self.net = torch_nets.of_config(parser["model"])
        condition(torch, self.net)
        self.init = scratch + "/init.safetensors"
        self.save(self.net, self.init)
        folder = os.path.join(root, "data", "cifar10-sample")
        self.train, self.test = (self.records(folder, f, n) for f, n in (
            ("data_batch_1", 500 // self.batch * self.batch), ("test_batch", TESTED)))
        self.config = scratch + "/net.ini"
        with open(self.config, "w", encoding="ascii") as f:
            f.write("[data]\ndataset = cifar10\npath = %s\nmean = %g %g %g\nstd = %g %g %g\n"
                    "[model]\n%s\n[pipeline]\nstages = %d\nmicrobatches = %d\n"
                    "[train]\noptimizer = sgd\nbatch_size = %d\nepochs = %d\n[run]\nlog_every = 1\n"
                    % (scratch, *MEAN, *STD, model, self.stages, self.microbatches, self.batch,
                       STEPS))

    def records(self, folder, name, n):
        """The first n, to a file for ppcli and as tensors."""
        with gzip.open("%s/%s.bin.gz" % (folder, name)) as f:
            raw = f.read(n * 3073)
        with open("%s/%s.bin" % (self.scratch, name), "wb") as f:
            f.write(raw)
        t = self.torch.frombuffer(bytearray(raw), dtype=self.torch.uint8).reshape(n, 3073)
        mean, std = (self.torch.tensor(v).reshape(3, 1, 1) for v in (MEAN, STD))
        return (t[:, 1:].reshape(n, 3, 32, 32).float() / 255 - mean) / std, t[:, 0].long()

    def save(self, net, path):
        from safetensors.torch import save_file
        save_file({self.nets.name_in_files(k): v.contiguous() for k, v in net.state_dict().items()},
                  path)

    def batches(self):
        """In ppcli's order, by its definition."""
        import numpy
        import ppcli_numbers
        images, labels = self.train
        for epoch in range(STEPS):
            order = ppcli_numbers.permutation(numpy, numpy.arange, 1, len(labels), epoch)
            for rows in self.torch.tensor(order).split(self.batch):
                yield images[rows], labels[rows]

    def by_torch(self, layout, dtype, steps=STEPS):
        """Losses, gradients of the first step, the net afterwards."""
        net = copy.deepcopy(self.net).to(memory_format=layout, dtype=dtype).train()
        statistics = self.nets.Statistics(net)
        opt = self.torch.optim.SGD(net.parameters(), lr=self.lr)
        losses, gradients = [], None
        for (x, y), _ in zip(self.batches(), range(steps)):
            opt.zero_grad()
            x = x.to(dtype).contiguous(memory_format=layout)
            loss = self.nets.backward(net, x, y, self.microbatches)
            losses.append(loss.item())
            if not gradients:
                gradients = {self.nets.name_in_files(k): p.grad.clone()
                             for k, p in net.named_parameters()}
            opt.step()
            statistics.commit()
        return losses, gradients, net

    def logits(self, net):
        net.eval()
        with self.torch.no_grad():
            return net(self.test[0])

    # --- ppcli

    def ppcli(self, program, *words):
        p = subprocess.run([program, words[0], self.config, *words[1:]], check=False, text=True,
                           stdin=subprocess.DEVNULL, capture_output=True)
        if p.returncode != 0:
            raise SystemExit("ppcli %s: exit %d: %s" % (" ".join(words), p.returncode, p.stderr))

    def trained(self, program, folder, steps, lr):
        """The tensors of its checkpoint."""
        from safetensors.torch import load_file
        self.ppcli(program, "train", "--quiet", "--dir", folder, "--max-steps", str(steps), "--lr",
                   repr(lr), "--set", "train.init=" + self.init)
        out = {}
        for part in glob.glob("%s/checkpoints/step-%08d/stage-*" % (folder, steps)):
            out.update(load_file(part))
        return {k: t for k, t in out.items() if not k.startswith("optimizer.")}

    def predicted(self, program, checkpoint):
        path = self.scratch + "/predictions.csv"
        self.ppcli(program, "eval", "--checkpoint", checkpoint, "--predictions", path)
        with open(path, encoding="ascii") as f:
            rows = list(csv.reader(f))[1:]
        return self.torch.tensor([[float(v) for v in r[2:]] for r in rows])

    def loaded(self, tensors):
        names = {self.nets.name_in_files(k): k for k in self.net.state_dict()}
        net = copy.deepcopy(self.net)
        net.load_state_dict({names.get(k, k): t for k, t in tensors.items()}, strict=True)
        return net

    def by_ppcli(self, program):
        """The same three of ppcli, and its own logits before and after."""
        run, one = self.scratch + "/run", self.scratch + "/one"
        after = self.trained(program, run, STEPS, self.lr)
        with open(run + "/metrics.jsonl", encoding="utf-8") as f:
            losses = [r["loss"] for r in map(json.loads, f) if r["type"] == "step"]
        # What a step of plain descent took off; a large rate keeps the rounding of weights small.
        step = self.trained(program, one, 1, RATE)
        gradients = {}
        for name, p in self.net.named_parameters():
            name = self.nets.name_in_files(name)
            gradients[name] = (p.detach().double() - step[name].double()) / RATE
        return losses, gradients, self.loaded(after), self.predicted(program, self.init), \
            self.predicted(program, run)


class Judge:
    def __init__(self, case):
        self.case, self.bad = case, 0

    def near(self, what, apart, of, tolerance=TOLERANCE):
        far = not apart <= tolerance * of
        self.bad += far
        print("%s%s: %s: %.2g of %.4g apart" % ("FAR: " if far else "", self.case, what, apart, of))

    def tensors(self, what, ours, theirs):
        self.near(what, float((ours.double() - theirs.double()).norm()), float(theirs.norm()))


def judge(torch, name, program, root):
    with tempfile.TemporaryDirectory() as scratch:
        case, j = Case(torch, root, name, scratch), Judge(name)
        losses, _, net = case.by_torch(torch.contiguous_format, torch.float32)
        gradients = case.by_torch(torch.contiguous_format, torch.float64, 1)[1]
        before, after = case.logits(case.net), case.logits(net)
        if program:
            ours = case.by_ppcli(program)
            j.tensors("logits of PyTorch's file by ppcli", ours[3], before)
            j.tensors("logits of ppcli's checkpoint by ppcli", ours[4], after)
        else:
            ours = case.by_torch(torch.channels_last, torch.float32)
        if len(ours[0]) != STEPS:
            raise SystemExit("%s: %d losses, expected %d" % (name, len(ours[0]), STEPS))
        print("%s: losses of PyTorch: %s" % (name, " ".join("%.6f" % v for v in losses[::3])))
        step = max(range(STEPS), key=lambda i: abs(ours[0][i] - losses[i]) / losses[i])
        j.near("losses, step %d" % (step + 1), abs(ours[0][step] - losses[step]), losses[step])
        whole = sum(float(g.norm()) ** 2 for g in gradients.values()) ** 0.5
        apart = {k: float((ours[1][k].double() - g).norm()) for k, g in gradients.items()}
        j.near("gradients of step 1", sum(a * a for a in apart.values()) ** 0.5, whole)
        # Each by itself, too. Some are all rounding: of a bias before a norm, for one. The last
        # layer's can be a hundred times all others, and does not set their measure.
        rest = sum(float(g.norm()) ** 2 for g in list(gradients.values())[:-2]) ** 0.5
        of = {k: float(g.norm()) + 0.01 * rest for k, g in gradients.items()}
        worst = max(apart, key=lambda k: apart[k] / of[k])
        j.near("gradient of " + worst, apart[worst], of[worst], PIXEL)
        j.tensors("logits after %d steps" % STEPS, case.logits(ours[2]), after)
        theirs = net.state_dict()
        for k, t in ours[2].state_dict().items():
            if k.endswith(("running_mean", "running_var")):
                j.bad += not torch.allclose(t, theirs[k], rtol=1e-3, atol=1e-4)
            elif k.endswith("num_batches_tracked"):
                j.bad += t.item() != 7 + STEPS or theirs[k].item() != 7 + STEPS
        return j.bad


def main():
    program, root, *names = [w for w in sys.argv[1:] if w != "--self"]
    if subprocess.run([sys.executable, "-c", NEEDS], stderr=subprocess.DEVNULL,
                      check=False).returncode != 0:
        python = os.environ.pop("PPCLI_TEST_PYTHON", None)
        if not python:
            print("skipped: %s cannot %s (set PPCLI_TEST_PYTHON to one that can)"
                  % (sys.executable, NEEDS))
            return 77
        return subprocess.run([python, *sys.argv], check=False).returncode
    import torch
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(root, "scripts", "peers"))
    torch.set_num_threads(1)
    bad = sum(judge(torch, n, None if "--self" in sys.argv else program, root) for n in names)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
