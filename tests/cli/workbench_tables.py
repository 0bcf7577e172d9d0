# SPDX-License-Identifier: Apache-2.0
"""Tables of schedules and mutations of them, and what ppcli says about each."""

import json
import os
import random
import re
import subprocess

# name, stages, micro-batches, chunks (0: the schedule's), other words
SHAPES = [('naive', 3, 3, 0), ('gpipe', 3, 4, 0), ('1f1b', 4, 8, 0), ('1f1b', 2, 1, 0), ('1f1b-eager', 4, 6, 0),
          ('interleaved', 2, 4, 2), ('interleaved', 3, 6, 3), ('looped-bfs', 2, 4, 2), ('zb-h1', 4, 6, 0),
          ('zb-h2', 3, 6, 0), ('interleaved-zb', 2, 4, 2), ('zb-v', 3, 6, 0), ('v-half', 4, 8, 0), ('v-min', 3, 5, 0),
          ('1f1b', 3, 4, 0, '--recompute', 'all'), ('zb-v', 2, 4, 0, '--recompute', '0-1'), ('1f1b-v', 3, 5, 0), ('dualpipev', 2, 6, 0), ('hanayo', 2, 4, 2), ('gpipe', 1, 3, 0)]
COSTS = [[], ['--cost-f', '1', '--cost-i', '1.3', '--cost-w', '0.7'], ['--cost-comm', '0.25'],
         ['--cost-b', '2.5', '--cost-comm', '1.1'], ['--cost-overlap', '0.8']]


def known(ppcli):
    for name, p, m, v, *more in SHAPES:
        words = more + (['--chunks', str(v)] if v else [])
        yield subprocess.run([ppcli, 'plan', '--schedule', name, '--stages', str(p), '--microbatches', str(m), *words,
                              '--format', 'csv'], capture_output=True, text=True, check=True).stdout


def cut(text):
    return [line.split(',') for line in text.split('\n')[:-1]]


def mutate(r, rows):
    """One change of a random kind."""
    row = r.choice(rows)
    if not row:
        return
    i, j = r.randrange(len(row)), r.randrange(len(row))
    kind = r.randrange(9)
    if kind == 0:
        row[i], row[j] = row[j], row[i]
    elif kind == 1 and i + 1 < len(row):
        row[i], row[i + 1] = row[i + 1], row[i]
    elif kind == 2:
        row.insert(j, row.pop(i))
    elif kind == 3:
        del row[i]
    elif kind == 4:
        row.insert(j, row[i])
    elif kind == 5:
        other = r.choice(rows)
        other.insert(r.randrange(len(other) + 1), row.pop(i))
    elif kind == 6:
        row[i:i + 1] = split(row[i])
    elif kind == 7:
        row[i] = re.sub(r'\d+', lambda n: str(max(0, int(n.group()) + r.choice([-1, 1, 1, 30]))), row[i], count=1)
    else:
        earlier(r, rows)


def split(cell):
    """A whole backward as its two halves."""
    found = re.fullmatch(r'(\d+)B(\d+)', cell)
    return [f'{found[1]}I{found[2]}', f'{found[1]}W{found[2]}'] if found else [cell]


def earlier(r, rows):
    """The same two neighbours of one stage change places in all rows: often legal."""
    a, b = r.sample(range(4), 2)
    row = r.choice(rows)
    for i in range(len(row) - 1):
        if row[i].endswith(str(a)) or row[i + 1].endswith(str(b)):
            if r.random() < 0.3:
                row[i], row[i + 1] = row[i + 1], row[i]


def tables(ppcli, n, seed):
    """n of (text, costs, cap)."""
    r = random.Random(seed)
    bases = [cut(text) for text in known(ppcli)]
    for _ in range(n):
        rows = [list(row) for row in r.choice(bases)]
        if r.random() < 0.2:
            rows = [[half for cell in row for half in split(cell)] for row in rows]
        for _ in range(r.choice([0, 1, 1, 1, 2, 3])):
            mutate(r, rows)
        if r.random() < 0.1:  # the dialect of 2024
            rows = [[re.sub(r'I(?=\d)', 'B', re.sub(r'B(?=\d)', 'BW', cell)) for cell in row] for row in rows]
        cap = r.choice([0, 0, 1, 2, 2.5, 3, 4])
        yield '\n'.join(','.join(row) for row in rows) + '\n', r.choice(COSTS), cap


def judge(ppcli, table, folder):
    """(error, figures) of ppcli plan --csv: one of the two is None."""
    text, costs, cap = table
    path = os.path.join(folder, 't.csv')
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    words = [ppcli, 'plan', '--csv', path, *costs, *(['--memory-cap', str(cap)] if cap else [])]
    done = subprocess.run([*words, '--format', 'json'], capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip().replace('ppcli: error: ' + path + ':', '').replace('ppcli: error: ', '').strip(), None
    figures = json.loads(done.stdout)
    figures['trace'] = subprocess.run([*words, '--format', 'trace'], capture_output=True, text=True, check=True).stdout
    return None, figures
