#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws one measured step of 1f1b above one of zb-h1 into docs/understand/measured-step.svg.

    experiments/draw-step.py [PPCLI]      build/ppcli without a word

Both are trained here: 2 stages, 4 micro-batches, the same weights at the end. The picture shows the step that each
run recorded (timeline.json), in one scale, with its measured bubble. A run that waited for a core is made again, a
few times; if the machine stays busy the script ends without a picture. `chrt -f 1 experiments/draw-step.py`, as root,
keeps other programs away for some seconds."""

import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(ROOT, 'docs', 'understand', 'measured-step.svg')
SCHEDULES = ('1f1b', 'zb-h1')
SETTINGS = ('data.dataset=synthetic', 'data.train_samples=3072', 'data.test_samples=64', 'train.coalesce=1',
            'train.epochs=1', 'checkpoint.at_end=off', 'checkpoint.every_epochs=0')
WIDTH, LEFT, ROW = 640, 74, 40
COLOURS = {'F': '#7aa2d6', 'I': '#e8b05c', 'W': '#8fbf8a', 'update': '#b9a0cf'}
NAMES = (('F', 'forward'), ('I', 'input gradient'), ('W', 'weight gradient'), ('update', 'optimizer'))
TRIES = 6


def run(ppcli, schedule, folder):
    """The summary and the recorded step of a training run that did not wait for a core."""
    for attempt in range(TRIES):
        out = f'{folder}/{schedule}-{attempt}'
        words = [ppcli, 'train', 'mlp-16x1024.ini', '-q', '--batch-size', '512', '--microbatches', '4', '--stages', '2',
                 '--schedule', schedule, '--dir', out]
        for setting in SETTINGS:
            words += ['--set', setting]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        with open(f'{out}/summary.json', encoding='utf-8') as f:
            summary = json.load(f)
        with open(f'{out}/timeline.json', encoding='utf-8') as f:
            events = json.load(f)
        if summary.get('waited_for_core', 0) < 0.02:
            return summary, events
    sys.exit(f'draw-step.py: this machine is busy: ranks of {TRIES} runs of {schedule} waited for a core')


def bars(events, y, scale):
    """Rectangles of the measured actions, a row for each rank."""
    for e in events:
        if e.get('ph') != 'X' or e['pid'] >= 10000 or e.get('cat') not in COLOURS:
            continue
        x, width = LEFT + e['ts'] * scale, max(0.5, e['dur'] * scale)
        top = y + e['pid'] * ROW
        yield (f'<rect x="{x:.2f}" y="{top}" width="{width:.2f}" height="32" fill="{COLOURS[e["cat"]]}" '
               f'stroke="#14181d" stroke-opacity=".35" stroke-width=".6"/>')
        if width > 24 and e['cat'] != 'update':
            yield f'<text class="c" x="{x + width / 2:.2f}" y="{top + 21}">{e["name"]}</text>'


def draw(runs):
    ends = [e['ts'] + e['dur'] for _, events in runs.values() for e in events
            if e.get('cat') in COLOURS and e.get('ph') == 'X' and e['pid'] < 10000]
    scale = (WIDTH - LEFT - 12) / max(ends)
    out = ['<style>.page{fill:#fff}.ink{fill:#1f2328}.idle{fill:#e4e8ec}text{font:15px system-ui,-apple-system,'
           "'Segoe UI',Helvetica,Arial,sans-serif}.b{font-weight:600}.c{font-size:13px;text-anchor:middle;fill:#14181d}"
           '@media (prefers-color-scheme:dark){.page{fill:#0d1117}.ink{fill:#f0f6fc}.idle{fill:#2b323b}}</style>']
    y = 12
    for schedule, (summary, events) in runs.items():
        step = events[0]['args']
        wide = step['step_seconds'] * 1e6 * scale
        out.append(f'<text class="ink" x="12" y="{y + 18}"><tspan class="b">{schedule}</tspan>: one measured step, '
                   f'{step["step_seconds"] * 1e3:.0f} ms, bubble {step["bubble_measured"] * 100:.1f} % '
                   f'(whole run {summary["bubble_measured"] * 100:.1f} %)</text>')
        y += 30
        for rank in range(2):
            out.append(f'<text class="ink" x="12" y="{y + rank * ROW + 21}">rank {rank}</text><rect class="idle" '
                       f'x="{LEFT}" y="{y + rank * ROW}" width="{wide:.2f}" height="32"/>')
        out += bars(events, y, scale)
        y += 2 * ROW + 14
    x = 12
    for kind, name in NAMES:
        out.append(f'<rect x="{x}" y="{y}" width="16" height="16" fill="{COLOURS[kind]}"/>'
                   f'<text class="ink" x="{x + 22}" y="{y + 13}">{name}</text>')
        x += 32 + 8 * len(name)
    out.append(f'<rect class="idle" x="{x}" y="{y}" width="16" height="16"/>'
               f'<text class="ink" x="{x + 22}" y="{y + 13}">bubble</text>')
    y += 28
    title = '1f1b and zb-h1, one measured step of each'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" role="img">\n'
            f'<title>{title}</title>\n<rect class="page" width="{WIDTH}" height="{y}"/>\n' + '\n'.join(out) + '\n</svg>\n')


def main():
    ppcli = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, 'build', 'ppcli')
    with tempfile.TemporaryDirectory() as folder:
        runs = {schedule: run(ppcli, schedule, folder) for schedule in SCHEDULES}
    digests = {summary['weights_sha256'] for summary, _ in runs.values()}
    if len(digests) != 1:
        sys.exit(f'draw-step.py: the runs have different weights: {digests}')
    with open(OUT, 'w', encoding='utf-8') as f:
        f.write(draw(runs))
    for schedule, (summary, events) in runs.items():
        step = events[0]['args']
        print(f'{schedule}: {summary["samples_per_second"]:.0f} samples/s, bubble {summary["bubble_measured"] * 100:.1f} %; '
              f'recorded step {step["step_seconds"] * 1e3:.0f} ms, bubble {step["bubble_measured"] * 100:.1f} %')
    print(f'weights_sha256 {digests.pop()}\n{OUT}')


if __name__ == '__main__':
    main()
