# SPDX-License-Identifier: Apache-2.0
"""Makes torch-VERSION.pt2 in this folder: one module, exported by the torch that runs this. Paths of the
machine are taken out of the stack traces, and the sample inputs, a pickle, are left out.
    python3 net.py"""

import os
import re
import sys
import zipfile

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(torch.relu(self.norm(self.fc(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, stride=2)
        self.bn = nn.BatchNorm2d(2)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.blocks[1].fc.weight = self.blocks[0].fc.weight
        self.register_buffer('scale', torch.tensor([1.0, 2.0]), persistent=False)

    def forward(self, x, flag=None):
        x = self.bn(self.conv(x)).flatten(1)
        a, b = x.chunk(2, dim=1)
        x = (a * b).view(-1, 4)
        for block in self.blocks:
            x = block(x)
        return x.view(-1, 2, 2) * self.scale, x.shape[0]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    torch.manual_seed(1)
    program = torch.export.export(Net().train(), (torch.randn(4, 1, 5, 5),),
                                  dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(program, os.path.join(here, 'small.pt2'))
    name = os.path.join(here, f'torch-{torch.__version__.split("+")[0]}.pt2')
    with zipfile.ZipFile(os.path.join(here, 'small.pt2')) as old, zipfile.ZipFile(name, 'w') as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith('models/model.json'):
                data = re.sub(rb'File \\"[^"]*/(site-packages/)?(?=torch/|net\.py)', rb'File \\"', data)
            if 'sample_inputs' not in entry.filename:
                new.writestr(zipfile.ZipInfo(entry.filename), data)
    os.remove(os.path.join(here, 'small.pt2'))


if __name__ == '__main__':
    sys.exit(main())
