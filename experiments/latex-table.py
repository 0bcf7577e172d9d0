#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the CSV of `ppcli bench -o FILE.csv` as a LaTeX tabular that needs no package.

    latex-table.py FILE.csv

It has the columns that a paper shows, and those of the keys that differ between rows."""

import csv
import sys

COLUMNS = {  # key of the CSV: title, format, factor
    'stages': ('stages', '{:.0f}', 1), 'replicas': ('replicas', '{:.0f}', 1), 'threads': ('threads', '{:.0f}', 1),
    'schedule': ('schedule', None, 1), 'microbatches': ('micro-batches', '{:.0f}', 1),
    'samples_per_second': ('samples/s', '{:.0f}', 1), 'step_seconds_p50': ('ms/step', '{:.3g}', 1e3),
    'bubble_ideal': ('bubble ideal', '{:.1f} %', 100), 'bubble_measured': ('measured', '{:.1f} %', 100),
    'x1': ('x1', '{:.2f}', 1)}


def escape(text):
    return ''.join('\\' + c if c in '&%$#_{}' else '' if c in '\\~^' else c for c in text)


def cell(row, key):
    _, form, factor = COLUMNS.get(key, (None, None, 1))
    return escape(form.format(float(row[key]) * factor) if form and row[key] else row[key])


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 64
    with open(sys.argv[1], encoding='utf-8', newline='') as f:
        rows = list(csv.DictReader(f))
    keys = [key for key in rows[0] if key in COLUMNS or '.' in key]  # model.depth and the like have a dot
    head = rows[0]
    print(f'% commit {head["commit"]}, {head["date"]}, {head["cpu"]}, model {head["model"]}')
    print('\\begin{tabular}{' + ''.join('l' if COLUMNS.get(key, (0, 0))[1] is None else 'r' for key in keys) + '}\n\\hline')
    print(' & '.join(escape(COLUMNS.get(key, (key.split('.')[-1],))[0]) for key in keys) + ' \\\\\n\\hline')
    for row in rows:
        print(' & '.join(cell(row, key) for key in keys) + ' \\\\')
    print('\\hline\n\\end{tabular}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
