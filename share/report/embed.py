#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Join page.html with its style sheet and scripts, and write it as C text around its data.

    embed.py OUT.c FOLDER

A line "@FILE@" of page.html stands for that file; "@DATA@" is where the program writes the data."""

import os
import re
import sys


def read(folder, name):
    with open(os.path.join(folder, name), encoding='utf-8') as f:
        return f.read()


def literal(text):
    lines = []
    for line in text.splitlines(keepends=True):
        escaped = line.replace('\\', '\\\\').replace('"', '\\"').replace('\n', '\\n').replace('?', '\\?')
        lines.append(f'    "{escaped}"')
    return '\n'.join(lines)


def main():
    out, folder = sys.argv[1:]
    page = re.sub(r'^@(\w+\.\w+)@\n', lambda found: read(folder, found.group(1)),
                  read(folder, 'page.html'), flags=re.M)
    head, tail = page.split('@DATA@')
    with open(out, 'w', encoding='utf-8') as f:
        f.write('extern const char report_page_head[], report_page_tail[];\n')
        for name, text in ('head', head), ('tail', tail):
            f.write(f'const char report_page_{name}[] =\n{literal(text)};\n')


if __name__ == '__main__':
    main()
