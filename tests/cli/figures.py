#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures and tables for papers: what is in them, and that a grey print shows it.

    figures.py PPCLI SOURCE_DIR

Without rsvg-convert or Chromium the checks that need it are left out, and it says so."""

import collections
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
import zlib

import browser
from browser import check, failures

PPCLI, SOURCE = (os.path.abspath(word) for word in sys.argv[1:])
RSVG = shutil.which('rsvg-convert')
SHAPE = ['plan', '--stages', '4', '--microbatches', '8', '--schedule']
GREY = 15  # least difference of two kinds, of 255

def run(*words, code=0, path=None):
    env = dict(os.environ, PATH=path) if path is not None else None
    done = subprocess.run([PPCLI, *words], stdin=subprocess.DEVNULL, capture_output=True, env=env, check=False)
    if done.returncode != code:
        check(' '.join(words) + f': exit code {code}', False, done.returncode, done.stderr)
    return done.stdout if code == 0 else done.stderr.decode()


def picture(*words):
    """A picture as a tree, its words, and its cells (class, x, y, width, height)."""
    tree = ET.fromstring(run(*words))
    tag = lambda node: node.tag.split('}')[1]
    texts = [node.text for node in tree.iter() if tag(node) == 'text']
    cells = [(node.get('class'), *(float(node.get(k)) for k in ('x', 'y', 'width', 'height')))
             for node in tree.iter() if tag(node) == 'rect' and re.match(r'[FIWBRGTO]\d$', node.get('class') or '')]
    return tree, texts, [c for c in cells if (c[3], c[4]) != (14, 14)]


def pixels(data):
    """Rows of (r, g, b) of a PNG of rsvg-convert: 8 bits, not interlaced."""
    at, parts = 8, b''
    while at < len(data):
        size, kind = struct.unpack('>I4s', data[at:at + 8])
        if kind == b'IHDR':
            width, height, _, colour = struct.unpack('>IIBB', data[at + 8:at + 18])
        parts += data[at + 8:at + 8 + size] if kind == b'IDAT' else b''
        at += size + 12
    step, raw = 4 if colour == 6 else 3, zlib.decompress(parts)
    before, rows = bytearray(width * step), []
    for y in range(height):
        kind, line = raw[y * (width * step + 1)], bytearray(raw[y * (width * step + 1) + 1:(y + 1) * (width * step + 1)])
        for i, value in enumerate(line):
            left, up = (line[i - step] if i >= step else 0), before[i]
            corner = before[i - step] if i >= step else 0
            guess = min((abs(up - corner), 0, left), (abs(left - corner), 1, up),
                        (abs(left + up - 2 * corner), 2, corner))[2]
            line[i] = (value + (0, left, up, (left + up) // 2, guess)[kind]) & 255
        rows.append([tuple(line[x:x + 3]) for x in range(0, width * step, step)])
        before = line
    return rows


def grey(pixel):
    return sum(weight * part for weight, part in zip((0.299, 0.587, 0.114), pixel))


def plans():
    tree, texts, cells = picture(*SHAPE, 'zb-v', '--format', 'svg')
    check('a cell for each action, with its name', len(cells) == 4 * 8 * 6 and texts.count('3F0') == 1, len(cells))
    text = ET.tostring(tree, encoding='unicode')
    check('white paper: no second set of colours', 'prefers-color-scheme' not in text)
    tree, texts, _ = picture(*SHAPE, '1f1b', '--width', '420', '--title', 'A <b> & "c"', '--format', 'svg')
    check('width and title are as asked', tree.get('width') == '420' and texts[0] == 'A <b> & "c"', texts[:2])
    _, texts, _ = picture(*SHAPE, '1f1b', '--title', '', '--format', 'svg')
    check('an empty title leaves out all words about the plan', not any('makespan' in t or 'micro-batch' in t for t in texts), texts)
    for words, code, said in ((['--width', '100', '-o', 'x.svg'], 64, '--width wants 240'), (['--title', 'x'], 64, 'add -o plan.svg'),
                              (['--html', 'x.html', '-o', 'x.svg'], 64, 'leave out -o')):
        check('refused: ' + ' '.join(words), said in run(*SHAPE, '1f1b', *words, code=code))
    run(*SHAPE, '1f1b', '-o', 'plan.csv')
    check('the ending chooses the format', open('plan.csv', encoding='utf-8').read().startswith('0F0,0F1'))


def greys():
    if not RSVG:
        return print('left out: no rsvg-convert')
    kinds = collections.defaultdict(list)
    for words in (['zb-v', '--chunks', '2'], ['interleaved', '--chunks', '4'], ['gpipe', '--recompute', 'all']):
        _, _, cells = picture(*SHAPE, *words, '--format', 'svg')
        drawn = subprocess.run([RSVG], input=run(*SHAPE, *words, '--format', 'svg'), capture_output=True, check=True)
        rows = pixels(drawn.stdout)
        for kind, x, y, width, _ in cells:
            spots = [grey(rows[round(y) + dy][round(x) + dx]) for dy in (3, 4, 20, 21) for dx in range(2, round(width) - 3)]
            kinds[kind[0]].append((sum(spots) / len(spots), max(spots) - min(spots)))
    last = max(cells, key=lambda c: (c[2], c[1]))  # after it the last rank idles
    idle = grey(rows[round(last[2]) + 10][round(last[1] + last[3]) + 10])
    plain = sorted((min(g for g, _ in kinds[k]), max(g for g, _ in kinds[k]), k) for k in 'FIBW') + [(idle, idle, 'idle')]
    gaps = [after[0] - before[1] for before, after in zip(plain, plain[1:])]
    check(f'in grey each kind has a band of its own, {GREY} of 255 apart', min(gaps) >= GREY, plain, gaps)
    check('recomputed forwards are hatched, others are not',
          min(d for _, d in kinds['R']) > 40 and max(d for k in 'FIBW' for _, d in kinds[k]) < 12, {k: max(d for _, d in v) for k, v in kinds.items()})
    print('     ' + ', '.join(f'{k} {low:.0f} to {high:.0f}' for low, high, k in plain))


def conversions():
    said = run(*SHAPE, '1f1b', '-o', 'none.pdf', code=69, path='/nowhere')
    check('without rsvg-convert one line says what to install', 'librsvg2-bin' in said and said.count('\n') == 1 and not os.path.exists('none.pdf'), said)
    if not RSVG:
        return print('left out: no rsvg-convert')
    run(*SHAPE, '1f1b', '--width', '480', '-o', 'a.png')
    run(*SHAPE, '1f1b', '--width', '480', '-o', 'a.pdf')
    with open('a.png', 'rb') as png, open('a.pdf', 'rb') as pdf:
        check('png has three pixels for each of --width, pdf is one', struct.unpack('>I', png.read(20)[16:])[0] == 1440 and pdf.read(5) == b'%PDF-')
    check('png on standard output too', run(*SHAPE, '1f1b', '--format', 'png')[:4] == b'\x89PNG')


def runs():
    with open('net.ini', 'w', encoding='utf-8') as f:
        f.write('[data]\ndataset = synthetic\ntrain_samples = 320\ntest_samples = 50\n[model]\nsizes = 20 16*3 5\n'
                '[pipeline]\nstages = 2\nmicrobatches = 4\n[train]\nepochs = 2\nbatch_size = 32\n[run]\nlog_every = 2\n')
    for name in 'ab':
        run('train', 'net.ini', '--dir', name, '-q', '--seed', str(ord(name)))
    with open('a/timeline.json', encoding='utf-8') as f:
        events = json.load(f)
    head = next(e['args'] for e in events if e.get('name') == 'ppcli')
    work = [e for e in events if e.get('ph') == 'X']
    _, texts, cells = picture('report', 'a', '--figure', 'step')
    wanted = sum(e['cat'] in ('F', 'I', 'W', 'B', 'R', 'G', 'T', 'update', 'clip', 'reduce', 'gather') for e in work)
    check('a step: every action, measured above simulated', len(cells) == wanted and texts.index('measured') < texts.index('simulated'), len(cells), wanted)
    letters = collections.Counter(e['cat'] for e in work)
    check('and each kind as often as the timeline has it', all(sum(c[0][0] == k for c in cells) == letters[k] for k in 'FIW'), letters)

    tree, _, _ = picture('report', 'a', '--figure', 'bubble')
    bars = [re.findall(r'M([\d.]+) ([\d.]+)h([\d.]+)V([\d.]+)', node.get('d')) for node in tree.iter() if 'h' in node.get('d', '') and 'V' in node.get('d', '')]
    scale = max((float(t.text), float(t.get('y')) - 4) for t in tree.iter() if t.get('class') == 'dim end')
    shown = [[scale[0] * (float(base) - float(top)) / (float(base) - scale[1]) for _, top, _, base in bar] for bar in bars]
    for half, first, step in ((0, 0, head['step_seconds']), (1, 10000, head['simulated_step_seconds'])):
        busy = [sum(e['dur'] for e in work if e['pid'] == first + r and e['cat'] in ('F', 'I', 'W', 'B', 'R', 'update')) for r in (0, 1)]
        idle = [100 * max(0, 1 - b * 1e-6 / step) for b in busy]
        check('bubble of each rank, ' + ('measured', 'simulated')[half], all(abs(a - b) < 0.6 for a, b in zip(shown[half], idle)), shown, idle)

    tree, texts, _ = picture('report', 'a', 'b', '--figure', 'loss', '--width', '300')
    lines = [len(re.findall('[ML]', node.get('d'))) for node in tree.iter() if node.get('fill') == 'none']
    check('loss of two runs: a point for each record', lines == [10, 2, 10, 2] and 'b: test' in texts, lines, texts)
    for words, said in ((['a', 'b', '--figure', 'step'], 'draws one run, not 2'), (['a', '--figure', 'speed'], 'ppcli bench -o FILE.json'),
                        (['a', '--over', 'stages'], 'need --figure'), (['a', '--figure', 'loss', '-o', 'x.gif'], 'is .svg, .pdf or .png')):
        check('refused: ' + ' '.join(words), said in run('report', *words, code=64))
    os.remove('a/timeline.json')
    check('a run without its timeline says so', 'no timeline.json' in run('report', 'a', '--figure', 'step', code=66))


def sweeps():
    rows = [{'stages': p, 'replicas': 1, 'threads': 3 - p, 'schedule': s, 'microbatches': m, 'check': 'ok', 'axes': {},
             'samples_per_second': 100 * p * m, 'samples_per_second_sd': 1, 'bubble_measured': (p - 1) / (m + p - 1), 'samples': []}
            for p in (1, 2) for s in ('gpipe', '1f1b') for m in (2, 4, 8)]
    rows[0].update(check='skipped')
    del rows[0]['samples_per_second'], rows[0]['bubble_measured']
    with open('sweep.json', 'w', encoding='utf-8') as f:
        json.dump({'type': 'bench', 'schema': 1, 'cpu': 'a <b>', 'model': '20-5', 'date': '2026', 'cores': 2, 'config': 'x',
                   'added_rows': 0, 'rows': rows}, f, indent=2)
    for over, curves, points in (('microbatches', 4, 3), ('stages', 6, 2), ('schedule', 6, 2)):
        for figure in ('speed', 'bubble'):
            tree, texts, _ = picture('report', 'sweep.json', '--figure', figure, '--over', over)
            lines = [re.findall(r'[ML]([\d.]+) ([\d.]+)', n.get('d')) for n in tree.iter() if n.get('fill') == 'none']
            check(f'{figure} over {over}: a curve for each of the others, no point without a speed',
                  len(lines) == curves and sorted(map(len, lines)) == [points - 1] + [points] * (curves - 1) and over in texts, lines)
            if over == 'microbatches':
                line = [float(y) for _, y in lines[-1]]
                check(f'{figure}: higher is more', line == sorted(line, reverse=figure == 'speed'), line)
    rows[3]['waited_for_core'], rows[4]['waited_for_core'] = 0.3, 0.001
    with open('busy.json', 'w', encoding='utf-8') as f:
        json.dump({'type': 'bench', 'schema': 1, 'cpu': 'a', 'model': '20-5', 'date': '2026', 'cores': 2, 'config': 'x',
                   'added_rows': 0, 'rows': rows}, f)
    _, texts, _ = picture('report', 'busy.json', '--figure', 'speed')
    check('a picture of a busy machine says so', any('do not trust 1 of 12 points' in text for text in texts), texts)
    check('a key that does not vary is refused', 'do not differ in replicas' in run('report', 'sweep.json', '--figure', 'speed', '--over', 'replicas', code=64))
    quick = ['--time', '0.01', '--repeat', '2', '--no-ceilings', '--stages', '1,2']
    run('bench', 'net.ini', *quick, '-o', 't.csv')
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../experiments/latex-table.py')
    tex = subprocess.run([sys.executable, script, 't.csv'], capture_output=True, text=True, check=True).stdout
    lines = [line for line in tex.splitlines() if line.endswith('\\\\')]
    check('LaTeX: a row for each of the sweep, as many cells as columns, no package',
          len(lines) == 3 and {line.count('&') for line in lines} == {len(re.search(r'tabular}{(\w+)}', tex)[1]) - 1} and 'package' not in tex, tex)
    if shutil.which('pdflatex'):
        with open('p.tex', 'w', encoding='utf-8') as f:
            f.write('\\documentclass{article}\\begin{document}' + tex + '\\end{document}')
        check('LaTeX compiles it', subprocess.run(['pdflatex', '-halt-on-error', 'p.tex'], stdout=subprocess.DEVNULL, check=False).returncode == 0)


def page():
    run('report', 'sweep.json')
    if not browser.find():
        return print('left out: no Chromium')
    for width in (1280, 400):
        b = browser.Browser(browser.find(), width)
        try:
            b.open(os.path.abspath('sweep.json.html'))
            shown = b.run('''[...document.images].map((i) => i.naturalWidth > 0 && i.getBoundingClientRect().width <= innerWidth)''')
            check(f'page of a sweep, {width} pixels: six pictures, all rows, nothing to complain about',
                  shown == [True] * 6 and b.run('document.querySelectorAll("tbody tr").length') == 12 and not b.messages
                  and b.run('document.documentElement.scrollWidth <= innerWidth'), shown, b.messages)
            check('each picture can be saved', b.run('''[...document.querySelectorAll("a[download]")].every(
                (a) => decodeURIComponent(a.href).includes("</svg>"))'''))
        finally:
            b.close()


def citation():
    with open(f'{SOURCE}/CITATION.cff', encoding='utf-8') as f:
        cff = f.read()
    facts = [re.search(r'title: "(.*)"', cff)[1], re.search(r'- name: (.*)', cff)[1], re.search(r'^version: (.*)', cff, flags=re.M)[1]]
    for words in ([], ['--format', 'bibtex']):
        said = run('cite', *words).decode()
        check('cite says what CITATION.cff says: ' + ' '.join(words), all(fact in said for fact in facts) and 'commit ' in said, said)


def main():
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for part in (plans, greys, conversions, runs, sweeps, page, citation):
            part()
        os.chdir(here)
    print(f'{len(failures)} failed')
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
