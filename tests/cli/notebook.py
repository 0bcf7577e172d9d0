#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The code of packaging/ppcli.ipynb, cell by cell, without Jupyter: pictures are counted instead of shown.

    notebook.py NOTEBOOK PPCLI"""

import json
import os
import sys
import tempfile
import types


def main():
    notebook, ppcli = (os.path.abspath(path) for path in sys.argv[1:3])
    with open(notebook, encoding='utf-8') as f:
        cells = json.load(f)['cells']
    pictures = []
    shown = types.ModuleType('IPython.display')
    shown.SVG, shown.display = str, pictures.append
    sys.modules['IPython'], sys.modules['IPython.display'] = types.ModuleType('IPython'), shown
    os.environ['PATH'] = os.path.dirname(ppcli) + ':' + os.environ['PATH']
    names = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for cell in cells:
            if cell['cell_type'] == 'code':
                exec(''.join(cell['source']), names)  # it is the project's own
        os.chdir('/')
    assert len(pictures) == 3 and all(picture.startswith('<svg') for picture in pictures), pictures


if __name__ == '__main__':
    main()
