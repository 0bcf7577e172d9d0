#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory runs out: each allocation of each command fails once, and then all from that one on. The
same for each thread that a command starts.

    alloc.py PPCLI SOURCE_ROOT [long]

PPCLI is linked with tests/fault/alloc.c. Every time: one line that says it, exit 69 (74 where it
was a stream that got no buffer), no crash, no hang, no leak that a sanitizer would see; or the result
is as always, or as good as it can be with a warning. Without `long` about SHALLOW allocations of
each command are tried, spread evenly over all of them, and those that measure the machine are left
out. What a checkpoint held before is there afterwards. Prints TAP."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

SHALLOW = 10
SLOW = ('tune', 'bench', 'threads: tune', 'threads: bench')  # they measure
CODES = (69, 74)  # of memory; 74 where it was a stream that got no buffer
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
    part = os.path.join(checkpoint, 'stage-0000-of-0002.safetensors')
    own = os.path.join(here, 'own.csv')
    images = os.path.join(root, 'data', 'mnist-sample')
    out = os.path.join(here, 'out')
    run = os.path.join(here, 'run')
    again = os.path.join(here, 'again')
    table = os.path.join(here, 'table.csv')
    result = os.path.join(root, 'tests/fuzz/corpus/compare/two-rows.json')
    shape = ['--stages', '3', '--microbatches', '4']
    bench = ['bench', net, '--repeat', '1', '--warmup', '1', '--time', '0.01', '--no-ceilings']
    return [
        ('welcome', [], True),
        ('help', ['help', 'train'], True),
        ('version', ['version'], True),
        ('keys', ['keys', '--json'], True),
        ('keys: text', ['keys', 'train'], True),
        ('completion', ['completion', 'zsh'], True),
        ('completion: configs', ['completion', 'words', 'train', ''], True),
        ('completion: keys', ['completion', 'words', 'train', 'a.ini', '--set', ''], True),
        ('explain', ['explain', net], True),
        ('explain: json', ['explain', net, '--format', 'json'], True),
        ('explain: a config with mistakes', ['explain', net, '--stages', 'x', '--lr', '-1'], True),
        ('plan', ['plan', '--schedule', 'zb-h1'] + shape, True),
        ('plan: svg', ['plan', '--schedule', '1f1b', '--format', 'svg'] + shape, True),
        ('plan: json', ['plan', '--schedule', 'zb-v', '--format', 'json'] + shape, True),
        ('plan: trace', ['plan', '--schedule', 'dualpipev', '--format', 'trace', '--stages', '2',
                         '--microbatches', '4'], True),
        ('plan: a table', ['plan', '--csv', table, '--format', 'csv-comms'], True),
        ('tune', ['tune', net], False),
        ('inspect', ['inspect', checkpoint], True),
        ('inspect: a file', ['inspect', part], True),
        ('verify', ['verify', checkpoint], True),
        ('verify: a run', ['verify', run], True),
        ('train', ['train', net, '-q'], False),
        ('train: in a folder', ['train', net, '-q', '--dir', out, '--overwrite', '--trace',
                                os.path.join(here, 'trace.json')], False),
        ('train: data from files', ['train', net, '-q', '--set', 'data.dataset=mnist-sample',
                                    '--set', 'model.sizes=784 8 10', '--max-steps', '2'], False),
        ('train --resume', ['train', net, '-q', '--dir', again, '--resume', '--epochs', '2'], False),
        ('eval', ['eval', net, '--checkpoint', run], False),
        ('init', ['init', own, own], False),
        ('eval: own data', ['eval', net, '--checkpoint', run, '--predictions', os.path.join(here, 'p.csv'),
                            '--set', 'data.dataset=csv', '--set', 'data.train_file=' + own,
                            '--set', 'data.test_file=' + own], False),
        ('bench', bench, False),
        ('bench --compare', ['bench', '--compare', result, result], True),
        ('diagnose', ['diagnose', run], True),
        ('diagnose: json', ['diagnose', run, '--format', 'json'], True),
        ('report', ['report', run, '-o', '-'], False),
        ('report: two runs', ['report', '--compare', run, run, '-o', '-'], False),
        ('download-mnist: other files', ['download-mnist', '--from', images, '--dir',
                                         os.path.join(here, 'got')], False),
        ('threads: train', ['train', net, '-q', '--dir', out, '--overwrite'], False),
        ('threads: train --resume', ['train', net, '-q', '--dir', again, '--resume', '--epochs', '2'],
         False),
        ('threads: eval', ['eval', net, '--checkpoint', run, '--stages', '3'], False),
        ('threads: tune', ['tune', net], False),
        ('threads: bench', bench, False),
    ]


class Case:
    def __init__(self, ppcli, here, words, repeats, threads=False):
        self.ppcli, self.here, self.words, self.repeats = ppcli, here, words, repeats
        self.note = os.path.join(here, 'note')
        self.variable = 'PPCLI_THREAD_FAIL' if threads else 'PPCLI_ALLOC_FAIL'
        self.counter = r'(\d+) threads' if threads else r'(\d+) calls'
        self.what = 'thread' if threads else 'memory'
        self.again = os.path.join(here, 'again')

    def run(self, fail):
        """exit code, stdout, stderr, whether an allocation has failed, calls"""
        if os.path.exists(self.note):
            os.unlink(self.note)
        if '--resume' in self.words:
            shutil.rmtree(self.again, ignore_errors=True)
            shutil.copytree(os.path.join(self.here, 'run'), self.again)
        env = dict(os.environ, PPCLI_ALLOC_NOTE=self.note, HOME=self.here,
                   TERM='dumb', OPENBLAS_NUM_THREADS='1')
        env[self.variable] = fail
        try:
            p = subprocess.run([self.ppcli] + self.words, env=env, cwd=self.here, timeout=60,
                               stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except subprocess.TimeoutExpired:
            return -999, b'', b'hangs', True, 0
        said = ''
        if os.path.exists(self.note):
            with open(self.note, encoding='ascii') as f:
                said = f.read()
        calls = re.search(self.counter, said)
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
            shown = out.partition(b'id="data">')[2].partition(b'</script>')[0] or out  # of a page its data
            if re.search(rb' is damaged|could not be read|did not finish|"lines":[1-9]|"summary":null', shown):
                return 'exit %d and takes it for damage' % code
            if self.repeats and self.what.encode() not in err and (out, err) != (good[1], good[2]):
                return 'exit %d but another result: %s' % (code, text[-300:])
            return None
        if code not in CODES or len(said) != 1 or self.what not in said[0]:
            return 'exit %d: %s' % (code, text[-600:])
        return self.lost()

    def lost(self):
        """None, or what became of the checkpoint that was there before"""
        if '--resume' not in self.words:
            return None
        p = subprocess.run([self.ppcli, 'verify', self.again], capture_output=True, check=False)
        return None if p.returncode == 0 else 'verify says %d afterwards: %s' % (
            p.returncode, p.stderr.decode(errors='replace')[-300:])


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
        with open(os.path.join(here, 'own.csv'), 'w', encoding='ascii') as f:
            f.writelines('%d,' % (i % 7) * 12 + '%d\n' % (i % 5) for i in range(40))
        made = Case(ppcli, here, ['train', 'net.ini', '-q', '--dir', 'run'], False).run('0')
        with open(os.path.join(here, 'table.csv'), 'wb') as f:
            f.write(Case(ppcli, here, ['plan', '--schedule', '1f1b', '--stages', '3', '--microbatches',
                                       '4', '--format', 'csv'], True).run('0')[1])
        if made[0] != 0:
            print('Bail out! no run to look at:', made[2].decode(errors='replace'))
            return 1
        for name, words, repeats in commands(root, here):
            if (only and name not in only) or (shallow and name in SLOW):
                continue
            threads = name.startswith('threads:')
            case = Case(ppcli, here, words, repeats, threads)
            good = case.run('0')
            wrong = []
            tried = 0
            for n in sites(good[4], shallow):
                for fail in (str(n), '%d+' % n):
                    tried += 1
                    said = case.judge(fail, good)
                    if said:
                        wrong.append('%s=%s ppcli %s: %s' % (case.variable, fail, ' '.join(words), said))
            cases += 1
            failures += bool(wrong)
            print('%sok %d - %s: %d failures of its %d %s' % (
                'not ' if wrong else '', cases, name, tried, good[4],
                'threads' if threads else 'allocations'))
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
