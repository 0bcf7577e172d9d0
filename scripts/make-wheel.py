#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A wheel that carries the program: pip puts it where programs are, and configs and data into share/ beside. It has
a module too: `import ppcli`, packaging/ppcli.py.

    make-wheel.py INSTALLED VERSION TAG OUT     INSTALLED has bin/ppcli and share/; TAG such as manylinux_2_31_x86_64

Standard library only. Prints the path of the wheel."""

import base64
import hashlib
import os
import sys
import zipfile

METADATA = '''Metadata-Version: 2.1
Name: ppcli
Version: {version}
Summary: Pipeline-parallel training of neural networks that you can check
License: Apache-2.0
Requires-Python: >=3.7
'''
WHEEL = '''Wheel-Version: 1.0
Generator: ppcli make-wheel
Root-Is-Purelib: false
Tag: py3-none-{tag}
'''


def files_of(installed):
    """(path in the wheel after the name, content, is a program) of all that is installed."""
    with open(f'{installed}/bin/ppcli', 'rb') as f:
        yield 'data/scripts/ppcli', f.read(), True
    for folder, folders, names in os.walk(f'{installed}/share'):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            with open(path, 'rb') as f:
                yield f'data/data/{os.path.relpath(path, installed)}', f.read(), False


def main():
    installed, version, tag, out = sys.argv[1:5]
    name = f'ppcli-{version}'
    wheel = f'{out}/{name}-py3-none-{tag}.whl'
    record = []
    with zipfile.ZipFile(wheel, 'w', zipfile.ZIP_DEFLATED) as archive:
        def put(path, content, program=False):
            info = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            info.external_attr = (0o100755 if program else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()
            record.append(f'{path},sha256={digest},{len(content)}')

        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../packaging/ppcli.py'), 'rb') as f:
            put('ppcli.py', f.read())
        for path, content, program in files_of(installed):
            put(f'{name}.{path}', content, program)
        put(f'{name}.dist-info/METADATA', METADATA.format(version=version).encode())
        put(f'{name}.dist-info/WHEEL', WHEEL.format(tag=tag).encode())
        record.append(f'{name}.dist-info/RECORD,,')
        info = zipfile.ZipInfo(f'{name}.dist-info/RECORD', (2026, 1, 1, 0, 0, 0))
        archive.writestr(info, '\n'.join(record) + '\n')
    print(wheel)


if __name__ == '__main__':
    main()
