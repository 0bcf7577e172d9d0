#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch trains a convolutional network on images of 32x32: the speed of its steps.

  torch_conv.py --model type=resnet --model depth=50 --model classes=1000 --batch 64 \\
                --microbatches 4 --threads 2 --format channels_last --optimizer adam

--format is the order of an image in memory: contiguous (NCHW) or channels_last (NHWC). Images are
made up: only shapes matter here. Gradients of the micro-batches are summed, then one step is taken."""

import common


def main():
    parser = common.net_options(__doc__.splitlines()[0])
    parser.add_argument("--format", choices=("contiguous", "channels_last"), default="channels_last")
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
    torch_parts.race("torch conv", args, net, batches, opt, optimizer_variant=variant,
                     format=args.format)


if __name__ == "__main__":
    main()
