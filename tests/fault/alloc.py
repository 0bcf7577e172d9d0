#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory runs out: each allocation of each command fails once, and then all from that one on.

    alloc.py PPCLI SOURCE_ROOT [long]

PPCLI is linked with tests/fault/alloc.c. Every time: one line that says it, exit 69 (74 where it
was a stream that got no buffer), no crash, no hang, no leak that a sanitizer would see; or the result
is as always, or as good as it can be with a warning. Without `long` about SHALLOW allocations of
each command are tried, spread evenly over all of them, and those that measure the machine are left
out. Prints TAP."""

import os
import re
import subprocess
import sys
import tempfile

SHALLOW = 10
SLOW = ('plan --best', 'bench')  # they measure
NET = '''[data]
dataset = synthetic
train_samples = 64
test_samples = 16
[model]
sizes = 12 8*3 5
[pipeline]
stages = 2
microbatches = 2
[train]
epochs = 1
batch_size = 32
[run]
dir =
'''


def commands(root, here):
    """name, words, whether the same words print the same twice"""
    net = os.path.join(here, 'net.ini')
    checkpoint = os.path.join(root, 'tests/golden/checkpoint-v1/step-00000007')
    images = os.path.join(root, 'data', 'mnist-sample')
    out = os.path.join(here, 'out')
    table = [
        ('help', ['help', 'train'], True),
        ('version', ['version'], True),
        ('keys', ['keys', '--json'], True),
        ('completion', ['completion', 'bash'], True),
        ('explain', ['explain', net, '--format', 'json'], True),
        ('explain: a config with mistakes', ['explain', net, '--stages', 'x', '--lr', '-1'], True),
        ('plan', ['plan', '--schedule', 'zb-h1', '--stages', '3', '--microbatches', '4'], True),
        ('plan: svg', ['plan', '--schedule', '1f1b', '--stages', '2', '--microbatches', '3', '--format', 'svg'], True),
        ('plan --best', ['plan', '--best', net], False),
        ('inspect', ['inspect', checkpoint], True),
        ('verify', ['verify', checkpoint], True),
        ('train', ['train', net, '-q'], False),
        ('train: in a folder', ['train', net, '-q', '--dir', out, '--overwrite', '--trace',
                                os.path.join(here, 'trace.json')], False),
        ('train: data from files', ['train', net, '-q', '--set', 'data.dataset=mnist-sample',
                                    '--set', 'model.sizes=784 8 10', '--max-steps', '2'], False),
        ('bench', ['bench', net, '--repeat', '1', '--warmup', '1', '--time', '0.01', '--no-ceilings'], False),
        ('diagnose', ['diagnose', os.path.join(here, 'run')], True),
        ('report', ['report', os.path.join(here, 'run'), '-o', '-'], False),
        ('download-mnist: other files', ['download-mnist', '--from', images, '--dir',
                                         os.path.join(here, 'got')], False),
    ]
    return table


class Case:
    def __init__(self, ppcli, here, words, repeats):
        self.ppcli, self.here, self.words, self.repeats = ppcli, here, words, repeats
        self.note = os.path.join(here, 'note')

    def run(self, fail):
        """exit code, stdout, stderr, whether an allocation has failed, calls"""
        if os.path.exists(self.note):
            os.unlink(self.note)
        env = dict(os.environ, PPCLI_ALLOC_FAIL=fail, PPCLI_ALLOC_NOTE=self.note, HOME=self.here,
                   TERM='dumb', OPENBLAS_NUM_THREADS='1')
        try:
            p = subprocess.run([self.ppcli] + self.words, env=env, cwd=self.here, timeout=60,
                               stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except subprocess.TimeoutExpired:
            return -999, b'', b'hangs', True, 0
        said = ''
        if os.path.exists(self.note):
            with open(self.note, encoding='ascii') as f:
                said = f.read()
        calls = re.search(r'(\d+) calls', said)
        return p.returncode, p.stdout, p.stderr, 'failed' in said, int(calls[1]) if calls else 0

    def judge(self, fail, good):
        """None, or what is wrong"""
        code, out, err, failed, _ = self.run(fail)
        text = err.decode(errors='replace')
        said = [line for line in text.splitlines() if line.startswith('ppcli: error: ')]
        if code == -999 or code < 0 or code > 100 or 'Sanitizer' in text:
            return 'ends with %d: %s' % (code, text[-1500:])
        if not failed:
            return None
        if code == good[0]:
            if any(word in out for word in (b' is damaged', b'could not be read', b'did not finish')):
                return 'exit %d and takes it for damage' % code
            if self.repeats and b'memory' not in err and (out, err) != (good[1], good[2]):
                return 'exit %d but another result: %s' % (code, text[-300:])
            return None
        if code not in (69, 74) or len(said) != 1 or 'memory' not in said[0]:
            return 'exit %d: %s' % (code, text[-600:])
        return None


def sites(calls, shallow):
    if not shallow or calls <= SHALLOW:
        return range(1, calls + 1)
    return sorted({1 + i * (calls - 1) // (SHALLOW - 1) for i in range(SHALLOW)})


def main():
    ppcli, root = os.path.abspath(sys.argv[1]), sys.argv[2]
    shallow = 'long' not in sys.argv[3:]
    only = [w for w in sys.argv[3:] if w != 'long']
    failures = cases = 0
    with tempfile.TemporaryDirectory() as here:
        with open(os.path.join(here, 'net.ini'), 'w', encoding='ascii') as f:
            f.write(NET)
        made = Case(ppcli, here, ['train', 'net.ini', '-q', '--dir', 'run'], False).run('0')
        if made[0] != 0:
            print('Bail out! no run to look at:', made[2].decode(errors='replace'))
            return 1
        for name, words, repeats in commands(root, here):
            if (only and name not in only) or (shallow and name in SLOW):
                continue
            case = Case(ppcli, here, words, repeats)
            good = case.run('0')
            wrong = []
            tried = 0
            for n in sites(good[4], shallow):
                for fail in (str(n), '%d+' % n):
                    tried += 1
                    said = case.judge(fail, good)
                    if said:
                        wrong.append('PPCLI_ALLOC_FAIL=%s ppcli %s: %s' % (fail, ' '.join(words), said))
            cases += 1
            failures += bool(wrong)
            print('%sok %d - %s: %d failures of its %d allocations' % (
                'not ' if wrong else '', cases, name, tried, good[4]))
            for line in '\n'.join(wrong).splitlines()[:200]:
                print('# ' + line)
            if good[0] not in (0, 65, 66, 78):
                failures += 1
                print('# without failures: %d %s' % (good[0], good[2].decode(errors='replace')))
            sys.stdout.flush()
    print('1..%d' % cases)
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
