#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses of numbers and weights of classes, on arrays that the test writes: the scores of a run are
those that its predictions give, in eval too, after a resume in the middle, and on two stages; labels
of every width; one line for what does not fit."""

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
from array import array

PPCLI = os.path.abspath(sys.argv[1])
N, F = 120, 4
tests = failures = 0


def check(name, good, told=''):
    global tests, failures
    tests += 1
    failures += not good
    print(f'{"ok" if good else "not ok"} {tests} - {name}', flush=True)
    if not good:
        print('# ' + str(told).replace('\n', '\n# '))


def npy(path, code, descr, values, shape):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    head += ' ' * (63 - (10 + len(head)) % 64) + '\n'
    with open(path, 'wb') as f:
        f.write(b'\x93NUMPY\x01\x00' + len(head).to_bytes(2, 'little') + head.encode())
        data = array(code, values)
        f.write(data.tobytes())


def run(*words):
    return subprocess.run([PPCLI, *words], capture_output=True, text=True, check=False)


def train(name, labels, *settings):
    words = ['train', 'a.ini', '-q', '--dir', name, '--overwrite', '--set', f'data.train_labels={labels}',
             '--set', f'data.test_labels={labels}']
    for s in settings:
        words += ['--set', s]
    return run(*words)


def summary(name):
    with open(name + '/summary.json', encoding='utf-8') as f:
        return json.load(f)


def near(a, b):
    return abs(a - b) <= 1e-5 * max(1, abs(b))


def check_scores(name, outputs):
    ran = run('eval', name, '--predictions', 'p.csv', '--format', 'json')
    if ran.returncode != 0:
        return ran.stderr
    with open('p.csv', encoding='utf-8') as f:
        rows = [[float(x) for x in row] for row in list(csv.reader(f))[1:]]
    t = [row[2 * k] for row in rows for k in range(outputs)]
    y = [row[2 * k + 1] for row in rows for k in range(outputs)]
    mean = sum(t) / len(t)
    squares = sum((a - b) ** 2 for a, b in zip(y, t))
    r2 = 1 - squares / sum((a - mean) ** 2 for a in t)
    mae = sum(abs(a - b) for a, b in zip(y, t)) / len(t)
    rmse = (squares / len(t)) ** 0.5
    s, e = summary(name), json.loads(ran.stdout)
    for where in (s, e):
        got = where['test_r2'], where['test_mae'], where['test_rmse']
        if not all(near(a, b) for a, b in zip(got, (r2, mae, rmse))):
            return f'{got}, expected {(r2, mae, rmse)}'
    return 'no accuracy belongs here' if 'test_accuracy' in s else ''


def main():
    os.chdir(tempfile.mkdtemp())
    random.seed(3)
    x = [random.gauss(0, 1) for _ in range(N * F)]
    y = [x[i * F] - 2 * x[i * F + 1] + random.gauss(0, 0.1) for i in range(N)]
    two = [v for i in range(N) for v in (y[i], x[i * F + 2])]
    npy('x.npy', 'f', '<f4', x, (N, F))
    npy('y.npy', 'd', '<f8', y, (N,))
    npy('two.npy', 'f', '<f4', two, (N, 2))
    npy('yes.npy', 'B', '|u1', [int(v > 0) for v in two], (N, 2))
    npy('wide.npy', 'q', '<i8', [i * 2 + 70 for i in range(N)], (N,))
    npy('rare.npy', 'H', '<u2', [int(i % 10 == 0) for i in range(N)], (N,))
    with open('a.ini', 'w', encoding='utf-8') as f:
        f.write(f'[data]\ndataset = npy\ntrain_images = x.npy\ntest_images = x.npy\ntrain_labels = y.npy\n'
                f'test_labels = y.npy\n[model]\ntype = mlp\nsizes = {F} 16 1\n[train]\nloss = mse\n'
                'batch_size = 20\nepochs = 30\nlr = 0.02\noptimizer = adam\n[pipeline]\nmicrobatches = 2\n'
                'schedule = 1f1b\nstages = 1\n')

    for loss in 'mse', 'mae', 'huber':
        ran = train('r', 'y.npy', 'train.loss=' + loss)
        check(f'{loss}: a run prints R2 and errors', ran.returncode == 0 and 'test R2 ' in ran.stdout
              and 'mean absolute error' in ran.stdout, ran.stdout + ran.stderr)
        check(f'{loss}: they are those of the predictions', *(lambda why: (not why, why))(check_scores('r', 1)))
        check(f'{loss}: it learns', summary('r')['test_r2'] > 0.9, summary('r')['test_r2'])

    train('r', 'two.npy', f'model.sizes={F} 16 2', 'checkpoint.best=rmse')
    ran = run('eval', 'r', '--format', 'json')
    each = json.loads(ran.stdout)['outputs']
    check('eval has the scores of each target', len(each) == 2 and all(t['r2'] > 0.5 for t in each), ran.stdout)
    check('two targets', *(lambda why: (not why, why))(check_scores('r', 2)))
    first = summary('r')
    train('s', 'two.npy', f'model.sizes={F} 16 2', 'checkpoint.best=rmse', 'pipeline.stages=2', 'pipeline.microbatches=5')
    second = summary('s')
    check('two stages have the same bits', first['weights_sha256'] == second['weights_sha256'])
    check('and the same scores', all(first[k] == second[k] for k in first if k.startswith(('test_', 'train_'))
                                     and 'seconds' not in k), (first, second))
    train('s', 'two.npy', f'model.sizes={F} 16 2', 'checkpoint.best=rmse', 'train.max_steps=76', 'checkpoint.interval=1')
    ran = run('train', '--resume', 's', '-q', '--max-steps', '180')
    if ran.returncode != 0:
        ran = run('train', 'a.ini', '--resume', 's', '-q')
    second = summary('s')
    check('a run resumed in the middle of an epoch has the same bits and scores',
          all(first[k] == second[k] for k in ('weights_sha256', 'test_r2', 'test_rmse', 'train_mae', 'train_r2')),
          ran.stderr)

    ran = train('r', 'yes.npy', f'model.sizes={F} 16 2', 'train.loss=bce')
    check('yes and no have an accuracy', ran.returncode == 0 and summary('r')['test_accuracy'] > 0.9, ran.stderr)
    ran = run('eval', 'r', '--predictions', 'p.csv', '--format', 'json')
    with open('p.csv', encoding='utf-8') as f:
        rows = [[float(v) for v in row] for row in list(csv.reader(f))[1:]]
    for k, t in enumerate(json.loads(ran.stdout)['outputs']):
        both = sum(r[2 * k] > 0.5 and r[2 * k + 1] > 0 for r in rows)
        said, are = sum(r[2 * k + 1] > 0 for r in rows), sum(r[2 * k] > 0.5 for r in rows)
        check(f'label {k} has its precision, recall and F1', near(t['precision'], both / said)
              and near(t['recall'], both / are) and near(t['f1'], 2 * both / (said + are)), t)

    ran = train('r', 'wide.npy', f'model.sizes={F} 8 310', 'train.loss=cross_entropy', 'train.epochs=1')
    check('labels of 8 bytes above 255 are classes', ran.returncode == 0, ran.stderr)

    for weights in 'balanced', '1 9':
        ran = train('r', 'rare.npy', f'model.sizes={F} 8 2', 'train.loss=cross_entropy', 'train.epochs=1',
                    'train.class_weights=' + weights, 'train.label_smoothing=0.1')
        sha = summary('r')['weights_sha256']
        train('s', 'rare.npy', f'model.sizes={F} 8 2', 'train.loss=cross_entropy', 'train.epochs=1',
              'train.class_weights=' + weights, 'train.label_smoothing=0.1', 'pipeline.stages=2',
              'pipeline.microbatches=4')
        check(f'class_weights = {weights}: the same bits on two stages', ran.returncode == 0
              and summary('s')['weights_sha256'] == sha, ran.stderr)

    refused = [
        ('y.npy', ['train.loss=cross_entropy'], 'numbers to predict need train.loss = mse'),
        ('two.npy', [], f'use model.sizes = {F} 16 2'),
        ('two.npy', ['train.loss=bce', f'model.sizes={F} 8 2'], 'expected 0 (no) to 1 (yes)'),
        ('y.npy', ['checkpoint.best=accuracy'], 'use checkpoint.best = test_loss, r2, mae or rmse'),
        ('rare.npy', ['train.loss=cross_entropy', f'model.sizes={F} 8 2', 'train.class_weights=1 2 3'],
         'write one for each, or balanced'),
        ('rare.npy', ['train.loss=cross_entropy', f'model.sizes={F} 8 2', 'train.class_weights=balanced',
                      'train.microbatch_loss=sum'], 'only for microbatch_loss = mean'),
    ]
    for labels, settings, words in refused:
        ran = train('r', labels, *settings)
        lines = [line for line in ran.stderr.splitlines() if 'error' in line]
        check(f'{labels} {" ".join(settings)}: {words}', ran.returncode in (65, 78) and words in ran.stderr
              and len(lines) <= 2, ran.stderr + ran.stdout)
    print(f'1..{tests}')
    sys.exit(failures > 0)


main()
