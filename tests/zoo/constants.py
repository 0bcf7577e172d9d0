#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the constants that ppcli computes from an archive with those of PyTorch, node by node:

    constants.py [--dump PROGRAM] [ARCHIVE.pt2...]

Without archives, many small expressions with arguments drawn by chance are exported and compared. Integers
and bools must be equal, floats near: PyTorch's own functions are exact to a unit in the last place or two.
PROGRAM is build/tests/unit/dump_constants."""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import warnings

import zoo

zoo.start()
import numpy  # noqa: E402
import torch  # noqa: E402

F = torch.nn.functional


class Draw(random.Random):
    """Draws arguments. Tensors become buffers of `module`, the same ones in each call of forward()."""

    def __init__(self, module, key):
        super().__init__(key)
        self.module, self.key, self.n = module, key, 0

    def keep(self, make):
        name = "b%d_%d" % (self.key, self.n)
        self.n += 1
        if not hasattr(self.module, name):
            self.module.register_buffer(name, make())
        return getattr(self.module, name)

    def shape(self, low=0, high=4):
        return [self.choice((1, 2, 3, 3, 4)) for _ in range(self.randint(low, high))]

    def near(self, shape):
        """A shape that can be broadcast with it."""
        return [s if self.random() < 0.7 else 1 for s in shape[self.randint(0,
            len(shape)) if self.random() < 0.3 else 0:]]

    def floats(self, shape, dtype=torch.float32, low=-3.0, high=3.0):
        return self.view(self.keep(lambda: torch.empty(shape, dtype=dtype).uniform_(low, high)))

    def ints(self, shape, low=-5, high=6, dtype=torch.int64):
        return self.view(self.keep(lambda: torch.randint(low, high, shape, dtype=dtype)))

    def bools(self, shape):
        return self.view(self.keep(lambda: torch.rand(shape) < 0.5))

    def view(self, t):
        """With other strides, at times."""
        if t.dim() > 1 and self.random() < 0.3:
            a, b = self.sample(range(t.dim()), 2)
            return t.transpose(a, b).contiguous().transpose(a, b)
        return t

    def any(self, shape):
        return self.choice((self.floats, self.floats, self.ints, self.bools,
                            lambda s: self.floats(s, torch.float64),
                            lambda s: self.ints(s, dtype=torch.int32)))(shape)

    def number(self, shape):
        return self.choice((self.ints, self.floats, lambda s: self.floats(s, torch.float64)))(shape)

    def dim(self, t):
        return self.randrange(-t.dim(), t.dim())

    def dims(self, t):
        return self.sample(range(t.dim()), self.randint(1, t.dim()))


def pair(d, make):
    """Two tensors that can be broadcast, or a tensor and a number."""
    shape = d.shape()
    a, b = make(shape), make(d.near(shape))
    return (a, d.choice((2, 3.5, -1))) if d.random() < 0.25 else (b, a) if d.random() < 0.3 else (a, b)


def binary(function, make="number"):
    return lambda d: function(*pair(d, getattr(d, make)))


def unary(function, low=-3.0, high=3.0):
    return lambda d: function(d.choice((d.floats(d.shape(), low=low, high=high), d.ints(d.shape(), 1, 3))))


def along(function, make="number", low=1):
    def case(d):
        t = getattr(d, make)(d.shape(low))
        return function(t, d.dim(t))
    return case


def over(function, make="floats"):
    def case(d):
        t = getattr(d, make)(d.shape(1))
        return function(t, dim=d.dims(t), keepdim=d.random() < 0.5)
    return case


def written(write):
    """A clone that is written in place, and read afterwards through the clone and a view."""
    def case(d):
        t = d.number(d.shape(2)).clone()
        part = t[d.randrange(t.shape[0])]
        write(d, part)
        return t + 0, part * 1
    return case


def indices(d, size, shape):
    return d.ints(shape, -size, size)


def index_case(d):
    t = d.any([3, 4, 2])
    shape = d.shape(1, 2)
    i, j = indices(d, 3, shape), indices(d, 4, d.near(shape) or [1])
    return d.choice((lambda: t[i], lambda: t[:, j], lambda: t[i, j], lambda: t[i, :, indices(d, 2, shape)],
                     lambda: t[:, j, indices(d, 2, shape)], lambda: t[None, i, 1:]))()


def gather_case(d):
    t = d.any(d.shape(1))
    dim = d.dim(t)
    shape = [d.randint(1, s) for s in t.shape]
    shape[dim] = d.randint(1, 5)
    return torch.gather(t, dim, d.ints(shape, 0, t.shape[dim]))


def put_case(d):
    t = d.number([4, 3]).clone()
    i = torch.tensor([2, 0, 1])
    t.index_put_((i, d.ints([3], 0, 3)), d.floats([3]).to(t.dtype), accumulate=d.random() < 0.5)
    return t


def slice_case(d):
    t = d.any(d.shape(1))
    n = t.shape[-1]
    return t[..., d.randint(-n, n):d.randint(-n, n + 2):d.randint(1, 3)]


def pad_case(d):
    t = d.number(d.shape(2))
    return F.pad(t, [d.randint(0, 2) for _ in range(2 * d.randint(1, 2))], value=d.choice((0, 1.5)))


def extreme_case(d):
    t = d.number(d.shape(1))
    pick = d.choice((torch.max, torch.min))
    return tuple(pick(t, d.dim(t), keepdim=d.random() < 0.5))


def top_case(d):
    t = d.floats(d.shape(1))
    dim = d.dim(t)
    return tuple(torch.topk(t, d.randint(1, t.shape[dim]), dim, largest=d.random() < 0.5))


def product_case(d):
    m, k, n = d.shape(3, 3)
    lead = d.shape(0, 1)
    a, b = d.choice(((lead + [m, k], [k, n]), (lead + [m, k], lead + [k, n]), ([k], [k, n]), ([m, k], [k]), ([k], [k])))
    return torch.matmul(d.floats(a), d.floats(b))


def einsum_case(d):
    a, b, c = d.shape(3, 3)
    text, x, y = d.choice((("ab,bc->ac", [a, b], [b, c]), ("a,b->ab", [a], [b]), ("abc,abc->b", [a, b, c], [a, b, c]),
                           ("bad,cd->bac", [b, a, c], [b, c]), ("a,a->", [a], [a])))
    return torch.einsum(text, d.floats(x), d.floats(y))


def arange_case(d):
    start, step = d.randint(-3, 3), d.randint(1, 3)
    return d.choice((lambda: torch.arange(d.randint(1, 9)), lambda: torch.arange(start, start + 7, step),
                     lambda: torch.arange(5, -5, -step), lambda: torch.arange(0.5, 4, 0.3),
                     lambda: torch.arange(4, dtype=torch.float32), lambda: torch.linspace(start, 2.5, d.randint(1,
                         9))))()


def mask_case(d):
    n = d.randint(2, 5)
    mask = torch.full((n, n), float("-inf")).triu(d.randint(-1, 2))
    return mask, mask.masked_fill(d.bools([n, n]), d.choice((0.0, -1e9))), torch.ones(n, n).tril(d.randint(-1, 1)) == 0


CASES = {
    "add": binary(torch.add),
    "sub": binary(torch.sub),
    "mul": binary(torch.mul, "any"),
    "div": binary(torch.div),
    "alpha": lambda d: torch.add(*[d.floats(d.shape(2, 2)[:1])] * 2, alpha=d.choice((2, 0.5))),
    "rsub": lambda d: d.choice((1, 2.5)) - d.number(d.shape()),
    "floor": binary(lambda a, b: torch.div(a, b * 2 + 1, rounding_mode="floor"), "floats"),
    "cut": binary(lambda a, b: torch.div(a, b * 2 + 1, rounding_mode="trunc"), "ints"),
    "floor_divide": binary(lambda a, b: torch.floor_divide(a, b * 2 + 1), "ints"),
    "remainder": binary(lambda a, b: torch.remainder(a, b * 2 + 1)),
    "fmod": binary(lambda a, b: torch.fmod(a, b * 2 + 1)),
    "pow": lambda d: torch.pow(d.floats(d.shape(), low=0.1), d.choice((2, 3, 0.5, -1, -0.5, 1.7))),
    "pow_ints": lambda d: torch.pow(d.ints(d.shape()), d.randint(0, 5)),
    "base": lambda d: torch.pow(10000.0, d.floats(d.shape(), low=0, high=1)),
    "power": lambda d: torch.pow(d.floats([3, 1], low=0.5), d.floats([4])),
    "maximum": binary(lambda a, b: torch.maximum(a, b + torch.zeros_like(a))),
    "min.other": lambda d: torch.min(d.ints([3, 1]), d.ints([4])),
    "clamp": lambda d: torch.clamp(d.number(d.shape()), d.choice((None, -1, 0.5)), d.choice((1, 2))),
    "clamp_min": lambda d: torch.clamp_min(d.number(d.shape()), 1),
    "clamp_max": lambda d: torch.clamp_max(d.ints(d.shape()), 1),
    "compare": binary(lambda a, b: (a < b, a <= b, a > b, a >= b, a == b, a != b), "any"),
    "logic": lambda d: (lambda a, b: (a & b, a | b, a ^ b, ~a, torch.logical_and(a, b),
        torch.logical_not(b)))(d.bools([3, 1]), d.bools([4])),
    "bits": lambda d: (lambda a, b: (a & b, a | b, a ^ b, ~a, torch.bitwise_and(a, 6), torch.logical_or(a, b),
        torch.logical_xor(a, b)))(d.ints([3, 1]), d.ints([4])),
    "where": lambda d: torch.where(d.bools([3, 1]), d.any([4]), d.any([3, 1])),
    "where_number": lambda d: torch.where(d.bools([3]), d.any([3]), d.choice((0, 1.5, float("-inf")))),
    "masked_fill": lambda d: d.number([2, 3]).masked_fill(d.bools([3]), d.choice((0, -2))),
    "round": lambda d: (lambda t: (t.floor(), t.ceil(), t.round(), t.trunc(), t.sign(), t.abs(), -t, t.relu(),
        t.square()))(d.floats(d.shape())),
    "along": lambda d: (lambda t: (t.isnan(), t.cumsum(0)))(d.floats(d.shape(1))),
    "sort": along(lambda t, dim: tuple(torch.sort(t, dim=dim, stable=True)), "ints"),
    "sort_down": along(lambda t, dim: tuple(torch.sort(t, dim=dim, stable=True, descending=True)), "ints"),
    "argsort": along(lambda t, dim: torch.argsort(t, dim), "floats"),
    "topk": top_case,
    "extreme": extreme_case,
    "argmax": along(torch.argmax),
    "argmin": along(lambda t, dim: torch.argmin(t, dim, keepdim=True)),
    "cumsum": along(torch.cumsum, "any"),
    "diff": along(lambda t, dim: torch.diff(t, dim=dim), "number"),
    "diff_joined": lambda d: torch.diff(d.ints([2, 4]), prepend=d.ints([2, 1]), append=d.ints([2, 2])),
    "sum": over(torch.sum, "any"),
    "mean": over(torch.mean),
    "amax": over(torch.amax, "number"),
    "amin": over(torch.amin),
    "any": along(torch.any, "any"),
    "all": along(torch.all, "any"),
    "whole": lambda d: (lambda t: (t.sum(), t.max(), t.min(), t.argmax(), t.any(), t.all()))(d.number(d.shape(1))),
    "matmul": product_case,
    "bmm": lambda d: torch.bmm(d.floats([2, 3, 4]), d.floats([2, 4, 2])),
    "einsum": einsum_case,
    "outer": lambda d: torch.outer(d.floats([3]), d.floats([4])),
    "mm": lambda d: torch.mm(d.ints([3, 2]), d.ints([2, 4])),
    "slice": slice_case,
    "select": along(lambda t, dim: t.select(dim, -1), "any"),
    "narrow": along(lambda t, dim: t.narrow(dim, 0, 1), "any"),
    "permute": lambda d: (lambda t: t.permute(d.sample(range(t.dim()), t.dim())))(d.any(d.shape())),
    "transpose": lambda d: (lambda t: (t.transpose(0, -1), t.flatten(), t.unsqueeze(1), t.squeeze(),
        t.T.reshape(-1)))(d.any(d.shape(2, 2))),
    "reshape": lambda d: (lambda t: (t.reshape(4, 6), t.permute(2, 0, 1).reshape(2, 12), t.view(3, 2, 2, 2),
        t.unflatten(1, (2, 2))))(d.any([3, 4, 2])),
    "chunk": along(lambda t, dim: tuple(t.chunk(2, dim)), "any"),
    "split": lambda d: tuple(d.any([5, 2]).split([1, 4])) + tuple(d.any([5]).split(2)),
    "unbind": along(lambda t, dim: tuple(x * 1 for x in t.unbind(dim))),
    "expand": lambda d: d.any([3, 1]).expand(2, 3, 4),
    "meshgrid": lambda d: tuple(torch.meshgrid(d.any([3]), d.any([2]), indexing=d.choice(("ij", "xy")))),
    "cat": lambda d: torch.cat([d.any([2, 3]), d.any([1, 3])]),
    "cat_last": lambda d: torch.cat([d.any([2, 3]), d.any([2, 1])], -1),
    "stack": along(lambda t, dim: torch.stack([t, t * 2], dim)),
    "repeat": lambda d: d.any(d.shape(0, 2)).repeat(2, d.randint(1, 3), 3),
    "roll": lambda d: (d.any([4, 3]).roll((d.randint(-5, 5), 1), (0, 1)), d.any([5]).roll(-2, 0)),
    "flip": lambda d: (lambda t: t.flip(d.dims(t)))(d.any(d.shape(1))),
    "pad": pad_case,
    "arange": arange_case,
    "mask": mask_case,
    "index": index_case,
    "gather": gather_case,
    "index_put": put_case,
    "index_select": along(lambda t, dim: torch.index_select(t, dim, torch.tensor([0, 0, t.shape[dim] - 1])), "any"),
    "embedding": lambda d: F.embedding(d.ints(d.shape(), 0, 5), d.floats([5, 3])),
    "new": lambda d: (lambda t: (torch.zeros_like(t), torch.ones_like(t), torch.full_like(t, 2), t.new_ones(2, 3),
        t.new_full((2,), 3), t.new_zeros(1)))(d.any(d.shape())),
    "full": lambda d: (torch.full((2, 3), d.choice((1, 2.5, True))), torch.zeros(3, dtype=torch.int64),
        torch.ones(2, dtype=torch.bool), torch.tensor(d.random())),
    "to": lambda d: (lambda t: (t.to(torch.float64), t.float(), t.long(), t.bool(), t.int(), t.to(torch.uint8),
        t.clone(), t.contiguous()))(d.ints(d.shape(), 0, 9)),
    "truncate": lambda d: (d.floats(d.shape()).long(), d.floats(d.shape(), torch.float64).float(),
        d.floats(d.shape()).bool()),
    "type_as": lambda d: d.ints([3]).type_as(d.floats([1])),
    "fill_": written(lambda d, t: t.fill_(7)),
    "zero_": written(lambda d, t: t.zero_()),
    "add_": written(lambda d, t: t.add_(1)),
    "mul_": written(lambda d, t: t.mul_(3)),
    "copy_": written(lambda d, t: t.copy_(d.ints(list(t.shape)))),
    "masked_fill_": written(lambda d, t: t.masked_fill_(d.bools(list(t.shape)), 1)),
    "neg_": written(lambda d, t: t.neg_()),
    "set": written(lambda d, t: t.__setitem__(slice(None, 1), 5)),
    "clamp_": written(lambda d, t: t.clamp_(min=0)),
}
for name, low in (("exp", -3), ("expm1", -3), ("exp2", -3), ("log", 0.01), ("log1p", 0), ("log2", 0.01), ("log10",
                   0.01), ("sqrt", 0), ("rsqrt", 0.01),
                  ("reciprocal", 0.1), ("sin", -30), ("cos", -30), ("tan", -1), ("atan", -3), ("tanh", -3),
                      ("sigmoid", -9), ("erf", -3)):
    CASES[name] = unary(getattr(torch, name), low, max(3.0, -low))


class Expressions(torch.nn.Module):
    def __init__(self, names, times, seed):
        super().__init__()
        self.keys = [(name, 1000000 * seed + 1000 * i + k) for i, name in enumerate(names) for k in range(times)]
        self.w = torch.nn.Parameter(torch.zeros(1))
        self.keys = [key for key in self.keys if self.is_possible(*key)]

    def is_possible(self, name, key):
        """Chance draws arguments that PyTorch refuses, too."""
        try:
            CASES[name](Draw(self, key))
        except (RuntimeError, IndexError, ValueError, TypeError):
            return False
        return True

    def forward(self, x):
        outs = [x * self.w]
        for name, key in self.keys:
            made = CASES[name](Draw(self, key))
            outs += [t.logical_not() if t.dtype == torch.bool else t * 1 for t in (made if isinstance(made,
                tuple) else (made,))]
        return tuple(outs)


def export_expressions(names, times, seed, path):
    """Many in one program."""
    torch.manual_seed(seed)
    net = Expressions(names, times, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net, (torch.ones(2, 1),),
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)), path)


def read_dump(program, path):
    """{name: array of a batch of 2, or None: not known, or differs}."""
    out = subprocess.run([program, path], capture_output=True, check=False)
    if out.returncode:
        sys.exit("%s: %s" % (path, out.stderr.decode().strip() or "rc %d" % out.returncode))
    found, at = [], 0
    while at < len(out.stdout):
        end = out.stdout.index(b"\n", at)
        words = out.stdout[at:end].decode().split()
        at = end + 1
        if words[1] == "?":
            found.append((words[0], None))
            continue
        numbers = [int(w) for w in words[2:]]
        batch, n, sizes = numbers[0], numbers[1], numbers[2:]
        if n < 0:
            continue
        sizes, strides = sizes[:len(sizes) // 2], sizes[len(sizes) // 2:]
        cells = numpy.frombuffer(out.stdout, "f8" if words[1].startswith("float") else "i8", n, at)
        at += 8 * n
        view = numpy.lib.stride_tricks.as_strided(cells, sizes, [8 * s for s in strides]) if n else cells.reshape(sizes)
        if batch >= 0:
            view = numpy.concatenate([view, view], batch)
        found.append((words[0], view))
    return found


class Recorder(torch.fx.Interpreter):
    """Runs a program and copies what each node gives when it gives it."""

    def run_node(self, n):
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            self.values[n.name] = (str(n.target), result.detach().clone().numpy())
        return result


def load_program(path):
    """Types that an archive returns and that are not registered here are of no interest."""
    from torch._export.serde import serialize
    from torch.utils import _pytree
    try:
        import transformers.integrations.moe  # noqa: F401  (registers an operator)
    except ImportError:
        pass
    loads = serialize.treespec_loads

    def load_or_leaf(text):
        try:
            return loads(text)
        except NotImplementedError:
            return _pytree.tree_structure(0)
    serialize.treespec_loads = load_or_leaf
    try:
        return torch.export.load(path)
    finally:
        serialize.treespec_loads = loads


def record(path):
    ep = load_program(path)
    given = iter([a[:2] if isinstance(a, torch.Tensor) else a for a in ep.example_inputs[0]])
    state = {**ep.constants, **ep.state_dict}
    args = [next(given) if s.kind == torch.export.graph_signature.InputKind.USER_INPUT else state[s.target]
            for s in ep.graph_signature.input_specs]
    recorder = Recorder(ep.graph_module)
    recorder.values = {}
    with torch.no_grad():
        recorder.run(*args)
    return recorder.values


def units(a, b):
    """The distance of floats in units in the last place."""
    a, b = (numpy.where(x < 0, -0.0 - x, x).astype("f4").view("i4").astype("i8") * numpy.where(numpy.signbit(x), -1,
        1) for x in (a, b))
    return numpy.abs(a - b).max(initial=0)


def compare(program, path, totals):
    wanted = record(path)
    for name, have in read_dump(program, path):
        if name not in wanted:
            continue
        target, want = wanted[name]
        if target.startswith("aten.empty") or "bernoulli" in target or "rand" in target:
            continue
        totals["nodes"] += 1
        if have is None or have.shape != want.shape:
            totals["wrong"].append("%s: %s %s" % (os.path.basename(path), target, "is not known" if have is None else
                                                  "has shape %s, not %s" % (have.shape, want.shape)))
            continue
        if want.dtype.kind == "f":
            same = (have == want.astype("f4")) | (numpy.isnan(have) & numpy.isnan(want))
            far = units(have[~same], want[~same]) if not same.all() else 0
            near = far <= 4 or numpy.allclose(have, want, rtol=1e-6, atol=1e-6, equal_nan=True)
            if near and far > totals["units"].get(target, 0):
                totals["units"][target] = far
        else:
            near = (have == want).all()
            same = numpy.array(near)
        totals["equal"] += bool(same.all())
        if not near:
            totals["wrong"].append("%s: %s %s:\n%s\nnot\n%s" % (os.path.basename(path), target, name, have, want))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dump", default=os.path.join(zoo.ROOT, "build", "tests", "unit", "dump_constants"))
    p.add_argument("--times", type=int, default=6, help="expressions of each kind")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("archives", nargs="*")
    a = p.parse_args()
    totals = {"nodes": 0, "equal": 0, "units": {}, "wrong": []}
    with tempfile.TemporaryDirectory() as folder:
        paths = a.archives or [os.path.join(folder, "expressions.pt2")]
        if not a.archives:
            export_expressions(list(CASES), a.times, a.seed, paths[0])
        for path in paths:
            compare(a.dump, path, totals)
    print("%d values compared, %d of them equal, %d wrong; largest distances in units in the last place: %s"
          % (totals["nodes"], totals["equal"], len(totals["wrong"]),
             ", ".join("%s %d" % (t.split(".")[1], u) for t, u in sorted(totals["units"].items()))))
    print("\n".join(totals["wrong"][:20]))
    sys.exit(1 if totals["wrong"] else 0)


if __name__ == "__main__":
    main()
