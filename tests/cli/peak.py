#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory that a process had at most, from start to end, beside what explain says its ranks take.

    peak.py PPCLI

A run of a model of next to no memory tells what the program itself and its threads take. Prints TAP."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

PPCLI = os.path.abspath(sys.argv[1])
MIB = 2**20
SPARE = 12  # MiB for what is not predicted: buffers for files and messages, the allocator's rounding
TEXT = ['data.dataset=synthetic-tokens', 'model.n_layer=2', 'model.n_head=4', 'model.n_embd=384',
        'model.block_size=32', 'model.vocab_size=12000']
IMAGE = ['data.dataset=synthetic', 'data.shape=16x16x3']
MODELS = {
    'mlp': ['data.dataset=synthetic', 'model.sizes=784 3072 3072 10'],
    'sequential': IMAGE + ['model.type=sequential',
                           'model.layers=conv:32x3 relu batchnorm flatten linear:1280 relu linear:256 relu linear:10'],
    'resnet': IMAGE + ['model.type=resnet', 'model.depth=18', 'model.stem=cifar'],
    'gpt': TEXT + ['model.type=gpt'],
    'llama': TEXT + ['model.type=llama'],
    'decoder': TEXT + ['model.type=decoder'],
}
SMALL = ['data.dataset=synthetic', 'model.sizes=784 8 8 8 10']
SHAPES = [['--stages', '1'], ['--stages', '2'], ['--stages', '2', '--replicas', '2'],
          ['--stages', '2', '--replicas', '2', '--set', 'train.zero=1']]

here = tempfile.mkdtemp()
config = os.path.join(here, 'net.ini')


def write_config(keys):
    sections = {}
    for key in keys + ['data.train_samples=32', 'data.test_samples=16', 'train.batch_size=8', 'train.max_steps=2',
                       'run.backend=cpu', 'run.launch=threads']:
        name, value = key.split('=', 1)
        section, name = name.split('.')
        sections.setdefault(section, []).append(f'{name} = {value}\n')
    with open(config, 'w') as f:
        for section, lines in sections.items():
            f.write(f'[{section}]\n' + ''.join(lines))


def peak(words):
    """MiB beyond what is predicted; of the run, which must have gone well."""
    said = subprocess.run([PPCLI, 'explain', config, '--format', 'json', '-q', *words], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    predicted = sum(rank['peak_bytes'] for rank in json.loads(said.stdout)['ranks'])
    child = os.fork()
    if child == 0:
        log = os.open(os.path.join(here, 'log'), os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.execv(PPCLI, [PPCLI, 'train', config, '--dir', os.path.join(here, 'run'), '--overwrite', '-q', *words])
    _, status, usage = os.wait4(child, 0)
    with open(os.path.join(here, 'log')) as f:
        assert status == 0, f.read()
    return predicted / MIB, usage.ru_maxrss / 1024


failures = 0
write_config(SMALL)
own = {}
for shape in SHAPES:
    predicted, taken = peak(shape)
    own[tuple(shape)] = taken - predicted
if max(own.values()) > 96:
    shutil.rmtree(here)
    print('1..0 # SKIP the program itself takes much memory: it looks at each access')
    sys.exit(0)
for number, (name, keys) in enumerate(MODELS.items(), 1):
    write_config(keys)
    wrong = []
    for shape in SHAPES[number % 2::2]:  # two for each
        predicted, taken = peak(shape)
        most = predicted + own[tuple(shape)] + SPARE
        if not 0.8 * predicted < taken <= most:
            wrong.append(f'{" ".join(shape)}: took {taken:.1f} MiB, predicted {predicted:.1f}, so at most {most:.1f}')
    failures += bool(wrong)
    print(f'{"not ok" if wrong else "ok"} {number} - {name}: no more than predicted, until the process has ended')
    for line in wrong:
        print('#', line)
        print(f'{name}: {line}', file=sys.stderr)  # meson shows no comments of TAP
print(f'1..{len(MODELS)}')
shutil.rmtree(here)
sys.exit(failures > 0)
