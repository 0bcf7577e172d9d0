#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch trains a convolutional network on images of 32x32: the speed of its steps.

  torch_conv.py --model type=resnet --model depth=50 --model classes=1000 --batch 64 \\
                --microbatches 4 --threads 2 --format channels_last --optimizer adam

--format is the order of an image in memory: contiguous (NCHW) or channels_last (NHWC). Images are
made up: only shapes matter here. Gradients of the micro-batches are summed, then one step is taken."""

import argparse

import common


def setting(text):
    key, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError("'%s': not KEY=VALUE" % text)
    return key, value


def main():
    parser = common.options(__doc__.splitlines()[0])
    parser.add_argument("--model", type=setting, required=True, action="append", metavar="KEY=VALUE",
                        help="a key of the config's [model]; repeatable")
    parser.add_argument("--threads", type=common.positive, default=common.cores())
    parser.add_argument("--format", choices=("contiguous", "channels_last"), default="channels_last")
    common.optimizer_option(parser)
    args = parser.parse_args()
    common.check(parser, args)
    common.need("torch", "torchvision")
    import torch
    import torch_nets
    import torch_parts

    torch_parts.prepare(args.threads)
    torch.manual_seed(args.seed)
    layout = {"memory_format": {"contiguous": torch.contiguous_format,
                                "channels_last": torch.channels_last}[args.format]}
    net = torch_nets.of_config(dict(args.model)).to(**layout).train()
    images = torch.randn(2 * args.batch, 3, 32, 32)
    labels = torch.randint(0, 10, (2 * args.batch,))
    batches = [(x.contiguous(**layout), y)
               for x, y in zip(images.split(args.batch), labels.split(args.batch))]
    opt, variant = torch_parts.optimizer(net.parameters(), args)
    losses = []

    def step():
        x, y = batches[0]
        batches.reverse()
        opt.zero_grad(set_to_none=True)
        loss = torch_nets.backward(net, x, y, args.microbatches)
        opt.step()
        if len(losses) < 3:
            losses.append(float(loss))

    blocks = common.measure(step, args)
    args.sizes = dict(args.model)
    common.report("torch conv", torch.__version__, args, blocks, threads=args.threads,
                  optimizer=args.optimizer, optimizer_variant=variant, format=args.format,
                  first_losses=losses)


if __name__ == "__main__":
    main()
