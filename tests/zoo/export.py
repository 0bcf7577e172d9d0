#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports the zoo as a user would, and says which operators it has:

    export.py OUT [NAME...] [--no-dropout] [--census]

Writes OUT/NAME.pt2, and OUT/NAME.ops with the targets of its graph: how many depend on an input or a
parameter, and how many can be computed once (constants). OUT/list.txt has a line for each model. With
--census also OUT/census.txt: each target, the number of models that have it, and its arguments; what is
left out has its default."""

import argparse
import collections
import os
import sys
import time
import warnings

import zoo

zoo.start()
import torch  # noqa: E402

import graph  # noqa: E402

BENT = {"relu", "hardtanh", "hardswish", "leaky_relu"}  # functions with a bend; relu6 is a hardtanh


def export(entry, path, noise=True, steady=False):
    """The two lines. Returns the module that was exported. steady: with initial values from which
    rounding does not grow, see `settle`."""
    import numpy
    net = entry.net(noise=noise)
    x = torch.tensor(entry.inputs(2, numpy.random.default_rng(1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ep = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
        if steady:
            settle(net, ep)
        torch.export.save(ep, path)
    return net


def settle(net, ep):
    """A ReLU whose input is rounded to the other side of 0 changes a gradient by far more than rounding
    does, and batch norm over few values spreads that. So batch norms before one get shifts that keep most
    inputs away from 0, three of four up (all, where a depthwise convolution would read nothing but zeros);
    what is added to a residual is small and positive."""
    draw, names = torch.Generator().manual_seed(7), ep.graph_signature.inputs_to_parameters
    users, depthwise = {}, any(1 < getattr(m, "groups", 1) == getattr(m, "in_channels", 0) for m in net.modules())
    for node in ep.graph.nodes:
        if str(node.target) == "aten.batch_norm.default":
            users[names[node.args[1].name].rpartition(".")[0]] = {str(u.target).split(".")[1].strip("_")
                                                                  for u in node.users if "." in str(u.target)}

    def uniform(n, low, high):
        return low + (high - low) * torch.rand(n, generator=draw)
    with torch.no_grad():
        for name, m in net.named_modules():
            if not zoo.is_batch_norm(m):
                continue
            n, readers = m.weight.numel(), users.get(name, set())
            shift, scale = uniform(n, 2.25, 2.75), uniform(n, 0.75, 1.25)
            up = uniform(n, 0, 1) < (1 if depthwise else 0.75)
            if "add" in readers:
                shift, scale = shift / 4, scale / 4
            elif readers & BENT:
                shift = torch.where(up, shift, -shift)
            else:
                shift = shift / 25
            m.bias.copy_(shift)
            m.weight.copy_(scale)
            m.running_mean.copy_(uniform(n, -0.1, 0.1))
            m.running_var.copy_(uniform(n, 0.5, 1.5))
            m.num_batches_tracked.fill_(7)


def try_export(entry, path, noise=True):
    """None, or why it cannot be exported, in a line."""
    try:
        export(entry, path, noise)
    except Exception as e:  # what export refuses has many types
        return " ".join(str(e).split())[:200] or type(e).__name__
    return None


def write_ops(program, path):
    live, constant = graph.count_targets(program)
    with open(path, "w", encoding="utf-8") as f:
        for target, n in live.most_common():
            f.write("%4d %s\n" % (n, target))
        for target, n in constant.most_common():
            f.write("%4d %s constant\n" % (n, target))
    return live


def write_census(programs, path):
    seen = collections.defaultdict(lambda: (set(), collections.defaultdict(collections.Counter), [0]))
    for name, program in programs.items():
        for node, constant in graph.nodes(program):
            models, args, total = seen[node["target"] + (" (constant)" if constant else "")]
            models.add(name)
            total[0] += 1
            for key, value in graph.arguments(program, node):
                args[key][value] += 1
    with open(path, "w", encoding="utf-8") as f:
        f.write("# target: models, nodes; argument: what it is, how often. A target that is (constant) depends on\n"
                "# no input and no parameter. A tensor's word is its origin, dtype and dimensions; B: the batch.\n")
        for target, (models, args, total) in sorted(seen.items(), key=lambda i: (-len(i[1][0]), i[0])):
            some = sorted(models)[:6]
            f.write("\n%s: %d models, %d nodes: %s%s\n" % (target, len(models), total[0], " ".join(some),
                                                        " ..." if len(models) > 6 else ""))
            for key, values in args.items():
                words = ["%s x%d" % v for v in values.most_common(14)]
                f.write("    %s: %s%s\n" % (key, "; ".join(words), " ..." if len(values) > 14 else ""))


def read_lines(path):
    """By the name of a model: what an earlier call wrote."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        return {line.split()[0]: line.rstrip("\n") for line in f}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("out")
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--no-dropout", action="store_true", help="all probabilities 0")
    p.add_argument("--census", action="store_true", help="write census.txt of all archives in OUT")
    args = p.parse_args()
    os.makedirs(args.out, exist_ok=True)
    lines, failed = read_lines(args.out + "/list.txt"), 0
    wanted = zoo.entries(args.names)
    for entry in wanted:
        path, start = os.path.join(args.out, entry.name), time.monotonic()
        why = try_export(entry, path + ".pt2", not args.no_dropout)
        if why:
            failed += 1
            lines[entry.name] = "%-24s not exported: %s" % (entry.name, why)
        else:
            program = graph.read(path + ".pt2")
            live = write_ops(program, path + ".ops")
            form = "%-24s %-12s %-6s %-12s classes %-4d nodes %5d live %4d targets %3d  %d bytes, %.1f s%s"
            lines[entry.name] = (form % (
                entry.name, entry.family, entry.kind, "x".join(map(str, entry.shape)), entry.classes,
                len(program["nodes"]), sum(live.values()), len(live), os.path.getsize(path + ".pt2"),
                time.monotonic() - start, "; mixes rows: " + entry.mixes if entry.mixes else ""))
        print(lines[entry.name], flush=True)
        with open(args.out + "/list.txt", "w", encoding="utf-8") as f:
            f.writelines(lines[name] + "\n" for name in zoo.ZOO if name in lines)
    if args.census:
        files = sorted(f for f in os.listdir(args.out) if f.endswith(".pt2"))
        write_census({f[:-4]: graph.read(os.path.join(args.out, f)) for f in files}, args.out + "/census.txt")
    print("%d of %d exported" % (len(wanted) - failed, len(wanted)))


if __name__ == "__main__":
    sys.exit(main())
