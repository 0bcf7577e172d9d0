# SPDX-License-Identifier: Apache-2.0
"""The messages with an advice, for advice.py: what gives each, and what follows it.

A row of FOLLOWED has words of a message in the source, a command that gives it, and the same command
as the message advises: the first must print the message, the second must succeed and not print it
again. ELSEWHERE has the messages that cannot be made to occur here, with the reason (OTHER) or the
test that follows them. The files that the commands name are written by advice.py."""

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
GPT2 = '[data]\ndataset = text\ntrain_file = text.txt\n[model]\nfrom = g-hf\n'
# Tables of schedules, row by row.
TABLES = {
    'stuck': ('0F0,0F1,0B0,0B1', '1F0,1B0,(1F1;1B1)OVERLAP_F_B', '2F0,2B0,2F1,2B1'),
    'unstuck': ('0F0,0F1,0B0,0B1', '1F0,1B0,1F1,1B1', '2F0,2B0,2F1,2B1'),
    'pair-old': ('0F0,(0F1;0B0)OVERLAP_F_B,0BW1',),
    'pair': ('0F0,(0F1;0B0)OVERLAP_F_B,0B1',),
    'idle': ('0F0,0SEND_F0,,0RECV_B0,0B0', '1RECV_F0,1F0,1B0,1SEND_B0'),
    'no-idle': ('0F0,0SEND_F0,0RECV_B0,0B0', '1RECV_F0,1F0,1B0,1SEND_B0'),
    'two-orders': ('0F0,0F1,0B1,0B0', '1F0,1B0,1F1,1B1'),
    'one-order': ('0F0,0F1,0B0,0B1', '1F0,1B0,1F1,1B1'),
}
N, G = 'explain net.ini --set ', 'explain gpt.ini --set '
TABLE = 'explain table.ini --set '
CONV = 'explain net.ini --set data.shape=8x8x3 --set model.type=sequential --set model.sizes="784 512 256 10" --set '
OPS = 'bench net.ini --ops --time 0.02 --no-ceilings --set pipeline.recompute='
MANY = 'explain net.ini --set data.train_samples=4096 --batch-size 4096 --set model.sizes="12 9*700 4" --set '
STEPS = N + 'train.lr_schedule=multistep --set train.lr_milestones="1 2 3" --epochs 5 --set '
WIDE = 'plan net.ini --best --set model.sizes="20 512 512 5" --set data.train_samples=64 '
TOKENS = 'train gpt.ini -q --set data.dataset=tokens --set model.vocab_size=300 --set data.'
LLAMA_70B = 'plan llama-70b.ini --machine 8xh100-nvlink --ranks '
TWO, FOUR = 'test_file=two.bin --set data.train_file=two.bin', 'test_file=four.bin --set data.train_file=four.bin'
LARGE = ('train table.ini -q --set data.train_file=large.csv --set data.test_file=large.csv --optimizer sgd --set '
         'model.sizes="2 9 9 3" --lr ')
ABSENT = TABLE + 'data.train_file=none.csv --set data.test_file=none.csv --set '


def ini(text):
    """A command on a config with one more line."""
    return ('explain x.ini', NET + text)


# Words of the message in the source; what gives it; what follows it.
FOLLOWED = [
    ('shards what every micro-batch of a pipeline needs', LLAMA_70B + '16 --compare "tp=2 pp=4 zero=3"',
     LLAMA_70B + '16 --compare "tp=2 pp=4 zero=1"'),
    ('are for gpt and llama with run.precision = bf16', LLAMA_70B + '32 --tensor 2 --set run.precision=f32',
     LLAMA_70B + '32 --tensor 2'),
    ('divisions fits into %.4g GB a rank of', LLAMA_70B + '8 --tensor 8', LLAMA_70B + '32 --tensor 8'),
    ('muon has no bf16 products', N + 'train.optimizer=muon --set run.precision=bf16',
     N + 'train.optimizer=muon --set run.precision=f32'),
    ('muon_lr follows the schedule of lr, which is 0',
     N + 'train.optimizer=muon --set train.muon_lr=0.02 --set train.lr=0',
     N + 'train.optimizer=muon --set train.muon_lr=0.02 --set train.lr=0.001'),
    ('--cost-b is the sum of --cost-i and --cost-w',
     'plan --schedule 1f1b --stages 2 --microbatches 4 --cost-i 1 --cost-w 1 --cost-b 3',
     'plan --schedule 1f1b --stages 2 --microbatches 4 --cost-b 3'),
    # command line
    ("unknown option '%s'; did you mean", '-hlep', None),
    ("unknown option '--%s'; did you mean '--%s'", 'explain net.ini --stage 2', 'explain net.ini --stages 2'),
    ("is a config, not a command; did you mean: ppcli train", 'net.ini', 'train net.ini -q'),
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
    ('Fewer ranks are faster', 'plan mnist.ini --machine 8xh100-nvlink --ranks 2',
     'plan mnist.ini --machine 8xh100-nvlink --ranks 1'),
    ('compute no forward again: set', N + 'pipeline.schedule=zb-exact --set pipeline.recompute=all',
     N + 'pipeline.schedule=zb-exact --set pipeline.recompute=off'),
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
    ('are for pictures: add', 'plan --schedule gpipe --stages 2 --microbatches 2 --title x',
     'plan --schedule gpipe --stages 2 --microbatches 2 --title x -o plan.svg'),
    ('the ranks of a machine file are equally fast', 'plan net.ini --machine laptop --set pipeline.slower="1 2"',
     'plan net.ini --machine laptop'),
    ('a table cannot describe two copies of the weights; draw', 'plan --schedule chimera --stages 2 --microbatches 4 --html page.html',
     'plan --schedule chimera --stages 2 --microbatches 4 --format svg'),
    ('--best prints a table', 'plan net.ini --best --format svg', 'plan net.ini --best --format json'),
    ('both I and BW cells', 'plan --csv both.csv', 'plan --csv t.csv'),
    ('is the first layer of all; name those', N + 'pipeline.split_at=layers.0', N + 'pipeline.split_at=layers.1'),
    ('name each once, in model order', N + 'pipeline.split_at="layers.2 layers.1" --stages 3',
     N + 'pipeline.split_at="layers.1 layers.2" --stages 3'),
    ('auto is for commands that measure; write off', OPS + 'auto', OPS + 'all'),
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
    ('%s of %s says %s = %s; leave the key out', 'explain gpt2.ini --set model.n_layer=3', 'explain gpt2.ini'),
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
    # shapes, lists, ranges
    ('%s is no longer a key: %s; leave it out', 'explain net.ini --set run.prometheus=x.prom', 'explain net.ini'),
    ('--check runs the ranks as threads', 'plan net.ini --best --check 1 --hosts localhost:2', 'plan net.ini --best'),
    ('nothing fits into %.4g GB a rank', 'plan net.ini --machine laptop --memory 1k',
     'plan net.ini --machine laptop --memory 5k'),
    ("unknown schedule '%s'; a table is --csv", 'plan --schedule t.csv', 'plan --csv t.csv'),
    ("unknown schedule '%s'; a table is --csv", 'plan --schedule file:t.csv --stages 2',
     'plan net.ini --set pipeline.schedule=file:t.csv --microbatches 2'),
    ('is not possible; write %g to %g', 'plan net.ini --machine bad-machine.ini',
     'plan net.ini --machine good-machine.ini'),
    ('%s is out of range; write', N + 'train.epochs=-1', N + 'train.epochs=1'),
    ('%s is out of range; write', N + 'run.hang_timeout=1000000h', N + 'run.hang_timeout=604800s'),
    ('%s is out of range; write', N + 'run.memory=1e30', N + 'run.memory=1000000000000000'),
    ('%s is out of range; write', N + 'train.lr=1001', N + 'train.lr=1000'),
    ("unknown '%s'%s; write {FORMS}", N + 'pipeline.assignment=flop', N + 'pipeline.assignment=flops'),
    ("'%s' is not a number; write %s", N + 'train.lr=0,1', N + 'train.lr=0.1'),
    ('is too small for a float', N + 'train.lr=1e-46', N + 'train.lr=1.18e-38'),
    ('cannot be written in an INI file because', N + "run.dir='a ;b'", N + "run.dir='a b'"),
    ('no file; write %sTABLE.csv', N + 'pipeline.schedule=file:',
     N + 'pipeline.schedule=file:t.csv --microbatches 2'),
    ('no value; write %s', N + 'train.lr=', N + 'train.lr=0.5'),
    ("unknown key '%s' in [%s]; did you mean", ini('[train]\nlearning_rate = 1'), ini('[train]\nlr = 1')),
    ('%s: %d pieces for %d stages and chunks; give one', N + 'pipeline.assignment="0-1 | 2-3" --schedule interleaved',
     N + 'pipeline.assignment="0 | 1 | 2 | 3" --schedule interleaved'),
    ('need more than %d channels', MANY + 'train.zero=1 --replicas 1024', MANY + 'train.zero=1 --replicas 8'),
    ('need more than %d channels', MANY + 'train.zero=1 --replicas 1024', MANY + 'train.zero=0 --replicas 1024'),
    ("transport '%s': %s", N + 'run.transport=nccl --backend cpu', N + 'run.transport=auto --backend cpu'),
    ('model.logits_rows: %s; use 0', G + 'model.logits_rows=16 --stages 2 --schedule looped-bfs',
     G + 'model.logits_rows=0 --stages 2 --schedule looped-bfs'),
    ('the learning rate of the last step is %.4g', STEPS + 'train.lr_gamma=1e-20', STEPS + 'train.lr_gamma=0.1'),
    ('uneven stages: layer %d alone', WIDE + '--stages 2', WIDE + '--stages 1'),
    ('is too wide to draw; try', 'plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 1,1000000000000',
     'plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 1,1000000000000 --format svg'),
    ('is too wide to draw; try', 'plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 1,1000000000000',
     'plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 1,1000000000000 --format json'),
    # models
    ('%s and %s differ; set model.dropout', 'explain drops.ini', 'explain drops.ini --set model.dropout=0.1'),
    ('has no classes; use one that has', 'explain labels.ini --set data.dataset=tokens --set model.vocab_size=9',
     'explain labels.ini --set data.tokens=bytes'),
    ('the data do not tell how many different tokens', G + 'data.dataset=synthetic-tokens --set data.train_file=',
     G + 'data.dataset=synthetic-tokens --set data.train_file= --set model.vocab_size=50257'),
    ('reads the shape of a sample from the data, which are not there', 'explain norm.ini --set data.shape=model',
     'explain norm.ini --set data.shape=1x1x3'),
    ('and no variance, in a micro-batch of 1 sample', 'explain norm.ini --set data.train_samples=33',
     'explain norm.ini --set data.train_samples=32'),
    ('and no variance, in a micro-batch of 1 sample', 'explain norm.ini --batch-size 4',
     'explain norm.ini --batch-size 4 --set pipeline.microbatches=2'),
    ('and no variance, in a micro-batch of 1 sample', 'explain norm.ini --batch-size 1 --microbatches 1',
     'explain norm.ini --batch-size 2 --microbatches 1'),
    # data
    ('data.shape has no effect with', G + 'data.shape=12', G + "data.shape=model"),
    ('%s has no effect with data.dataset', N + 'data.train_file=text.txt', N + 'data.train_file='),
    ('%s has no effect with data.dataset', G + 'data.train_images=x.npy', G + 'data.train_images='),
    ('if they are the labels, use data.label = first', 'train zeros.ini -q',
     'train zeros.ini -q --set data.label=first'),
    ('as the label, goes to %d, and column 1', 'train tens.ini -q',
     'train tens.ini -q --set data.label=first --set model.sizes="120 9 3"'),
    ('leaves out, so there is nothing to learn', 'train gpt.ini -q --set data.train_file=same.txt --set '
     'data.tokens=bytes --set data.ignored_token=97', 'train gpt.ini -q --set data.train_file=same.txt --set '
     'data.tokens=bytes --set data.ignored_token=-1'),
    ('leaves out, so there is no test loss', 'train gpt.ini -q --set data.test_file=same.txt --set '
     'data.tokens=bytes --set data.ignored_token=97', 'train gpt.ini -q --set data.test_file=same.txt --set '
     'data.tokens=bytes --set data.ignored_token=-1'),
    ('but a sample of %s has bytes as 0 to 1', 'train words.ini -q', 'train words.ini -q --set '
     'data.train_images=words.npy --set data.test_images=words.npy'),
    ('if so, say it with data.layout', 'train pictures.ini -q',
     'train pictures.ini -q --set data.layout=channels_first'),
    ('if so, say it with data.layout', 'train pictures.ini -q',
     'train pictures.ini -q --set data.layout=channels_last'),
    ('of the text begins no character of UTF-8; use', 'train labels.ini -q',
     'train labels.ini -q --set data.tokens=bytes'),
    ('to look at this config without its files', ABSENT + 'data.train_samples=0 --set data.test_samples=0',
     ABSENT + 'data.train_samples=64 --set data.test_samples=32'),
    ('to look at this config without its files', 'plan labels.ini --set data.train_file=none --set '
     'data.test_file=none --set data.train_samples=0 --set data.test_samples=0',
     'plan labels.ini --set data.train_file=none --set data.test_file=none --set model.vocab_size=99 --set '
     'model.classes=2'),
    ('to look at this config without its files', 'plan gpt.ini --machine laptop --set data.train_file=none',
     'plan gpt.ini --machine laptop --set data.train_file=none --set model.vocab_size=99'),
    ('to look at this config without its files', 'explain net18.ini', 'explain net18.ini --set model.classes=3 '
     '--set data.shape=32x32x3'),
    ('use data.token_bytes = ', TOKENS + FOUR, TOKENS + FOUR + ' --set data.token_bytes=4'),
    ('use data.token_bytes = 2', TOKENS + TWO + ' --set data.token_bytes=1',
     TOKENS + TWO + ' --set data.token_bytes=2'),
    ('token and use data.token_bytes = 4', TOKENS + TWO + ' --set model.vocab_size=70000',
     TOKENS + FOUR + ' --set model.vocab_size=70000 --set data.token_bytes=4'),
    # tables of schedules
    ('needs two inputs, and one of them only comes', 'plan --csv stuck.csv --format csv-comms',
     'plan --csv unstuck.csv --format csv-comms'),
    ('an OVERLAP_F_B pair in a table', 'plan --csv pair-old.csv', 'plan --csv pair.csv'),
    ('an idle cell in a table', 'plan --csv idle.csv', 'plan --csv no-idle.csv'),
    ('use one order in both rows', 'plan --csv two-orders.csv', 'plan --csv one-order.csv'),
    # numbers that are not finite
    ('does not help; use other first weights', 'train gpt.ini -q --set train.init=damaged.safetensors',
     'train gpt.ini -q --set train.init=g-hf/model.safetensors'),
    ('Lower train.lr (it is %g)', LARGE + '1000', LARGE + '1e-12'),
    ('so another train.lr does not help; set data.mean', LARGE + '0.1 --optimizer adam --set data.std=1e-20',
     LARGE + '0.1 --optimizer adam --set data.std=3e11'),
]

# The same, where a run may use two cores or more.
ON_CORES = [
    ('run.threads = auto uses more', 'train net.ini --stages 1 --set run.threads=1',
     'train net.ini --stages 1 --set run.threads=auto'),
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
    'cli_tokenize': 'followed in cli_tokenize',
    'cli_train': 'followed in cli_train',
    'ckpt_from': 'followed in the unit test ckpt_from',
    'inner': 'every command has chosen before: the line is for who calls the function, as a unit test does',
    'measured': 'follows from the times of a run, which nobody can know before',
}

# Words of the message in the source: the reason, or the test.
ELSEWHERE = {
    'is not executable; use chmod +x': 'words',
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
    # in cli_tokenize, cli_profile, ckpt_from
    'this model reads token numbers and has no tokenizer': 'cli_tokenize',
    'name texts, a folder, and --tokenizer or --train': 'words',
    '--par prints a mark: leave out --format': 'words',
    '--table prints what is published: use it alone': 'words',
    'has no tokenizer yet: make one with --train 2000': 'words',
    'are %d characters or bytes, but those of the model': 'cli_tokenize',
    'has another tokenizer; name a new folder': 'cli_tokenize',
    'dropout of a BPE would give other ids each time': 'python',
    "has weights for the %d subwords of its tokenizer": 'cli_tokenize',
    'has weights for %d tokens, and the text of data set': 'cli_tokenize',
    'PyTorch; only mlp, sequential, resnet and encoder can': 'python',
    'sliding_window = %lld is less than the context': 'ckpt_from',
    'no row can be run by %s; try --only %s': 'words',
    'the same kind of processor and, with run.gemm = cblas': 'words',
    '--profile is a plan by itself: no CONFIG': 'words',
    'time of a whole backward, in place of --cost-i': 'words',
    '--profile prints text, or --format json': 'words',
    'the test program checkops compares all kernels': 'cli_train',
    'built without libcurl': 'machine',
    'run.threads = auto uses more': 'machine',
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
    '%s; use run.devices = %d, or mpirun': 'gpu',
    'NCCL': 'gpu',
    'over NCCL it can be': 'gpu',
    'CUDA_DEVICE_MAX_CONNECTIONS': 'gpu',
    'processes that share a GPU take turns': 'gpu',
    'cuda device %d': 'gpu',
    'NVIDIA driver': 'gpu',
    'cudaGetDeviceCount': 'gpu',
    'run.partition_sms': 'gpu',
    'use run.conv = own': 'gpu',
    'use run.backend = cpu': 'gpu',
    'or run.backend = cpu': 'gpu',
    'run.devices: there is no device': 'gpu',
    'run.graphs = on, but': 'gpu',
    'a step over %s is recorded with run.graphs = on only': 'gpu',
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
    'PPCLI_KERNELS=%s: this processor runs %s': 'machine',
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
    # no command comes here
    'pipeline.assignment = time needs measured times': 'inner',
    'auto needs measured times, which are not here': 'inner',
    # from times that were measured in a run
    'are short; use fewer of them': 'measured',
}
