#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Advices that ppcli prints are followed.

    advice.py PPCLI SOURCE

Of each row of advice_rows.py the first command fails or warns, and the second succeeds without that message. The message
names an option or a key in which the two differ. Prints TAP."""

import json
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile

from advice_rows import GPT, GPT2, NET, ON_CORES, ROWS, TABLES

NAME = re.compile(r'--[a-z][a-z-]*|[a-z]+\.[a-z][a-z_0-9]*(?==)')


class Shell:
    def __init__(self, ppcli, source, folder):
        self.ppcli, self.source, self.folder = ppcli, source, folder

    def file(self, name, text):
        with open(f'{self.folder}/{name}', 'w', encoding='latin-1') as f:
            f.write(text)

    def run(self, command):
        words = command
        if isinstance(command, tuple):
            words, text = command
            self.file('x.ini', text)
        env = {k: v for k, v in os.environ.items() if k not in ('PPCLI_DATA_DIR', 'OMPI_COMM_WORLD_SIZE')}
        done = subprocess.run([self.ppcli, *shlex.split(words)], cwd=self.folder, stdin=subprocess.DEVNULL, text=True,
                              env={**env, 'HOME': self.folder}, capture_output=True, timeout=120, errors='replace')
        return done.returncode, done.stdout + done.stderr

    def npy(self, name, shape, kind, data):
        """An array as numpy.save() writes it; data: characters, each a byte."""
        head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + '\n'
        self.file(name, '\x93NUMPY\x01\x00\x76\x00' + head + data)

    def damage(self, name, tensor, value, copy):
        """A copy of a safetensors file with one tensor full of that value."""
        with open(f'{self.folder}/{name}', 'rb') as f:
            data = f.read()
        at = 8 + struct.unpack('<Q', data[:8])[0]
        entry, = (e for key, e in json.loads(data[8:at]).items() if key.endswith(tensor))
        begin, end = (at + offset for offset in entry['data_offsets'])
        data = data[:begin] + struct.pack('<f', value) * ((end - begin) // 4) + data[end:]
        self.file(copy, data.decode('latin-1'))

    def prepare_data(self):
        def config(name, data, model):
            self.file(name, NET.replace('synthetic', data).replace('sizes = 12 9*3 4', model)
                      .replace('stages = 2', 'stages = 1'))

        self.npy('x.npy', (64, 3, 4, 4), '|u1', ''.join(chr(i % 251) for i in range(64 * 48)))
        self.npy('flat.npy', (64, 8), '|u1', ''.join(chr(i % 16) for i in range(64 * 8)))
        self.npy('words.npy', (64, 8), '<i4', ''.join(chr(i % 16) + 3 * '\0' for i in range(64 * 8)))
        self.npy('y.npy', (64,), '|u1', ''.join(chr(i % 4) for i in range(64)))
        arrays = 'npy\ntrain_images = {0}\ntrain_labels = y.npy\ntest_images = {0}\ntest_labels = y.npy'
        transformer = 'n_layer = 2\nn_head = 2\nn_embd = 8\nblock_size = 8'
        encoder = f'type = encoder\n{transformer}'
        config('pictures.ini', arrays.format('x.npy'), 'sizes = 48 9 4')
        config('net18.ini', arrays.format('none.npy'), 'type = resnet')
        config('words.ini', arrays.format('flat.npy'), f'{encoder}\nvocab_size = 16')
        self.file('labels.txt', 'a\tcaf\xe9 x\nb\tyes\n' * 40)
        config('labels.ini', 'text-labels\ntrain_file = labels.txt\ntest_file = labels.txt', encoder)
        for name, zeros in ('two.bin', 1), ('four.bin', 3):
            self.file(name, ''.join(chr(i % 17) + zeros * '\0' for i in range(4000)))
        self.file('same.txt', 'a' * 2000)
        # columns as in a table of pictures, whose label is the first
        values = [','.join(str(i * j % 256) for j in range(1, 120)) for i in range(64)]
        for name, last in ('zeros', 1), ('tens', 9):
            self.file(f'{name}.csv', ''.join(f'{i % 3},{row},{i % last}\n' for i, row in enumerate(values)))
            config(f'{name}.ini', f'csv\ntrain_file = {name}.csv\ntest_file = {name}.csv',
                   f'sizes = 120 9 {max(last, 3)}')
        self.file('large.csv', ''.join(f'{(i * 37 % 64 - 32) * 1.5e10},{(i * 23 % 64 - 32) * 1.5e10},{i % 3}\n'
                                       for i in range(64)))
        config('norm.ini', 'synthetic\nshape = 1x1x3',
               'type = sequential\nlayers = conv:4x1 batchnorm relu flatten linear:4')
        self.damage('g-hf/model.safetensors', 'h.1.ln_1.weight', 3e38, 'damaged.safetensors')
        # a config of Hugging Face's with two dropouts
        self.file('drops.ini', GPT2.replace('g-hf', 'drops'))
        os.makedirs(f'{self.folder}/drops')
        with open(f'{self.folder}/g-hf/config.json', encoding='utf-8') as f:
            self.file('drops/config.json', f.read().replace('"embd_pdrop": 0', '"embd_pdrop": 0.1'))

    def prepare_tables(self):
        for name, rows in TABLES.items():
            self.file(f'{name}.csv', ''.join(row + '\n' for row in rows))
        with open(f'{self.source}/configs/machines/laptop.ini', encoding='utf-8') as f:
            machine = f.read()
        self.file('good-machine.ini', machine)
        self.file('bad-machine.ini', machine.replace('product = 0.8', 'product = 80'))

    def prepare(self):
        self.file('net.ini', NET)
        self.file('gpt.ini', GPT)
        self.file('text.txt', ''.join(f'{i % 13} times {i % 17} is {(i % 13) * (i % 17)}\n' for i in range(600)))
        self.file('latin.txt', 'caf\xe9 ' * 600)
        os.makedirs(f'{self.folder}/empty')
        os.makedirs(f'{self.folder}/cifar')
        self.file('cifar/data_batch_1.bin', 'x')
        for words in ('train net.ini --dir a -q', 'train net.ini --dir b -q --max-steps 1', 'train gpt.ini --dir g -q',
                      'export g g-hf'):
            code, text = self.run(words)
            if code:
                raise RuntimeError(f'{words}: {text}')
        code, table = self.run('plan --schedule 1f1b --stages 2 --microbatches 2 --format csv')
        self.file('t.csv', table)
        self.file('both.csv', '0F0,0I0,0W0\n0F0,0BW0,\n')
        self.file('bare.csv', ''.join(f'{i % 5},{i % 7},{i % 3}\n' for i in range(64)))
        self.file('table.ini', NET.replace('synthetic', 'csv').replace('12 9*3 4', '2 9 3'))
        self.file('gpt2.ini', GPT2)
        for name in ('c', 'd'):
            steps = ' --set train.lr_steps=4' if name == 'd' else ''
            self.run(f'train net.ini --dir {name} -q --set train.lr_schedule=cosine{steps}')
        self.prepare_data()
        self.prepare_tables()
        for name, step in ('wrong', 7), ('right', 2):
            os.makedirs(f'{self.folder}/{name}/checkpoints')
            subprocess.run(['cp', '-r', f'{self.folder}/a/checkpoints/step-00000002',
                            f'{self.folder}/{name}/checkpoints/step-{step:08}'], check=True)


def names_of(bad, good):
    """Options and keys whose words are in only one of the commands."""
    words = [c if isinstance(c, str) else c[0] + ' ' + c[1].replace(' = ', '=') for c in (bad, good)]
    parts = [set(NAME.findall(' '.join(set(shlex.split(one)) - set(shlex.split(other)))))
             for one, other in (words, reversed(words))]
    return {name for name in parts[0] | parts[1] if name not in ('--set', '--dir') and not name.endswith('_images')}


def follow(shell, bad, good):
    """What is wrong; None: nothing."""
    code, text = shell.run(bad)
    lines = [line for line in text.splitlines() if 'error: ' in line or code == 0]
    if code == 0 and not text.strip():
        return f'{bad}: says nothing'
    if good is None:
        return None
    names = names_of(bad, good)
    if names and not any(name in text or name.split('.')[-1] in text or name.lstrip('-') in text for name in names):
        return f'{bad}: names none of {sorted(names)}: {text[:600]}'
    code, after = shell.run(good)
    if code or (lines and all(line in after for line in lines)):
        return f'{good}: exit {code}: {after[:600]}'
    return None


def main():
    ppcli, source = os.path.abspath(sys.argv[1]), sys.argv[2]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(ppcli, source, folder)
        shell.prepare()
        _, env = shell.run('env --format json')
        rows = ROWS + (ON_CORES if json.loads(env)['machine']['cores'] > 1 else [])
        for case, (bad, good) in enumerate(rows, 1):
            wrong = follow(shell, bad, good)
            failures += wrong is not None
            print(f'{"ok" if wrong is None else "not ok"} {case} - {bad if isinstance(bad, str) else bad[1][-40:]!r}')
            if wrong:
                print('# ' + wrong.replace('\n', '\n# '))
                print(wrong, file=sys.stderr)  # meson shows no comments of TAP
    print(f'1..{len(rows)}')
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
