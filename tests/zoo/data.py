# SPDX-License-Identifier: Apache-2.0
"""Data for a model of the zoo: files that ppcli reads, and the same batches in the same order for PyTorch.
What is random in ppcli's order is computed from its definition (scripts/peers/ppcli_numbers.py). The data
can be learned a little, so that losses fall."""

import numpy
import torch

import ppcli_numbers
from zoo import TEXT_TOKENS

SEED = 1  # train.seed


class Data:
    """text: keys of [data]; batches: inputs and targets of each step, all of them new; test: those of
    the test, at once."""

    def __init__(self, entry, folder, batch, steps):
        self.entry, self.folder, self.batch, self.steps = entry, folder, batch, steps
        self.draw = numpy.random.default_rng(7)
        {"tokens": self.write_tokens, "texts": self.write_texts}.get(entry.kind, self.write_arrays)()

    def shuffled(self, x, y):
        """Batches of the first epoch, which is the only one."""
        order = torch.tensor(ppcli_numbers.permutation(numpy, numpy.arange, SEED, len(y), 0))
        return [(x[rows], y[rows]) for rows in order.split(self.batch)]

    def write_arrays(self):
        e, parts = self.entry, {}
        columns = len(e.whole)
        prototypes = self.draw.standard_normal((e.classes, *e.shape)).astype(numpy.float32)
        for split, n in (("train", self.steps * self.batch), ("test", 2 * self.batch)):
            y = self.draw.integers(0, e.classes, n)
            y[:e.classes] = numpy.arange(min(n, e.classes))
            y[-1] = e.classes - 1  # ppcli counts classes by the largest label
            x = e.inputs(n, self.draw)
            x[:, columns:] = (x[:, columns:] + prototypes[y][:, columns:]) / numpy.float32(2)
            numpy.save("%s/%s-x.npy" % (self.folder, split), x)
            numpy.save("%s/%s-y.npy" % (self.folder, split), y)
            parts[split] = torch.tensor(x), torch.tensor(y)
        self.batches, self.test = self.shuffled(*parts["train"]), parts["test"]
        self.text = "dataset = npy\n" + "".join(
            "%s_%s = %s/%s-%s.npy\n" % (s, w, self.folder, s, w[0].replace("i", "x").replace("l", "y"))
            for s in ("train", "test") for w in ("images", "labels"))
        if e.kind == "image":
            self.text += "layout = channels_first\n"

    def write_tokens(self):
        t, n = self.entry.shape[0], 3000
        parts = {}
        for name, count in (("train", n), ("val", 2 * self.batch * t + 1)):
            parts[name] = numpy.cumsum(self.draw.integers(0, 4, count)) % self.entry.classes
            parts[name].astype("<u2").tofile("%s/%s.bin" % (self.folder, name))

        def windows(part, starts):
            rows = torch.tensor(part[starts[:, None] + numpy.arange(t + 1)])
            return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
        self.batches = [windows(parts["train"], ppcli_numbers.windows(
            numpy, numpy.arange, SEED, n - t, step * self.batch, self.batch)) for step in range(self.steps)]
        self.test = windows(parts["val"], numpy.arange(2 * self.batch) * t)
        self.text = "dataset = tokens\npath = %s\n" % self.folder

    def write_texts(self):
        t, parts = self.entry.shape[0], {}
        for split, n in (("train", self.steps * self.batch), ("test", 2 * self.batch)):
            y = self.draw.integers(0, self.entry.classes, n)
            y[:self.entry.classes] = numpy.arange(self.entry.classes)
            x = numpy.zeros((n, t), int)
            with open("%s/%s.tsv" % (self.folder, split), "wb") as f:
                for row, label in zip(x, y):
                    text = 97 + self.draw.integers(0, 5, self.draw.integers(1, t + 5)) + 7 * label
                    row[:len(text[:t])] = text[:t] + 1
                    f.write(b"%d\t%s\n" % (label, bytes(text.tolist())))
            assert x.max() < TEXT_TOKENS
            parts[split] = torch.tensor(x), torch.tensor(y)
        self.batches, self.test = self.shuffled(*parts["train"]), parts["test"]
        self.text = ("dataset = text-labels\ntrain_file = %s/train.tsv\ntest_file = %s/test.tsv\ntokens = bytes\n"
                     % (self.folder, self.folder))
