#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From training to predictions of new samples: tables, numbers, texts and pictures.

    predict.py PPCLI HAVE_PNG

What `ppcli predict` says of samples without labels is what `ppcli eval` says of the same samples.
Prints TAP."""

import csv
import gzip
import io
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import zlib

PPCLI, HAVE_PNG = os.path.abspath(sys.argv[1]), sys.argv[2] == 'true'
RNG = random.Random(7)
NAMES = ['setosa', 'a, "b"', 'virginica']


def run(*words, stdin=None, code=0):
    p = subprocess.run([PPCLI, *words], input=stdin, capture_output=True, text=True, check=False)
    assert p.returncode == code, f'{words}: exit {p.returncode}: {p.stdout}{p.stderr}'
    return p


def table(path, header, rows):
    with open(path, 'w', encoding='utf-8', newline='') as f:
        csv.writer(f, lineterminator='\n').writerows([header, *rows])


def read(path):
    with open(path, encoding='utf-8', newline='') as f:
        return list(csv.DictReader(f))


def config(path, **keys):
    sections = {}
    for key, value in keys.items():
        section, name = key.split('__')
        sections.setdefault(section, []).append(f'{name} = {value}')
    with open(path, 'w', encoding='utf-8') as f:
        f.write(''.join(f'[{s}]\n' + '\n'.join(lines) + '\n' for s, lines in sections.items()))


def same(ours, theirs, what):
    assert len(ours) == len(theirs), f'{what}: {len(ours)} and {len(theirs)} lines'
    for a, b in zip(ours, theirs):
        assert a == b, f'{what}: {a} and {b}'


def flowers(n):
    rows = []
    for i in range(n):
        k = i % 3
        rows.append(['%.2f' % RNG.gauss(5 + k, .6), RNG.choice(['red', 'blue']), '%.2f' % RNG.gauss(k, .6),
                     NAMES[k], '%.2f' % (1000 + 100 * k + RNG.gauss(0, 10))])
    return rows


COLUMNS = ['length', 'colour', 'width', 'kind', 'price']


def of_a_table():
    train, test = flowers(150), flowers(40)
    table('train.csv', COLUMNS, train)
    table('test.csv', COLUMNS, test)
    config('t.ini', data__dataset='csv', data__train_file='train.csv', data__test_file='test.csv', data__label='kind',
           data__drop='price', data__scale='standard', model__type='mlp', model__sizes='4 16 3', train__epochs='8',
           train__lr='0.2', train__batch_size='16', pipeline__stages='2', pipeline__microbatches='2')
    run('train', 't.ini', '--dir', 'run', '-q')
    out = run('eval', 'run', '--predictions', 'p.csv').stdout
    assert '95 % interval' in out and '\nsetosa ' in out and '\ntrue, predicted ' in out, out
    table('new.csv', ['price', 'width', 'length', 'colour'], [[r[4], r[2], r[0], r[1]] for r in test])
    os.rename('train.csv', 'away.csv')
    run('predict', 'run', 'new.csv', '-o', 'n.csv')
    ours = [(r['prediction'], r['probability']) for r in read('n.csv')]
    same(ours, [(r['prediction'], r['probability']) for r in read('p.csv')], 'predict and eval')
    assert [r['line'] for r in read('n.csv')] == [str(i + 2) for i in range(40)]
    with open('new.csv', encoding='utf-8') as f:
        text = f.read()
    said = run('predict', '--checkpoint', 'run', '-', '--format', 'jsonl', '--top', '9', stdin=text).stdout
    lines = [json.loads(line) for line in said.splitlines()]
    same([(r['prediction'], '%.9g' % r['probability']) for r in lines], ours, 'JSON')
    for line in lines:
        assert len(line['top']) == 3 and abs(sum(t['probability'] for t in line['top']) - 1) < 1e-6, line
    bad = text.replace('\n', '\nnot,enough\n1,x,5,red\n', 1)
    p = run('predict', 't.ini', '--checkpoint', 'run', '-', stdin=bad, code=65)
    assert '-:2:' in p.stderr and '-:3:' in p.stderr and '2 of 42 samples left out' in p.stderr, p.stderr
    rows = list(csv.DictReader(io.StringIO(p.stdout)))
    same([(r['prediction'], r['probability']) for r in rows], ours, 'the other rows')
    os.rename('away.csv', 'train.csv')
    found = json.loads(run('eval', 'run', '--format', 'json').stdout)
    rows = read('p.csv')
    for c in found['classes']:
        right = sum(r['label'] == r['prediction'] == c['name'] for r in rows)
        assert c['samples'] == sum(r['label'] == c['name'] for r in rows)
        assert abs(c['recall'] - right / c['samples']) < 1e-12
    wrong = [r for r in rows if r['label'] != r['prediction']]
    assert sum(c['samples'] for c in found['confused']) == len(wrong)
    assert [m['probability'] for m in found['mistakes']] == sorted((float(r['probability']) for r in wrong),
                                                                   reverse=True)[:12] or not wrong \
        or abs(found['mistakes'][0]['probability'] - max(float(r['probability']) for r in wrong)) < 1e-8
    exported()
    for words in (['predict', 'run'], ['predict', 'new.csv'], ['predict', 'run', 'new.csv', '--top', '0']):
        run(*words, code=64 if words[-1] != 'new.csv' else 66 if not os.path.exists('new.csv') else 64)


def exported():
    """Names and preprocessing go with the model."""
    for form in ('onnx', 'torch'):
        run('export', 'run', form, '--format', form)
        with open(f'{form}/config.json', encoding='utf-8') as f:
            found = json.load(f)
        names = sorted(NAMES)
        assert found['id2label'] == {str(i): name for i, name in enumerate(names)}, found
        assert found['label2id'] == {name: i for i, name in enumerate(names)}
        assert [c['name'] for c in found['preprocessing']['columns']] == ['length', 'colour', 'width']
        assert found['scaling_in_graph'] == (form == 'onnx')
    with open('onnx/model.onnx', 'rb') as f:
        content = f.read()
    assert b'virginica' in content and b'preprocessing' in content


def of_numbers():
    config('n.ini', data__dataset='csv', data__train_file='train.csv', data__test_file='test.csv', data__target='price',
           data__drop='kind', data__scale='standard', train__loss='mse', model__type='mlp', model__sizes='4 16 1',
           train__epochs='8', train__lr='0.05', train__batch_size='16', pipeline__stages='1')
    run('train', 'n.ini', '--dir', 'numbers', '-q')
    out = run('eval', 'numbers', '--predictions', 'p.csv').stdout
    assert 'root mean sq.' in out and '\nprice ' in out, out
    run('predict', 'numbers', 'test.csv', '-o', 'n.csv')
    rows, new = read('p.csv'), read('n.csv')
    same([r['price'] for r in new], [r['predicted price'] for r in rows], 'numbers')
    errors = [float(r['predicted price']) - float(r['price']) for r in rows]
    found = json.loads(run('eval', 'numbers', '--format', 'json').stdout)['outputs'][0]
    assert abs(found['mae'] - sum(map(abs, errors)) / len(errors)) < 1e-4 * found['mae'], found
    assert 900 < float(new[0]['price']) < 1400, new[0]


def of_texts():
    words = {'good': ['fine', 'great', 'nice'], 'bad': ['poor', 'awful', 'sad']}
    for name, n in (('train.tsv', 60), ('test.tsv', 20)):
        with open(name, 'w', encoding='utf-8') as f:
            for i in range(n):
                label = ['good', 'bad'][i % 2]
                f.write(f'{label}\t{RNG.choice(words[label])} {RNG.choice(words[label])}\n')
    config('x.ini', data__dataset='text-labels', data__train_file='train.tsv', data__test_file='test.tsv',
           model__type='encoder', model__n_layer='1', model__n_head='1', model__n_embd='8', model__block_size='16',
           train__epochs='3', train__batch_size='10', pipeline__stages='1')
    run('train', 'x.ini', '--dir', 'texts', '-q')
    run('eval', 'texts', '--predictions', 'p.csv')
    with open('test.tsv', encoding='utf-8') as f:
        lines = ''.join(line.split('\t')[1] for line in f)
    for name in ('train.tsv', 'test.tsv'):
        os.remove(name)
    said = run('predict', 'texts', '-', stdin=lines).stdout
    same([(r['prediction'], r['probability']) for r in csv.DictReader(io.StringIO(said))],
         [(r['prediction'], r['probability']) for r in read('p.csv')], 'texts')


def png(path, size, colour):
    write_png(path, size, 2, b''.join(
        b'\0' + bytes(min(255, max(0, c + RNG.randint(-60, 60))) for _ in range(size) for c in colour)
        for _ in range(size)))


def write_png(path, size, kind_of_colour, rows):
    part = lambda kind, data: struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    with open(path, 'wb') as f:
        f.write(b'\x89PNG\r\n\x1a\n' + part(b'IHDR', struct.pack('>IIBBBBB', size, size, 8, kind_of_colour, 0, 0, 0)) +
                part(b'IDAT', zlib.compress(rows)) + part(b'IEND', b''))


def of_pictures():
    for split, n in (('train', 20), ('test', 6)):
        for name, colour in (('red', (200, 90, 90)), ('blue', (90, 90, 200))):
            os.makedirs(f'p/{split}/{name}')
            for i in range(n):
                png(f'p/{split}/{name}/{i:02}.png', 12, colour)
    config('p.ini', data__dataset='images', data__path='p', data__resize='8', data__crop='8', model__type='mlp',
           model__sizes='192 16 2', train__epochs='4', train__batch_size='10', train__lr='0.05', pipeline__stages='1')
    run('train', 'p.ini', '--dir', 'pictures', '-q')
    run('eval', 'pictures', '--predictions', 'p.csv')
    os.rename('p/train', 'away')
    with open('p/test/red/broken.png', 'wb') as f:
        f.write(b'\x89PNG\r\n\x1a\n')
    p = run('predict', 'pictures', 'p/test', code=65)
    assert 'broken.png' in p.stderr and '1 of 13 samples left out' in p.stderr, p.stderr
    rows = list(csv.DictReader(io.StringIO(p.stdout)))
    assert rows[0]['file'] == 'p/test/blue/00.png', rows[0]
    same([(r['prediction'], r['probability']) for r in rows],
         [(r['prediction'], r['probability']) for r in read('p.csv')], 'pictures')
    one = run('predict', 'pictures', 'p/test/red/03.png').stdout.splitlines()
    assert one[0] == 'file,prediction,probability' and len(one) == 2, one


def of_digits():
    samples = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../data/mnist-sample/')
    with gzip.open(samples + 't10k-images-idx3-ubyte.gz') as f:
        images = f.read()[16:]
    run('train', 'mnist-sample.ini', '--dir', 'digits', '-q', '--max-steps', '20')
    run('eval', 'digits', '--predictions', 'p.csv')
    os.mkdir('d')
    for i in range(8):
        digit = images[784 * i:784 * (i + 1)]
        write_png(f'd/{i}.png', 28, 0, b''.join(b'\0' + digit[28 * y:28 * (y + 1)] for y in range(28)))
    rows = list(csv.DictReader(io.StringIO(run('predict', 'digits', 'd').stdout)))
    same([(r['prediction'], r['probability']) for r in rows],
         [(r['prediction'], r['probability']) for r in read('p.csv')[:8]], 'digits')


cases = [(of_a_table, None), (of_numbers, None), (of_texts, None),
         (of_pictures, None if HAVE_PNG else 'built without libpng'),
         (of_digits, None if HAVE_PNG else 'built without libpng')]
print(f'1..{len(cases)}')
failed = False
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for number, (case, skip) in enumerate(cases, 1):
        name = case.__name__.replace('_', ' ') + ': predict says what eval says'
        try:
            if not skip:
                case()
            print(f'ok {number} - {name}' + (f' # SKIP {skip}' if skip else ''))
        except AssertionError as e:
            failed = True
            print(f'not ok {number} - {name}')
            print('\n'.join('# ' + line for line in str(e).splitlines()[:30]))
    os.chdir('/')
sys.exit(failed)
