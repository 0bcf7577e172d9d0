#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What --emit writes is the same model, cut in the same way, or a line says what is left to the user.

    emit.py PPCLI

The Python of torchtitan is run with stand-ins for its classes, and judged by its rules, which are
written here again. Options of Megatron-LM go through its own parser and checks, if PPCLI_MEGATRON
names its sources and the Python of the test has torch. Prints TAP."""

import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import types

PPCLI = os.path.abspath(sys.argv[1])
MEGATRON = os.environ.get('PPCLI_MEGATRON')
LLAMA, GPT = 'llama-70b.ini', 'gpt3-175b.ini'
HOSTS, OLD = '8xh100-nvlink', '8xa100'
MODEL = {'llama': ('--set', 'model.n_layer=30', '--set', 'model.rope_base=500000', '--set', 'model.rope_scaling=8 1 4 8192'),
         'qwen': ('--set', 'model.attention_bias=qkv', '--set', 'model.head_dim=96', '--set', 'model.norm_eps=1e-6',
                  '--set', 'model.tie_weights=on'),
         'experts': ('--set', 'model.experts=8', '--set', 'model.n_layer=32', '--set', 'model.n_hidden=14336')}
# config, machine, ranks, words of the division, other options; of both systems
BOTH = [(LLAMA, HOSTS, 64, f'tp={tp} pp={pp} vp={vp} zero={zero}', ())
        for tp, pp, vp, zero in ((1, 1, 1, 3), (8, 1, 1, 2), (4, 4, 1, 1), (4, 4, 5, 1), (4, 2, 4, 0), (4, 16, 1, 1),
                                 (2, 8, 2, 1))]
BOTH += [(LLAMA, HOSTS, 64, 'tp=4 pp=8 zero=1 recompute=full', MODEL['llama']),  # 30 and both ends are 4 each
         (LLAMA, HOSTS, 64, 'tp=4 pp=4 vp=2 mbs=2 zero=1 recompute=selective', MODEL['llama']),
         (LLAMA, HOSTS, 64, 'tp=8 pp=8 layout=Et*9|(t*10|)*6t*11L', ()),
         (LLAMA, HOSTS, 64, 'tp=8 cp=2 zero=3', ()), (LLAMA, HOSTS, 64, 'tp=4 pp=2 zero=1', MODEL['qwen']),
         (LLAMA, HOSTS, 64, 'tp=2 ep=8 zero=1 recompute=selective', MODEL['experts']),
         (LLAMA, HOSTS, 64, 'tp=2 pp=2 ep=4 zero=0', MODEL['experts']),
         (LLAMA, HOSTS, 64, 'tp=4 pp=4 zero=1 recompute=selective', ('--fp8',)),
         (GPT, OLD, 128, 'tp=8 pp=8 zero=1', ()), (GPT, OLD, 128, 'tp=8 pp=8 zero=1', ('--set', 'model.dropout=0.1'))]
TORCHTITAN = [(LLAMA, HOSTS, 64, f'tp=4 pp=4 vp={vp} schedule={name}', ())
              for name, vp in (('gpipe', 1), ('looped-bfs', 2), ('interleaved-zb', 2), ('zb-v', 2), ('dualpipev', 2))]
SINGLE = {'1F1B', 'GPipe'}
tests = failures = 0


def check(name, good, told=''):
    global tests, failures
    tests += 1
    failures += not good
    print(f'{"ok" if good else "not ok"} {tests} - {name}', flush=True)
    if not good:
        print('# ' + str(told).replace('\n', '\n# '))


def estimate(case, *words):
    config, machine, ranks, division, options = case
    return subprocess.run([PPCLI, 'estimate', config, '--machine', machine, '--ranks', str(ranks), '--compare', division,
                           *options, *words], capture_output=True, text=True, check=False)


def words_of(case):
    return dict(word.split('=', 1) for word in case[3].split())


def blocks_of(case, layers):
    """The cut that was priced: even, or with embedding and loss as a block each, or the layout's."""
    words = words_of(case)
    pieces = int(words.get('pp', 1)) * int(words.get('vp', 1))
    if 'layout' in words:
        return [9, 10, 10, 10, 10, 10, 10, 11]
    if layers % pieces == 0:
        return [layers // pieces] * pieces
    each = (layers + 2) // pieces
    return [each - 1, *[each] * (pieces - 2), each - 1]


# ---- torchtitan


class Thing:
    """Stands for any class or module of torchtitan: calls and attributes are remembered."""

    def __init__(self, path='', values=None):
        self.path, self.values = path, dict(values or {})

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return self.__dict__['values'].get(name, Thing(f'{self.path}.{name}'))

    def __call__(self, *args, **values):
        return Thing(self.path + '()', values)


def run_torchtitan(text):
    """The config that the function plan() of the text returns."""
    names = {}
    for line in text.splitlines():
        words = line.replace(',', ' ').split()
        if words[:1] == ['from'] and words[1].startswith('torchtitan'):
            module = names.setdefault(words[1], types.ModuleType(words[1]))
            for name in words[3:]:
                setattr(module, name, Thing(name))
    saved = dict(sys.modules)
    for name in list(names):
        for i in range(1, name.count('.') + 2):
            part = '.'.join(name.split('.')[:i])
            names.setdefault(part, types.ModuleType(part))
    sys.modules.update(names)
    space = {'Thing': Thing}
    try:
        exec(compile(text.replace('from dataclasses import replace', 'replace = lambda a, **b: Thing("spec", b)'),
                     'plan.py', 'exec'), space)
        return space['plan']()
    finally:
        sys.modules.clear()
        sys.modules.update(saved)


def titan_cut(parallelism, layers):
    """The blocks of each stage, as torchtitan's pipeline_parallel.py finds them; and what it refuses."""
    get = parallelism.values.get
    pp, schedule = get('pipeline_parallel_degree'), get('pipeline_parallel_schedule')
    single = schedule in SINGLE
    if get('module_fqns_per_model_part'):
        parts = get('module_fqns_per_model_part')
        names = [name for part in parts for name in part]
        wanted = ['tok_embeddings', *(f'layers.{i}' for i in range(layers)), 'norm', 'lm_head']
        return [sum(n.startswith('layers.') for n in part) for part in parts], '' if names == wanted else f'{names}'
    first, last = get('pipeline_parallel_first_stage_less_layers'), get('pipeline_parallel_last_stage_less_layers')
    n = math.ceil((layers + first + last) / get('pipeline_parallel_layers_per_stage'))
    if n % pp or (n // pp != 1 if single else n // pp < 2):
        return [], f'{n} stages of {schedule} on {pp} ranks'
    each, extra = divmod(layers + first + last, n)
    return [each + (v < extra) - (first if v == 0 else last if v == n - 1 else 0) for v in range(n)], ''


def check_torchtitan(case):
    done = estimate(case, '--emit', 'torchtitan')
    if done.returncode or 'def plan()' not in done.stdout:
        return check(f'torchtitan: {case[3]}', False, done.stderr + done.stdout)
    wrong, config, layers = [], run_torchtitan(done.stdout), 96 if case[0] == GPT else 80
    for word in case[4]:
        layers = int(word[14:]) if str(word).startswith('model.n_layer=') else layers
    p, t = config.parallelism.values, config.training.values
    words = words_of(case)
    if p['pipeline_parallel_degree'] > 1:
        blocks, why = titan_cut(config.parallelism, layers)
        wrong += [why] if why else []
        wrong += [f'cut {blocks}'] if blocks != blocks_of(case, layers) else []
    ranks = math.prod(p[key] for key in p if key.startswith('data_parallel_')) * math.prod(
        p[f'{key}_parallel_degree'] for key in ('tensor', 'context', 'pipeline'))
    inner = p['data_parallel_shard_degree'] * p['context_parallel_degree'] * p['tensor_parallel_degree']
    wrong += [f'{ranks} ranks'] if ranks != case[2] else []
    wrong += ['experts'] if inner % p['expert_parallel_degree'] else []
    replicas = p['data_parallel_shard_degree'] * p['data_parallel_replicate_degree']
    tokens = t['num_tokens_per_microbatch_per_dp_rank'] * p.get('num_pp_microbatches', 1) * replicas
    wrong += ['tokens'] if t['num_tokens_per_train_step'] % tokens else []
    wrong += ['rows'] if t['num_tokens_per_microbatch_per_dp_rank'] != int(words.get('mbs', 1)) * t['max_context_length'] else []
    recompute = {'full': 'FullAC', 'selective': 'SelectiveAC'}.get(words.get('recompute'))
    got = config.activation_checkpoint
    wrong += ['recompute'] if recompute and not got.path.startswith(recompute) or not recompute and got is not None else []
    model = config.model_spec and config.model_spec.model
    if case[0] == LLAMA and 'model.experts=8' not in case[4]:
        built = model.values['layers'].values if '--fp8' not in case[4] else {'n_layers': layers}
        wrong += ['layers'] if built['n_layers'] != layers else []
    else:
        wrong += ['a model of another form'] if model or 'left to you: config.model_spec' not in done.stdout else []
    wrong += ['fp8'] if '--fp8' in case[4] and 'Float8LinearConverter.Config' not in done.stdout else []
    return check(f'torchtitan: {case[3]} {" ".join(case[4])}', not wrong, '\n'.join([*wrong, done.stdout]))


# ---- Megatron-LM

JUDGE = '''
import json, os, sys, types, typing, warnings
warnings.simplefilter('ignore')
typing.override = getattr(typing, 'override', lambda f: f) # of Python 3.12
sys.path.insert(0, os.environ['PPCLI_MEGATRON'])
import torch
torch.cuda.get_device_properties = lambda *device: types.SimpleNamespace(major=9, minor=0, name='H100')
torch.cuda.get_device_capability = lambda *device: (9, 0)
from megatron.training.arguments import parse_args, validate_args
for ranks, serial, options in json.load(sys.stdin):
    os.environ.update(WORLD_SIZE=str(ranks), RANK='1', CUDA_DEVICE_MAX_CONNECTIONS=serial)
    sys.argv[1:] = options
    try:
        validate_args(parse_args())
        print('JUDGED')
    except (Exception, SystemExit) as e:
        print('JUDGED', type(e).__name__, ' '.join(str(e).split()))
'''


def has_megatron():
    probe = 'import os, sys, typing; typing.override = lambda f: f; sys.path.insert(0, os.environ["PPCLI_MEGATRON"]); '
    probe += 'import megatron.training.arguments'
    return MEGATRON and subprocess.run([sys.executable, '-c', probe], capture_output=True, check=False).returncode == 0


def options_of(text, folder):
    """The words that a shell has in its array, with comments between them."""
    with open(f'{folder}/options.sh', 'w', encoding='ascii') as f:
        f.write(f'options=(\n{text})\nprintf "%s\\n" "${{options[@]}}"\n')
    return subprocess.run(['bash', f'{folder}/options.sh'], capture_output=True, text=True, check=True).stdout.split()


def wrong_options(case, options):
    """What is not the same model, of the options alone."""
    value = {word: options[i + 1] for i, word in enumerate(options[:-1]) if word.startswith('--')}
    has = set(word for word in options if word.startswith('--'))
    sets, words = ' '.join(case[4]), words_of(case)
    dropout = '0.1' if 'dropout=0.1' in sets else '0'
    rules = {'dropout': value.get('--attention-dropout') == value.get('--hidden-dropout') == dropout,
             'ffn': value.get('--ffn-hidden-size') == ('49152' if case[0] == GPT else '14336' if 'experts' in sets else '28672'),
             'vocabulary': value.get('--vocab-size') in ('32000', '50257', '51200'),
             'heads': ('--kv-channels' in has) == ('head_dim' in sets),
             'qkv': ('--add-qkv-bias' in has) == ('attention_bias' in sets),
             'ties': ('--untie-embeddings-and-output-weights' in has) == (case[0] == LLAMA and 'tie_weights' not in sets),
             'rotary': case[0] == GPT or value.get('--rotary-base') == ('500000' if 'rope_base' in sets else '10000'),
             'scaling': ('--use-rope-scaling' in has) == ('rope_scaling' in sets),
             'experts': 'experts' not in sets or {'--moe-token-dispatcher-type', '--moe-grouped-gemm'} <= has,
             'fsdp': ('--ckpt-format' in has) == (words.get('zero') in ('2', '3')) and
                     value.get('--ckpt-format', 'fsdp_dtensor') == 'fsdp_dtensor',
             'fp8': ('--fp8' in sets) == (value.get('--fp8-recipe') == 'tensorwise')}
    if words.get('recompute') == 'selective':
        modules = options[options.index('--recompute-modules') + 2]
        rules['modules'] = modules == ('moe' if 'experts' in sets else 'mlp')
    return [name for name, holds in rules.items() if not holds]


def check_megatron(case, folder):
    done = estimate(case, '--emit', 'megatron')
    if done.returncode:
        return check(f'Megatron-LM: {case[3]}', False, done.stderr)
    options = options_of(done.stdout, folder)
    wrong = wrong_options(case, options)
    return check(f'Megatron-LM: {case[3]} {" ".join(case[4])}', not wrong, f'{wrong}\n{done.stdout}')


def judge_megatron(folder):
    '''One process for all cases, because importing it takes many seconds.'''
    rest = ['--tokenizer-type', 'NullTokenizer', '--lr', '1e-4', '--train-iters', '10']
    texts = [estimate(case, '--emit', 'megatron').stdout for case in BOTH]
    asked = [[case[2], '' if 'unset CUDA_DEVICE' in text else '1', options_of(text, folder) + rest]
             for case, text in zip(BOTH, texts)]
    done = subprocess.run([sys.executable, '-c', JUDGE], input=json.dumps(asked), capture_output=True, text=True,
                          check=False)
    said = [line[6:].strip() for line in done.stdout.splitlines() if line.startswith('JUDGED')]
    for k, case in enumerate(BOTH):
        why = said[k] if k < len(said) else 'no verdict\n' + done.stderr[-500:]
        check(f"Megatron-LM's parser: {case[3]} {' '.join(case[4])}", not why, f'{why}\n{shlex.join(asked[k][2])}')


def main():
    for case in BOTH + TORCHTITAN:
        check_torchtitan(case)
    done = estimate((LLAMA, HOSTS, 64, 'tp=4 pp=4 schedule=interleaved-zb', ()), '--emit', 'torchtitan')
    check('torchtitan: a looped schedule of one stage a rank is refused',
          done.returncode == 78 and 'torchtitan cannot run' in done.stderr, done.stdout + done.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for case in BOTH:
            check_megatron(case, folder)
        judged = has_megatron()
        if judged:
            judge_megatron(folder)
    if not judged:
        print(f"ok {tests + 1} - Megatron-LM's parser # SKIP PPCLI_MEGATRON names no sources of it")
    print(f'1..{tests + (not judged)}')
    return failures > 0


sys.exit(main())
