#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer without a pipeline: PyTorch in one process accumulates the gradients of the
micro-batches, then takes one step. All threads work on one layer at a time, so it has no bubble to
pay for; it pays for small products shared by threads.

  torch_accumulate.py --sizes 784-512x16-10 --batch 512 --microbatches 16 --threads best"""

import copy

import common


def threads_of(text):
    return text if text == "best" else common.positive(text)


def main():
    parser = common.options(__doc__.splitlines()[0])
    parser.add_argument("--threads", type=threads_of, default="best", metavar="N|best",
                        help="best: try 1, 2, 4, ... and all cores first (best)")
    common.optimizer_option(parser)
    args = parser.parse_args()
    common.check(parser, args)
    common.need("torch")
    import torch
    import torch_parts

    torch_parts.prepare(1 if args.threads == "best" else args.threads)
    net = torch.nn.Sequential(*torch_parts.layers(args.sizes, args.seed))
    data = torch_parts.Data(args)
    opt, variant = torch_parts.optimizer(net.parameters(), args)
    losses = []

    def step():
        rows = data.next_rows()
        opt.zero_grad(set_to_none=True)
        loss = 0.0
        for part in rows.split(args.batch // args.microbatches):
            out = net(data.inputs(part))
            # The mean over the batch is the sum of these: no scaling of gradients afterwards.
            one = torch.nn.functional.cross_entropy(out, data.targets(part),
                                                    reduction="sum") / args.batch
            one.backward()
            loss += one.detach()
        opt.step()
        if len(losses) < 3:
            losses.append(float(loss))

    if args.threads == "best":
        args.threads = best_threads(torch, step, args)
    blocks = common.measure(step, args)
    common.report("torch accumulate", torch.__version__, args, blocks, threads=args.threads,
                  optimizer=args.optimizer, optimizer_variant=variant, losses=losses)


def best_threads(torch, step, args):
    trial = copy.copy(args)
    trial.blocks, trial.seconds = 3, args.seconds / 8
    counts = sorted({2 ** k for k in range(10) if 2 ** k < common.cores()} | {common.cores()})
    rates = {}
    for n in counts:
        torch.set_num_threads(n)
        rates[n] = max(common.measure(step, trial))
    best = max(rates, key=rates.get)
    torch.set_num_threads(best)
    return best


if __name__ == "__main__":
    main()
