#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every advice that ppcli prints is followed.

    advice.py PPCLI SOURCE

A row of FOLLOWED has words of a message in the source, a command that gives it, and the same command
as the message advises: the first must print the message, the second must succeed and not print it
again. ELSEWHERE has the messages that cannot be made to occur here, with the reason or the test that
follows them. A message with an advice in src that has no row is a failure, and so is a row without a
message. Prints TAP."""

import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

LITERALS = re.compile(r'"(?:[^"\\]|\\.)*"(?:\s*(?:"(?:[^"\\]|\\.)*"|PRI\w+|[A-Z][A-Z0-9_]{3,}))*')
PART = re.compile(r'"((?:[^"\\]|\\.)*)"|(PRI\w+|[A-Z][A-Z0-9_]{3,})')
ADVICE = re.compile(
    r'; (?:use|write|name|give|set|try|add|lower|start|run|leave|take)\b|, or (?:use|name|set|add|give)\b|'
    r'\b(?:use|with|set|add|name|give|try|write|of|or|by|is) (?:--[a-z]|[a-z]+\.[a-z_]+ =)|did you mean|'
    r': (?:use|set|name|add|run|have Python)\b|(?:[Uu]se|[Ll]ower) [a-z]+\.[a-z_]+')
FORMAT = re.compile(r'%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]|\{\w+\}')

NET = """[data]
dataset = synthetic
train_samples = 64
test_samples = 32
[model]
sizes = 12 9*3 4
[pipeline]
microbatches = 4
stages = 2
[train]
batch_size = 32
epochs = 1
[run]
dir =
"""
GPT = """[data]
dataset = text
train_file = text.txt
[model]
type = gpt
n_layer = 2
n_head = 2
n_embd = 8
block_size = 8
[train]
batch_size = 8
max_steps = 4
eval_interval = 4
[run]
dir =
"""
N, G = 'explain net.ini --set ', 'explain gpt.ini --set '
TABLE = 'explain table.ini --set '
CONV = 'explain net.ini --set data.shape=8x8x3 --set model.type=sequential --set model.sizes="784 512 256 10" --set '


def ini(text):
    """A command on a config with one more line."""
    return ('explain x.ini', NET + text)


# Words of the message in the source; what gives it; what follows it.
FOLLOWED = [
    # command line
    ("unknown option '%s'; did you mean", '-hlep', None),
    ("unknown option '--%s'; did you mean '--%s'", 'explain net.ini --stage 2', 'explain net.ini --stages 2'),
    ("is a config, not a command; did you mean 'ppcli train", 'net.ini', 'train net.ini -q'),
    ("no completions for '%s'; use bash", 'completion csh', 'completion zsh'),
    ("unknown data set '%s'; did you mean", 'download mnis --from .', None),
    ('--allow %s says what may change with --resume', 'train net.ini --allow train.lr --dir r1',
     'train net.ini --allow train.lr --dir r1 --resume -q'),
    ("name checkpoints: run folders", 'verify', 'verify a'),
    ("a folder, and not of a run", 'explain empty', 'explain a'),
    ('%s exists; name another file', 'init mlp -o net.ini', 'init mlp -o new.ini'),
    ('%s is not empty: name a new folder', 'export g a', 'export g new-folder'),
    ("no section '%s'; did you mean", 'keys lr', 'keys train.lr'),
    ("no section or key '%s'; did you mean", 'keys train.lrr', 'keys train.lr'),
    ('a CONFIG and --csv are two plans', 'plan net.ini --csv t.csv', 'plan net.ini'),
    ('one of --cost-f, --cost-i and --cost-w', 'plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 0 '
     '--cost-i 0 --cost-w 0', 'plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 1 --cost-i 0 --cost-w 0'),
    # folders, weights
    ('run folder %s is not empty: name another', 'train net.ini --dir a', 'train net.ini --dir a --overwrite -q'),
    ('holds step %lld; name the folder', 'verify wrong', 'verify right'),
    ('holds tensors, but no config; name a run', 'export g-hf new2', 'export g new3'),
    ('holds tensors, but not the state of a run', 'train gpt.ini --dir r4 --resume g-hf',
     'train gpt.ini --dir r4 --set train.init=g-hf -q'),
    ('run.dir is empty; use --resume PATH', 'train net.ini --resume', 'train net.ini --resume b --max-steps 2 -q'),
    ('change them from here on with --allow', 'train net.ini --dir b --resume --lr 0.5 --epochs 2',
     'train net.ini --dir b --resume --lr 0.5 --epochs 2 --allow train.lr -q'),
    ('or begin another run: --dir with another folder', 'train net.ini --dir a --resume --set model.sizes="12 9 4"',
     'train net.ini --dir r5 --set model.sizes="12 9 4" --stages 1 -q'),
    # config file
    ("'#' begins a comment only", ini('lr = 1\n[train]\nlr = 0.1 # small'), ini('[train]\nlr = 0.1 ; small')),
    ("text after ']'", ini('[train] lr = 1'), ini('[train]\nlr = 1')),
    ('blanks inside', ini('[ train ]\nlr = 1'), ini('[train]\nlr = 1')),
    ('unknown section [%s]; did you mean', ini('[trian]\nlr = 1'), ini('[train]\nlr = 1')),
    ("':' does not separate", ini('[train]\nlr: 1'), ini('[train]\nlr = 1')),
    ("'%s' has no '='", ini('[train]\nlr'), ini('[train]\nlr = 1')),
    ("'${%s}' is not understood", ini('[data]\npath = ${HOME:}'), ini('[data]\npath = ${HOME:-x}')),
    ('is not set; set it or write', ini('[data]\npath = ${NOT_SET_HERE}'), ini('[data]\npath = ${NOT_SET_HERE:-x}')),
    ("'~' is not expanded", ini('[data]\npath = ~/x'), ini('[data]\npath = ${HOME}/x')),
    # values
    ('is not a size; write whole numbers', N + 'model.sizes="12 80x 4"', N + 'model.sizes="12 80 4" --stages 1'),
    ('is not a range of layers', N + 'pipeline.assignment="0-1 | -"', N + 'pipeline.assignment="0-1 | 2-3"'),
    ('is not a layer; write off, all', N + 'pipeline.recompute="x|y"', N + 'pipeline.recompute=all'),
    ('is not a layer; write none', N + 'pipeline.split_at="x|y"', N + 'pipeline.split_at=none'),
    ('is not a device; write auto', N + 'run.devices=x', N + 'run.devices=auto'),
    ('is given twice; write each once', N + 'run.devices="0 0"', N + 'run.devices=0'),
    ('is not a whole number; write none', N + 'train.lr_milestones=x', N + 'train.lr_milestones=none'),
    ('%s after %lld; write numbers in ascending', N + 'train.lr_milestones="3 2"', N + 'train.lr_milestones="2 3"'),
    ("unknown word '%s'; write", N + 'data.augment=spin', N + 'data.augment=none'),
    ('is not a whole number; write digits', N + 'train.epochs=x', N + 'train.epochs=3'),
    ('is not a size; write {PP_BYTES_FORMS}', N + 'run.memory=x', N + 'run.memory=1GiB'),
    ('is not a number; write one such', N + 'train.lr=x', N + 'train.lr=1e-3'),
    ('is not a duration; write a number', N + 'run.hang_timeout=x', N + 'run.hang_timeout=90s'),
    # several keys
    ('has no sample for each of %d replicas', N + 'pipeline.replicas=64', N + 'pipeline.replicas=8'),
    ('too few for %d micro-batches; use pipeline.microbatches', N + 'pipeline.microbatches=64',
     N + 'pipeline.microbatches=32'),
    ('both say where to cut', N + 'pipeline.assignment="0-1 | 2-3" --set pipeline.split_at=layers.2',
     N + 'pipeline.split_at=layers.2'),
    ('%s: %d %s%s for %d stage%s; %s, or pipeline.stages', N + 'pipeline.assignment="0-1 | 2-3" --stages 1',
     N + 'pipeline.assignment="0-1 | 2-3" --stages 2'),
    ('%d numbers for %d stages; write one for each', N + 'pipeline.slower="1 1 2"', N + 'pipeline.slower="1 2"'),
    ('rewind goes back to a checkpoint', N + 'train.nonfinite=rewind', N + 'train.nonfinite=skip'),
    ('threads have no hosts', N + 'run.hosts=h0:2 --launch threads', N + "run.hosts=h0:2 --launch threads --hosts ''"),
    ('needs a process for each rank, but launch = threads', N + 'run.transport=mpi --launch threads',
     N + 'run.transport=auto --launch threads'),
    ('launch = mpirun makes each rank a process', N + 'run.transport=threads --launch mpirun',
     N + 'run.transport=auto --launch mpirun'),
    ('weight gradients of %d micro-batches at a time', N + 'train.coalesce=8', N + 'train.coalesce=4'),
    ('a warm-up has steps or epochs', N + 'train.warmup_steps=1 --set train.warmup_epochs=1 --epochs 3',
     N + 'train.warmup_epochs=1 --epochs 3'),
    ('lr_by = epoch changes the learning rate between', N + 'train.warmup_steps=2 --set train.lr_by=epoch --epochs 3',
     N + 'train.warmup_steps=2 --set train.lr_by=step --epochs 3'),
    ('is not used by model.type', N + 'model.depth=50', N + 'model.depth=18'),
    ('run.retries: threads of one process end together', 'train net.ini --set run.retries=2',
     'train net.ini --set run.retries=0 -q'),
    ('needs processes: start with --launch mpirun, or under', 'train net.ini --set run.transport=mpi',
     'train net.ini -q --set run.transport=auto'),
    ('which train.exact = true keeps', N + 'run.gemm=cblas --set train.coalesce=2',
     N + 'run.gemm=cblas --set train.coalesce=2 --set train.exact=off'),
    ('is for %d micro-batches, this run has %d: set', N + 'pipeline.schedule=file:t.csv',
     N + 'pipeline.schedule=file:t.csv --microbatches 2'),
    ('is for %d stages of %d chunk%s: set', N + 'pipeline.schedule=file:t.csv --stages 1 --microbatches 2',
     N + 'pipeline.schedule=file:t.csv --stages 2 --set pipeline.chunks=1 --microbatches 2'),
    ('keeps %d chunk%s per rank, not %d: set chunks', N + 'pipeline.schedule=zb-v --set pipeline.chunks=3 --set '
     'model.sizes="12 9*9 4"',
     N + 'pipeline.schedule=zb-v --set pipeline.chunks=2 --set model.sizes="12 9*9 4"'),
    ('%d numbers; write F,I,W of', N + 'pipeline.schedule=zb-fit --set pipeline.costs="1 1 1"',
     N + 'pipeline.schedule=zb-fit --set pipeline.costs=none'),
    ("no layer is named '%s'; did you mean", N + 'pipeline.split_at=layer.2', None),
    ('each step takes all of them, and an epoch is one step', 'train net.ini -q --batch-size 128',
     'train net.ini -q --batch-size 64'),
    # learning rate
    ('train.%s = 1 has no effect', N + 'train.warmup_steps=1', N + 'train.warmup_steps=0'),
    ('lies in the warm-up of %lld, so the learning rate only rises', N + 'train.warmup_steps=50',
     N + 'train.warmup_steps=50 --epochs 100'),
    ('is shorter than the run of %lld steps', N + 'train.lr_steps=3 --epochs 9 --set train.lr_schedule=cosine',
     N + 'train.lr_steps=0 --epochs 9 --set train.lr_schedule=cosine'),
    ('lr_schedule = multistep changes nothing; use less', N + 'train.lr_schedule=multistep --epochs 3 --set '
     'train.lr_milestones=2 --set train.lr_gamma=1', N + 'train.lr_schedule=multistep --epochs 3 --set '
     'train.lr_milestones=2 --set train.lr_gamma=0.5'),
    ('train.lr = %.4g: no step learns', N + 'train.lr=0', N + 'train.lr=0.1'),
    ('train.max_steps = %lld has no effect', N + 'train.max_steps=50', N + 'train.max_steps=50 --epochs 60'),
    ('ends within the warm-up of %lld', N + 'train.warmup_steps=4 --epochs 9 --set train.lr_steps=3 --set '
     'train.lr_schedule=linear', N + 'train.warmup_steps=4 --epochs 9 --set train.lr_steps=0 --set '
     'train.lr_schedule=linear'),
    ('has no effect with train.lr_schedule = %s; leave it out, or use %s',
     N + 'train.lr_schedule=constant --set train.lr_steps=9',
     N + 'train.lr_schedule=cosine --set train.lr_steps=9 --set train.max_steps=9 --set train.epochs=9'),
    ('and the run has only one%s; use train.lr_by = step', N + 'train.lr_by=epoch --set train.lr_schedule=cosine',
     N + 'train.lr_by=step --set train.lr_schedule=cosine'),
    ('has hardly any effect', N + 'train.lr_steps=100000 --epochs 9 --set train.lr_schedule=linear',
     N + 'train.lr_steps=0 --epochs 9 --set train.lr_schedule=linear'),
    ('lr_schedule = multistep has no effect; use smaller ones', N + 'train.lr_milestones=900 --epochs 9 --set '
     'train.lr_schedule=multistep', N + 'train.lr_milestones=9 --epochs 9 --set train.lr_schedule=multistep'),
    ('rises to %.4g and then is %.4g at once', N + 'train.lr_milestones=2 --epochs 9 --set train.warmup_steps=6 '
     '--set train.lr_schedule=multistep', N + 'train.lr_milestones=9 --epochs 9 --set train.warmup_steps=6 '
     '--set train.lr_schedule=multistep'),
    ('the learning-rate schedule now stretches', 'train net.ini --dir c --resume -q --epochs 2 --set '
     'train.lr_schedule=cosine', 'train net.ini --dir d --resume -q --epochs 2 --set train.lr_schedule=cosine '
     '--set train.lr_steps=4'),
    # plans
    ('%s cannot be combined with --csv', 'plan --csv t.csv --schedule gpipe', 'plan --csv t.csv'),
    ('--machine prints a table', 'plan net.ini --machine laptop --format svg', 'plan net.ini --machine laptop'),
    ('the ranks of a machine file are equally fast', 'plan net.ini --machine laptop --set pipeline.slower="1 2"',
     'plan net.ini --machine laptop'),
    ('--best prints a table', 'plan net.ini --best --format svg', 'plan net.ini --best --format json'),
    ('both I and BW cells', 'plan --csv both.csv', 'plan --csv t.csv'),
    ('is the first layer of all; name those', N + 'pipeline.split_at=layers.0', N + 'pipeline.split_at=layers.1'),
    ('name each once, in model order', N + 'pipeline.split_at="layers.2 layers.1" --stages 3',
     N + 'pipeline.split_at="layers.1 layers.2" --stages 3'),
    ('auto is for commands that measure; write off', 'bench net.ini --ops --set pipeline.recompute=auto --time 0.02',
     'bench net.ini --ops --set pipeline.recompute=all --time 0.02'),
    ('which do not fill %d nodes', 'slurm net.ini --dir j --time 1:00:00 --nodes 2 --ranks-per-node 3',
     'slurm net.ini --dir j --time 1:00:00 --nodes 2 --ranks-per-node 1'),
    ('the whole time is %s; give less', 'slurm net.ini --dir j --time 0:05:00 --save 900',
     'slurm net.ini --dir j --time 0:05:00 --save 60'),
    # data and models
    (', only numbers; use first or last', TABLE + 'data.label=y --set data.train_file=bare.csv --set '
     'data.test_file=bare.csv', TABLE + 'data.label=last --set data.train_file=bare.csv --set '
     'data.test_file=bare.csv'),
    ('numbers, but a sample of %s has %d %s%s; write one', 'train net.ini -q --set data.shape=2x2x3 --set '
     'data.mean="1 2"', 'train net.ini -q --set data.shape=2x2x3 --set data.mean="1 2 3"'),
    ('of model.from says %s = %s; leave the key out', 'explain gpt2.ini --set model.n_layer=3', 'explain gpt2.ini'),
    ('is not a shape; write rows', N + 'data.shape=8by8', N + 'data.shape=2x2x3'),
    ('model.sizes begins with %d and ends with %d', N + 'data.shape=4x4x3', N + 'data.shape=4x4x3 --set '
     'model.sizes="48 9*3 4"'),
    ("'%s', %s; write such as", CONV + 'model.layers="conv:4 linear:4"',
     CONV + 'model.layers="flatten linear:4" --stages 1'),
    ('model.layers names no layer', CONV + 'model.layers=', CONV + 'model.layers="flatten linear:4" --stages 1'),
    ('reduces an image of %s to nothing', CONV + 'model.layers="conv:4x9,pad=0 relu flatten linear:4"',
     CONV + 'model.layers="conv:4x3,pad=0 relu flatten linear:4"'),
    ('begins no character of UTF-8%s; use data.tokens = bytes', 'explain gpt.ini --set data.train_file=latin.txt',
     'explain gpt.ini --set data.train_file=latin.txt --set data.tokens=bytes'),
    ('text, not tokens; use data.dataset = text', 'explain gpt.ini --set data.dataset=tokens --set '
     'data.test_file=text.txt', 'explain gpt.ini --set data.dataset=text --set data.test_file=text.txt'),
    ('--set data.path=%s', 'download cifar10 --from cifar', None),
]

OTHER = {
    'gpu': 'needs a GPU, or its absence',
    'mpi': 'needs another launcher, or a machine without one',
    'hosts': 'needs several hosts: tests/hosts',
    'python': 'the way out is another program',
    'machine': 'needs another processor, library, or a machine without memory',
    'part': 'a part of a message that is in another row',
    'words': 'says what is possible; nothing is to be written',
    'cli_weights_kinds': 'followed in cli_weights_kinds',
    'cli_resume_change': 'followed in cli_resume_change',
    'open': 'not followed yet',
}

# Words of the message in the source: the reason, or the test.
ELSEWHERE = {
    # in cli_weights_kinds
    "a cache folder of Hugging Face's: name %s/": 'cli_weights_kinds',
    "a cache folder of Hugging Face's: name a folder": 'cli_weights_kinds',
    'it has no model.safetensors: name its file': 'cli_weights_kinds',
    'this model has one for both; use model.tie_weights': 'cli_weights_kinds',
    '; its own config is model.from = %s': 'part',
    # in cli_resume_change
    'where no batch of train.batch_size = %d begins': 'cli_resume_change',
    ' and another --dir in place of --resume': 'cli_resume_change',
    # another program
    'a file of torch.save(): have Python': 'python',
    'a Git LFS pointer': 'python',
    'a Python pickle: have Python': 'python',
    'a GGUF file': 'python',
    'an HDF5 file': 'python',
    'a NumPy array: have Python': 'python',
    "of CIFAR-10's version for Python": 'python',
    'load it in Python, save samples': 'python',
    'of its own tokenizer; use data.dataset = tokens': 'python',
    'are those of its tokenizer; if this is one': 'python',
    'built without libcurl': 'machine',
    # no advice, or a part of one
    'with --resume: keys that change the bits': 'words',
    'calling mpirun with --allow-run-as-root': 'words',
    'cannot start thread %d of run.threads': 'words',
    'instead of %d micro-batches: with run.gemm = cblas': 'words',
    'start the same command again': 'words',
    ' with pipeline.microbatches = 1': 'part',
    "; did you mean '%s'?": 'part',
    "did you mean '": 'part',
    ', or use %s': 'part',
    '%s, or use %s': 'part',
    'run.gemm = auto with run.threads = 1': 'part',
    ', or train.zero = 0': 'part',
    '; run.packed = off needs less': 'part',
    '; use a larger data.validation, or 0': 'part',
    ', or set data.dataset = %s, which needs no download': 'part',
    'it has no effect; leave it out, or make the run longer': 'part',
    # devices
    'the loop without the executor works in memory of the host': 'gpu',
    '%s; use run.devices = %d, or mpirun': 'gpu',
    'NCCL': 'gpu',
    'over NCCL it can be': 'gpu',
    'CUDA_DEVICE_MAX_CONNECTIONS': 'gpu',
    'processes that share a GPU take turns': 'gpu',
    'cuda device %d': 'gpu',
    'NVIDIA driver': 'gpu',
    'cudaGetDeviceCount': 'gpu',
    'run.partition_sms': 'gpu',
    'use run.backend = cpu': 'gpu',
    'or run.backend = cpu': 'gpu',
    'run.devices: there is no device': 'gpu',
    'run.graphs = on, but': 'gpu',
    'on device %d (%s) need': 'gpu',
    'has no device.%s: give it, or set run.precision': 'gpu',
    # processes and hosts
    'run.rank_order = replicas wants Open MPI': 'mpi',
    'mpirun is not installed': 'mpi',
    'use --launch threads to run the ranks as threads': 'mpi',
    'run the ranks as threads (run.transport = threads)': 'mpi',
    'use --launch auto, or start one process': 'mpi',
    'times pipeline.replicas = %d needs %d: use mpirun': 'mpi',
    'must not be used by several threads': 'machine',
    'this processor has no AVX2': 'machine',
    'are left of %s: take a smaller model': 'machine',
    'is one process, with the whole model in its memory': 'hosts',
    'no port of %d-%d is free': 'hosts',
    'is not a host name or IPv4 address': 'hosts',
    'is given twice; write %s:N once': 'hosts',
    'run.hosts': 'hosts',
    '%s: no host; write': 'hosts',
    'run.ports': 'hosts',
    'run.network': 'hosts',
    'write it into /etc/hosts': 'hosts',
    'write its address in the network into /etc/hosts': 'hosts',
    'run folder %s of %s has checkpoints': 'hosts',
    # machines that there are not
    'no %s data in %s (it comes with ppcli': 'machine',
    'is relative and the current folder is not known': 'machine',
    # not followed yet
    'takes samples as they are; use --set data.augment': 'open',
    'a list of --stages loads its config once': 'open',
    '--check runs the ranks as threads': 'open',
    'nothing fits into %.4g GB a rank': 'open',
    "unknown schedule '%s'; a table is --csv": 'open',
    'is not possible; write %g to %g': 'open',
    '%s is out of range; write': 'open',
    '%s and %s differ; set model.dropout': 'open',
    "unknown '%s'%s; write {FORMS}": 'open',
    "'%s' is not a number; write %s": 'open',
    'cannot be written in an INI file because': 'open',
    'no file; write %sTABLE.csv': 'open',
    'no value; write %s': 'open',
    'if they are the labels, use data.label = first': 'open',
    'which it leaves out, so nothing is learned': 'open',
    'but a sample of %s has bytes as 0 to 1': 'open',
    'data.shape has no effect with': 'open',
    '%s has no effect with data.dataset': 'open',
    'if so, say it with data.layout': 'open',
    'of the text begins no character of UTF-8; use': 'open',
    'use data.token_bytes = ': 'open',
    '%s: %d pieces for %d stages and chunks; give one': 'open',
    'the data do not tell how many classes': 'open',
    'the learning rate of the last step is %.4g': 'open',
    'reads the shape of a sample from the data, which are not there': 'open',
    'pipeline.assignment = time needs measured times': 'open',
    'the data do not tell how many different tokens': 'open',
    "transport '%s': %s": 'open',
    'model.logits_rows: %s; use 0': 'open',
    'need more than %d channels': 'open',
    'needs two inputs, and one of them only comes': 'open',
    'an OVERLAP_F_B pair in a table': 'open',
    'an idle cell in a table': 'open',
    'use one order in both rows': 'open',
    'Lower train.lr (it is %g)': 'open',
    'uneven stages: layer %d alone': 'open',
    'are short; use fewer of them': 'open',
    "is too wide to draw; try": 'open',
    "unknown key '%s' in [%s]; did you mean": 'open',
    'auto is for what measures; name a schedule': 'open',
    'is too small for a float': 'open',
    'and no variance, in a micro-batch of 1 sample': 'open',
}


def messages(source):
    """(file, message) of every advice in src."""
    found = []
    for path in sorted(glob.glob(f'{source}/src/**/*.c', recursive=True)):
        with open(path, encoding='utf-8') as f:
            text = re.sub(r'/\*.*?\*/', ' ', f.read(), flags=re.S)
        if '/conf/options' in path:
            continue
        for m in LITERALS.finditer(text):
            message = ''.join(a if not b else '{' + b + '}' for a, b in PART.findall(m.group(0)))
            if ADVICE.search(message):
                found.append((os.path.relpath(path, source), message))
    return found


def is_printed(message, text):
    """Whether a line of the text has the parts of the message between its numbers and names, in order."""
    plain = message.replace('\\n', ' ').replace('\\"', '"')
    parts = [part.replace('%%', '%').strip() for part in FORMAT.split(plain) if part.strip()]
    for line in text.splitlines():
        at = 0
        for part in parts:
            at = line.find(part, at) if at >= 0 else at
        if at >= 0:
            return True
    return False


class Shell:
    def __init__(self, ppcli, folder):
        self.ppcli, self.folder = ppcli, folder

    def file(self, name, text):
        with open(f'{self.folder}/{name}', 'w', encoding='latin-1') as f:
            f.write(text)

    def run(self, command):
        words = command
        if isinstance(command, tuple):
            words, text = command
            self.file('x.ini', text)
        env = {k: v for k, v in os.environ.items() if k not in ('PPCLI_DATA_DIR', 'OMPI_COMM_WORLD_SIZE')}
        done = subprocess.run([self.ppcli, *shlex.split(words)], cwd=self.folder, stdin=subprocess.DEVNULL, text=True,
                              env={**env, 'HOME': self.folder}, capture_output=True, timeout=120, errors='replace')
        return done.returncode, done.stdout + done.stderr

    def prepare(self):
        self.file('net.ini', NET)
        self.file('gpt.ini', GPT)
        self.file('text.txt', ''.join(f'{i % 13} times {i % 17} is {(i % 13) * (i % 17)}\n' for i in range(600)))
        self.file('latin.txt', 'caf\xe9 ' * 600)
        os.makedirs(f'{self.folder}/empty')
        os.makedirs(f'{self.folder}/cifar')
        self.file('cifar/data_batch_1.bin', 'x')
        for words in ('train net.ini --dir a -q', 'train net.ini --dir b -q --max-steps 1', 'train gpt.ini --dir g -q',
                      'export g g-hf'):
            code, text = self.run(words)
            if code:
                raise RuntimeError(f'{words}: {text}')
        code, table = self.run('plan --schedule 1f1b --stages 2 --microbatches 2 --format csv')
        self.file('t.csv', table)
        self.file('both.csv', '0F0,0I0,0W0\n0F0,0BW0,\n')
        self.file('bare.csv', ''.join(f'{i % 5},{i % 7},{i % 3}\n' for i in range(64)))
        self.file('table.ini', NET.replace('synthetic', 'csv').replace('12 9*3 4', '2 9 3'))
        self.file('gpt2.ini', '[data]\ndataset = text\ntrain_file = text.txt\n[model]\nfrom = g-hf\n')
        for name in ('c', 'd'):
            steps = ' --set train.lr_steps=4' if name == 'd' else ''
            self.run(f'train net.ini --dir {name} -q --set train.lr_schedule=cosine{steps}')
        for name, step in ('wrong', 7), ('right', 2):
            os.makedirs(f'{self.folder}/{name}/checkpoints')
            subprocess.run(['cp', '-r', f'{self.folder}/a/checkpoints/step-00000002',
                            f'{self.folder}/{name}/checkpoints/step-{step:08}'], check=True)


def follow(shell, message, bad, good):
    """What is wrong; None: nothing."""
    code, text = shell.run(bad)
    if not is_printed(message, text):
        return f'{bad}: does not print it: {text[:600]}'
    if good is None:
        return None
    code, text = shell.run(good)
    if code or is_printed(message, text):
        return f'{good}: exit {code}: {text[:600]}'
    return None


def main():
    ppcli, source = os.path.abspath(sys.argv[1]), sys.argv[2]
    found = messages(source)
    cases = failures = 0

    def report(name, wrong):
        nonlocal cases, failures
        cases += 1
        failures += wrong is not None
        print(f'{"ok" if wrong is None else "not ok"} {cases} - {name}')
        if wrong:
            print('# ' + wrong.replace('\n', '\n# '))

    rows = FOLLOWED
    with tempfile.TemporaryDirectory() as folder:
        shell = Shell(ppcli, folder)
        shell.prepare()
        for key, bad, good in rows:
            of = [message for _, message in found if key in message]
            report(f'followed: {key}', 'no message in src has these words' if not of else
                   follow(shell, of[0], bad, good))
    keys = [key for key, *_ in rows] + list(ELSEWHERE)
    for file, message in found:
        if not any(key in message for key in keys):
            report(f'{file}: {message[:60]}', f'an advice without a row in {sys.argv[0]}: {message}')
    for key, why in ELSEWHERE.items():
        if why not in OTHER or not any(key in message for _, message in found):
            report(f'elsewhere: {key}', 'no message in src has these words' if why in OTHER else f'no reason: {why}')
    report('every advice of src has a row, and every row its advice', None if failures == 0 else 'see above')
    print(f'1..{cases}')
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
