# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch peers share: an mlp, its data, optimizers, a step over micro-batches. Equal seeds
give the same numbers, so losses can be compared."""

import torch

import common


def layers(sizes, seed):
    """One module for each layer (the last without relu), with the initial values of ppcli's rule."""
    torch.manual_seed(seed)
    out = []
    for i, (n_in, n_out) in enumerate(zip(sizes, sizes[1:])):
        linear = torch.nn.Linear(n_in, n_out)
        last = i == len(sizes) - 2
        with torch.no_grad():
            torch.nn.init.kaiming_uniform_(linear.weight, nonlinearity="linear" if last else "relu")
            linear.bias.zero_()
        out.append(linear if last else torch.nn.Sequential(linear, torch.nn.ReLU(inplace=True)))
    return out


def optimizer(params, args):
    """The fastest variant that this version has: fused, or one call for all tensors."""
    kinds = {"sgd": (torch.optim.SGD, {}), "momentum": (torch.optim.SGD, {"momentum": 0.9}),
             "adam": (torch.optim.Adam, {}), "adamw": (torch.optim.AdamW, {"weight_decay": 0})}
    kind, more = kinds[args.optimizer]
    params = list(params)
    for fast in ({"fused": True}, {"foreach": True}, {}):
        try:
            return kind(params, lr=args.lr, **more, **fast), next(iter(fast), "plain")
        except (TypeError, RuntimeError, ValueError):
            continue
    raise RuntimeError("no optimizer " + args.optimizer)


def backward(net, x, y, microbatches):
    """The loss of a batch, whose gradients are added to .grad: both are means over its targets (one
    of a row, or one of each position; -100 is ignored), summed over its micro-batches."""
    loss = torch.zeros(())
    for xs, ys in zip(x.tensor_split(microbatches), y.tensor_split(microbatches)):
        out = net(xs)
        one = torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), ys.reshape(-1),
                                                reduction="sum") / (y != -100).sum()
        one.backward()
        loss = loss + one.detach()
    return loss


class Data:
    """Bytes as images, shuffled anew each epoch, as ppcli holds them. Only shapes matter here."""

    def __init__(self, args):
        self.random = torch.Generator().manual_seed(args.seed)
        self.batch = args.batch
        self.images = torch.randint(0, 256, (args.samples, args.sizes[0]), dtype=torch.uint8,
                                    generator=self.random)
        self.labels = torch.randint(0, args.sizes[-1], (args.samples,), generator=self.random)
        self.waiting = []

    def next_rows(self):
        """Numbers of the samples of the next batch."""
        if not self.waiting:
            order = torch.randperm(len(self.labels), generator=self.random)
            self.waiting = list(order.split(self.batch))
        return self.waiting.pop()

    def inputs(self, rows):
        return self.images[rows].to(torch.float32).mul_(1 / 255)

    def targets(self, rows):
        return self.labels[rows]


def prepare(threads):
    """Before any other use of torch: threads take this setting over from the one that makes them."""
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)


def race(peer, args, net, batches, opt, **more):
    """Times steps that take two batches in turns, and reports."""
    losses = []

    def step():
        x, y = batches[0]
        batches.reverse()
        opt.zero_grad(set_to_none=True)
        loss = backward(net, x, y, args.microbatches)
        opt.step()
        if len(losses) < 3:
            losses.append(float(loss))

    blocks = common.measure(step, args)
    args.sizes = dict(args.model)
    common.report(peer, torch.__version__, args, blocks, threads=args.threads,
                  optimizer=args.optimizer, first_losses=losses, **more)
