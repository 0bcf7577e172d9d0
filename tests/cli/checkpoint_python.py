#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of the safetensors package for Python and ours are the same thing:

    checkpoint_python.py PPCLI FOLDER      FOLDER: the stored checkpoint of version 1

Without the package here, the interpreter named by PPCLI_TEST_PYTHON is tried; without that either it
says so and exits 77."""

import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    other = os.environ.pop('PPCLI_TEST_PYTHON', None)
    if other:
        os.execv(other, [other, *sys.argv])
    print(f'skipped: {missing} (set PPCLI_TEST_PYTHON to an interpreter that has safetensors)')
    sys.exit(77)


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


def main():
    ppcli, folder = sys.argv[1:3]
    python_reads_ours(folder)
    with tempfile.TemporaryDirectory() as scratch:
        ours_reads_pythons(ppcli, scratch)


if __name__ == '__main__':
    main()
