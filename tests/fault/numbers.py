#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numbers that go wrong: found in the same step, by all ranks, before any weight has changed.

    numbers.py PPCLI_WITH_FAILPOINTS threads|mpi|long

The judges: checkpoints of a run that ended one step earlier, byte for byte; for batches that were
left out, a checkpoint whose position is moved on behind them by hand, from which a run without
failpoints goes on. Prints TAP."""

import concurrent.futures
import hashlib
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile

PPCLI = os.path.abspath(sys.argv[1])
HOW = sys.argv[2]
M = 6  # micro-batches
STEPS = 10  # of an epoch
NET = f'''[data]
dataset = synthetic
train_samples = 300
test_samples = 50
[model]
sizes = 20 16*5 5
[pipeline]
microbatches = {M}
[train]
epochs = 2
batch_size = 32
coalesce = 1
[run]
log_every = 1
'''
ONE_CHUNK = ['naive', 'gpipe', '1f1b', '1f1b-eager', 'zb-h1', 'zb-h2', 'zb-auto', 'zb-fit']
TWO_CHUNKS = ['interleaved', 'looped-bfs', 'zb-v', '1f1b-v', 'v-half', 'v-min', 'zb-fit-v']

here = tempfile.mkdtemp()
net = os.path.join(here, 'net.ini')
with open(net, 'w') as f:
    f.write(NET)
cases = failures = 0


def new_folder():
    return tempfile.mkdtemp(dir=here)


def case(name, wrong):
    """wrong: what is not as it should be; empty: nothing."""
    global cases, failures
    cases += 1
    failures += bool(wrong)
    print(f'{"not ok" if wrong else "ok"} {cases} - {name}')
    for line in wrong[:8]:
        print('#', str(line).replace('\n', '\n# ')[:1500])
        print(f'{name}: {str(line)[:1500]}', file=sys.stderr)  # meson shows no comments of TAP
    sys.stdout.flush()


class Run:
    """One training, or another command."""

    def __init__(self, fail, words, dir=None, launch=None, command='train'):
        if dir is None:
            dir = new_folder()
        self.dir, self.what = dir, f'PPCLI_FAIL={fail} {" ".join(words)}'
        env = {**os.environ, 'PPCLI_FAIL': fail or '', 'HOME': here, 'NO_COLOR': '1'}
        line = [PPCLI, command, net] + (['--dir', dir] if dir and command == 'train' else []) + words
        line += ['--launch', launch] if launch else []
        try:
            done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=60)
            self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            self.code, self.out, self.err = 'hangs', '', ''

    def checkpoint(self, step):
        return os.path.join(self.dir, 'checkpoints', f'step-{step:08d}')

    def weights(self, step):
        """Every byte of weights and optimizer of a checkpoint, by name, whichever rank wrote it."""
        tensors = {}
        for part in os.listdir(self.checkpoint(step)):
            if part.endswith('.safetensors'):
                with open(os.path.join(self.checkpoint(step), part), 'rb') as f:
                    data = f.read()
                body = 8 + struct.unpack('<Q', data[:8])[0]
                for name, t in json.loads(data[8:body]).items():
                    if name != '__metadata__':
                        first, end = t['data_offsets']
                        tensors[name] = data[body + first:body + end]
        return tensors

    def sha(self):
        with open(os.path.join(self.dir, 'summary.json')) as f:
            return json.load(f)['weights_sha256']

    def summary(self):
        with open(os.path.join(self.dir, 'summary.json')) as f:
            return json.load(f)

    def lines(self, kind):
        with open(os.path.join(self.dir, 'metrics.jsonl')) as f:
            return [o for o in map(json.loads, f) if o['type'] == kind]

    def expect(self, code, *texts):
        wrong = [] if self.code == code else [f'{self.what}: exit {self.code}, expected {code}', self.err]
        return wrong + [f'{self.what}: no "{t}" in: {self.err}' for t in texts if t not in self.err]


def together(jobs):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [w for wrong in pool.map(lambda job: job(), jobs) for w in wrong]


def at(site, rank, step, chunks=1, mb=2):
    """The failpoint's place: an action of that micro-batch or so in that step."""
    return f'{site}@{rank}:{(step - 1) * M * chunks + mb}'


def all_finite(run, step):
    return all(math.isfinite(x) for data in run.weights(step).values()
               for x in struct.unpack(f'<{len(data) // 4}f', data))


cleans = {}


def clean(step, stages, words=()):
    """A run that ended after that step. Schedules do not matter: they all have these bits."""
    key = (step, stages, *words)
    if key not in cleans:
        words = ['-q', '--stages', str(stages), '--max-steps', str(step), *words]
        cleans[key] = Run(None, words)
    return cleans[key]


def stops(fail, step, stages, schedule='1f1b', chunks=1, words=(), launch=None):
    """Poisoned in `step`, a run has the weights of the step before, everywhere."""
    want = clean(step - 1, stages, words)
    more = ['--schedule', schedule, '--set', f'pipeline.chunks={chunks if chunks > 1 else 0}']
    run = Run(fail, ['-q', '--stages', str(stages), *more, *words], launch=launch)
    wrong = run.expect(80, f'training diverged: step {step} (epoch 1, batch {step} of {STEPS}): ',
                       f'The weights are those of step {step - 1}; they are saved. Lower train.lr')
    if run.err.count('ppcli: error') != 1:
        wrong.append(f'{run.what}: said {run.err}')
    if not wrong and want.weights(step - 1) != run.weights(step - 1):
        wrong.append(f'{run.what}: other weights than those of step {step - 1}')
    shutil.rmtree(run.dir, ignore_errors=True)
    return wrong


def move(run, step, to, updates):
    """A copy of a checkpoint that says it was made after step `to`, as if the batches between had
    changed nothing."""
    folder = os.path.join(new_folder(), 'checkpoints', f'step-{to:08d}')
    shutil.copytree(run.checkpoint(step), folder)
    with open(os.path.join(folder, 'state.json')) as f:
        state = json.load(f)
    epoch = (to - 1) // STEPS + 1
    state.update(step=to, epoch=epoch, epoch_steps=to - (epoch - 1) * STEPS)
    state['numbers']['updates'] = updates
    with open(os.path.join(folder, 'state.json'), 'w') as f:
        json.dump(state, f)
    for name in os.listdir(folder):
        if name.endswith('.safetensors'):
            with open(os.path.join(folder, name), 'rb') as f:
                data = f.read()
            body = 8 + struct.unpack('<Q', data[:8])[0]
            head = json.loads(data[8:body])
            head['__metadata__']['ppcli.step'] = str(to)
            text = json.dumps(head, separators=(',', ':')).encode()
            text += b' ' * (-len(text) % 8)
            with open(os.path.join(folder, name), 'wb') as f:
                f.write(struct.pack('<Q', len(text)) + text + data[body:])
    lines = ['ppcli-checkpoint 1', f'step {to}']
    with open(os.path.join(folder, 'MANIFEST')) as f:
        lines += [x for x in f.read().split('\n') if x.startswith(('config_hash', 'tensors'))]
    for name in sorted(os.listdir(folder)):
        if name != 'MANIFEST':
            with open(os.path.join(folder, name), 'rb') as f:
                data = f.read()
            lines.append(f'file {name} {len(data)} {hashlib.sha256(data).hexdigest()}')
    text = '\n'.join(lines) + '\n'
    with open(os.path.join(folder, 'MANIFEST'), 'w') as f:
        f.write(text + f'end {hashlib.sha256(text.encode()).hexdigest()}\n')
    return folder


def without(steps, words, total=16, stages=2):
    """A run that never saw the batches of `steps` (first, last)."""
    first, last = steps
    before = clean(first - 1, stages, words)
    moved = move(before, first - 1, last, first - 1)
    run = Run(None, ['-q', '--stages', str(stages), '--max-steps', str(total), *words, '--resume', moved])
    assert run.code == 0, run.err
    return run


def skips(step, fail, words=(), stages=2, launch=None):
    more = ['--stages', str(stages), '--max-steps', '16', *words, '--set', 'train.nonfinite=skip']
    run = Run(fail, more, launch=launch)
    wrong = run.expect(0, f'step {step} (epoch ', 'the batch is skipped')
    if wrong:
        return wrong
    want = without((step, step), words, stages=stages)
    if run.sha() != want.sha():
        wrong.append(f'{run.what}: other weights than without batch {step}')
    losses = [[o['train_loss'] for o in r.lines('epoch')] for r in (run, want)]
    if len(losses[1]) != 1 + (step < STEPS) or losses[0][-len(losses[1]):] != losses[1]:
        wrong.append(f'{run.what}: losses of the epochs {losses[0]}, expected {losses[1]}')
    if [o['step'] for o in run.lines('skip')] != [step] or run.summary()['skipped_steps'] != 1:
        wrong.append(f'{run.what}: {run.lines("skip")}, {run.summary()["skipped_steps"]} skipped')
    if ' skipped=1' not in run.out or 'not finite       1 batches not used, 0 rewinds' not in run.out:
        wrong.append(f'{run.what}: not in the log: {run.out}')
    return wrong


def rewinds(step, to, fail, words=(), launch=None):
    more = ['--stages', '2', '--max-steps', '16', *words, '--set', 'train.nonfinite=rewind']
    run = Run(fail, more, launch=launch)
    wrong = run.expect(0, f'step {step} (epoch ', f'back to the weights of step {to}')
    if wrong:
        return wrong
    if run.sha() != without((to + 1, step), words).sha() if to > 0 else False:
        wrong.append(f'{run.what}: other weights than without batches {to + 1} to {step}')
    said = [(o['step'], o['to']) for o in run.lines('rewind')]
    if said != [(step, to)] or run.summary()['rewinds'] != 1 or run.summary()['skipped_steps'] != step - to:
        wrong.append(f'{run.what}: {said}, {run.summary()["skipped_steps"]} skipped')
    return wrong


def resumed(policy, fail):
    """After a skip or rewind, an interrupted run has the bits of one that was not."""
    words = ['-q', '--stages', '2', '--set', f'train.nonfinite={policy}']
    whole = Run(fail, words + ['--max-steps', '18'])
    part = Run(fail, words + ['--max-steps', '14'])
    again = Run(None, words + ['--max-steps', '18', '--resume'], dir=part.dir)
    wrong = whole.expect(0) + part.expect(0) + again.expect(0)
    if not wrong:
        for key in ('weights_sha256', 'test_loss', 'train_loss', 'skipped_steps', 'rewinds'):
            if whole.summary()[key] != again.summary()[key]:
                wrong.append(f'{policy}: {key} {again.summary()[key]}, expected {whole.summary()[key]}')
    return wrong


def threads(every):
    kinds = ('nan', 'inf') if every else ('nan',)
    for schedules, chunks in ((ONE_CHUNK, 1), (TWO_CHUNKS, 2)):
        for schedule in schedules:
            shapes = (1, 2, 3) if every else (3,) if schedule in ('1f1b', 'zb-h2', 'zb-v') else (2,)
            jobs = []
            for stages in shapes:
                clean(4, stages)
                jobs += [lambda s=stages, r=rank, x=site, k=kind:
                         stops(f'{at(x, r, 5, chunks)}={k}', 5, s, schedule, chunks)
                         for rank in range(stages) for site in 'FI' for kind in kinds]
            case(f'{schedule}, {shapes} stages: one rank\'s NaN leaves all with the weights of the step '
                 'before', together(jobs))

    for words, sites in ((['--replicas', '2'], 'FI'), (['--set', 'train.clip_norm=1'], 'FIW'),
                         (['--set', 'train.read_gradients=true'], 'FIW'),
                         (['--replicas', '2', '--set', 'train.clip_norm=1'], 'FIW'),
                         (['--optimizer', 'momentum', '--set', 'train.exact=off', '--set', 'train.coalesce=0'], 'FI')):
        clean(4, 2, words)
        ranks = 4 if '2' in words else 2
        case(f'{" ".join(words)}: the same', together(
            [lambda r=rank, x=site: stops(f'{at(x, r, 5)}=nan', 5, 2, words=words)
             for rank in range(ranks) for site in sites]))

    run = Run(f'{at("F", 0, 1)}=nan', ['-q', '--stages', '2'])
    case('in the first step: the initial weights are saved',
         run.expect(80, 'The weights are those of step 0; they are saved') +
         ([] if all_finite(run, 0) else ['not finite']))

    run = Run(f'{at("F", 1, 7)}=nan', ['--stages', '2', '--trace', os.path.join(here, 'trace.json'), '--dir', ''], dir='')
    case('without a run folder nothing is saved, and the trace is named all the same',
         run.expect(80, 'they were not saved: there is no run folder', 'trace: ', 'open it in ui.perfetto.dev'))

    jobs = [lambda s=site, r=rank, t=text: Run(f'{at(s, r, 5)}=nan', ['-q', '--stages', '3', '--dir', ''], dir='')
            .expect(80, t) for site, rank, text in (
                ('F', 0, 'the output of layers.1 is not finite (NaN), first of micro-batch 1, on rank 0 (stage 0); the largest weight is 0.'),
                ('F', 1, 'the output of layers.3 is not finite (NaN), first of micro-batch 1, on rank 1 (stage 1)'),
                ('F', 2, 'the loss is not finite, from the output of layers.5 on rank 2 (stage 2)'),
                ('I', 1, 'the gradient of layers.3.bias is not finite (NaN) on rank 1 (stage 1)'))]
    case('the first layer that was wrong is named, and its rank', together(jobs))

    # A huge activation in one micro-batch, a huge gradient in another: they never meet in a product.
    run = Run(f'{at("F", 0, 5, mb=3)}=flip:30,{at("I", 1, 5, mb=4)}=flip:30',
              ['-q', '--stages', '2', '--max-steps', '5', '--optimizer', 'sgd', '--set', 'model.activation=gelu',
               '--trace', os.path.join(here, 'big.json')])
    with open(os.path.join(here, 'big.json')) as f:
        looked = {e['args']['step'] for e in json.load(f) if e.get('cat') == 'clip'}
    case('where bounds prove nothing, gradients are looked at, in that step alone, and finite ones used',
         run.expect(80, 'step 5 (epoch 1): the test loss is not finite') +
         ([] if os.listdir(os.path.join(run.dir, 'checkpoints')) == ['step-00000005'] else ['the step is not saved']) +
         ([] if looked == {5} else [f'looked in steps {looked}']))

    run = Run(f'{at("W", 0, 5, mb=M)}=nan', ['-q', '--stages', '2', '--set', 'checkpoint.every=1', '--set', 'checkpoint.keep=9'])
    steps = [int(p[5:]) for p in os.listdir(os.path.join(run.dir, 'checkpoints'))]
    case('what changes gradients behind the bounds\' back ends the run, and no checkpoint holds it',
         run.expect(80) + ([] if steps and all(all_finite(run, s) for s in steps) else [f'checkpoints {steps}']))

    jobs = [lambda s=step, r=rank, w=words, n=stages: skips(s, f'{at("I", r, s)}=nan', w, n)
            for step, rank, words, stages in (
                (5, 0, [], 2), (9, 2, [], 3), (2, 0, [], 1), (STEPS, 1, [], 2), (6, 1, ['--optimizer', 'sgd'], 2),
                (5, 1, ['--set', 'train.clip_norm=1'], 2), (5, 3, ['--replicas', '2'], 2))]
    case('skip: the weights are those of a run that never saw the batch', together(jobs))

    run = Run(f'{at("F", 0, 3)}=nan,{at("F", 0, 4)}=nan', ['-q', '--stages', '2', '--max-steps', '16', '--set',
                                                           'train.nonfinite=skip', '--set', 'train.nonfinite_limit=3'])
    case('skip: two in a row', run.expect(0) + ([] if run.sha() == without((3, 4), []).sha() else ['other weights']))

    run = Run('F@1:*=nan', ['-q', '--stages', '2', '--set', 'train.nonfinite=skip', '--set', 'train.nonfinite_limit=3'])
    case('skip: the third in a row is one too many',
         run.expect(80, 'step 3 (epoch 1', '(number 3 in a row: train.nonfinite_limit)', 'those of step 2; they are saved'))

    jobs = [lambda: rewinds(15, 10, f'I@0:{14 * M + 2}=nan'),
            lambda: rewinds(15, 12, f'I@1:{14 * M + 2}=nan', ['--set', 'checkpoint.every=4']),
            lambda: rewinds(3, 0, f'{at("F", 0, 3)}=nan')]
    case('rewind: the weights are those of a run that never saw the batches since the checkpoint', together(jobs))

    run = Run('F@0:*=nan', ['-q', '--stages', '2', '--set', 'train.nonfinite=rewind', '--set', 'train.nonfinite_limit=3'])
    case('rewind: the third is one too many',
         run.expect(80, 'step 3 (epoch 1', 'back to the weights of step 0', '(number 3: train.nonfinite_limit)'))

    case('resumed after a skip or a rewind, a run has the bits of one that was not interrupted',
         together([lambda p=p: resumed(p, f'I@0:{12 * M + 3}=nan') for p in ('skip', 'rewind')]))

    stopped = Run(f'{at("F", 0, 5)}=nan', ['-q', '--stages', '2', '--max-steps', '16'])
    again = Run(f'{at("F", 0, 1)}=nan', ['-q', '--stages', '2', '--max-steps', '16', '--resume', '--set', 'train.nonfinite=skip'],
                dir=stopped.dir)
    case('a run that stopped goes on without the batch', stopped.expect(80) + again.expect(0, 'step 5 (epoch 1, batch 5') +
         ([] if again.sha() == without((5, 5), []).sha() else ['other weights']))

    wild = ['-q', '--stages', '2', '--epochs', '5', '--optimizer', 'sgd', '--lr', '1000', '--set', 'train.weight_decay=1']
    case('real divergence ends with 80, whatever the policy', together(
        [lambda p=p: Run(None, wild + ['--set', f'train.nonfinite={p}']).expect(80, 'train.lr (it is 1000)')
         for p in ('stop', 'skip', 'rewind')]))

    run = Run(None, wild)
    test = Run(None, ['--checkpoint', run.dir], command='eval')
    case('eval of weights that overflow says so', test.expect(80, 'the test loss is not finite (NaN), in 2 of 2 batches: the output of layers.2 is not finite'))

    run = Run(None, ['--set', 'train.nonfinite=rewind', '--dir', ''], dir='')
    case('rewind without a run folder is refused', run.expect(78, 'train.nonfinite: rewind goes back to a checkpoint'))


def mpi():
    if not shutil.which('mpirun'):
        print('1..0 # SKIP no mpirun here (install openmpi-bin)')
        sys.exit(0)
    case('processes: one rank\'s NaN leaves all with the weights of the step before',
         stops(f'{at("F", 0, 5)}=nan', 5, 2, launch='mpirun') +
         stops(f'{at("I", 2, 5)}=nan', 5, 3, 'zb-h2', launch='mpirun'))
    case('processes, replicas: the same', stops(f'{at("I", 1, 5)}=nan', 5, 1, words=['--replicas', '2'], launch='mpirun'))
    case('processes: skip', skips(5, f'{at("I", 1, 5)}=nan', launch='mpirun'))
    case('processes: rewind', rewinds(15, 10, f'I@0:{14 * M + 2}=nan', launch='mpirun'))


try:
    mpi() if HOW == 'mpi' else threads(HOW == 'long')
finally:
    shutil.rmtree(here, ignore_errors=True)
print(f'1..{cases}')
sys.exit(failures > 0)
