#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables as people have them: written by a program from the schemas of well-known tables, with numbers
of their own.

    tables.py PPCLI

Every table is trained as `ppcli init` proposes, or is refused in one line that says what to write.
Prints TAP."""

import gzip
import os
import random
import re
import subprocess
import sys
import tempfile

RNG = random.Random(46)


def quote(cell, sep):
    text = str(cell)
    return '"%s"' % text.replace('"', '""') if sep in text or '"' in text or '\n' in text else text


def join(header, rows, sep=',', end='\n'):
    lines = [header] if header else []
    return ''.join(sep.join(quote(cell, sep) for cell in row) + end for row in lines + rows)


def comma(x, digits=2):
    return ('%.*f' % (digits, x)).replace('.', ',')


def flowers(n=120, names=('setosa', 'versicolor', 'virginica')):
    rows = []
    for i in range(n):
        k = i % len(names)
        rows.append(['%.1f' % RNG.gauss(5 + k, .3), '%.1f' % RNG.gauss(3 - k / 2, .3),
                     '%.1f' % RNG.gauss(1.5 + 2 * k, .3), '%.1f' % RNG.gauss(.3 + k, .1), names[k]])
    return rows


FLOWERS = ['sepal length (cm)', 'sepal width (cm)', 'petal length (cm)', 'petal width (cm)', 'species']


def titanic(n=300):
    rows = []
    for i in range(n):
        sex, pclass = RNG.choice(['male', 'female']), RNG.randint(1, 3)
        lives = int(RNG.random() < (.8 if sex == 'female' else .2))
        age = '' if RNG.random() < .2 else '%g' % RNG.randint(1, 80)
        name = '%s, %s. %s "%s"' % (RNG.choice(['Braund', 'Futrelle', "O'Dwyer"]),
                                    'Mr' if sex == 'male' else 'Mrs', i, RNG.choice(['Jo', 'Al']))
        ticket = '%s%d' % (RNG.choice(['', '', 'A/5 ', 'PC ']), 10000 + i)
        cabin = '' if RNG.random() < .75 else 'C%d' % RNG.randint(1, 148)
        rows.append([i + 1, lives, pclass, name, sex, age, RNG.randint(0, 4), RNG.randint(0, 2),
                     ticket, '%.4f' % (RNG.random() * 80), cabin, RNG.choice(['S', 'C', 'Q', ''])])
    return rows


TITANIC = ['PassengerId', 'Survived', 'Pclass', 'Name', 'Sex', 'Age', 'SibSp', 'Parch', 'Ticket', 'Fare',
           'Cabin', 'Embarked']


def housing(n=300):
    rows = []
    for _ in range(n):
        income, age = RNG.uniform(.5, 15), RNG.randint(1, 52)
        rooms = '' if RNG.random() < .05 else RNG.randint(2, 39320)
        near = RNG.choice(['NEAR BAY', '<1H OCEAN', 'INLAND', 'NEAR OCEAN'])
        value = 30000 * income + 60000 * (near != 'INLAND') + 300 * age + RNG.gauss(0, 8000)
        rows.append(['%.2f' % RNG.uniform(-124, -114), '%.2f' % RNG.uniform(32, 42), age, rooms,
                     '%.4f' % income, near, '%.1f' % value])
    return rows


HOUSING = ['longitude', 'latitude', 'housing_median_age', 'total_rooms', 'median_income', 'ocean_proximity',
           'median_house_value']


def adult(n=300):
    rows = []
    for _ in range(n):
        years = RNG.randint(1, 16)
        rows.append([RNG.randint(17, 90), RNG.choice(['State-gov', 'Private', 'Private', '?']),
                     RNG.randint(12285, 1484705), RNG.choice(['Bachelors', 'HS-grad', '11th']), years,
                     RNG.choice(['Never-married', 'Divorced']), RNG.choice(['White', 'Black']),
                     RNG.choice(['Male', 'Female']), RNG.choice([0, 0, 2174]), 40,
                     '>50K' if years + RNG.gauss(0, 2) > 9 else '<=50K'])
    return rows


def wine(n=150, sep=';'):
    rows = []
    for _ in range(n):
        alcohol = RNG.uniform(8, 15)
        rows.append(['%.1f' % RNG.uniform(4, 16), '%.2f' % RNG.random(), '%.4f' % RNG.uniform(.99, 1.01),
                     '%.1f' % alcohol, int(alcohol / 2 - 1 + RNG.random())])
    return join(['fixed acidity', 'volatile acidity', 'density', 'alcohol', 'quality'], rows, sep)


def excel(rows, header, sep=';', end='\r\n'):
    return join(header, rows, sep, end)


def german(n=100):
    rows = []
    for i in range(n):
        area = RNG.uniform(20, 200)
        rows.append(['Straße %d' % (i % 5), comma(area), '%d' % RNG.randint(1, 6),
                     ('{:,.2f}'.format(12 * area + RNG.gauss(0, 30))).translate(
                         str.maketrans(',.', '.,'))])
    return rows


def unix_times(n=200):
    return [[1700000000 + 3600 * i + RNG.randint(0, 9), 101325 + RNG.gauss(0, 3) + 6 * (i % 2),
             i % 2] for i in range(n)]


def r_rows(rows, header):
    lines = [','.join('"%s"' % h for h in header)]
    for i, row in enumerate(rows):
        cells = ['"%d"' % (i + 1)]
        for cell in row:
            number = re.fullmatch(r'-?[\d.]+', str(cell))
            cells.append('NA' if cell == '' else str(cell) if number else '"%s"' % cell)
        lines.append(','.join(cells))
    return '\n'.join(lines) + '\n'


def many_classes(n=1200, k=300):
    return [[i % k, (i % k) * 7 % 31, RNG.random(), 'c%03d' % (i % k)] for i in range(n)]


def tables():
    """Yields (name, bytes, words in the error or None for a table that trains, key = word or None)."""
    f, utf = flowers(), 'utf-8'
    index = [[i] + row for i, row in enumerate(f)]
    yield 'pandas', join(FLOWERS, f), None, 'label = species'
    yield 'pandas with its index', join([''] + FLOWERS, index), None, 'label = species'
    yield 'pandas read twice', join(['Unnamed: 0'] + FLOWERS, index), None, 'label = species'
    yield 'pandas without names', join(list(range(5)), f), None, 'label = 4'
    yield 'R, write.csv', r_rows(f, [''] + FLOWERS), None, 'label = species'
    yield 'R, write.table', r_rows(f, FLOWERS), None, 'label = species'
    holes = [[('' if RNG.random() < .1 and k < 4 else c) for k, c in enumerate(row)] for row in f]
    yield 'R with NA', r_rows(holes, [''] + FLOWERS), None, 'missing = mean'
    yield 'Titanic', join(TITANIC, titanic()), None, 'drop = PassengerId, Name, Ticket'
    yield 'housing', join(HOUSING, housing()), None, 'loss = mse'
    yield 'wine quality', wine(), None, 'label = quality'
    yield 'adult without a header', join(None, adult(), ', '), None, 'label = last'
    yield 'adult with a header', join(['age', 'workclass', 'fnlwgt', 'education', 'years', 'marital',
                                       'race', 'sex', 'gain', 'hours', 'income'], adult()), None, 'income'
    g = german()
    head = ['Ort', 'Fläche (m²)', 'Zimmer', 'Preis']
    yield 'Excel, German', excel(g, head), None, 'target = Preis'
    yield 'Excel, German, Latin-1', excel(g, head).encode('cp1252'), None, 'Windows-1252'
    yield 'Excel, a byte order mark', '\ufeff' + excel(g, head), None, 'target = Preis'
    yield 'Excel, sep=;', 'sep=;\r\n' + excel(g, head), None, 'target = Preis'
    yield 'Excel, French', excel([['Paris', '1 %03d,5' % RNG.randint(0, 999)] for _ in range(60)] +
                                 [['Lyon', '7 300,25 €']] * 3, ['ville', 'prix']), None, 'target = prix'
    yield 'Excel, American', excel(f, FLOWERS, ','), None, 'species'
    tail = [row + ['', ''] for row in f]
    yield 'Excel, empty columns at the end', excel(tail, FLOWERS + ['', '']), None, 'label = species'
    yield 'Excel, empty rows at the end', join(FLOWERS, f) + ',,,,\r\n' * 9, None, 'label = species'
    money = [['$%s' % '{:,}'.format(RNG.randint(900, 90000)), '%d%%' % RNG.randint(0, 100), k % 2]
             for k in range(80)]
    yield 'dollars and per cent', join(['pay', 'share', 'kind'], money), None, 'is the number'
    lines = [[RNG.random(), 'one\nline', 'ab'[i % 2]] for i in range(60)]
    yield 'cells of two lines', join(['x', 'note', 'kind'], lines), None, 'always the same'
    yield 'unix times and pressures', join(['time', 'pa', 'on'], unix_times()), None, 'scale = standard'
    yield '300 classes', join(['a', 'b', 'c', 'class'], many_classes()), None, '300 classes'
    signs = [[RNG.gauss(k, .5), k] for k in [-1, 1] * 50]
    yield 'labels -1 and 1', join(['x', 'y'], signs), None, '2 classes'
    yield 'labels 1 to 3', join(['x', 'kind'], [[RNG.random(), i % 3 + 1] for i in range(60)]), None, '3 classes'
    yield 'true and false', join(['x', 'ok'], [[RNG.random() + i % 2, 'TF'[i % 2]] for i in range(60)]), None, '2 classes'
    twice = [[RNG.random(), RNG.random(), i % 2] for i in range(60)]
    yield 'a remark above', '# made by a tool\n' + join(FLOWERS, f), None, 'label = species'
    yield 'the same name twice', join(['x', 'x', 'kind'], twice), None, 'label = kind'
    yield 'returns alone', join(FLOWERS, f, end='\r'), None, 'label = species'
    yield 'tabs', join(FLOWERS, f, '\t'), None, 'label = species'
    yield 'gzip', gzip.compress(join(FLOWERS, f).encode(utf)), None, 'label = species'
    yield 'words alone', join(None, [[RNG.choice('pe'), RNG.choice('xbs'), RNG.choice('ny')]
                                     for _ in range(80)]), None, 'label = last'
    yield 'years as names', join(['land', '2019', '2020', 'kind'],
                                 [['AB'[i % 2], i % 7, i % 5, i % 2] for i in range(60)]), None, 'kind'
    dated = [['2024-%02d-%02d' % (1 + i % 12, 1 + i % 28), RNG.random(), i % 2] for i in range(60)]
    yield 'dates', join(['date', 'x', 'kind'], dated), None, 'drop = date'
    yield 'a target of one value', join(['x', 'kind'], [[RNG.random(), 'a'] for _ in range(40)]), \
        "every label is 'a': with one class there is nothing to learn", None
    yield 'ragged rows', join(FLOWERS, f[:5]) + '1,2,3\n', ':7: 3 cells, expected 5', None
    typo = [list(row) for row in f]
    typo[7][1] = 'oops'
    yield 'a word among numbers', join(FLOWERS, typo), ":9: column 2 ('sepal width (cm)') is 'oops'", None
    yield 'an open quote', join(FLOWERS, f) + '"1,2,3\n', ':122: the quote that begins here', None
    yield 'another label in every row', join(['x', 'kind'], [[i % 7, 'n%d' % i] for i in range(60)]), \
        'has another value in every row', None
    yield 'blanks between values', ''.join('%d %d %d\n' % (i, i * i % 7, i % 2) for i in range(9)), \
        'one column; expected values and a label', None
    yield 'an empty column without a name', join(['x', '', 'kind'], [[RNG.random(), '', i % 2] for i in range(40)]), \
        None, 'label = kind'
    yield 'a column without a name', join(['x', '', 'kind'], [[i % 3, i % 5, i % 2] for i in range(40)]), \
        'column 2 has no name; give it one', None


class Test:
    def __init__(self, ppcli):
        self.ppcli, self.n, self.failed = ppcli, 0, 0

    def run(self, *words):
        done = subprocess.run([self.ppcli, *words], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def report(self, name, problem):
        self.n += 1
        self.failed += bool(problem)
        print('%sok %d - %s' % ('not ' if problem else '', self.n, name))
        for line in (problem or '').split('\n')[:20]:
            if line:
                print('# ' + line)

    def check(self, name, data, words, key):
        data = data if isinstance(data, bytes) else data.encode('utf-8')
        with open('t.csv', 'wb') as f:
            f.write(data)
        if os.path.exists('t.ini'):
            os.remove('t.ini')
        code, said = self.run('init', 't.csv', '-o', 't.ini')
        if words:
            errors = [line for line in said.split('\n') if 'error:' in line]
            wrong = code == 0 or len(errors) != 1 or words not in said
            return self.report(name + ': refused', 'code %d: %s' % (code, said) if wrong else '')
        if code != 0:
            return self.report(name, 'init: ' + said)
        config = open('t.ini', encoding='utf-8').read()
        if key not in config + said:
            return self.report(name, 'no "%s" in:\n%s%s' % (key, said, config))
        code, said = self.run('train', 't.ini', '--dir', '', '-q', '--epochs', '3')
        return self.report(name, 'train: %s\n%s' % (said, config) if code != 0 else '')


def main():
    test = Test(os.path.abspath(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, data, words, key in tables():
            test.check(name, data, words, key)
        os.chdir('/')
    print('1..%d' % test.n)
    return test.failed > 0


if __name__ == '__main__':
    sys.exit(main())
