#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run folder that cannot be looked at: each opendir, readdir, stat and open in it fails once.

    folders.py PPCLI_WITH_FAILPOINTS [long]

What cannot be read must never be taken for what is not there. A first run counts the calls (files.c); then
one run for each of them. Either it ends with 0 and the weights that it always has, or with an error in a
line, and then the same command does what it would have done at once: no checkpoint was lost. A new run
without --overwrite changes no file of a finished one. Prints TAP."""

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

PPCLI = os.path.abspath(sys.argv[1])
LONG = len(sys.argv) > 2  # every site meets each of these errors, and the run is named in all ways
ERRORS = [errno.EIO, errno.EMFILE, errno.ESTALE] if LONG else [errno.EIO]
NET = '''[data]
dataset = synthetic
train_samples = 96
test_samples = 16
[model]
sizes = 12 9*2 4
[pipeline]
stages = 2
[train]
epochs = 4
batch_size = 32
[checkpoint]
keep = 3
[run]
tensorboard = true
'''

home = tempfile.mkdtemp()
os.chdir(home)
here = os.path.realpath('.')
with open('net.ini', 'w') as f:
    f.write(NET)
cases = failures = 0


def run(*words, at=None, error=errno.EIO, folder='run'):
    """(exit code, stdout, stderr, calls in the folder)"""
    env = {k: v for k, v in os.environ.items() if not k.startswith(('OMPI_', 'PMI', 'PPCLI_'))}
    env.update(HOME=here, XDG_RUNTIME_DIR=here)
    if at is not None:
        env.update(PPCLI_FAULT_FOLDER=f'{here}/{folder}', PPCLI_FAULT_AT=str(at), PPCLI_FAULT_ERRNO=str(error),
                   PPCLI_FAULT_LOG=f'{here}/log')
        open('log', 'w').close()
    done = subprocess.run([PPCLI, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=300)
    calls = open('log').read().splitlines() if at is not None else []
    return done.returncode, done.stdout, done.stderr, calls


def sha(out):
    found = re.search(r'weights_sha256 +([0-9a-f]+)', out)
    return found and found.group(1)


def digest(folder):
    """Of every file and its name, but the lock."""
    sums = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            if name != '.lock':
                with open(path, 'rb') as f:
                    sums[path] = hashlib.sha256(f.read()).hexdigest()
    return sums


def put_back(source, folder='run'):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree('runs', ignore_errors=True)
    if source:
        shutil.copytree(source, folder, symlinks=True)


def case(name, wrong):
    global cases, failures
    cases += 1
    failures += bool(wrong)
    print(f'{"not ok" if wrong else "ok"} {cases} - {name}')
    for line in wrong[:20]:
        print('#', line)
    sys.stdout.flush()


def sites(source, folder, words):
    """(call, error, its result) for each call of the command; the folder is put back before each."""
    put_back(source, folder)
    code, out, err, calls = run(*words, at=0, folder=folder)
    for at in range(1, len(calls) + 1):
        for error in ERRORS:
            put_back(source, folder)
            done = run(*words, at=at, error=error, folder=folder)
            # ranks are threads: which call this is may differ from run to run
            call = next((c for c in done[3] if c.startswith(f'{at} ')), 'no call')
            yield f'{call}: {os.strerror(error)}', done


def step_of(err):
    found = re.search(r'continuing after step (\d+)', err)
    return int(found.group(1)) if found else 0


def check_continues(source, folder, words, expected):
    """The command always ends with these weights, or an error after which it would."""
    wrong, n = [], 0
    put_back(source, folder)
    first = step_of(run(*words, folder=folder)[2])
    for call, (code, out, err, _) in sites(source, folder, words):
        n += 1
        if code == 0 and ' fdatasync ' in call:
            wrong.append(f'{call}: what was lost of metrics.jsonl is not told')
        if code == 0 and sha(out) != expected:
            wrong.append(f'{call}: exit 0 with other weights: {err[:300]}')
        if code == 0 and 'continuing' in err and step_of(err) != first:
            wrong.append(f'{call}: exit 0 from step {step_of(err)}: {err[:300]}')
        if code == 0:
            continue
        if 'ppcli: error: ' not in err:
            wrong.append(f'{call}: exit {code} without an error: {err[:300]}')
        again, out, err2, _ = run(*words, folder=folder)
        complete = 'nothing left to train' in err2
        if again != 0 or (sha(out) != expected and not complete):
            wrong.append(f'{call}: exit {code}, then {again}: {err[:300]} | {err2[:300]}')
        elif step_of(err2) < first and not complete:
            wrong.append(f'{call}: a checkpoint was lost: {err[:300]} | {err2[:300]}')
    return wrong if n > 20 else wrong + [f'only {n} calls']


run('train', 'net.ini', '--dir', 'whole')
expected = sha(run('train', 'net.ini', '--dir', 'whole', '--overwrite')[1])

# Interrupted after three of four epochs; with what a killed process leaves.
run('train', 'net.ini', '--dir', 'cut', '--max-steps', '9')
shutil.copytree('cut/checkpoints/step-00000003', 'cut/checkpoints/.trash-step-00000003-1')
shutil.copytree('cut/checkpoints/step-00000003', 'cut/checkpoints/step-00000010.tmp-1')
os.remove('cut/summary.json')
resume = ['train', 'net.ini', '--dir', 'run', '--resume', '--max-steps', '0']
case('--resume of an interrupted run: the same weights, or an error and nothing lost',
     check_continues('cut', 'run', resume, expected))
if LONG:
    case('the same where the run is named by its folder',
         check_continues('cut', 'run', ['train', 'run', '--resume', '--max-steps', '0'], expected))
    case('the same where its checkpoint is named',
         check_continues('cut', 'run', resume[:5] + ['run/checkpoints/step-00000009'] + resume[5:], expected))
    case('the same where it is the newest in runs/',
         check_continues('cut', 'runs/net-20260101-000000', ['train', 'net.ini', '--resume', '--max-steps', '0'],
                         expected))

# The config is the newest one's; the newest checkpoint is damaged.
shutil.copytree('cut', 'damaged')
with open('damaged/checkpoints/step-00000009/state.json', 'r+b') as f:
    f.write(b'Z')
case('the same where the newest checkpoint is damaged', check_continues('damaged', 'run', resume, expected))

wrong, n = [], 0
for call, (code, out, err, _) in sites('whole', 'run', ['train', 'net.ini', '--dir', 'run']):
    n += 1
    if code == 0 or 'ppcli: error: ' not in err:
        wrong.append(f'{call}: exit {code}: {err[:300]}')
    if digest('run') != {k.replace('whole', 'run', 1): v for k, v in digest('whole').items()}:
        wrong.append(f'{call}: a file has changed: {err[:300]}')
case('a new run in the folder of a finished one is refused, and changes no file', wrong if n > 3 else [f'{n} calls'])

if LONG:
    case('a new run with --overwrite',
         check_continues('cut', 'run', ['train', 'net.ini', '--dir', 'run', '--overwrite'], expected))
wrong = []
for call, (code, out, err, _) in sites('cut', 'run', ['train', 'net.ini', '--dir', 'run', '--overwrite']):
    if code == 0 and sha(out) != expected or code != 0 and 'ppcli: error: ' not in err:
        wrong.append(f'{call}: exit {code}: {err[:300]}')
    if code != 0 and os.path.exists('run/checkpoints/step-00000009') and run('verify', 'run')[0] != 0:
        wrong.append(f'{call}: a torn checkpoint: {err[:300]}')
case('a new run with --overwrite has its weights, or leaves nothing torn of the old one', wrong)

wrong = []
for call, (code, out, err, _) in sites(None, 'run', ['train', 'net.ini', '--dir', 'run']):
    if code == 0 and sha(out) != expected or code != 0 and 'ppcli: error: ' not in err:
        wrong.append(f'{call}: exit {code}: {err[:300]}')
case('a new run in a new folder', wrong)

print(f'1..{cases}')
os.chdir('/')
shutil.rmtree(home)
sys.exit(failures > 0)
