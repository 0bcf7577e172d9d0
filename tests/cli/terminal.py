#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ppcli prints on a terminal of 80 columns and less, and that a pipe gets every line whole.

    terminal.py PPCLI"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

PPCLI = os.path.abspath(sys.argv[1])
cases = failures = 0


def case(name, wrong):
    global cases, failures
    cases += 1
    failures += bool(wrong)
    print(f'{"not ok" if wrong else "ok"} {cases} - {name}')
    for line in wrong[:8]:
        print('#', line)
        print(f'{name}: {line}', file=sys.stderr)  # meson shows no comments of TAP


def on_terminal(columns, *words, stream='stdout'):
    """Lines of a standard stream that is a terminal so wide; the other one is dropped."""
    out = shown_on(columns, stream, {}, *words)
    return re.sub('\x1b\\[[0-9;]*m', '', out.replace('\r\n', '\n')).splitlines()


def shown_on(columns, stream, more, *words):
    """All that a terminal that wide gets of one stream; the other one is dropped."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(('OMPI_', 'PMI'))}
    streams = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL} | {stream: other}
    child = subprocess.Popen([PPCLI, *words], env=environment | {'TERM': 'xterm'} | more, **streams)
    os.close(other)
    out = b''
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:
            break
        if not piece:
            break
        out += piece
    child.wait()
    os.close(main)
    return out.decode()


def status_lines(columns, *words):
    """Lines of standard error that are drawn in place of each other, and whether codes came with them."""
    out = shown_on(columns, 'stderr', {'NO_COLOR': '1'}, *words)
    drawn = [part for line in out.replace('\r\n', '\n').split('\n') for part in line.split('\r')[1:]]
    return [f'{len(line)} columns: {line!r}' for line in drawn if len(line) > columns] + (
        ['an escape code, in spite of NO_COLOR'] if '\x1b' in out else []) + (
            [] if any(line.strip() for line in drawn) else ['no line is drawn'])


def piped(*words):
    return subprocess.run([PPCLI, *words], capture_output=True, text=True, check=False).stdout.splitlines()


def too_wide(lines, columns):
    return [f'{len(line)} columns: {line}' for line in lines if len(line) > columns]


def squeezed(lines):
    return re.sub(r'\s+', ' ', ' '.join(lines)).strip()


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    os.environ['XDG_RUNTIME_DIR'] = folder
    with open('net.ini', 'w', encoding='utf-8') as f:
        f.write('[data]\ndataset = synthetic\ntrain_samples = 64\ntest_samples = 16\n[model]\nsizes = 12 8*3 5\n'
                '[pipeline]\nstages = 2\nmicrobatches = 2\n[train]\nepochs = 2\nbatch_size = 32\n')
    trained = on_terminal(80, 'train', 'net.ini', '--dir', 'run')
    case('train fits into 80 columns', too_wide(trained, 80) or (
        [] if any('test_acc=' in line for line in trained) else ['no line of an epoch']))
    case('and the digest stays one word',
         [] if any(re.fullmatch(r'weights_sha256 +[0-9a-f]{64}', line) for line in trained) else trained)
    told = [line for line in on_terminal(80, 'train', 'net.ini', '--dir', '', stream='stderr') if '\r' not in line]
    case('messages end their lines at blanks', too_wide(told, 80) or ([] if 'about as fast' in squeezed(told) else told))
    case('eval fits', too_wide(on_terminal(80, 'eval', 'run'), 80))
    case('explain fits', too_wide(on_terminal(80, 'explain', 'net.ini'), 80))
    case('a schedule fits', too_wide(on_terminal(80, 'plan', '--schedule', 'zb-v', '--stages', '4', '--microbatches',
                                                 '32'), 80))
    narrow, whole = on_terminal(50, 'explain', 'net.ini'), piped('explain', 'net.ini')
    long = [line for line in whole if len(line) > 50]
    case('folding changes blanks only', [] if long and squeezed(narrow) == squeezed(whole) and narrow != whole
         else ['other words, or nothing folded'])
    case('keys and tables are not folded',
         [line for line in whole if re.match(r' +\w+ += ', line) and line not in narrow])
    case('JSON is not folded', [] if on_terminal(40, 'explain', 'net.ini', '--format', 'json') ==
         piped('explain', 'net.ini', '--format', 'json') else ['other lines'])
    for columns in (10, 20, 50):
        case(f'status lines of train fit into {columns} columns, without codes',
             status_lines(columns, 'train', 'net.ini', '--dir', ''))
    case('run.progress = off draws none', [] if status_lines(80, 'train', 'net.ini', '--dir', '', '--set',
                                                             'run.progress=off') == ['no line is drawn'] else ['one'])
    case('and those of bench into 20',
         status_lines(20, 'bench', 'net.ini', '--stages', '1,2', '--time', '0.05', '--repeat', '1'))
print(f'1..{cases}')
sys.exit(failures > 0)
