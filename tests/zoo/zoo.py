# SPDX-License-Identifier: Apache-2.0
"""What a model of the zoo is: a module that takes one tensor and gives logits, and what its data look
like. The models themselves are in models.py (torchvision, transformers) and nets.py (written out).

Kinds of input:
  image    floats [B][C][H][W]; shape is (C, H, W)
  row      floats [B][F]; shape is (F,); the first columns may hold whole numbers, see `whole`
  tokens   whole numbers [B][T], targets [B][T] are the next ones; shape is (T,), classes the vocabulary
  texts    whole numbers [B][T], one label a sample; shape is (T,); token 0 fills up, a byte is 1 more"""

import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TEXT_TOKENS = 257
ZOO = {}


class Entry:
    def __init__(self, name, family, kind, shape, classes, build, whole=(), batch=8, mixes="", lr=0.05):
        self.name, self.family, self.kind, self.shape, self.classes = name, family, kind, shape, classes
        self.build, self.whole, self.batch, self.mixes, self.lr = build, whole, batch, mixes, lr

    def net(self, seed=1, noise=False):
        """In train mode, with initial values of the seed; noise: with the dropout that the model has."""
        import torch
        torch.manual_seed(seed)
        net = self.build().train()
        return net if noise else without_noise(net)

    def inputs(self, batch, draw):
        """Samples [batch][...] as numpy has them, drawn from its generator."""
        import numpy
        if self.kind in ("tokens", "texts"):
            return draw.integers(1, self.classes if self.kind == "tokens" else TEXT_TOKENS, (batch, *self.shape))
        x = draw.standard_normal((batch, *self.shape)).astype(numpy.float32)
        for column, values in enumerate(self.whole):
            x[:, column] = draw.integers(0, values, batch)
        return x


def model(name, family, kind, shape, classes, **more):
    """Registers what a function builds."""
    def add(build):
        ZOO[name] = Entry(name, family, kind, shape, classes, build, **more)
        return build
    return add


def without_noise(net):
    """Every probability of dropout becomes 0, also those that a config or an attribute holds."""
    def clear(holder):
        for key, value in list(vars(holder).items()):
            if isinstance(value, float) and ("drop" in key.lower() or key == "noise"):
                setattr(holder, key, 0.0)
    for module in net.modules():
        clear(module)
        if "Drop" in type(module).__name__ or type(module).__name__ == "StochasticDepth":
            for key in ("p", "drop_prob"):
                if hasattr(module, key):
                    setattr(module, key, 0.0)
        if hasattr(module, "config"):
            clear(module.config)
    return net


def is_batch_norm(module):
    return type(module).__name__.startswith("BatchNorm")


def logits(out):
    """Alone, or the first of what a model gives."""
    import torch
    if isinstance(out, torch.Tensor):
        return out
    return out.logits if hasattr(out, "logits") else out[0]


def loss_of(net, x, y):
    """The mean cross entropy over the targets."""
    import torch
    out = logits(net(x))
    return torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))


def entries(names):
    """Those named, or all; the whole zoo needs torchvision and transformers, else their part is left out."""
    import models  # noqa: F401  (fills ZOO)
    import nets  # noqa: F401
    wrong = [n for n in names if n not in ZOO]
    if wrong:
        sys.exit("no model %s; there are: %s" % (wrong[0], " ".join(ZOO)))
    return [ZOO[n] for n in names] if names else list(ZOO.values())


def start():
    """Before all else in a program: ends it with 77 where torch is missing, and finds the other folders."""
    sys.dont_write_bytecode = True
    sys.path.append(os.path.join(ROOT, "scripts", "peers"))
    import common
    common.need("torch", "numpy", "safetensors")
