#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run folders as they should not be, for tests of `ppcli report`.

    report_folders.py hostile|wild FROM TO            a copy of a whole run, spoiled
    report_folders.py extreme|long|resumed|steady TO   made of nothing"""

import json
import os
import random
import sys

EVIL = '<script>alert(1)</script>&"\'</title></style><!--<img src=x onerror=alert(2)>'
KEEP = ('type', 'ph', 'cat')  # without them a record is only left out
WILD = [None, 1e308, -1e308, 5e-324, 1e15, -7, 0, 'text', [], {}, True, 2**63, 1e-300, 123456789.123]


def write(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    with open(f'{folder}/{name}', 'w', encoding='utf-8') as f:
        f.write(text)


def changed(o, change):
    if isinstance(o, dict):
        return {k: v if k in KEEP else changed(v, change) for k, v in o.items()}
    return [changed(v, change) for v in o] if isinstance(o, list) else change(o)


def spoil(run, to, change, times=1):
    """Every value of every file goes through change()."""
    for name in ('metrics.jsonl', 'timeline.json'):
        lines = []
        with open(f'{run}/{name}', encoding='utf-8') as f:
            for line in f:
                text = line.strip().strip(',')
                for _ in range(times):
                    lines.append(json.dumps(changed(json.loads(text), change)) if text[0] == '{' else text)
        write(to, name, '\n'.join(lines) + '\n')
    with open(f'{run}/summary.json', encoding='utf-8') as f:
        write(to, 'summary.json', json.dumps(changed(json.load(f), change)))


def hostile(run, to):
    spoil(run, to, lambda value: EVIL + '\u2028' if isinstance(value, str) else value)
    with open(f'{run}/config.resolved.ini', encoding='utf-8') as f:
        write(to, 'config.resolved.ini', f.read().replace('dataset = synthetic', 'dataset = ' + EVIL))


def wild(run, to):
    random.seed(5)
    spoil(run, to, lambda value: value if random.random() < 0.6 else random.choice(WILD), 20)
    with open(f'{to}/metrics.jsonl', 'ab') as out:
        out.write(b'\xff\xfe\x00{"type":"step"}\n[1]\n1e999\n{"type":"step","step":1e999}\n' + b'[' * 5000 +
                  b'\n' + b'x' * 2000000 + b'\n{"type":"step","step":1,"loss":NaN}\n')


def extreme(to):
    """Losses and speeds whose quotients and differences no number can hold."""
    write(to, 'metrics.jsonl', ''.join(json.dumps(
        {'type': 'step', 'step': i + 1, 'epoch': 1, 'loss': loss, 'samples_per_second': -loss}) + '\n'
        for i, loss in enumerate((5e-324, 1e-200, 2.5, 1e299, 9e299))))


def long(to):
    """30,000 steps with one spike, and a step of 30 ranks that no page can hold."""
    step = {'type': 'step', 'epoch': 1, 'accuracy': 0.5, 'bubble_measured': 0.2}
    write(to, 'metrics.jsonl', ''.join(json.dumps(
        {**step, 'step': i + 1, 'loss': 9.5 if i == 22222 else 2 - i / 30000, 'samples_per_second': 1000 + i % 7})
        + '\n' for i in range(30000)))
    write(to, 'timeline.json', '[\n' + ''.join(json.dumps(
        {'name': f'F{i}', 'cat': 'FIW'[i % 3], 'ph': 'X', 'pid': pid, 'tid': 0, 'ts': i * 10.5,
         'dur': 10 + 0.01 * (i * i % 7), 'args': {'microbatch': i, 'chunk': i % 2}}) + ',\n'
        for pid in [*range(30), *range(10000, 10030)] for i in range(1480)))


# Rank, kind, micro-batch, start and length in microseconds of a step of two ranks.
STEADY = [(0, 'F', 0, 0, 100), (0, 'F', 1, 100, 100), (0, 'recv', 0, 200, 130), (0, 'I', 0, 330, 50),
          (0, 'W', 0, 380, 50), (0, 'recv', 1, 430, 140), (0, 'I', 1, 570, 50), (0, 'W', 1, 620, 50),
          (1, 'recv', 0, 0, 110), (1, 'F', 0, 110, 100), (1, 'I', 0, 210, 100), (1, 'W', 0, 310, 50),
          (1, 'F', 1, 360, 100), (1, 'I', 1, 460, 100), (1, 'W', 1, 560, 50)]


def steady(to):
    """A step of known times; simulated it takes half of them."""
    events = [{'name': 'ppcli', 'ph': 'M', 'args': {'stages': 2, 'bubble_measured': 0.25}}]
    for pid, factor in (0, 1), (10000, 0.5):
        events += [{'name': kind, 'cat': kind, 'ph': 'X', 'pid': pid + rank, 'ts': start * factor, 'dur': us * factor,
                    'args': {'step': 7, 'stage': rank, 'chunk': 0, 'microbatch': mb}}
                   for rank, kind, mb, start, us in STEADY]
    write(to, 'timeline.json', '[\n' + '\n,'.join(json.dumps(event) for event in events) + '\n]\n')
    write(to, 'summary.json', '{"stages": 2}')


def resumed(to):
    """Stopped in its third epoch, resumed on 4 stages from step 24, killed at step 34; log records
    only since then, and of steps that had been done before."""
    header = {'type': 'header', 'schedule': '1f1b', 'stages': 2, 'microbatches': 4, 'total_steps': 50}
    records = [header]
    for epoch in (1, 2):
        records.append({'type': 'epoch', 'epoch': epoch, 'step': 10 * epoch, 'train_loss': 2 / epoch,
                        'train_accuracy': 0.4 * epoch, 'test_loss': 2.1 / epoch, 'test_accuracy': 0.4 * epoch,
                        'samples_per_second': 100, 'bubble_measured': 0.3, 'seconds': 5})
    records.append({'type': 'step', 'step': 28, 'epoch': 3, 'loss': 777, 'seconds': 14})
    records.append({**header, 'type': 'resume', 'step': 24, 'stages': 4})
    for step in (26, 30, 34):
        records.append({'type': 'step', 'step': step, 'epoch': 3, 'loss': 30 / step, 'accuracy': 0.9,
                        'samples_per_second': 200, 'bubble_measured': 0.2, 'seconds': (step - 24) / 2})
    write(to, 'metrics.jsonl', ''.join(json.dumps(record) + '\n' for record in records))


if __name__ == '__main__':
    globals()[sys.argv[1]](*sys.argv[2:])
