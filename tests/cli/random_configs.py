#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random configs, the same ones every time.

    random_configs.py PPCLI GOOD BAD TRAINED

GOOD that are right: explain and plan take them, and say why when a schedule refuses a shape (78).
BAD with one mistake: refused with 78 and the place of the mistake. TRAINED of the good ones train two
steps, and the weights are those of the run with one stage. Prints TAP."""

import os
import random
import re
import subprocess
import sys
import tempfile

SCHEDULES = ['naive', 'gpipe', '1f1b', '1f1b-eager', 'zb-h1', 'zb-h2', 'interleaved', 'zb-v',
             'zb-auto', 'looped-bfs', 'interleaved-zb', 'zb-fit', 'zb-fit-v']
MISTAKES = [('pipeline.stages', '0'), ('pipeline.stages', '1025'), ('pipeline.stages', '-1'),
            ('pipeline.stages', '2.5'), ('pipeline.stages', '1000'), ('pipeline.microbatches', '0'),
            ('pipeline.microbatches', '65537'), ('pipeline.schedule', '1f1c'),
            ('pipeline.schedule', ''), ('pipeline.assignment', '0-1 | 1-2'),
            ('pipeline.assignment', 'best'), ('model.sizes', '5'), ('model.sizes', '5 0 5'),
            ('model.sizes', '5 x 5'), ('model.sizes', '5 16777217 5'), ('model.sizes', '5 6*0 5'),
            ('model.activation', 'relu6'), ('train.batch_size', '0'), ('train.batch_size', '2e10'),
            ('train.lr', 'nan'), ('train.lr', '-1'), ('train.lr', 'inf'), ('train.beta1', '1'),
            ('train.eps', '0'), ('train.epochs', '0'), ('train.seed', '-1'),
            ('train.seed', '18446744073709551616'), ('train.optimizer', 'adamx'),
            ('run.hang_timeout', '1 hour'), ('run.launch', 'ssh'), ('run.threads', '0'),
            ('data.dataset', 'mnits'), ('data.train_samples', '-5'), ('nonsense.key', '1')]


def good_config(rng):
    layers = rng.randint(1, 8)
    config = {'data.dataset': 'synthetic', 'data.train_samples': rng.randint(1, 80),
              'data.test_samples': rng.randint(1, 20),
              'model.sizes': ' '.join(str(rng.randint(2, 24)) for _ in range(layers + 1)),
              'model.activation': rng.choice(['relu', 'tanh', 'gelu', 'gelu_tanh', 'silu']),
              'pipeline.stages': rng.randint(1, min(layers, 4)),
              'pipeline.microbatches': rng.randint(1, 6),
              'pipeline.schedule': rng.choice(SCHEDULES),
              'train.optimizer': rng.choice(['sgd', 'momentum', 'adam', 'adamw']),
              'train.lr': '%.3g' % (10 ** rng.uniform(-4, -2)), 'train.max_steps': 2,
              'train.seed': rng.getrandbits(64), 'train.clip_norm': rng.choice([0, 1]), 'run.dir': ''}
    config['train.batch_size'] = config['pipeline.microbatches'] * rng.randint(1, 9)
    return config


class Runner:
    def __init__(self, ppcli, folder):
        self.ppcli, self.folder = ppcli, folder
        self.wrong = []

    def run(self, command, config, *words):
        path = os.path.join(self.folder, 'c.ini')
        with open(path, 'w', encoding='ascii') as f:
            for key, value in config.items():
                f.write('[%s]\n%s = %s\n' % (*key.split('.'), value))
        try:
            p = subprocess.run([self.ppcli, command, path, *words], timeout=30, check=False,
                               stdin=subprocess.DEVNULL, capture_output=True, cwd=self.folder)
            return p.returncode, p.stdout.decode(), p.stderr.decode()
        except subprocess.TimeoutExpired:
            return -1, '', 'takes for ever'

    def complain(self, what, config, code, err):
        self.wrong.append('%s: exit %d: %s\n%s' % (what, code, err[-500:], config))


def take_good(r, rng, n, trained):
    refused = compared = 0
    for _ in range(n):
        config = good_config(rng)
        codes = []
        for command in ('explain', 'plan'):
            code, _, err = r.run(command, config)
            codes.append(code)
            if code not in (0, 78) or (code == 78 and 'pipeline.' not in err):
                r.complain(command, config, code, err)
        if codes[0] != codes[1]:
            r.complain('explain and plan disagree', config, codes[1], str(codes))
        refused += codes[0] == 78
        if codes[0] != 0 or compared >= trained:
            continue
        compared += 1
        one = dict(config)
        one['pipeline.stages'] = 1
        one['pipeline.schedule'] = 'gpipe'
        shas = []
        for c in (config, one):
            code, out, err = r.run('train', c, '-q')
            if code != 0:
                r.complain('train', c, code, err)
            shas += re.findall(r'weights_sha256 +([0-9a-f]{64})', out)
        if len(shas) != 2 or shas[0] != shas[1]:
            r.complain('other weights than one stage', config, 0, str(shas))
    return refused, compared


def take_bad(r, rng, n):
    for i in range(n):
        config = good_config(rng)
        config['pipeline.schedule'] = 'gpipe'
        key, value = MISTAKES[i % len(MISTAKES)]
        config[key] = value
        code, out, err = r.run(rng.choice(['explain', 'train', 'plan']), config)
        if code != 78 or 'c.ini:' not in err or out:
            r.complain('%s = %s' % (key, value), config, code, err)


def main():
    n_good, n_bad, n_trained = (int(x) for x in sys.argv[2:5])
    with tempfile.TemporaryDirectory() as folder:
        tests = []
        r = Runner(os.path.abspath(sys.argv[1]), folder)
        refused, compared = take_good(r, random.Random(1), n_good, n_trained)
        tests.append(('%d random configs: %d refused by their schedule, %d trained to the bits of one '
                      'stage' % (n_good, refused, compared), r.wrong))
        r = Runner(os.path.abspath(sys.argv[1]), folder)
        take_bad(r, random.Random(2), n_bad)
        tests.append(('%d configs with a mistake are refused with its place' % n_bad, r.wrong))
    for i, (name, wrong) in enumerate(tests, 1):
        print('%sok %d - %s' % ('not ' if wrong else '', i, name))
        for line in '\n'.join(wrong[:20]).splitlines():
            print('# ' + line)
    print('1..%d' % len(tests))
    return 1 if any(wrong for _, wrong in tests) else 0


if __name__ == '__main__':
    sys.exit(main())
