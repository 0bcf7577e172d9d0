#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of the safetensors package for Python and ours are the same thing, and PyTorch computes with
our weights what we do, and we with its:

    checkpoint_python.py PPCLI FOLDER PAGE [PART]

FOLDER: the stored checkpoint of version 1; PAGE: docs/do/pytorch.md, whose Python is run as it stands there. Each part
runs in the first interpreter that has what it needs: this one, PPCLI_TEST_PYTHON, the system's. What
none can run is said; where none can run anything the exit code is 77."""

import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import types

try:
    import numpy
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
except ImportError:
    pass
try:
    import torch
except ImportError:
    pass

TOLERANCE = 1e-5


def value_of(layer, what, i):
    """As the test that wrote the stored checkpoint, at its step 7."""
    return numpy.float32(layer * 100 + what * 20 + i) + numpy.float32(0.001) * numpy.float32(7)


def expect(what, found, expected):
    if found != expected:
        raise SystemExit(f'{what}: {found!r}, expected {expected!r}')


def python_reads_ours(folder):
    names = set()
    for part in range(2):
        path = f'{folder}/step-00000007/stage-000{part}-of-0002.safetensors'
        tensors = load_file(path)
        with safe_open(path, framework='numpy') as f:
            expect('format', f.metadata()['format'], 'pt')
            expect('step', f.metadata()['ppcli.step'], '7')
            expect('keys', set(f.keys()), set(tensors))
        for layer in range(2 * part, 2 * part + 2):
            rows = 1 + layer % 3
            for what, (name, shape) in enumerate([('layers.{}.weight', (rows, 2)),
                                                  ('layers.{}.bias', (rows,)),
                                                  ('optimizer.m.layers.{}.weight', (rows, 2)),
                                                  ('optimizer.m.layers.{}.bias', (rows,))]):
                name = name.format(layer)
                t = tensors[name]
                expect(name, (t.dtype, t.shape), (numpy.dtype('float32'), shape))
                expect(name, t.flatten().tolist(),
                       [float(value_of(layer, what, i)) for i in range(t.size)])
                names.add(name)
    expect('number of tensors', len(names), 16)


def ours_reads_pythons(ppcli, folder):
    tensors = {
        'layers.0.weight': numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
        'layers.0.bias': numpy.zeros(2, dtype=numpy.float64),
        'half': numpy.ones((1, 1, 5), dtype=numpy.float16),
        'counts': numpy.array([1, -2], dtype=numpy.int64),
        'bytes': numpy.arange(7, dtype=numpy.uint8),
        'empty': numpy.zeros((0, 4), dtype=numpy.float32),
        'scalar': numpy.array(1.5, dtype=numpy.float32),
    }
    path = f'{folder}/theirs.safetensors'
    save_file(tensors, path, metadata={'who': 'numpy "\u00e9"'})
    said = subprocess.run([ppcli, 'verify', path], check=True, stdout=subprocess.PIPE, text=True)
    if 'good: 7 tensors' not in said.stdout:
        raise SystemExit(f'verify said {said.stdout!r}')
    said = subprocess.run([ppcli, 'inspect', path, '--format', 'json'], check=True,
                          stdout=subprocess.PIPE, text=True)
    seen = {t['name']: t for t in json.loads(said.stdout)['tensors']}
    expect('names', set(seen), set(tensors))
    kinds = {'float32': 'F32', 'float64': 'F64', 'float16': 'F16', 'int64': 'I64', 'uint8': 'U8'}
    for name, t in tensors.items():
        expect(name, (seen[name]['dtype'], seen[name]['shape'], seen[name]['bytes']),
               (kinds[t.dtype.name], list(t.shape), t.nbytes))


# --- with PyTorch --------------------------------------------------------------------------------


def read_st(path):
    """The tensors of a file, as PyTorch's: what safetensors.torch.load_file() does."""
    with open(path, 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    out = {}
    for name, t in header.items():
        if name != '__metadata__':
            begin, end = t['data_offsets']
            values = struct.unpack(f'<{(end - begin) // 4}f', data[begin:end])
            expect(name, (t['dtype'], math.prod(t['shape'])), ('F32', len(values)))
            out[name] = torch.tensor(values).reshape(t['shape'])
    return out


def write_st(tensors, path):
    """What safetensors.torch.save_file() does."""
    header, data = {}, b''
    for name, t in tensors.items():
        values = t.detach().flatten().tolist()
        piece = struct.pack(f'<{len(values)}f', *values)
        header[name] = {'dtype': 'F32', 'shape': list(t.shape),
                        'data_offsets': [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)


def have_safetensors():
    """The page imports safetensors.torch: where it is missing, ours takes its place."""
    try:
        import safetensors.torch  # noqa: F401 pylint: disable=unused-import,import-outside-toplevel
    except ImportError:
        stand_in = types.ModuleType('safetensors.torch')
        stand_in.load_file, stand_in.save_file = read_st, write_st
        sys.modules['safetensors'] = types.ModuleType('safetensors')
        sys.modules['safetensors.torch'] = stand_in


def snippets(readme):
    with open(readme, encoding='utf-8') as f:
        found = re.findall(r'```python\n(.*?)```', f.read(), re.S)
    expect('pieces of Python in the page', len(found), 2)
    return found


def write_data(folder, images, labels):
    """Both splits are these samples."""
    os.makedirs(folder, exist_ok=True)
    for prefix in ('train', 't10k'):
        with open(f'{folder}/{prefix}-images-idx3-ubyte', 'wb') as f:
            f.write(struct.pack('>IIII', 0x803, len(images), 28, 28) + b''.join(images))
        with open(f'{folder}/{prefix}-labels-idx1-ubyte', 'wb') as f:
            f.write(struct.pack('>II', 0x801, len(labels)) + bytes(labels))


def ppcli_says(ppcli, *words):
    p = subprocess.run([ppcli, *words], check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if p.returncode != 0:
        raise SystemExit(f'ppcli {" ".join(words)}: exit {p.returncode}: {p.stderr}')
    return p.stdout


def log_probabilities(ppcli, settings, weights, image, scratch):
    """Of every class, from the loss of one sample with each label: the logits, but for what a softmax
    does not see of them."""
    out = []
    for label in range(10):
        write_data(f'{scratch}/one', [image], [label])
        said = ppcli_says(ppcli, 'eval', *settings, '--set', f'data.path={scratch}/one', '--checkpoint', weights,
                          '--format', 'json')
        out.append(-json.loads(said)['test_loss'])
    return out


def close(what, ours, theirs):
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    if not apart <= TOLERANCE:
        raise SystemExit(f'{what}: {apart} apart: {ours} and {theirs}')
    return apart


def same_logits(ppcli, settings, weights, forward, images, scratch):
    worst = 0
    for image in images:
        x = torch.tensor(list(image), dtype=torch.float32) / 255
        theirs = torch.log_softmax(forward(x.reshape(1, -1)).double(), 1)[0].tolist()
        ours = log_probabilities(ppcli, settings, weights, image, scratch)
        worst = max(worst, close(f'logits of {weights}', ours, theirs))
    return worst


def torch_reads_ours(ppcli, readme, scratch, images):
    """As the page says."""
    settings = [f'{scratch}/net.ini', '--set', 'model.sizes=784 512 512 10']
    ppcli_says(ppcli, 'train', *settings, '--dir', f'{scratch}/a', '--stages', '3', '-q')
    have_safetensors()
    space = {}
    exec(snippets(readme)[0].replace('runs/a', f'{scratch}/a'), space)  # pylint: disable=exec-used
    print('relu, as in the page: log-probabilities at most',
          same_logits(ppcli, settings, f'{scratch}/a', space['net'], images, scratch), 'apart')
    return space


def ours_reads_torchs(ppcli, readme, space, scratch, images):
    settings = [f'{scratch}/net.ini', '--set', 'model.sizes=784 512 512 10']
    path = f'{scratch}/weights.safetensors'
    space['net'] = space['MLP'](784, 512, 512, 10)  # new weights, of PyTorch's own
    exec(snippets(readme)[1].replace('weights.safetensors', path), space)  # pylint: disable=exec-used
    print('weights of PyTorch: log-probabilities at most',
          same_logits(ppcli, settings, path, space['net'], images, scratch), 'apart')


def activations_are_the_same(ppcli, scratch, images):
    torch.manual_seed(1)
    for name, act in (('relu', torch.relu), ('tanh', torch.tanh), ('gelu', torch.nn.functional.gelu),
                      ('gelu_tanh', torch.nn.GELU(approximate='tanh')), ('silu', torch.nn.functional.silu)):
        layers = torch.nn.ModuleList([torch.nn.Linear(784, 24), torch.nn.Linear(24, 17), torch.nn.Linear(17, 10)])
        path = f'{scratch}/{name}.safetensors'
        write_st({f'layers.{k}': v for k, v in layers.state_dict().items()}, path)
        settings = [f'{scratch}/net.ini', '--set', 'model.sizes=784 24 17 10', '--set', f'model.activation={name}']
        apart = same_logits(ppcli, settings, path, lambda x, act=act, l=layers: l[2](act(l[1](act(l[0](x))))), images,
                            scratch)
        print(f'{name}: log-probabilities at most {apart} apart')


def one_step_is_the_same(ppcli, scratch, images, labels):
    """From PyTorch's weights, one step of plain descent over all samples."""
    torch.manual_seed(2)
    layers = torch.nn.ModuleList([torch.nn.Linear(784, 24), torch.nn.Linear(24, 10)])
    write_st({f'layers.{k}': v for k, v in layers.state_dict().items()}, f'{scratch}/begin.safetensors')
    write_data(f'{scratch}/all', images, labels)
    ppcli_says(ppcli, 'train', f'{scratch}/net.ini', '--set', 'model.sizes=784 24 10', '--stages', '2', '--microbatches',
               '2', '--set', f'train.init={scratch}/begin.safetensors', '--set', f'data.path={scratch}/all', '--set',
               'train.optimizer=sgd', '--lr', '0.5', '--batch-size', str(len(images)), '--max-steps', '1', '--dir',
               f'{scratch}/step', '-q')
    x = torch.tensor([list(i) for i in images], dtype=torch.float32) / 255
    y = torch.tensor(labels)
    loss = torch.nn.functional.cross_entropy(layers[1](torch.relu(layers[0](x))), y)
    loss.backward()
    ours = {}
    for part in range(2):
        ours.update(read_st(f'{scratch}/step/checkpoints/step-00000001/stage-000{part}-of-0002.safetensors'))
    worst = 0
    for name, p in layers.named_parameters():
        theirs = (p - 0.5 * p.grad).flatten().tolist()
        worst = max(worst, close(f'layers.{name} after a step', ours[f'layers.{name}'].flatten().tolist(), theirs))
    print('weights after a step from PyTorch\'s: at most', worst, 'apart')


def with_torch(ppcli, readme):
    draw = random.Random(3)
    images = [bytes(draw.randrange(256) for _ in range(784)) for _ in range(4)]
    with tempfile.TemporaryDirectory() as scratch:
        write_data(f'{scratch}/data', images * 8, [draw.randrange(10) for _ in range(32)])
        with open(f'{scratch}/net.ini', 'w', encoding='ascii') as f:
            f.write(f'[data]\npath = {scratch}/data\n[train]\nbatch_size = 8\nmax_steps = 4\n')
        space = torch_reads_ours(ppcli, readme, scratch, images[:2])
        ours_reads_torchs(ppcli, readme, space, scratch, images[:2])
        activations_are_the_same(ppcli, scratch, images[:1])
        one_step_is_the_same(ppcli, scratch, images, [3, 1, 4, 1])


# --- parts ---------------------------------------------------------------------------------------


def with_package(ppcli, folder):
    python_reads_ours(folder)
    with tempfile.TemporaryDirectory() as scratch:
        ours_reads_pythons(ppcli, scratch)
    print('package: the same tensors in both directions')


PARTS = {'package': 'import numpy, safetensors', 'torch': 'import torch'}


def interpreter(needs):
    """One that has what a part needs, or None."""
    for python in (sys.executable, os.environ.get('PPCLI_TEST_PYTHON'), '/usr/bin/python3'):
        if python and subprocess.run([python, '-c', needs], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return python
    return None


def main():
    ppcli, folder, readme = sys.argv[1:4]
    if sys.argv[4:] == ['package']:
        with_package(ppcli, folder)
    elif sys.argv[4:] == ['torch']:
        with_torch(ppcli, readme)
    else:
        ran = 0
        for part, needs in PARTS.items():
            python = interpreter(needs)
            if python:
                subprocess.run([python, *sys.argv[:4], part], check=True)
                ran += 1
            else:
                print(f'skipped: {part}: no interpreter can {needs} (set PPCLI_TEST_PYTHON to one that can)')
        sys.exit(0 if ran else 77)


if __name__ == '__main__':
    main()
