#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the texts of a folder as C strings, so that the program needs no files when it runs.

    embed.py OUT.c FOLDER

NAME.txt becomes text_NAME. A FOLDER with page.html becomes FOLDER_page_head and FOLDER_page_tail: the
page with its style sheet and scripts, around its data. A line "@FILE@" of page.html stands for that
file, a path from FOLDER; "@DATA@" is where the program writes the data."""

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


def texts_of(folder):
    if not os.path.exists(os.path.join(folder, 'page.html')):
        names = sorted(n for n in os.listdir(folder) if n.endswith('.txt'))
        return {'text_' + n[:-4].replace('-', '_'): read(folder, n) for n in names}
    name = os.path.basename(folder)
    page = re.sub(r'^@([\w./]+\.\w+)@\n', lambda found: read(folder, found.group(1)),
                  read(folder, 'page.html'), flags=re.M)
    return dict(zip((name + '_page_head', name + '_page_tail'), page.split('@DATA@')))


def main():
    out, folder = sys.argv[1:]
    with open(out, 'w', encoding='utf-8') as f:
        for name, text in texts_of(folder).items():
            f.write(f'extern const char {name}[];\nconst char {name}[] =\n{literal(text)};\n')


if __name__ == '__main__':
    main()
