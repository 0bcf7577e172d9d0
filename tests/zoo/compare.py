#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains models of the zoo with ppcli and with PyTorch, and prints how far apart they are:

    compare.py [NAME...] [--program build/ppcli] [--steps 20] [--model "type=gpt n_layer=2"] [--stages N]

Both begin with the weights of one archive and see the same batches, dropout is 0. The judge is PyTorch in
double precision; its own distance in single precision tells how much of a difference is rounding. Columns,
each "ppcli / PyTorch in f32", relative, from f64:
  sgd, adamw   largest difference of the loss of a step
  gradient     of step 1: of all together (2-norm), and of the worst parameter
  test         loss of the test after the sgd steps, in eval mode
  buffers      running statistics after those steps
--model: an own model of ppcli's takes the place of the archive, begun with the same weights, which tests
this program. A row ends with `far` where ppcli's distance is over --factor times PyTorch's and over
--floor; then the exit code is 1. It is 77 where torch is missing."""

import argparse
import copy
import os
import sys
import tempfile

import zoo

zoo.start()
import torch  # noqa: E402

import export  # noqa: E402
from data import Data  # noqa: E402
from ours import Config, Refused, settings  # noqa: E402

RATE = 512.0  # of the step that shows gradients: a large one keeps the rounding of weights small
MOMENTUM, DECAY = 0.9, 0.01


class Result:
    """Losses of the steps, gradients of the first, loss of a test, buffers."""

    def __init__(self):
        self.losses, self.gradients, self.test, self.buffers = [], {}, None, {}


# ---- PyTorch

def of_torch(net, data, dtype, optimizer, lr):
    net, out = copy.deepcopy(net).to(dtype), Result()
    if hasattr(net, "set_experts_implementation"):
        net.set_experts_implementation("eager")  # the grouped one knows no double precision

    def cast(x):
        return x.to(dtype) if x.is_floating_point() else x
    params = list(net.parameters())
    take = (torch.optim.SGD(params, lr=lr, momentum=MOMENTUM) if optimizer == "momentum"
            else torch.optim.AdamW(params, lr=lr, weight_decay=DECAY))
    for x, y in data.batches:
        take.zero_grad()
        loss = zoo.loss_of(net, cast(x), y)
        loss.backward()
        out.gradients = out.gradients or {k: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                                          for k, p in net.named_parameters()}
        take.step()
        out.losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        out.test = zoo.loss_of(net, cast(data.test[0]), data.test[1]).item()
    out.buffers = statistics(net.state_dict())
    return out


def statistics(tensors):
    return {k: t for k, t in tensors.items() if k.endswith(("running_mean", "running_var"))}


# ---- ppcli

def stored(net, tensors):
    """The tensors by the names that PyTorch gives parameters: of a tied one, files may have another."""
    names, out = {}, {}
    for k, p in net.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(k)
    for k, p in net.named_parameters():
        found = [n for n in names[id(p)] if n in tensors]
        if not found:
            raise Refused("its checkpoint lacks " + k)
        out[k] = tensors[found[0]].reshape(p.shape)
    return out


def of_ppcli(config, net, optimizer, lr, steps):
    out = Result()
    words = settings("momentum", lr, momentum=MOMENTUM) if optimizer == "momentum" else settings(
        "adamw", lr, weight_decay=DECAY)
    run = config.train(optimizer, steps, *words)
    out.losses, out.test, out.buffers = run.losses(), run.summary()["test_loss"], statistics(run.tensors())
    if optimizer == "momentum":
        # the weights of one large step are far off, so their test may not be finite
        step = stored(net, config.train("one", 1, *settings("sgd", RATE), allowed=(0, 80)).tensors())
        out.gradients = {k: (p.detach().double() - step[k].double()) / RATE for k, p in net.named_parameters()}
    return out


def save_once(net, path):
    """The weights as a file has them: a tied one once."""
    from safetensors.torch import save_file
    seen = {}
    for k, t in net.state_dict().items():
        seen.setdefault(t.data_ptr() if t.dim() else k, (k, t.contiguous()))
    save_file(dict(seen.values()), path)


# ---- distances

def of_losses(a, b):
    if len(a) != len(b):
        return float("inf")
    return max(abs(x - y) / max(abs(y), 1e-3) for x, y in zip(a, b))


def of_tensors(a, b):
    """Relative distance of all together; the worst one and its name. A gradient that is rounding only,
    as that of a bias before a norm, is measured by a thousandth of the whole."""
    apart = {k: float((a[k].double().reshape(t.shape) - t.double()).norm()) for k, t in b.items()}
    norms = {k: float(t.double().norm()) for k, t in b.items()}
    whole = sum(n * n for n in norms.values()) ** 0.5
    each = {k: apart[k] / (norms[k] + 1e-3 * whole) if whole else 0.0 for k in b}
    worst = max(each, key=each.get)
    return sum(d * d for d in apart.values()) ** 0.5 / max(whole, 1e-30), each[worst], worst


def prepare(entry, args, folder, data, noise=False, steady=False, microbatches=1, more=()):
    """The module in PyTorch, and the Config of ppcli that begins with the same weights."""
    archive, init = os.path.join(args.archives or folder, entry.name + ".pt2"), None
    if args.archives and os.path.exists(archive):
        net = entry.net(noise=noise)
    else:
        net = export.export(entry, archive, noise, steady)
    if args.model:
        archive, init = None, folder + "/init.safetensors"
        save_once(net, init)
    return net, Config(args.program, folder, data, archive, args.model, init, microbatches, [*more, *args.word])


def compare(entry, args, folder):
    """A list of (column, ppcli's distance, PyTorch's) and the worst parameter."""
    data = Data(entry, folder, args.batch or entry.batch, args.steps)
    net, config = prepare(entry, args, folder, data, False, True, args.microbatches, [
        "--stages", str(args.stages), "--set", "run.threads=%d" % args.threads])
    rates = {"momentum": entry.lr, "adamw": 1e-3}
    if any(zoo.is_batch_norm(m) for m in net.modules()):
        rates = {"momentum": min(entry.lr, 3e-4), "adamw": min(entry.lr, 1e-4)}
    rows, worst = [], ""
    for optimizer, lr in rates.items():
        judge = of_torch(net, data, torch.float64, optimizer, lr)
        ours = of_ppcli(config, net, optimizer, lr, args.steps)
        eager = of_torch(net, data, torch.float32, optimizer, lr)
        if args.verbose:
            for i, three in enumerate(zip(judge.losses, ours.losses, eager.losses)):
                print("  %s step %2d: f64 %.7f ppcli %.7f f32 %.7f" % (optimizer, i + 1, *three))
        rows.append(({"momentum": "sgd"}.get(optimizer, optimizer), of_losses(ours.losses, judge.losses),
                     of_losses(eager.losses, judge.losses)))
        rows.append(("f32 " + optimizer, of_losses(ours.losses, eager.losses), 0.0))
        if optimizer != "momentum":
            continue
        a, b = of_tensors(ours.gradients, judge.gradients), of_tensors(eager.gradients, judge.gradients)
        rows += [("gradient", a[0], b[0]), ("worst", a[1], b[1])]
        worst = a[2]
        rows.append(("test", of_losses([ours.test], [judge.test]), of_losses([eager.test], [judge.test])))
        if judge.buffers:
            missing = [k for k in judge.buffers if k not in ours.buffers]
            rows.append(("buffers", float("inf") if missing else of_tensors(ours.buffers, judge.buffers)[0],
                         of_tensors(eager.buffers, judge.buffers)[0]))
    return rows, worst


def show(entry, rows, worst, args):
    """A row; returns whether it is near."""
    of = {name: (ours, eager) for name, ours, eager in rows}
    far = [n for n, (ours, eager) in of.items()
           if not n.startswith("f32") and not ours <= max(args.factor * eager, args.floor)]
    cells = ["%.1e / %.1e" % of[n] if n in of else "-"
             for n in ("sgd", "adamw", "gradient", "worst", "test", "buffers")]
    cells.insert(0, "%.1e, %.1e" % (of["f32 momentum"][0], of["f32 adamw"][0]))
    print("| %s | %s | %s |" % (entry.name, " | ".join(cells),
                                "far: %s (%s)" % (" ".join(far), worst) if far else "near"), flush=True)
    return not far


def options(description):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--program", default=os.path.join(zoo.ROOT, "build", "ppcli"))
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--batch", type=int, help="samples of a step")
    p.add_argument("--model", help="keys of ppcli's own model in place of the archive")
    p.add_argument("--threads", type=int, default=2)
    p.set_defaults(archives=None)
    p.add_argument("--word", action="append", default=[], help="one more for ppcli; repeatable")
    return p


def main():
    p = options(__doc__.splitlines()[0])
    p.add_argument("--stages", type=int, default=1)
    p.add_argument("--microbatches", type=int, default=1)
    p.add_argument("--factor", type=float, default=10.0)
    p.add_argument("--floor", type=float, default=2e-6)
    p.add_argument("--verbose", action="store_true", help="the losses of every step")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    print("| model | losses from f32: sgd, adamw | sgd | adamw | gradient | worst gradient | test | buffers | |\n"
          "|---|---|---|---|---|---|---|---|---|")
    near = refused = 0
    entries = zoo.entries(args.names)
    for entry in entries:
        with tempfile.TemporaryDirectory() as folder:
            try:
                near += show(entry, *compare(entry, args, folder), args)
            except Refused as e:
                refused += 1
                print("| %s | refused: %s | | | | | | | |" % (entry.name, e), flush=True)
    print("\n%d models: %d near, %d far, %d refused" % (len(entries), near, len(entries) - near - refused, refused))
    return 0 if near == len(entries) else 1


if __name__ == "__main__":
    sys.exit(main())
