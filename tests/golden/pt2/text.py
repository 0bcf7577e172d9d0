# SPDX-License-Identifier: Apache-2.0
"""Makes text.pt2 in this folder: a small model of texts that can be trained, cut in four, exported and
continued; its last layer is tied to its embedding. To keep it small only the last call of each stack trace
that is not PyTorch's is left in, and the sample inputs, a pickle, are left out.
    python3 text.py"""

import json
import os
import sys
import zipfile

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, residual):
        x = self.qkv(self.norm(residual)).unflatten(2, (3, self.heads, -1))
        q, k, v = x.transpose(1, 3).unbind(2)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return residual + self.out(y.transpose(1, 2).flatten(2))


class Text(nn.Module):
    def __init__(self, tokens=32, positions=8, width=8):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.position = nn.Parameter(torch.randn(positions, width) / 4)
        self.blocks = nn.ModuleList(Block(width, 2) for _ in range(2))
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def shorten(text):
    """model.json with less metadata."""
    program = json.loads(text)
    for node in program['graph_module']['graph']['nodes']:
        trace = node['metadata'].get('stack_trace', '')
        calls = [call for call in trace.split('File "') if '/torch/' not in call]
        node['metadata']['stack_trace'] = 'File "' + calls[-1].split('/')[-1]
        for key in ('source_fn_stack', 'torch_fn', 'from_node'):
            node['metadata'].pop(key, None)
    return json.dumps(program, separators=(',', ':'))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    torch.manual_seed(1)
    program = torch.export.export(Text().train(), (torch.zeros(2, 8, dtype=torch.int64),),
                                  dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.export.save(program, 'all.pt2')
    with zipfile.ZipFile('all.pt2') as old, zipfile.ZipFile(os.path.join(here, 'text.pt2'), 'w') as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith('models/model.json'):
                data = shorten(data)
            if 'sample_inputs' not in entry.filename:
                new.writestr(zipfile.ZipInfo(entry.filename.replace('all/', 'text/', 1)), data)
    os.remove('all.pt2')


if __name__ == '__main__':
    sys.exit(main())
