#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch trains a transformer: the speed of its steps.

  torch_text.py --model type=gpt --model n_layer=4 --model n_head=4 --model n_embd=128 \\
                --model block_size=64 --model vocab_size=65 --batch 12 --microbatches 4 \\
                --threads 2 --optimizer adamw

Tokens are made up: only shapes matter here. Gradients of the micro-batches are summed, then one step
is taken. A sample is block_size tokens."""

import common


def main():
    parser = common.net_options(__doc__.splitlines()[0])
    args = parser.parse_args()
    common.check(parser, args)
    common.need("torch")
    import torch
    import torch_parts
    import torch_transformers

    torch_parts.prepare(args.threads)
    torch.manual_seed(args.seed)
    keys = torch_transformers.Keys(dict(args.model), labels=2)
    if keys.tokens == 0:
        parser.error("--model vocab_size=N is missing")
    net = torch_transformers.of_config(dict(args.model), labels=2).train()
    classifies = isinstance(net, torch_transformers.Encoder)
    shape = 2 * args.batch, keys.positions
    tokens = torch.randint(0, keys.tokens, shape)
    targets = torch.randint(0, keys.classes, shape[:1]) if classifies else \
        torch.randint(0, keys.tokens, shape)
    opt, variant = torch_parts.optimizer(net.parameters(), args)
    torch_parts.race("torch text", args, net,
                     list(zip(tokens.split(args.batch), targets.split(args.batch))), opt,
                     optimizer_variant=variant, block_size=keys.positions)


if __name__ == "__main__":
    main()
