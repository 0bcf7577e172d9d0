#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch is the judge of convolutional networks:

    parity_torch.py PPCLI ROOT CASE... [--self]

Besides what parity.py compares: the logits of a test with running statistics, before and after, and
the tensors themselves. --self: PyTorch with another order of memory takes the place of
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
import gzip
import os
import sys

sys.dont_write_bytecode = True
import parity  # noqa: E402

NEEDS = "import torch, torchvision, safetensors.torch"
PIXEL = 5e-3  # of one tensor's gradient: a max pool over two equal pixels took the other one
TESTED = 10
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)

# Every op: strides, "same", groups, both norms, four activations, both pools, a residual.
SMALL = " ".join("""conv:16x3 batchnorm relu
 conv:16x3,bias=off groupnorm:4 silu add:3
 maxpool:3/2,pad=same conv:32x3/2,pad=same gelu
 conv:32x3,groups=4,bias=off batchnorm tanh maxpool:3/1,pad=1 avgpool:2
 linear:40 relu linear:10""".split())

# Odd channels, windows, paddings and groups, of images that are not square.
ODD = " ".join("""conv:15x3/2,pad=2,groups=5 batchnorm relu
 maxpool:3/2,pad=same conv:15x5,pad=same,bias=off groupnorm:5 silu add:3 conv:15x2,groups=15,pad=1
 avgpool:4/3,pad=2 batchnorm conv:33x1 tanh conv:7x9,pad=4 gelu linear:10""".split())
SHAPES = {"odd": (5, 17, 31)}  # of images; the others have those of CIFAR-10

# name: [model], rows of a batch, micro-batches, learning rate, stages of ppcli. A rate is as large
# as rounding allows: 20 steps change the losses by tens of percent.
CASES = {
    "small": ("type = sequential\nlayers = " + SMALL, 24, 3, 0.001, 2),
    "small-whole": ("type = sequential\nlayers = " + SMALL, 24, 1, 0.001, 1),
    "odd": ("type = sequential\nlayers = " + ODD, 14, 3, 0.001, 3),
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


class Case(parity.Case):
    def __init__(self, torch, root, name, scratch):
        import torch_nets
        self.nets = torch_nets
        model, self.batch, microbatches, self.lr, stages = CASES[name]
        parser = configparser.ConfigParser()
        parser.read_string("[model]\n" + model)
        torch.manual_seed(1)
        shape = SHAPES.get(name)
        net = torch_nets.of_config(parser["model"], shape=shape or (3, 32, 32))
        condition(torch, net)
        data = "dataset = cifar10\npath = %s\nmean = %g %g %g\nstd = %g %g %g" % (
            scratch, *MEAN, *STD)
        if shape:
            data = "dataset = npy\n" + "\n".join("%s_%s = %s/%s-%s.npy" % (s, w, scratch, s, w)
                                                 for s in ("train", "test")
                                                 for w in ("images", "labels"))
        super().__init__(torch, net, scratch, microbatches,
                         "[data]\n%s\n[model]\n%s\n[pipeline]\nstages = %d\nmicrobatches = %d\n"
                         "[train]\noptimizer = sgd\nbatch_size = %d\nepochs = %d\n"
                         % (data, model, stages, microbatches, self.batch, parity.STEPS))
        if shape:
            self.train, self.test = (self.random(s, n, shape)
                                     for s, n in (("train", 4 * self.batch), ("test", TESTED)))
            return
        folder = os.path.join(root, "data", "cifar10-sample")
        self.train, self.test = (self.records(folder, f, n) for f, n in (
            ("data_batch_1", 500 // self.batch * self.batch), ("test_batch", TESTED)))

    def name(self, key):
        return self.nets.name_in_files(key)

    def records(self, folder, name, n):
        """The first n, to a file for ppcli and as tensors."""
        with gzip.open("%s/%s.bin.gz" % (folder, name)) as f:
            raw = f.read(n * 3073)
        with open("%s/%s.bin" % (self.scratch, name), "wb") as f:
            f.write(raw)
        t = self.torch.frombuffer(bytearray(raw), dtype=self.torch.uint8).reshape(n, 3073)
        mean, std = (self.torch.tensor(v).reshape(3, 1, 1) for v in (MEAN, STD))
        return (t[:, 1:].reshape(n, 3, 32, 32).float() / 255 - mean) / std, t[:, 0].long()

    def random(self, name, n, shape):
        """Images and labels, to files for ppcli and as tensors."""
        import numpy
        draw = numpy.random.default_rng(n)
        channels, high, wide = shape
        x = draw.standard_normal((n, high, wide, channels)).astype(numpy.float32)
        y = numpy.arange(n) % 10
        numpy.save("%s/%s-images.npy" % (self.scratch, name), x)
        numpy.save("%s/%s-labels.npy" % (self.scratch, name), y)
        return self.torch.tensor(x).permute(0, 3, 1, 2).contiguous(), self.torch.tensor(y)

    def batches(self):
        import numpy
        import ppcli_numbers
        images, labels = self.train
        for epoch in range(parity.STEPS):
            order = ppcli_numbers.permutation(numpy, numpy.arange, 1, len(labels), epoch)
            for rows in self.torch.tensor(order).split(self.batch):
                yield images[rows], labels[rows]

    def input(self, x, net):
        return x.to(next(net.parameters()).dtype).contiguous(memory_format=self.layout)

    def of_torch(self, layout, dtype, steps=parity.STEPS):
        self.layout = layout
        net = copy.deepcopy(self.net).to(memory_format=layout, dtype=dtype).train()
        statistics = self.nets.Statistics(net)
        return self.by_torch(
            net, steps, lambda n: self.torch.optim.SGD(n.parameters(), lr=self.lr).step,
            statistics.commit)

    def logits(self, net):
        net.eval()
        with self.torch.no_grad():
            return net(self.test[0])

    def predicted(self, program, checkpoint):
        path = self.scratch + "/predictions.csv"
        self.ppcli(program, "eval", "--checkpoint", checkpoint, "--predictions", path)
        with open(path, encoding="ascii") as f:
            rows = list(csv.DictReader(f))
        return self.torch.tensor([[float(v) for k, v in r.items() if k.startswith("logit")] for r in rows])


def judge(torch, name, program, root, scratch):
    case, j = Case(torch, root, name, scratch), parity.Judge(name)
    losses, _, net = case.of_torch(torch.contiguous_format, torch.float32)
    gradients = case.of_torch(torch.contiguous_format, torch.float64, 1)[1]
    before, after = case.logits(case.net), case.logits(net)
    if program:
        run = scratch + "/run"
        ours = case.by_ppcli(program, run, case.lr)
        our_gradients = case.gradients(program)
        j.tensors("logits of PyTorch's file by ppcli", case.predicted(program, case.init), before)
        j.tensors("logits of ppcli's checkpoint by ppcli", case.predicted(program, run), after)
    else:
        ours = case.of_torch(torch.channels_last, torch.float32)
        our_gradients = ours[1]
    j.losses(ours[0], losses)
    j.gradients(our_gradients, gradients, PIXEL, 2)
    j.tensors("logits after %d steps" % parity.STEPS, case.logits(ours[2]), after)
    theirs = net.state_dict()
    for k, t in ours[2].state_dict().items():
        if k.endswith(("running_mean", "running_var")):
            j.bad += not torch.allclose(t, theirs[k], rtol=1e-3, atol=1e-4)
        elif k.endswith("num_batches_tracked"):
            j.bad += t.item() != 7 + parity.STEPS or theirs[k].item() != 7 + parity.STEPS
    return j.bad


if __name__ == "__main__":
    sys.exit(parity.main(NEEDS, judge))
