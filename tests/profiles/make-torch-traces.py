#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The traces in torch/: PyTorch's profiler over torch.distributed.pipelining, on gloo. By hand, with torch 2.15:

    make-torch-traces.py RANKS gpipe|1f1b|int|bfs|zb|zbv|dualpipev MICROBATCHES FOLDER WIDTH ROWS [first] [spans]
    make-torch-traces.py slim FOLDER

first: the profile holds the first step, in which stages exchange shapes. spans: the profiler is told of every step
and has a schedule, which makes spans such as ProfilerStep#2. Without both, two steps are run before the two that are recorded.
slim: leaves out the operators of marked actions, for a smaller repository.
"""
import glob
import gzip
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import (ScheduleDualPipeV, ScheduleInterleavedZeroBubble,
                                                    ScheduleLoopedBFS, ScheduleZBVZeroBubble)
from torch.profiler import ProfilerActivity, profile

SCHEDULES = {'gpipe': ScheduleGPipe, '1f1b': Schedule1F1B, 'int': ScheduleInterleaved1F1B,
             'bfs': ScheduleLoopedBFS, 'zb': ScheduleInterleavedZeroBubble, 'zbv': ScheduleZBVZeroBubble,
             'dualpipev': ScheduleDualPipeV}


def work(rank, ranks, kind, microbatches, folder, width, rows, words):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(29500 + os.getppid() % 1000))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group('gloo', rank=rank, world_size=ranks)
    single = kind in ('gpipe', '1f1b')
    is_v = kind in ('zbv', 'dualpipev')
    held = [rank] if single else [rank, 2 * ranks - 1 - rank if is_v else rank + ranks]
    count = ranks if single else 2 * ranks
    stages = [PipelineStage(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()), s, count,
                            torch.device('cpu')) for s in held]
    schedule = SCHEDULES[kind](stages[0] if single else stages, microbatches, loss_fn=torch.nn.MSELoss())
    x, y = torch.randn(microbatches * rows, width), torch.randn(microbatches * rows, width)

    def step():
        dist.barrier()
        last = {'target': y, 'losses': []} if count - 1 in held else {}
        schedule.step(*([x] if 0 in held else []), **last)

    first, spans = 'first' in words, 'spans' in words
    count_all = 3 if first else 2
    for _ in range(0 if first else 2):
        step()
    plan = torch.profiler.schedule(wait=0, warmup=0, active=count_all, repeat=1) if spans else None
    with profile(activities=[ProfilerActivity.CPU], schedule=plan,
                 on_trace_ready=lambda p: p.export_chrome_trace(f'{folder}/rank{rank}_trace.json.gz')) as p:
        for _ in range(count_all):
            step()
            if spans:
                p.step()
    dist.barrier()
    dist.destroy_process_group()


def slim(folder):
    kept = ('PP:', 'Forward ', 'Backward ', 'gloo:', 'c10d::', 'autograd::engine', 'ProfilerStep')
    for path in glob.glob(f'{folder}/*.json.gz'):
        with gzip.open(path, 'rt', encoding='utf-8') as f:
            trace = json.load(f)
        trace['traceEvents'] = [{k: e[k] for k in ('ph', 'cat', 'name', 'pid', 'tid', 'ts', 'dur')}
                                for e in trace['traceEvents'] if e['ph'] == 'X' and e['name'].startswith(kept)]
        with gzip.open(path, 'wt', encoding='utf-8') as f:
            json.dump(trace, f)


if __name__ == '__main__':
    if sys.argv[1] == 'slim':
        slim(sys.argv[2])
        sys.exit()
    count, name, mbs, out, wide, batch, *others = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    mp.spawn(work, (int(count), name, int(mbs), out, int(wide), int(batch), others), nprocs=int(count))
