#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is run.precision = bf16 on the processor as fast as PyTorch's autocast?

  bf16-autocast.py PPCLI CONFIGS [mlp|resnet18|gpt]... [--rounds 5] [--seconds 6]

Each round trains with ppcli in bf16, with ppcli in f32 and with PyTorch under autocast, one after the
other, all on all cores; printed are the medians in samples/s, and the ratios. Needs torch and an idle
machine. The nets have the shapes of CONFIGS' mlp-16x1024.ini, resnet18-cifar10.ini and
gpt-char-large.ini, with synthetic data on PyTorch's side."""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(n_out), nn.BatchNorm2d(n_out)
        self.way = nn.Identity() if n_in == n_out else nn.Sequential(
            nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.way(x))


def resnet18():
    layers, width = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for n_out in (64, 128, 256, 512):
        layers += [Block(width, n_out, 1 if n_out == 64 else 2), Block(n_out, n_out, 1)]
        width = n_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2, is_causal=True)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(b, t, c)), 0.2)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), 0.2)


class Gpt(nn.Module):
    def __init__(self, kinds=65, width=384, layers=6, block=256):
        super().__init__()
        self.tokens, self.places = nn.Embedding(kinds, width), nn.Embedding(block, width)
        self.blocks = nn.Sequential(*[Attention(width, 6) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, bias=False)

    def forward(self, x):
        y = F.dropout(self.tokens(x) + self.places.weight[:x.shape[1]], 0.2)
        return self.norm(self.blocks(y)) @ self.tokens.weight.t()


def mlp():
    sizes = [784] + [1024] * 16 + [10]
    layers = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


# Name: net, optimizer, a batch, ppcli's config and words, samples of a step.
CASES = {
    'mlp': (mlp, lambda p: torch.optim.Adam(p, 1e-3), lambda n: (torch.rand(n, 784), torch.randint(10, (n,))),
            'mlp-16x1024.ini', ['--set', 'data.dataset=synthetic', '--set', 'data.train_samples=16384', '--set',
                                'data.test_samples=16', '--stages', '1', '--microbatches', '1'], 4096),
    'resnet18': (resnet18, lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
                 lambda n: (torch.rand(n, 3, 32, 32).to(memory_format=torch.channels_last),
                            torch.randint(10, (n,))), 'resnet18-cifar10.ini',
                 ['--set', 'data.dataset=cifar10-sample', '--stages', '1', '--microbatches', '1'], 64),
    'gpt': (Gpt, lambda p: torch.optim.AdamW(p, 1e-3),
            lambda n: (torch.randint(65, (n, 256)), torch.randint(65, (n, 256))), 'gpt-char-large.ini',
            ['--set', 'data.dataset=shakespeare-sample', '--stages', '1', '--microbatches', '1'], 16),
}


def train_torch(net, optimizer, batch, seconds):
    x, target = batch
    end, steps, begin = time.monotonic() + seconds, 0, time.monotonic()
    while time.monotonic() < end:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cpu', dtype=torch.bfloat16):
            y = net(x)
            loss = F.cross_entropy(y.float().flatten(0, -2), target.flatten())
        loss.backward()
        optimizer.step()
        steps += 1
    return steps * len(x) / (time.monotonic() - begin)


def train_ppcli(ppcli, config, words, precision, seconds, speed):
    with tempfile.TemporaryDirectory() as folder:
        steps = max(3, int(seconds * speed))
        subprocess.run([ppcli, 'train', config, *words, '-q', '--max-steps', str(steps), '--set',
                        f'run.precision={precision}', '--set', f'run.threads={os.cpu_count()}', '--set',
                        'checkpoint.at_end=false', '--set', 'checkpoint.every_epochs=0', '--launch', 'threads',
                        '--dir', f'{folder}/run'], check=True, stdout=subprocess.DEVNULL)
        with open(f'{folder}/run/summary.json', encoding='utf-8') as f:
            return json.load(f)['samples_per_second']


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('ppcli')
    p.add_argument('configs')
    p.add_argument('cases', nargs='*', default=list(CASES))
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--seconds', type=float, default=6)
    args = p.parse_args()
    for name in args.cases:
        make, optimizer_of, batch_of, config, words, batch = CASES[name]
        words = words + ['--batch-size', str(batch)]
        net = make().train()
        net = net.to(memory_format=torch.channels_last) if name == 'resnet18' else net
        optimizer, config = optimizer_of(net.parameters()), os.path.join(args.configs, config)
        data, rates = batch_of(batch), {'bf16': [], 'f32': [], 'autocast': []}
        train_torch(net, optimizer, data, 2)
        speed = train_ppcli(args.ppcli, config, words, 'bf16', 0, 1) / batch
        for _ in range(args.rounds):
            rates['bf16'].append(train_ppcli(args.ppcli, config, words, 'bf16', args.seconds, speed))
            rates['f32'].append(train_ppcli(args.ppcli, config, words, 'f32', args.seconds, speed / 2))
            rates['autocast'].append(train_torch(net, optimizer, data, args.seconds))
        of_torch = statistics.median(a / b for a, b in zip(rates['bf16'], rates['autocast']))
        of_f32 = statistics.median(a / b for a, b in zip(rates['bf16'], rates['f32']))
        print(name, *(f'{k} {statistics.median(v):.1f}/s' for k, v in rates.items()),
              f'bf16 / autocast {of_torch:.2f}, bf16 / f32 {of_f32:.2f}', sep=', ', flush=True)


if __name__ == '__main__':
    main()
