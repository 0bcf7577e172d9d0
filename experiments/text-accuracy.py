#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Validation loss of a small GPT on the characters of a text by PyTorch and by ppcli, under one
protocol: configs/gpt-char.ini, 2,000 steps.

  text-accuracy.py torch --text FILE --seeds 1,2,3
  text-accuracy.py ppcli --text FILE --seeds 1,2,3 --program build/ppcli

FILE is Tiny Shakespeare, say. Both see the same windows in each step, which follow from the seed, and
test on the last tenth of the file; initial values come from the same rule, but PyTorch draws its own.
It needs torch; without it the exit code is 77."""

import configparser
import os
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "scripts", "peers"))
import common  # noqa: E402  (its folder is known only now)
import compare_cases  # noqa: E402
import seeds  # noqa: E402

CONFIG = compare_cases.shipped("gpt-char.ini")


def config():
    parser = configparser.ConfigParser(inline_comment_prefixes=(";",))
    parser.read_string(CONFIG)
    return parser


class Text:
    """Its tokens, characters in order: the first nine tenths, and the rest."""

    def __init__(self, torch, path, window):
        with open(path, encoding="utf-8", newline="") as f:
            text = f.read()
        kinds = {c: i for i, c in enumerate(sorted(set(text)))}
        tokens = torch.tensor([kinds[c] for c in text])
        self.torch, self.kinds, self.window = torch, len(kinds), window
        self.train, self.test = tokens.split_with_sizes(
            [int(len(tokens) * (1 - 0.1)), len(tokens) - int(len(tokens) * (1 - 0.1))])

    def of_step(self, seed, step, batch):
        """Inputs and targets."""
        import ppcli_numbers
        starts = ppcli_numbers.windows(self.torch, self.torch.arange, seed,
                                       len(self.train) - self.window, step * batch, batch)
        rows = self.train[starts[:, None] + self.torch.arange(self.window + 1)]
        return rows[:, :-1], rows[:, 1:]

    def tests(self, rows):
        n = (len(self.test) - 1) // self.window * self.window
        return zip(self.test[:n].reshape(-1, self.window).split(rows),
                   self.test[1:n + 1].reshape(-1, self.window).split(rows))


def test_loss(torch, net, text):
    net.eval()
    total = count = 0
    with torch.no_grad():
        for x, y in text.tests(64):
            total += float(torch.nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten(),
                                                             reduction="sum"))
            count += y.numel()
    net.train()
    return total / count


def by_torch(args, seed):
    common.need("torch")
    import torch
    import ppcli_numbers
    import torch_parts
    import torch_transformers
    torch_parts.prepare(args.threads)
    torch.manual_seed(seed)
    keys, model = config()["train"], config()["model"]
    text = Text(torch, args.text, model.getint("block_size"))
    net = torch_transformers.of_config(model, text.kinds).train()
    decayed, rest = torch_transformers.decayed(net)
    opt = torch.optim.AdamW([{"params": decayed, "weight_decay": keys.getfloat("weight_decay")},
                             {"params": rest, "weight_decay": 0.0}],
                            betas=(0.9, keys.getfloat("beta2")), fused=True)
    start, between = time.perf_counter(), 0.0
    for step in range(1, args.steps + 1):
        x, y = text.of_step(seed, step - 1, keys.getint("batch_size"))
        for group in opt.param_groups:
            group["lr"] = ppcli_numbers.rate(keys, step, args.steps)
        opt.zero_grad(set_to_none=True)
        loss = torch_parts.backward(net, x, y, config()["pipeline"].getint("microbatches"))
        torch.nn.utils.clip_grad_norm_(net.parameters(), keys.getfloat("clip_norm"))
        opt.step()
        between += float(loss)
        if step % keys.getint("eval_interval") == 0 or step == args.steps:
            reached = test_loss(torch, net, text)
            since = (step - 1) % keys.getint("eval_interval") + 1
            print("seed %d, step %d: loss %.4f, validation %.4f, %.0f s"
                  % (seed, step, between / since, reached, time.perf_counter() - start), flush=True)
            between = 0.0
    return reached


def by_ppcli(args, seed):
    start = time.perf_counter()
    reached = seeds.train(args, CONFIG, [
        "--max-steps", str(args.steps), "--set", "data.dataset=text", "--set",
        "data.train_file=" + os.path.abspath(args.text), "--set", "train.seed=%d" % seed])["test_loss"]
    print("seed %d, step %d: validation %.4f, %.0f s" % (seed, args.steps, reached,
                                                        time.perf_counter() - start), flush=True)
    return reached


def main():
    p = seeds.parser(__doc__, ("--text", "FILE"), common.cores())
    p.add_argument("--steps", type=common.positive, default=config()["train"].getint("max_steps"))
    seeds.mean(p.parse_args(), by_torch, by_ppcli, "%.4f")


if __name__ == "__main__":
    main()
