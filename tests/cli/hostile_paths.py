#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile names and places for every path that a user can give: hostile_paths.py PPCLI SOURCE_ROOT

Whatever the path: no crash, no hang, an exit code of its kind, at most one line of error, no control
character of the name on the terminal, and nothing made, run or changed but what the path names. A
good thing under an odd name is used like any other; only a key of a config, which is text, refuses
control characters and bytes that are no UTF-8. Prints TAP, a line for each kind of name."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

NET = b'''[data]
dataset = synthetic
train_samples = 8
test_samples = 4
[model]
sizes = 4 3 2
[train]
epochs = 1
batch_size = 8
max_steps = 1
[run]
dir =
'''

# Names that a file or folder can have.
ODD = {
    'a newline': b'a\nb',
    'a tab and a bell': b'a\tb\a',
    'terminal escape codes': b'\x1b[31mred\x1b]0;title\x07',
    'an escape code in UTF-8': b'\xc2\x9b31m',
    'marks of text direction': 'a\u202egnp.\u2066b'.encode(),
    'accents and signs in UTF-8': 'é€ 名前'.encode(),
    'bytes that are no UTF-8': b'\xff\xfe',
    'a dash in front': b'-rf',
    'an option': b'--help',
    'percent signs': b'%s%n%99999d%',
    'spaces, also at the ends': b' a  b ',
    'quotes and backslashes': b'a"b\'c\\n\\',
    'words for a shell': b'$(touch canary)`touch canary`;touch canary&|>canary',
    'a comment of INI': b'x ;y #z',
    'a variable': b'${NONE}x',
    'a tilde': b'~root',
    'globs': b'*?[a-z]{b}',
    'markup': b'<img onerror="x">&amp;',
    '230 bytes': b'n' * 230,
    'only dots and more': b'...',
    'an equals sign': b'a=b',
}

# Things that are no good file or folder. Each is made at a path by a function.
BAD = {
    'absent': lambda p: None,
    'absent parents': lambda p: None,
    'a file as a parent': lambda p: None,
    'a name of 256 bytes': lambda p: None,
    'a path of 5000 bytes': lambda p: None,
    'an empty path': lambda p: None,
    'a folder': os.mkdir,
    'a folder without permissions': lambda p: os.mkdir(p, 0),
    'an empty file': lambda p: open(p, 'wb').close(),
    'a link to itself': lambda p: os.symlink(os.path.basename(p), p),
    'a link to nothing': lambda p: os.symlink(b'nothing', p),
    'a link to a folder above': lambda p: os.symlink(b'../..', p),
    'a FIFO': os.mkfifo,
    'a socket': lambda p: bind(p),
    '/dev/full': lambda p: os.symlink(b'/dev/full', p),
    '/dev/zero': lambda p: os.symlink(b'/dev/zero', p),
    '/dev/null': lambda p: os.symlink(b'/dev/null', p),
    '/proc/self/mem': lambda p: os.symlink(b'/proc/self/mem', p),
    'a gigabyte of holes': lambda p: hole(p),
}


def bind(path):
    here = os.getcwd()
    os.chdir(os.path.dirname(path))
    s = socket.socket(socket.AF_UNIX)
    s.bind(os.path.basename(path))
    s.close()
    os.chdir(here)


def hole(path):
    with open(path, 'wb') as f:
        f.truncate(1 << 30)


def path_of(kind, base):
    if kind == 'absent parents':
        return os.path.join(base, b'no', b'such', b'x')
    if kind == 'a file as a parent':
        return os.path.join(base, b'file', b'x')
    if kind == 'a name of 256 bytes':
        return os.path.join(base, b'n' * 256)
    if kind == 'a path of 5000 bytes':
        return base + b'/d' * 2500
    if kind == 'an empty path':
        return b''
    return os.path.join(base, b'x')


REFUSED = b'refused'  # there is no small thing that would be good


class Places:
    """Where a path can stand: name -> (words around it, what is copied there when it should be good:
    a file, a folder, or None where it is written; whether it is a key of a config)"""

    def __init__(self, ppcli, root, here):
        data = os.path.join(root, b'data/mnist-sample')
        checkpoint = os.path.join(root, b'tests/golden/checkpoint-v1/step-00000007')
        net = os.path.join(here, b'net.ini')
        run = os.path.join(here, b'run')
        table = os.path.join(here, b'table.csv')
        result = os.path.join(root, b'tests/fuzz/corpus/compare/two-rows.json')
        with open(net, 'wb') as f:
            f.write(NET)
        subprocess.run([ppcli, b'train', net, b'-q', b'--dir', run], check=True, capture_output=True)
        with open(table, 'wb') as f:
            subprocess.run([ppcli, b'plan', b'--schedule', b'1f1b', b'--stages', b'2',
                            b'--microbatches', b'2', b'--format', b'csv'], check=True,
                           stdout=f)
        gpt = os.path.join(here, b'gpt.ini')
        theirs = os.path.join(here, b'theirs')
        os.mkdir(theirs)
        with open(os.path.join(theirs, b'config.json'), 'wb') as f:
            f.write(b'{"architectures": ["GPT2LMHeadModel"], "n_layer": 1, "n_head": 1, "n_embd": 4,'
                    b' "n_positions": 4, "vocab_size": 5}')
        with open(gpt, 'wb') as f:
            f.write(b'[data]\ndataset = synthetic-tokens\ntrain_samples = 4\n[train]\nbatch_size = 4\n')
        gpt_run = os.path.join(here, b'gpt-run')
        subprocess.run([ppcli, b'train', gpt, b'-q', b'--max-steps=1', b'--dir', gpt_run, b'--set',
                        b'model.from=' + theirs], check=True, capture_output=True)
        train = [b'train', net, b'-q']
        weights = os.path.join(run, b'checkpoints')
        mnist = [b'--set', b'data.dataset=mnist-sample', b'--set', b'model.sizes=784 4 10']
        self.table = {
            'a config': ([b'explain', b'PATH'], net, False),
            'a config to train': ([b'train', b'PATH', b'-q'], net, False),
            'data.path': (train + mnist + [b'--set', b'data.path=PATH'], data, True),
            'run.dir': (train + [b'--dir=PATH'], None, True),
            'train.init': (train + [b'--set', b'train.init=PATH'], weights, True),
            'model.from': ([b'explain', gpt, b'--set', b'model.from=PATH'], theirs, True),
            'export': ([b'export', gpt_run, b'--', b'PATH'], None, False),
            'generate --checkpoint': ([b'generate', gpt, b'--prompt=1 2', b'--set', b'model.from=' + theirs,
                                       b'--checkpoint=PATH'], os.path.join(gpt_run, b'checkpoints'), False),
            'pipeline.schedule': ([b'explain', net, b'--stages=2', b'--microbatches=2',
                                   b'--schedule=file:PATH'], table, True),
            '--resume': (train + [b'--dir=OUT', b'--resume=PATH'], weights, False),
            '--trace': (train + [b'--trace=PATH'], None, False),
            'eval --checkpoint': ([b'eval', net, b'--checkpoint=PATH'], weights, False),
            'inspect': ([b'inspect', b'--', b'PATH'], checkpoint, False),
            'verify': ([b'verify', b'--', b'PATH'], checkpoint, False),
            'diagnose': ([b'diagnose', b'--', b'PATH'], run, False),
            'report': ([b'report', b'-o', b'-', b'--', b'PATH'], run, False),
            'report -o': ([b'report', run, b'--output=PATH'], None, False),
            'plan --csv': ([b'plan', b'--csv=PATH'], table, False),
            'bench --compare': ([b'bench', b'--compare', result, b'--', b'PATH'], result, False),
            'bench -o': ([b'bench', net, b'--repeat', b'1', b'--warmup', b'0', b'--time', b'0.001',
                          b'--no-ceilings', b'--output=PATH'], None, False),
            'download-mnist --from': ([b'download-mnist', b'--from=PATH', b'--dir', b'OUT'], REFUSED, False),
        }


class Judge:
    def __init__(self, ppcli, here):
        self.ppcli, self.here = ppcli, here
        self.wrong = []

    def tree(self):
        """Everything in the folder but what is given to the command or written by it"""
        found = {}
        for folder, names, files in os.walk(self.here):
            names[:] = [n for n in names if os.path.join(folder, n) != os.path.join(self.here, b'box')]
            for name in files:
                path = os.path.join(folder, name)
                st = os.lstat(path)
                found[path] = (st.st_size, st.st_mtime_ns)
        return found

    def run(self, where, words, path, good, at_base):
        words = [w.replace(b'PATH', path).replace(b'OUT', os.path.join(self.here, b'box', b'out'))
                 for w in words]
        env = {k: v for k, v in os.environb.items() if not k.startswith(b'PPCLI')}
        env.update({b'HOME': os.path.join(self.here, b'box'), b'TERM': b'dumb',
                    b'OPENBLAS_NUM_THREADS': b'1'})
        before = self.tree()
        try:
            p = subprocess.run([self.ppcli] + words, cwd=at_base, env=env, timeout=30, check=False,
                               stdin=subprocess.DEVNULL, capture_output=True)
        except subprocess.TimeoutExpired:
            self.wrong.append('%s: hangs' % where)
            return
        said = (p.stderr + p.stdout).decode(errors='backslashreplace')

        def bad(text):
            self.wrong.append('%s: %s; exit %d; said %s' % (where, text, p.returncode, ascii(said[-400:])))
        if p.returncode not in ((0,) if good else (0, 1, 64, 65, 66, 69, 74, 77, 78)):
            bad('wrong exit code')
        if re.search(rb'[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xae', p.stderr + p.stdout):
            bad('control characters')
        errors = p.stderr.count(b'ppcli: error: ')
        if errors != (0 if p.returncode in (0, 1) else 1):
            bad('%d lines of error' % errors)
        if p.returncode not in (0, 1) and p.stderr.count(b'\n') > 3:
            bad('%d lines' % p.stderr.count(b'\n'))
        if self.tree() != before:
            bad('changed %s' % (set(self.tree().items()) ^ set(before.items())))


def put(source, path):
    if os.path.isdir(source):
        shutil.copytree(source, path)
    else:
        shutil.copy(source, path)


def main():
    ppcli, root = os.path.abspath(os.fsencode(sys.argv[1])), os.path.abspath(os.fsencode(sys.argv[2]))
    here = os.fsencode(tempfile.mkdtemp())
    failed = 0
    try:
        places = Places(ppcli, root, here).table
        base = os.path.join(here, b'box', b'base')
        n = runs = 0
        for kind in list(ODD) + list(BAD):
            judge = Judge(ppcli, here)
            for place, (words, good, key) in places.items():
                shutil.rmtree(os.path.join(here, b'box'), ignore_errors=True)
                os.makedirs(base)
                open(os.path.join(base, b'file'), 'wb').close()
                runs += 1
                if kind == 'a FIFO' and place == 'plan --csv':
                    continue  # waits for its writer as any reader of tables would: --csv <(command)
                if kind in BAD:
                    path = path_of(kind, base)
                    BAD[kind](path)
                    judge.run(place, words, path, False, base)
                    continue
                name = ODD[kind]
                # what a value of a config can be: one line of text, trimmed, no comment
                text = re.search(rb'[\x00-\x08\x0a-\x1f\x7f]|\xff|\xc2[\x80-\x9f]|\xe2\x80\xae|\$\{|^ | $| [;#]',
                                 name) is None
                if good not in (None, REFUSED):
                    put(good, os.path.join(base, name))
                # behind a folder only what means something in front of a word reads otherwise
                ways = (name, os.path.join(base, name)) if name[:1] in b'-~. $*<%=' else (name,)
                for path in ways:
                    # a relative name with a dash is an option where it is a word of its own
                    fine = good != REFUSED and (text or not key) and (path != name or b'PATH' not in words or
                                                  b'--' in words or name[:1] != b'-')
                    judge.run(place, words, path, fine, base)
                    runs += 1
                    shutil.rmtree(os.path.join(here, b'box', b'out'), ignore_errors=True)
                    if not good:
                        shutil.rmtree(base)
                        os.makedirs(base)
            n += 1
            failed += bool(judge.wrong)
            print('%sok %d - %s: %d places' % ('not ' if judge.wrong else '', n, kind, len(places)))
            for line in judge.wrong:
                print('# ' + line)
        print('1..%d' % n)
        print('# %d runs' % runs)
    finally:
        shutil.rmtree(here, ignore_errors=True)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
