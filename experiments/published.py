#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints figures that others have published, what ppcli predicts for them, and the errors, as Markdown.

    published.py PPCLI TABLE...          the tables of the folder `published`, by name or as files
    published.py --check PAGE PPCLI      do the tables of the Markdown file PAGE come out the same?

A table is a text with one statement a line:
    title, source TEXT          printed before the table
    head NAME | ...             the columns: labels of a row, then its cells
    row LABEL | ...             begins a row
    with SCALE WORDS            words of `ppcli plan` that the row's cells share; the predicted figure is SCALE /
                                makespan, or the makespan (*), or the bubble in percent (idle); without this line
                                the words are those of `ppcli estimate`, the figure tokens per second and rank
    cell [fit] VALUE WORDS      a published figure and the words of this cell; fit: this cell sets the factor of
                                all cells up to the next fit"""

import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'published')
ORDER = ('zb4', 'zb5', 'zb9', 'zb6', 'cm', 'primus', 'megatron-bridge')  # of the page
POOL = concurrent.futures.ThreadPoolExecutor(2)


def predict(ppcli, scale, words):
    words = [ppcli, 'plan' if scale else 'estimate', *shlex.split(words), '--format', 'json']
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f'{shlex.join(words)}: exit code {done.returncode}: {done.stderr}')
    plan = json.loads(done.stdout)
    if not scale:
        return plan['rows'][0]['tokens_per_s_per_rank']
    return {'idle': 100 * plan['bubble_span'], '*': plan['makespan']}.get(scale) or float(scale) / plan['makespan']


class Errors:
    def __init__(self, is_points):
        self.all, self.is_points = [], is_points

    def add(self, predicted, published):
        error = predicted - published if self.is_points else 100 * (predicted / published - 1)
        self.all.append(0.0 if abs(error) < (0.005 if self.is_points else 0.05) else error)  # no -0.0
        return self.all[-1]

    def text(self, what):
        digits, unit = (2, ' points') if self.is_points else (1, ' %')
        mean = sum(map(abs, self.all)) / len(self.all)
        return f'{what} {mean:.{digits}f}{unit}, largest {max(self.all, key=abs):+.{digits}f}{unit}'


def figure(x, is_points):
    return f'{x:.{2 if is_points else 0 if x >= 100 else 1 if x >= 10 else 2 if x >= 1 else 3}f}'


def read_statements(path):
    with open(path, encoding='utf-8') as f:
        return [tuple(line.rstrip('\n').partition(' ')[::2]) for line in f if line.strip()]


def start_cells(ppcli, statements):
    """The predictions of all cells in their order, which run two at a time."""
    shared, scale, cells = '', '', []
    for kind, text in statements:
        if kind == 'row':
            shared, scale = '', ''
        elif kind == 'with':
            scale, _, shared = text.partition(' ')
        elif kind == 'cell':
            words = text.removeprefix('fit ').partition(' ')[2]
            cells.append((scale, POOL.submit(predict, ppcli, scale, shared + ' ' + words)))
    return iter(cells)


def lines_of(ppcli, path):
    statements = read_statements(path)
    cells = start_cells(ppcli, statements)
    is_points = any(kind == 'with' and text.startswith('idle') for kind, text in statements)
    fitted, plain, factor, row = Errors(is_points), Errors(is_points), 1, ''
    for kind, text in statements:
        if row and kind in ('row', 'head'):
            yield row
        if kind == 'title':
            yield from (f'### {text}', '')
        elif kind == 'source':
            yield text
        elif kind == 'head':
            yield from ('', f'| {text} |', '|' + '---|' * len(text.split('|')))
        elif kind == 'row':
            row = f'| {text} |'
        elif kind == 'cell':
            is_fit, published = text.startswith('fit '), float(text.removeprefix('fit ').split()[0])
            predicted = next(cells)[1].result()
            if is_fit:
                factor = published / predicted
                row += f' {figure(published, is_points)} (fitted, factor {factor:.3f}) |'
                continue
            plain.add(predicted, published)
            error = fitted.add(predicted * factor, published)
            digits, unit = (2, '') if is_points else (1, ' %')
            row += f' {figure(predicted * factor, is_points)} / {figure(published, is_points)} ({error:+.{digits}f}{unit}) |'
    yield from (row, '', fitted.text('Mean error') + f', {len(fitted.all)} predictions'
                + (plain.text('; without the factor') if factor != 1 else '') + '.')


def tables(ppcli, names):
    paths = [name if os.path.exists(name) else os.path.join(FOLDER, name + '.txt') for name in names]
    return '\n\n'.join('\n'.join(lines_of(ppcli, path)) for path in paths) + '\n'


def main():
    if sys.argv[1:2] == ['--check'] and len(sys.argv) == 4:
        with open(sys.argv[2], encoding='utf-8') as f:
            page = f.read()
        wanted, found = page[page.index('### '):].splitlines(), tables(sys.argv[3], ORDER).splitlines()
        wrong = [f'-{a}\n+{b}' for a, b in zip(wanted, found) if a != b]
        print('\n'.join(wrong) or f'{len(ORDER)} tables are the same')
        return 1 if wrong or len(wanted) != len(found) else 0
    if len(sys.argv) < 3:
        print(__doc__)
        return 64
    print(tables(sys.argv[1], sys.argv[2:]), end='')
    return 0


if __name__ == '__main__':
    sys.exit(main())
