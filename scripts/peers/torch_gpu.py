#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch on a GPU: the same weights to begin with, the same data in the same order as ppcli's.

  torch_gpu.py --sizes 784-1024x3-10 --batch 128 --microbatches 1 --way graph --precision tf32

--way: eager; compile, torch.compile of forward and loss; graph, the whole step with its optimizer
captured once and replayed. Data lie on the GPU. With --serve it stays and measures one block of so
many seconds for every number on its standard input."""

import sys

import common
import ppcli_numbers

EPOCHS = 4  # orders that are made; then the first one comes again
TOLD = 3    # losses of the first steps


def parse():
    parser = common.options(__doc__.splitlines()[0])
    parser.add_argument("--way", choices=("eager", "compile", "graph"), default="eager")
    parser.add_argument("--precision", choices=("f32", "tf32", "bf16"), default="f32")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: eager only, for its losses (cuda)")
    parser.add_argument("--serve", action="store_true", help="blocks on demand")
    args = parser.parse_args()
    common.check(parser, args)
    if args.device == "cpu" and (args.way != "eager" or args.precision != "f32"):
        parser.error("--device cpu is eager and f32")
    return args


class Training:
    def __init__(self, torch, args):
        self.torch, self.args = torch, args
        self.net = torch.nn.Sequential(*self.layers())
        self.opt = self.optimizer()
        images, labels = ppcli_numbers.synthetic(torch, self.arange, args.seed, args.samples,
                                                 args.sizes[0], args.sizes[-1])
        self.images, self.labels = images.to(torch.uint8), labels
        orders = [ppcli_numbers.permutation(torch, torch.arange, args.seed, args.samples, e)
                  for e in range(EPOCHS)]
        self.order = torch.tensor(orders, device=args.device).reshape(-1, args.batch)
        self.at = torch.zeros(1, dtype=torch.int64, device=args.device)
        self.loss = torch.zeros((), device=args.device)
        self.losses = []
        self.of_part = self.loss_of
        if args.way == "compile":
            self.of_part = torch.compile(self.loss_of, mode="max-autotune" if args.batch >= 1024
                                         else "reduce-overhead")
        for _ in range(TOLD):
            self.step_eager()
            self.losses.append(float(self.loss))
        self.step = self.capture() if args.way == "graph" else self.step_eager

    def arange(self, n):
        return self.torch.arange(n, dtype=self.torch.int64, device=self.args.device)

    def layers(self):
        torch, sizes = self.torch, self.args.sizes
        out = []
        for i, (n_in, n_out) in enumerate(zip(sizes, sizes[1:])):
            last = i == len(sizes) - 2
            linear = torch.nn.Linear(n_in, n_out, device=self.args.device)
            w = ppcli_numbers.weight(torch, self.arange, lambda x: x.to(torch.float32),
                                     self.args.seed, i, n_in, n_out, "none" if last else "relu")
            with torch.no_grad():
                linear.weight.copy_(w)
                linear.bias.zero_()
            out += [linear] if last else [linear, torch.nn.ReLU(inplace=True)]
        return out

    def optimizer(self):
        """The fastest that this version has."""
        for more in ({"fused": True}, {"foreach": True}, {}):
            try:
                return self.torch.optim.SGD(self.net.parameters(), lr=self.args.lr, **more)
            except (TypeError, RuntimeError, ValueError):
                continue
        raise RuntimeError("no optimizer")

    def loss_of(self, rows):
        x = self.images[rows].to(self.torch.float32) * (1 / 255)
        with self.torch.autocast(self.args.device, self.torch.bfloat16,
                                 enabled=self.args.precision == "bf16"):
            out = self.net(x)
        return self.torch.nn.functional.cross_entropy(
            out.to(self.torch.float32), self.labels[rows], reduction="sum") / self.args.batch

    def step_eager(self):
        """Everything that a step does; what it needs from the host is decided without waiting."""
        rows = self.order.index_select(0, self.at)[0]
        self.opt.zero_grad(set_to_none=True)
        self.loss.zero_()
        for part in rows.split(self.args.batch // self.args.microbatches):
            one = self.of_part(part)
            one.backward()
            self.loss += one.detach()
        self.opt.step()
        self.at.copy_((self.at + 1) % len(self.order))

    def capture(self):
        cuda = self.torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(TOLD):
                self.step_eager()
        cuda.current_stream().wait_stream(side)
        self.opt.zero_grad(set_to_none=True)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            self.step_eager()
        return graph.replay


def main():
    args = parse()
    common.need("torch")
    import torch
    if args.device == "cuda" and not torch.cuda.is_available():
        common.skip("PyTorch %s finds no GPU" % torch.__version__)
    if args.way == "compile" and not hasattr(torch, "compile"):
        common.skip("PyTorch %s has no torch.compile" % torch.__version__)
    tf32 = args.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    t = Training(torch, args)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None

    def blocks():
        common.report("torch " + args.way, torch.__version__, args,
                      common.measure(t.step, args, barrier=wait), precision=args.precision,
                      losses=t.losses)

    if not args.serve:
        blocks()
        return
    args.blocks = 1
    for line in sys.stdin:
        args.seconds = float(line)
        blocks()


if __name__ == "__main__":
    main()
