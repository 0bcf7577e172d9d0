#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A signal that reaches one process of a run under mpirun, or all of them at once, as a service manager, a batch
system or a shutdown sends it: signals_tree.py PPCLI INSTANTS. At each instant the run has saved and ends with 75, or
says with 76 what was lost; and it continues to the weights of a run that nothing disturbs."""
import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PPCLI, INSTANTS = os.path.realpath(sys.argv[1]), int(sys.argv[2])
SIGNALS = ['TERM', 'INT', 'HUP']
CONFIG = '''[data]
dataset = synthetic
train_samples = 300
test_samples = 50
[model]
sizes = 20 16*3 5
[pipeline]
stages = 2
[train]
epochs = 100
batch_size = 32
[checkpoint]
every_epochs = 10
'''


def children(pid):
    try:
        with open(f'/proc/{pid}/task/{pid}/children') as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


def tree(pid):
    return [pid] + [below for child in children(pid) for below in tree(child)]


def name_of(pid):
    try:
        with open(f'/proc/{pid}/comm') as f:
            return f.read().strip()
    except OSError:
        return ''


def find(run, who):
    """The processes that get the signal; none: they do not exist yet, or no longer."""
    everyone = tree(run)
    launcher = [pid for pid in everyone if name_of(pid) == 'mpirun']
    ranks = sorted(children(launcher[0])) if launcher else []
    return {'all': everyone, 'parent': [run], 'mpirun': launcher, 'rank 0': ranks[:1], 'rank 1': ranks[1:2]}[who]


def default_signals():
    for number in signal.SIGINT, signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)


def train(*words):
    return subprocess.run([PPCLI, 'train', 'net.ini', '-q', *words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120)


def weights(folder):
    with open(f'{folder}/summary.json') as f:
        return json.load(f)['weights_sha256']


def disturb(who, name, seconds):
    """What is wrong with the end of such a run ('': nothing), and how it ended."""
    shutil.rmtree('run', ignore_errors=True)
    with open('out', 'w') as out:
        run = subprocess.Popen([PPCLI, 'train', 'net.ini', '-q', '--launch', 'mpirun', '--dir', 'run'], stdout=out,
                               stderr=out, stdin=subprocess.DEVNULL, preexec_fn=default_signals)
    time.sleep(seconds)
    until = time.monotonic() + 20
    while not (targets := find(run.pid, who)) and run.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    for pid in targets:
        try:
            os.kill(pid, getattr(signal, 'SIG' + name))
        except OSError:
            pass
    try:
        code = run.wait(120)
    except subprocess.TimeoutExpired:
        for pid in tree(run.pid):
            os.kill(pid, signal.SIGKILL)
        return 'it does not end', 'hangs'
    with open('out') as f:
        said = f.read()
    lines = [line for line in said.splitlines() if line.startswith(('ppcli: error: ', 'ppcli: stopped: '))]
    how = f'{code}, {"saved" if "checkpoint saved" in said else "not begun" if "before the ranks" in said else "-"}'
    too_early = code == -getattr(signal, 'SIG' + name) and who in ('all', 'parent') and seconds < 0.1
    if code not in (0, 75, 76) and not too_early:
        return f'exit {code}: {said}', how
    if code in (75, 76) and len(lines) != 1:
        return f'{len(lines)} lines with exit {code}: {said}', how
    if code == 75 and 'checkpoint saved' not in said and 'before the ranks were ready' not in said:
        return f'neither saved nor before the ranks: {said}', how
    again = train('--dir', 'run', '--resume', '--launch', 'threads')
    if again.returncode != 0 or weights('run') != weights('whole'):
        return f'after exit {code} it does not continue to the same weights: {again.stderr}', how
    return '', how


def main():
    if not shutil.which('mpirun'):
        print('1..0 # SKIP no mpirun here (install openmpi-bin)')
        return 0
    bad = number = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ['XDG_RUNTIME_DIR'] = folder  # runs of other tests are no neighbours
        with open('net.ini', 'w') as f:
            f.write(CONFIG)
        train('--dir', 'whole', '--launch', 'threads').check_returncode()
        start = time.monotonic()
        train('--dir', 'timed', '--launch', 'mpirun').check_returncode()
        span = time.monotonic() - start
        for who in 'all', 'parent', 'mpirun', 'rank 0', 'rank 1':
            wrong, ends = [], collections.Counter()
            for k in range(INSTANTS):
                name = SIGNALS[k % len(SIGNALS)]
                seconds = span * k / INSTANTS
                why, how = disturb(who, name, seconds)
                ends[how] += 1
                if why:
                    wrong.append(f'SIG{name} after {seconds:.2f} s: {why}')
            number += 1
            bad += bool(wrong)
            print(f'{"not " if wrong else ""}ok {number} - {who}, {INSTANTS} instants: {dict(ends)}', flush=True)
            for text in wrong:
                print('# ' + text.replace('\n', '\n# '))
        os.chdir('/')
    print(f'1..{number}')
    return bad > 0


sys.exit(main())
