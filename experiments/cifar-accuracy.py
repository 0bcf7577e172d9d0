#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Accuracy on a small CIFAR-10 by PyTorch and by ppcli, under one protocol: CONFIG below.

  cifar-accuracy.py torch --data FOLDER --seeds 1,2,3
  cifar-accuracy.py ppcli --data FOLDER --seeds 1,2,3 --program build/ppcli

FOLDER has data_batch_1.bin and test_batch.bin, plain or gzipped. PyTorch draws its own initial
values, order and augmentation, as a user of torchvision would; so only means over seeds compare. It
needs torch and torchvision; without them the exit code is 77. --state FILE keeps what a seed has
reached after every epoch, and goes on there."""

import configparser
import gzip
import math
import os
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "scripts", "peers"))
import common  # noqa: E402  (its folder is known only now)
import seeds  # noqa: E402

CONFIG = """[data]
dataset = cifar10
mean = 0.4914 0.4822 0.4465
std = 0.2023 0.1994 0.2010
augment = crop flip
[model]
type = resnet
depth = 18
stem = cifar
classes = 10
[pipeline]
microbatches = 2
[train]
epochs = 15
batch_size = 100
optimizer = momentum
momentum = 0.9
weight_decay = 0.0005
lr = 0.05
warmup_steps = 50
lr_schedule = cosine
"""


def config():
    parser = configparser.ConfigParser()
    parser.read_string(CONFIG)
    return parser


def records(torch, folder, name):
    """Images [n][3][32][32] from 0 to 255, and labels."""
    path = os.path.join(folder, name + ".bin")
    with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as f:
        raw = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).reshape(-1, 3073)
    return raw[:, 1:].reshape(-1, 3, 32, 32), raw[:, 0].long()


def crop_and_flip(torch, x, draw):
    """Each image padded with 4 black pixels all around, cut out anywhere, mirrored half the time."""
    n = len(x)
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4))
    at = torch.randint(0, 9, (n, 2), generator=draw)
    flips = torch.rand(n, generator=draw) < 0.5
    out = torch.empty_like(x)
    for i in range(n):
        top, left = at[i].tolist()
        one = padded[i, :, top:top + 32, left:left + 32]
        out[i] = one.flip(2) if flips[i] else one
    return out


class Seed:
    """A training run of PyTorch."""

    def __init__(self, torch, args, seed):
        import ppcli_numbers
        import torch_nets
        import torch_parts
        self.rate = ppcli_numbers.rate
        self.torch, self.parts, self.args = torch, torch_parts, args
        self.train_keys = config()["train"]
        torch.manual_seed(seed)
        self.draw = torch.Generator().manual_seed(seed)
        self.net = torch_nets.of_config(config()["model"]).to(memory_format=torch.channels_last)
        self.statistics = torch_nets.Statistics(self.net)
        # Norms and biases are not decayed: ppcli's rule.
        plain = [p for p in self.net.parameters() if p.dim() == 1]
        decayed = [p for p in self.net.parameters() if p.dim() > 1]
        keys = self.train_keys
        self.opt = torch.optim.SGD(
            [{"params": decayed, "weight_decay": keys.getfloat("weight_decay")}, {"params": plain}],
            lr=keys.getfloat("lr"), momentum=keys.getfloat("momentum"))
        self.mean, self.std = (torch.tensor([float(v) for v in config()["data"][k].split()])
                               .reshape(3, 1, 1) for k in ("mean", "std"))
        self.epoch, self.said = 0, []

    def input(self, images):
        x = (images.float() / 255 - self.mean) / self.std
        return x.contiguous(memory_format=self.torch.channels_last)

    def train(self, images, labels):
        torch, batch = self.torch, self.train_keys.getint("batch_size")
        self.net.train()
        per_epoch = math.ceil(len(images) / batch)
        total, loss = per_epoch * self.args.epochs, 0.0
        for i, rows in enumerate(torch.randperm(len(images), generator=self.draw).split(batch)):
            for group in self.opt.param_groups:
                group["lr"] = self.rate(self.train_keys, self.epoch * per_epoch + i + 1, total)
            x = self.input(crop_and_flip(torch, images[rows], self.draw))
            self.opt.zero_grad(set_to_none=True)
            loss += float(self.parts.backward(self.net, x, labels[rows],
                                              config()["pipeline"].getint("microbatches")))
            self.opt.step()
            self.statistics.commit()
        self.epoch += 1
        return loss / per_epoch

    def accuracy(self, images, labels):
        self.net.eval()
        with self.torch.no_grad():
            right = sum(int((self.net(self.input(x)).argmax(1) == y).sum())
                        for x, y in zip(images.split(250), labels.split(250)))
        return 100 * right / len(labels)

    def save(self, path):
        self.torch.save({"net": self.net.state_dict(), "opt": self.opt.state_dict(),
                         "draw": self.draw.get_state(), "epoch": self.epoch, "said": self.said},
                        path + ".new")
        os.replace(path + ".new", path)

    def load(self, path):
        s = self.torch.load(path, weights_only=True)
        self.net.load_state_dict(s["net"])
        self.opt.load_state_dict(s["opt"])
        self.draw.set_state(s["draw"])
        self.epoch, self.said = s["epoch"], s["said"]


def by_torch(args, seed):
    common.need("torch", "torchvision")
    import torch
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    run = Seed(torch, args, seed)
    state = args.state and "%s.%d" % (args.state, seed)
    if state and os.path.exists(state):
        run.load(state)
    train, test = (records(torch, args.data, n) for n in ("data_batch_1", "test_batch"))
    while run.epoch < args.epochs:
        start = time.perf_counter()
        loss = run.train(*train)
        took = time.perf_counter() - start
        run.said.append(run.accuracy(*test))
        print("seed %d, epoch %d: loss %.4f, test accuracy %.2f %%, %.0f s, %.1f images/s"
              % (seed, run.epoch, loss, run.said[-1], took, len(train[0]) / took), flush=True)
        if state:
            run.save(state)
    return run.said[-1]


def by_ppcli(args, seed):
    accuracy = 100 * seeds.train(args, CONFIG, [
        "--epochs", str(args.epochs), "--set", "data.path=" + os.path.abspath(args.data), "--set",
        "train.seed=%d" % seed])["test_accuracy"]
    print("seed %d: test accuracy %.2f %%" % (seed, accuracy), flush=True)
    return accuracy


def main():
    p = seeds.parser(__doc__, ("--data", "FOLDER"), 1)
    p.add_argument("--epochs", type=common.positive, default=config()["train"].getint("epochs"))
    p.add_argument("--state", metavar="FILE", help="of PyTorch: go on from FILE.SEED")
    seeds.mean(p.parse_args(), by_torch, by_ppcli, "%.2f %%")


if __name__ == "__main__":
    main()
