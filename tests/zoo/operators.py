#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch one by one: small programs around each, trained by ppcli and by PyTorch.

    operators.py [NAME...] [--program build/ppcli] [--list]

A program is a line below: x is [B][6][8], or [B][4][6][8] as an image after a convolution; a is a parameter. What it
gives goes through a linear to logits. The rows are those of compare.py, for two steps."""

import math
import sys
import tempfile
import types

import zoo

zoo.start()
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import compare  # noqa: E402
from ours import Refused  # noqa: E402

TEXT, IMAGE = (6, 8), (4, 6, 8)

# name: shape of x, shape of a or None, the statements; the last one is the result
PROGRAMS = {}


def each(codes, shape=TEXT, a=None):
    for code in codes:
        PROGRAMS["image: " + code if shape is IMAGE else code] = shape, a, code


# ---- views
each(["x.view(-1, 2, 3, 8).transpose(1, 3).reshape(x.shape[0], -1, 4)", "x[:, 2] + x[:, -1]",
      "x[:, 1:5:2] * x[:, 0:4:2] + x[:, ::3]", "x.permute(0, 2, 1).reshape(x.shape[0], -1)[:, 3:17]",
      "x.permute(0, 2, 1).reshape(x.shape[0], -1)[:, 13].unsqueeze(1).repeat(1, 3)",
      "x[:, :1].expand(-1, 5, -1) * x[:, 1:]", "x.chunk(3, 1)[0] * x.chunk(3, 1)[2]",
      "torch.cat(x.split([2, 4], 1)[::-1], 1)", "x.unbind(1)[0] * x.unbind(1)[5]",
      "x.tensor_split(4, 1)[0].mean(1) * x.tensor_split(4, 1)[3].mean(1)", "x.flip(1) * x + x.flip((1, 2))",
      "x[:, :1].squeeze(1).unsqueeze(-1).squeeze()", "x.swapaxes(1, 2).mT * 1.5",
      "x.unflatten(-1, (2, 4)).transpose(1, 2).flatten(2)", "x.clone() + 1", "(x > 0).float() * x + x.to(torch.int64)",
      "x.repeat(1, 2, 3)", "x.repeat_interleave(3, 1) * x.repeat_interleave(3, dim=1)", "x.tile(2)"])
each(["x.permute(0, 2, 3, 1).relu().permute(0, 3, 1, 2)", "torch.flatten(x * 2, 1)", "x.flatten(2)[:, :, 5:23] * 2",
      "x.movedim(1, 3).contiguous().movedim((2, 3), (1, 2))", "F.pixel_shuffle(x, 2)", "F.pixel_unshuffle(x, 2)",
      "F.channel_shuffle(x, 2) * 2", "x.view(-1, 2, 2, 6, 8).transpose(1, 2).contiguous().view(-1, 4, 6, 8) * 3",
      "F.interpolate(x, scale_factor=2)",
      "F.interpolate(x, size=(12, 24))", "F.interpolate(x, size=(9, 7))",
      "F.interpolate(x, scale_factor=2, mode='bilinear')", "F.interpolate(x, size=(9, 7), mode='bilinear')",
      "F.interpolate(x, scale_factor=(2, 3), mode='bilinear', align_corners=True)"], IMAGE)
each(["(x.transpose(0, 1).reshape(-1, 8) * a).view(6, -1, 8).transpose(0, 1)"], a=(8,))
each(["a.repeat(x.shape[0], 1, 1) * x"], a=(6, 8))
each(["(a.repeat(x.shape[0], 1, 1) * x.view(-1, 4, 2).reshape(-1, 2, 12)).view(x.shape[0], -1)"], a=(2, 2, 12))
# ---- moves
each(["torch.cat([x, x * 2, x[:, :1]], 1)", "torch.cat([x[:, i % 6] * (i + 1) for i in range(70)], 1)",
      "torch.cat([x, x[:, 6:]], 1) * 1", "torch.stack([x, x * 2, x.exp()], 1)", "torch.stack([x, x * 2], -1).flatten(2)",
      "F.pad(x, (1, 2, 3, 0), value=0.5)", "x.roll(1, 1) * x", "x.tril() + x.triu(2) * x", "torch.nan_to_num(x / 0 * (x > 0))",
      "x[:, torch.tensor([0, 2, 2, 5])]",
      "x[:, torch.tensor([0, 2, 5]), torch.tensor([1, 7, 3])]", "x[:, :, torch.tensor([[0, 2], [5, 1]])]",
      "x[torch.arange(x.shape[0])[:, None], torch.tensor([1, 4, 0])[None]]", "x[:, torch.tensor([-1, 0, -2])]",
      "x.index_select(1, torch.tensor([5, 3, 3]))",
      "x.gather(-1, torch.tensor([1, 0, 3, 3, 7])[None, None].expand(x.shape[0], 6, -1))",
      "x.gather(-1, ((torch.arange(6)[:, None] + torch.arange(6)) % 8)[None].expand(x.shape[0], 6, -1))",
      "x.gather(1, torch.tensor([[1, 0, 3], [2, 2, 5]])[None].expand(x.shape[0], 2, 3))"])
each(["F.pad(x, (1, 2, 0, 1))", "F.pad(x, (-1, 2, 1, -2))", "F.pad(x, (1, 2, 3, 0), mode='reflect')",
      "F.pad(x, (1, 2, 3, 1), mode='replicate')", "F.pad(x, (1, 2, 3, 1), mode='circular')",
      "F.pad(x, (0, 0, 0, 0, 1, 1))", "x.roll((2, -3), (2, 3))", "torch.cat([x.flatten(1), (x * 2).flatten(1)], 1)",
      "x.index_select(2, torch.tensor([5, 3, 3, 0])) * 1",
      "x[:, torch.tensor([0, 3]), :, torch.tensor([1, 2])].transpose(0, 1)"], IMAGE)
each(["torch.cat([x, x * 2, a.expand(x.shape[0], -1, -1, -1)], 1)"], IMAGE, (1, 6, 8))
each(["torch.cat([a.expand(x.shape[0], 1, 8), x], 1)"], a=(1, 1, 8))
each(["torch.cat([a, a * 2], 0) + x"], a=(3, 8))
each(["a[torch.tensor([0, 2, 3, 1, 1, 1, 0, 3, 2, 2, 0, 0])].view(6, 2, 4).sum(1).repeat(1, 2) * x"], a=(4, 4))
# ---- elementwise
each(["x.exp()", "x.sigmoid()", "x.tanh()", "x.sin() * x.cos()", "torch.erf(x)", "(x.abs() + 0.1).sqrt()",
      "(x * x + 1).rsqrt()", "(x.abs() + 0.1).log()", "torch.log1p(x.abs())", "torch.expm1(x)",
      "x * (x.floor() + x.ceil() + x.trunc())", "(x * 2.5).round() * x", "x.sign() * x", "1 / (x.abs() + 1)",
      "(x.exp() + 1).reciprocal()", "x.square()", "-x", "x**2", "x**3", "x**4", "(x.abs() + 0.2)**0.5",
      "(x.abs() + 0.2)**-0.5", "(x.abs() + 0.5)**1.7", "2**x", "x**0 + x", "(x.abs() + 1)**-2", "F.relu(x)",
      "F.relu6(x * 4)", "F.hardtanh(x)", "F.hardswish(x * 4)", "F.hardsigmoid(x * 4)", "F.leaky_relu(x, 0.2)",
      "F.elu(x)", "F.elu(x, 0.5)", "F.selu(x)", "F.celu(x, 2.0)", "F.softplus(x - 5)", "F.softplus(x * 20, 2, 10)",
      "F.softsign(x)", "F.silu(x)", "F.gelu(x)", "F.gelu(x, approximate='tanh')", "F.mish(x * 3)", "F.mish(x * 30)",
      "F.logsigmoid(x)", "F.threshold(x, 0.3, 2.0)", "F.hardshrink(x)", "F.softshrink(x)", "F.tanhshrink(x)",
      "F.glu(x, 1)", "F.glu(x, -1)", "x.clamp(-0.5, 0.7)", "x.clamp(max=0.1)", "x.clamp_min(0.1)",
      "torch.where(x > 0, 1.0, x)", "x.masked_fill(x > 0.5, -1.0)", "3 - x", "x / 3", "3 / (x.abs() + 1)", "x % 0.7",
      "torch.fmod(x, 0.7)", "x / math.sqrt(8) + torch.tensor(2.0)", "F.normalize(x, dim=-1)", "x + x",
      "x * x.flip(1)", "F.softmin(x, -1)", "F.dropout(x, 0.5, False)",
      "x * (((x > 0) & (x < 1)).float() + ((x > 0) | (x < -1)) * 2.0 + (~(x > 0)) * 4.0 + ((x > 0) ^ (x > 1)) * 8.0)"])
each(["torch.maximum(x, a)", "torch.minimum(x, a)", "torch.clamp(x, a, a + 1)", "x.lerp(a, 0.3)",
      "torch.addcmul(x, a, x, value=0.5)", "torch.addcdiv(x, x, a + 3, value=0.5)", "torch.where(x > 0, x, a)", "x + a",
      "x - a * 2", "torch.add(x, a, alpha=3)", "torch.sub(x, a, alpha=3)", "x / (a + 3)",
      "x * ((x < a).float() + (x <= 0).float() * 3 + (x >= a).float() * 5)"],
     a=(8,))
each(["F.prelu(x, a)", "x + a[:, None, None]"], IMAGE, (4,))
each(["x * x.mean((2, 3), keepdim=True).sigmoid()"], IMAGE)
# ---- sums
each(["x.sum(1)", "x.mean(-1)", "x.mean(-1, keepdim=True) * x", "x.mean((1, 2))[:, None]", "x.var(-1)",
      "x.var(-1, unbiased=False, keepdim=True) + x", "x.std(1)",
      "torch.var_mean(x, (1,), correction=0)[1] + torch.var_mean(x, (1,), correction=0)[0]", "x.norm(dim=-1)",
      "x.norm(p=1, dim=-1)", "x.cumsum(1)", "x.cumsum(-1) * x", "x.softmax(-1)", "x.softmax(1)", "x.log_softmax(-1)", "x.transpose(1, 2).softmax(-1)",
      "x[:, 1:4].softmax(1)", "torch.softmax(x.view(-1, 2, 3, 8), 2)"])
each(["(x * a).sum(-1) + a.sum()", "a.softmax(0) * x", "a.mean() * x"], a=(8,))
each(["x.mean((2, 3))", "x.relu().mean((2, 3), keepdim=True).flatten(1)", "x.softmax(1)", "x.sum(1)", "x.sum((2, 3)) / 9", "x.mean(3)"], IMAGE)
# ---- in place
each(["y = x * 1; z = y; z.relu_(); x + y", "y = x * 1; y.add_(1).mul_(2); y", "y = x * 1; y[:, 1:3].mul_(3); y",
      "y = x * 1; y[:, :, 2].zero_(); y * 2", "y = x * 1; y.view(-1, 2, 3, 8)[:, 1].fill_(2.0); y",
      "z = x.new_zeros(x.shape[0], 6, 8); z[:, 1:] = x[:, :-1]; z[:, 0] = 7; z", "y = x * 1; y[:, ::2] += 1; y * y",
      "z = x.new_zeros(x.shape[0], 6, 8); z[:, :, 1:3].copy_(x[:, :, 4:6]); z.masked_fill_(z == 0, 5.0); z",
      "y = x + 1; y[:, 1:3, 2:5] *= 2; y", "y = x + 1; z = y[:, 0]; y.mul_(2); y + z[:, None]"])
each(["y = x * 1; y.permute(0, 2, 3, 1)[:, 1:4].add_(1); y * y"], IMAGE)
each(["y = x * 1; y.transpose(1, 2).add_(a[:, None]); y + 1", "b = a.clone(); b[2:4].zero_(); x + b"], a=(8,))


class Net(torch.nn.Module):
    def __init__(self, shape, a, code):
        super().__init__()
        self.shape = shape
        self.first = torch.nn.Conv2d(3, shape[0], 1) if len(shape) == 3 else torch.nn.Linear(7, math.prod(shape))
        self.a = torch.nn.Parameter(torch.randn(a)) if a else None
        *before, last = code.split("; ")
        text = "def run(x, a):\n%s    return %s\n" % ("".join("    %s\n" % s for s in before), last)
        self.run = types.FunctionType(compile(text, "run", "exec").co_consts[0], globals())
        with torch.no_grad():
            n = self.run(torch.zeros(2, *shape), self.a).flatten(1).shape[1]
        self.last = torch.nn.Linear(n, 5)

    def forward(self, x):
        x = self.first(x)
        x = x if len(self.shape) == 3 else x.view(-1, *self.shape)
        return self.last(self.run(x, self.a).flatten(1))


def entry_of(name):
    shape, a, code = PROGRAMS[name]
    image = len(shape) == 3
    return zoo.Entry("program", "operators", "image" if image else "row", (3, *shape[1:]) if image else (7,), 5,
                     lambda: Net(shape, a, code))


def main():
    p = compare.options(__doc__.splitlines()[0])
    p.add_argument("--list", action="store_true", help="the programs")
    p.set_defaults(steps=2, stages=1, microbatches=1, factor=10.0, floor=4e-6, verbose=False)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    chosen = [n for n in PROGRAMS if not args.names or any(part in n for part in args.names)]
    if args.list:
        print("\n".join(chosen))
        return 0
    near = 0
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            try:
                entry = entry_of(name)
                rows, worst = compare.compare(entry, args, folder)
                entry.name = "`%s`" % name.replace("|", "\\|")
                near += compare.show(entry, rows, worst, args)
            except Refused as e:
                print("| %s | refused: %s" % (name, e), flush=True)
    print("\n%d programs, %d near" % (len(chosen), near))
    return 0 if near == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
