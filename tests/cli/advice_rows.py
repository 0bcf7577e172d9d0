# SPDX-License-Identifier: Apache-2.0
"""For advice.py: a command that gives an advice, and the same command as the advice says it should be. None: it cannot
be followed by a command here. The files that the commands name are written by advice.py."""

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
WIDE = 'tune net.ini --set model.sizes="20 512 512 5" --set data.train_samples=64 '
TOKENS = 'train gpt.ini -q --set data.dataset=tokens --set model.vocab_size=300 --set data.'
LLAMA_70B = 'estimate llama-70b.ini --machine 8xh100-nvlink --ranks '
TWO, FOUR = 'test_file=two.bin --set data.train_file=two.bin', 'test_file=four.bin --set data.train_file=four.bin'
LARGE = ('train table.ini -q --set data.train_file=large.csv --set data.test_file=large.csv --optimizer sgd --set '
         'model.sizes="2 9 9 3" --lr ')
ABSENT = TABLE + 'data.train_file=none.csv --set data.test_file=none.csv --set '


def ini(text):
    """A command on a config with one more line."""
    return ('explain x.ini', NET + text)

ROWS = [
    (LLAMA_70B + '16 --compare "tp=2 pp=4 zero=3"', LLAMA_70B + '16 --compare "tp=2 pp=4 zero=1"'),
    (LLAMA_70B + '32 --tensor 2 --set run.precision=f32', LLAMA_70B + '32 --tensor 2'),
    (LLAMA_70B + '8 --tensor 8', LLAMA_70B + '32 --tensor 8'),
    (N + 'train.optimizer=muon --set run.precision=bf16', N + 'train.optimizer=muon --set run.precision=f32'),
    (N + 'train.optimizer=muon --set train.muon_lr=0.02 --set train.lr=0',
     N + 'train.optimizer=muon --set train.muon_lr=0.02 --set train.lr=0.001'),
    ('plan --schedule 1f1b --stages 2 --microbatches 4 --cost-i 1 --cost-w 1 --cost-b 3',
     'plan --schedule 1f1b --stages 2 --microbatches 4 --cost-b 3'),
    # command line
    ('-hlep', None),
    ('explain net.ini --stage 2', 'explain net.ini --stages 2'),
    ('net.ini', 'train net.ini -q'),
    ('completion csh', 'completion zsh'),
    ('download mnis --from .', None),
    ('train net.ini --allow train.lr --dir r1', 'train net.ini --allow train.lr --dir r1 --resume -q'),
    ('verify', 'verify a'),
    ('explain empty', 'explain a'),
    ('init mlp -o net.ini', 'init mlp -o new.ini'),
    ('export g a', 'export g new-folder'),
    ('keys lr', 'keys train.lr'),
    ('keys train.lrr', 'keys train.lr'),
    ('plan net.ini --csv t.csv', 'plan net.ini'),
    ('plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 0 ' '--cost-i 0 --cost-w 0',
     'plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 1 --cost-i 0 --cost-w 0'),
    # folders, weights
    ('train net.ini --dir a', 'train net.ini --dir a --overwrite -q'),
    ('verify wrong', 'verify right'),
    ('export g-hf new2', 'export g new3'),
    ('train gpt.ini --dir r4 --resume g-hf', 'train gpt.ini --dir r4 --set train.init=g-hf -q'),
    ('train net.ini --resume -q --epochs 2', 'train net.ini --resume b -q --epochs 2'),
    ('train net.ini --dir b --resume --lr 0.5 --epochs 2',
     'train net.ini --dir b --resume --lr 0.5 --epochs 2 --allow train.lr -q'),
    ('train net.ini --dir a --resume --set model.sizes="12 9 4"',
     'train net.ini --dir r5 --set model.sizes="12 9 4" --stages 1 -q'),
    # config file
    (ini('lr = 1\n[train]\nlr = 0.1 # small'), ini('[train]\nlr = 0.1 ; small')),
    (ini('[train] lr = 1'), ini('[train]\nlr = 1')),
    (ini('[ train ]\nlr = 1'), ini('[train]\nlr = 1')),
    (ini('[trian]\nlr = 1'), ini('[train]\nlr = 1')),
    (ini('[train]\nlr: 1'), ini('[train]\nlr = 1')),
    (ini('[train]\nlr'), ini('[train]\nlr = 1')),
    (ini('[data]\npath = ${HOME:}'), ini('[data]\npath = ${HOME:-x}')),
    (ini('[data]\npath = ${NOT_SET_HERE}'), ini('[data]\npath = ${NOT_SET_HERE:-x}')),
    (ini('[data]\npath = ~/x'), ini('[data]\npath = ${HOME}/x')),
    # values
    (N + 'model.sizes="12 80x 4"', N + 'model.sizes="12 80 4" --stages 1'),
    (N + 'pipeline.assignment="0-1 | -"', N + 'pipeline.assignment="0-1 | 2-3"'),
    (N + 'pipeline.recompute="x|y"', N + 'pipeline.recompute=all'),
    (N + 'pipeline.split_at="x|y"', N + 'pipeline.split_at=none'),
    (N + 'run.devices=x', N + 'run.devices=auto'),
    (N + 'run.devices="0 0"', N + 'run.devices=0'),
    (N + 'train.lr_milestones=x', N + 'train.lr_milestones=none'),
    (N + 'train.lr_milestones="3 2"', N + 'train.lr_milestones="2 3"'),
    (N + 'data.augment=spin', N + 'data.augment=none'),
    (N + 'train.epochs=x', N + 'train.epochs=3'),
    (N + 'run.memory=x', N + 'run.memory=1GiB'),
    (N + 'train.lr=x', N + 'train.lr=1e-3'),
    (N + 'run.hang_timeout=x', N + 'run.hang_timeout=90s'),
    # several keys
    (N + 'pipeline.replicas=64', N + 'pipeline.replicas=8'),
    (N + 'pipeline.microbatches=64', N + 'pipeline.microbatches=32'),
    (N + 'pipeline.assignment="0-1 | 2-3" --set pipeline.split_at=layers.2', N + 'pipeline.split_at=layers.2'),
    (N + 'pipeline.assignment="0-1 | 2-3" --stages 1', N + 'pipeline.assignment="0-1 | 2-3" --stages 2'),
    (N + 'pipeline.slower="1 1 2"', N + 'pipeline.slower="1 2"'),
    (N + 'train.nonfinite=rewind', N + 'train.nonfinite=skip'),
    (N + 'run.hosts=h0:2 --launch threads', N + "run.hosts=h0:2 --launch threads --hosts ''"),
    (N + 'run.transport=mpi --launch threads', N + 'run.transport=auto --launch threads'),
    (N + 'run.transport=threads --launch mpirun', N + 'run.transport=auto --launch mpirun'),
    (N + 'train.coalesce=8', N + 'train.coalesce=4'),
    (N + 'train.warmup_steps=1 --set train.warmup_epochs=1 --epochs 3', N + 'train.warmup_epochs=1 --epochs 3'),
    (N + 'train.warmup_steps=2 --set train.lr_by=epoch --epochs 3',
     N + 'train.warmup_steps=2 --set train.lr_by=step --epochs 3'),
    (N + 'model.depth=50', N + 'model.depth=18'),
    ('train net.ini --set run.retries=2', 'train net.ini --set run.retries=0 -q'),
    ('train net.ini --set run.transport=mpi', 'train net.ini -q --set run.transport=auto'),
    (N + 'run.gemm=cblas --set train.coalesce=2', N + 'run.gemm=cblas --set train.coalesce=2 --set train.exact=off'),
    (N + 'pipeline.schedule=file:t.csv', N + 'pipeline.schedule=file:t.csv --microbatches 2'),
    (N + 'pipeline.schedule=file:t.csv --stages 1 --microbatches 2',
     N + 'pipeline.schedule=file:t.csv --stages 2 --set pipeline.chunks=1 --microbatches 2'),
    (N + 'pipeline.schedule=zb-v --set pipeline.chunks=3 --set ' 'model.sizes="12 9*9 4"',
     N + 'pipeline.schedule=zb-v --set pipeline.chunks=2 --set model.sizes="12 9*9 4"'),
    (N + 'pipeline.schedule=zb-fit --set pipeline.costs="1 1 1"',
     N + 'pipeline.schedule=zb-fit --set pipeline.costs=none'),
    (N + 'pipeline.split_at=layer.2', None),
    ('train net.ini -q --batch-size 128', 'train net.ini -q --batch-size 64'),
    # learning rate
    (N + 'train.warmup_steps=1', N + 'train.warmup_steps=0'),
    (N + 'train.warmup_steps=50', N + 'train.warmup_steps=50 --epochs 100'),
    ('estimate mnist.ini --machine 8xh100-nvlink --ranks 2', 'estimate mnist.ini --machine 8xh100-nvlink --ranks 1'),
    (N + 'pipeline.schedule=zb-exact --set pipeline.recompute=all',
     N + 'pipeline.schedule=zb-exact --set pipeline.recompute=off'),
    (N + 'train.lr_steps=3 --epochs 9 --set train.lr_schedule=cosine',
     N + 'train.lr_steps=0 --epochs 9 --set train.lr_schedule=cosine'),
    (N + 'train.lr_schedule=multistep --epochs 3 --set ' 'train.lr_milestones=2 --set train.lr_gamma=1',
     N + 'train.lr_schedule=multistep --epochs 3 --set ' 'train.lr_milestones=2 --set train.lr_gamma=0.5'),
    (N + 'train.lr=0', N + 'train.lr=0.1'),
    (N + 'train.max_steps=50', N + 'train.max_steps=50 --epochs 60'),
    (N + 'train.warmup_steps=4 --epochs 9 --set train.lr_steps=3 --set ' 'train.lr_schedule=linear',
     N + 'train.warmup_steps=4 --epochs 9 --set train.lr_steps=0 --set ' 'train.lr_schedule=linear'),
    (N + 'train.lr_by=epoch --set train.lr_schedule=cosine', N + 'train.lr_by=step --set train.lr_schedule=cosine'),
    (N + 'train.lr_steps=100000 --epochs 9 --set train.lr_schedule=linear',
     N + 'train.lr_steps=0 --epochs 9 --set train.lr_schedule=linear'),
    (N + 'train.lr_milestones=900 --epochs 9 --set ' 'train.lr_schedule=multistep',
     N + 'train.lr_milestones=9 --epochs 9 --set train.lr_schedule=multistep'),
    (N + 'train.lr_milestones=2 --epochs 9 --set train.warmup_steps=6 ' '--set train.lr_schedule=multistep',
     N + 'train.lr_milestones=9 --epochs 9 --set train.warmup_steps=6 ' '--set train.lr_schedule=multistep'),
    ('train net.ini --dir c --resume -q --epochs 2 --set ' 'train.lr_schedule=cosine',
     'train net.ini --dir d --resume -q --epochs 2 --set train.lr_schedule=cosine ' '--set train.lr_steps=4'),
    # plans
    ('plan --csv t.csv --schedule gpipe', 'plan --csv t.csv'),
    ('estimate net.ini --machine laptop --format svg', 'estimate net.ini --machine laptop'),
    ('plan --schedule gpipe --stages 2 --microbatches 2 --title x',
     'plan --schedule gpipe --stages 2 --microbatches 2 --title x -o plan.svg'),
    ('estimate net.ini --machine laptop --set pipeline.slower="1 2"', 'estimate net.ini --machine laptop'),
    ('plan --schedule chimera --stages 2 --microbatches 4 --html page.html',
     'plan --schedule chimera --stages 2 --microbatches 4 --format svg'),
    ('tune net.ini --format svg', 'tune net.ini --format json'),
    ('plan --csv both.csv', 'plan --csv t.csv'),
    (N + 'pipeline.split_at=layers.0', N + 'pipeline.split_at=layers.1'),
    (N + 'pipeline.split_at="layers.2 layers.1" --stages 3', N + 'pipeline.split_at="layers.1 layers.2" --stages 3'),
    (OPS + 'auto', OPS + 'all'),
    ('slurm net.ini --dir j --time 1:00:00 --nodes 2 --ranks-per-node 3',
     'slurm net.ini --dir j --time 1:00:00 --nodes 2 --ranks-per-node 1'),
    ('slurm net.ini --dir j --time 0:05:00 --save 900', 'slurm net.ini --dir j --time 0:05:00 --save 60'),
    # data and models
    (TABLE + 'data.label=y --set data.train_file=bare.csv --set ' 'data.test_file=bare.csv',
     TABLE + 'data.label=last --set data.train_file=bare.csv --set ' 'data.test_file=bare.csv'),
    ('train net.ini -q --set data.shape=2x2x3 --set ' 'data.mean="1 2"',
     'train net.ini -q --set data.shape=2x2x3 --set data.mean="1 2 3"'),
    ('explain gpt2.ini --set model.n_layer=3', 'explain gpt2.ini'),
    (N + 'data.shape=8by8', N + 'data.shape=2x2x3'),
    (N + 'data.shape=4x4x3', N + 'data.shape=4x4x3 --set ' 'model.sizes="48 9*3 4"'),
    (CONV + 'model.layers="conv:4 linear:4"', CONV + 'model.layers="flatten linear:4" --stages 1'),
    (CONV + 'model.layers=', CONV + 'model.layers="flatten linear:4" --stages 1'),
    (CONV + 'model.layers="conv:4x9,pad=0 relu flatten linear:4"',
     CONV + 'model.layers="conv:4x3,pad=0 relu flatten linear:4"'),
    ('explain gpt.ini --set data.train_file=latin.txt',
     'explain gpt.ini --set data.train_file=latin.txt --set data.tokens=bytes'),
    ('explain gpt.ini --set data.dataset=tokens --set ' 'data.test_file=text.txt',
     'explain gpt.ini --set data.dataset=text --set data.test_file=text.txt'),
    ('download cifar10 --from cifar', None),
    # shapes, lists, ranges
    ('explain net.ini --set run.prometheus=x.prom', 'explain net.ini'),
    ('tune net.ini --check 1 --hosts localhost:2', 'tune net.ini'),
    ('estimate net.ini --machine laptop --memory 1k', 'estimate net.ini --machine laptop --memory 5k'),
    ('plan --schedule t.csv', 'plan --csv t.csv'),
    ('plan --schedule file:t.csv --stages 2', 'plan net.ini --set pipeline.schedule=file:t.csv --microbatches 2'),
    ('estimate net.ini --machine bad-machine.ini', 'estimate net.ini --machine good-machine.ini'),
    (N + 'train.epochs=-1', N + 'train.epochs=1'),
    (N + 'run.hang_timeout=1000000h', N + 'run.hang_timeout=604800s'),
    (N + 'run.memory=1e30', N + 'run.memory=1000000000000000'),
    (N + 'train.lr=1001', N + 'train.lr=1000'),
    (N + 'pipeline.assignment=flop', N + 'pipeline.assignment=flops'),
    (N + 'train.lr=0,1', N + 'train.lr=0.1'),
    (N + 'train.lr=1e-46', N + 'train.lr=1.18e-38'),
    (N + "run.dir='a ;b'", N + "run.dir='a b'"),
    (N + 'pipeline.schedule=file:', N + 'pipeline.schedule=file:t.csv --microbatches 2'),
    (N + 'train.lr=', N + 'train.lr=0.5'),
    (ini('[train]\nlearning_rate = 1'), ini('[train]\nlr = 1')),
    (N + 'pipeline.assignment="0-1 | 2-3" --schedule interleaved',
     N + 'pipeline.assignment="0 | 1 | 2 | 3" --schedule interleaved'),
    (MANY + 'train.zero=1 --replicas 1024', MANY + 'train.zero=1 --replicas 8'),
    (MANY + 'train.zero=1 --replicas 1024', MANY + 'train.zero=0 --replicas 1024'),
    (N + 'run.transport=nccl --backend cpu', N + 'run.transport=auto --backend cpu'),
    (G + 'model.logits_rows=16 --stages 2 --schedule looped-bfs',
     G + 'model.logits_rows=0 --stages 2 --schedule looped-bfs'),
    (STEPS + 'train.lr_gamma=1e-20', STEPS + 'train.lr_gamma=0.1'),
    (WIDE + '--stages 2', WIDE + '--stages 1'),
    ('plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 1,1000000000000',
     'plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 1,1000000000000 --format svg'),
    ('plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 1,1000000000000',
     'plan --schedule gpipe --stages 2 --microbatches 2 --cost-f 1,1000000000000 --format json'),
    # models
    ('explain drops.ini', 'explain drops.ini --set model.dropout=0.1'),
    ('explain labels.ini --set data.dataset=tokens --set model.vocab_size=9',
     'explain labels.ini --set data.tokens=bytes'),
    (G + 'data.dataset=synthetic-tokens --set data.train_file=',
     G + 'data.dataset=synthetic-tokens --set data.train_file= --set model.vocab_size=50257'),
    ('explain norm.ini --set data.shape=model', 'explain norm.ini --set data.shape=1x1x3'),
    ('explain norm.ini --set data.train_samples=33', 'explain norm.ini --set data.train_samples=33 --set data.drop_last=on'),
    ('explain norm.ini --batch-size 4', 'explain norm.ini --batch-size 4 --set pipeline.microbatches=2'),
    ('explain norm.ini --batch-size 1 --microbatches 1', 'explain norm.ini --batch-size 2 --microbatches 1'),
    # data
    (G + 'data.shape=12', G + "data.shape=model"),
    (N + 'data.train_file=text.txt', N + 'data.train_file='),
    (G + 'data.train_images=x.npy', G + 'data.train_images='),
    ('train zeros.ini -q', 'train zeros.ini -q --set data.label=first'),
    ('train tens.ini -q', 'train tens.ini -q --set data.label=first --set model.sizes="120 9 3"'),
    ('train gpt.ini -q --set data.train_file=same.txt --set ' 'data.tokens=bytes --set data.ignored_token=97',
     'train gpt.ini -q --set data.train_file=same.txt --set ' 'data.tokens=bytes --set data.ignored_token=-1'),
    ('train gpt.ini -q --set data.test_file=same.txt --set ' 'data.tokens=bytes --set data.ignored_token=97',
     'train gpt.ini -q --set data.test_file=same.txt --set ' 'data.tokens=bytes --set data.ignored_token=-1'),
    ('train words.ini -q', 'train words.ini -q --set ' 'data.train_images=words.npy --set data.test_images=words.npy'),
    ('train pictures.ini -q', 'train pictures.ini -q --set data.layout=channels_first'),
    ('train pictures.ini -q', 'train pictures.ini -q --set data.layout=channels_last'),
    ('train labels.ini -q', 'train labels.ini -q --set data.tokens=bytes'),
    (ABSENT + 'data.train_samples=0 --set data.test_samples=0',
     ABSENT + 'data.train_samples=64 --set data.test_samples=32'),
    ('plan labels.ini --set data.train_file=none --set ' 'data.test_file=none --set data.train_samples=0 --set data.test_samples=0',
     'plan labels.ini --set data.train_file=none --set data.test_file=none --set model.vocab_size=99 --set ' 'model.classes=2'),
    ('estimate gpt.ini --machine laptop --set data.train_file=none',
     'estimate gpt.ini --machine laptop --set data.train_file=none --set model.vocab_size=99'),
    ('explain net18.ini', 'explain net18.ini --set model.classes=3 ' '--set data.shape=32x32x3'),
    (TOKENS + FOUR, TOKENS + FOUR + ' --set data.token_bytes=4'),
    (TOKENS + TWO + ' --set data.token_bytes=1', TOKENS + TWO + ' --set data.token_bytes=2'),
    (TOKENS + TWO + ' --set model.vocab_size=70000',
     TOKENS + FOUR + ' --set model.vocab_size=70000 --set data.token_bytes=4'),
    # tables of schedules
    ('plan --csv stuck.csv --format csv-comms', 'plan --csv unstuck.csv --format csv-comms'),
    ('plan --csv pair-old.csv', 'plan --csv pair.csv'),
    ('plan --csv idle.csv', 'plan --csv no-idle.csv'),
    ('plan --csv two-orders.csv', 'plan --csv one-order.csv'),
    # numbers that are not finite
    ('train gpt.ini -q --set train.init=damaged.safetensors',
     'train gpt.ini -q --set train.init=g-hf/model.safetensors'),
    (LARGE + '1000', LARGE + '1e-12'),
    (LARGE + '0.1 --optimizer adam --set data.std=1e-20', LARGE + '0.1 --optimizer adam --set data.std=3e11'),
]

# The same, where a run may use two cores or more.
ON_CORES = [
    ('train net.ini --stages 1 --set run.threads=1', 'train net.ini --stages 1 --set run.threads=auto'),
]
