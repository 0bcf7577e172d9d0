#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer with a pipeline: torch.distributed.pipelining over gloo, one process for each stage,
started from here on this machine. Layers are cut where the flops of the parts are most even.

  torch_pipelining.py --sizes 784-512x16-10 --batch 512 --microbatches 16 --stages 2 --schedule 1f1b"""

import datetime
import inspect
import os
import signal
import subprocess
import sys
import tempfile
import time

import common

# name as in ppcli: class, chunks of the model each rank holds
SCHEDULES = {
    "gpipe": ("ScheduleGPipe", 1),
    "1f1b": ("Schedule1F1B", 1),
    "looped-bfs": ("ScheduleLoopedBFS", 2),
    "interleaved": ("ScheduleInterleaved1F1B", 2),
    "interleaved-zb": ("ScheduleInterleavedZeroBubble", 2),
    "zb-v": ("ScheduleZBVZeroBubble", 2),
    "dualpipev": ("ScheduleDualPipeV", 2),
}
V_SHAPED = ("zb-v", "dualpipev")
CONNECT = datetime.timedelta(seconds=60)


def parse():
    parser = common.options(__doc__.splitlines()[0])
    parser.add_argument("--stages", type=common.positive, default=2, help="processes (2)")
    parser.add_argument("--schedule", choices=sorted(SCHEDULES), default="1f1b")
    parser.add_argument("--threads", type=common.positive, default=1, help="of each process (1)")
    parser.add_argument("--bind", action="store_true", help="keep each process on cores of its own")
    common.optimizer_option(parser)
    parser.add_argument("--rank", type=int, help=common.argparse.SUPPRESS)
    parser.add_argument("--store", help=common.argparse.SUPPRESS)
    args = parser.parse_args()
    common.check(parser, args)
    parts = args.stages * SCHEDULES[args.schedule][1]
    if parts > len(args.sizes) - 1:
        parser.error("%d parts of %d layers" % (parts, len(args.sizes) - 1))
    return args


def start_ranks(args):
    """Start one process for each stage; when one fails, end the others."""
    common.need("torch")
    def on_signal(number, frame):
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, on_signal)
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads), GLOO_SOCKET_IFNAME="lo",
                       MKL_NUM_THREADS=str(args.threads), OPENBLAS_NUM_THREADS=str(args.threads),
                       TP_SOCKET_IFNAME="lo")
    ranks = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for r in range(args.stages):
                ranks.append(subprocess.Popen(
                    [sys.executable, *sys.argv, "--rank", str(r),
                     "--store", os.path.join(folder, "store")], env=environment))
            while True:
                codes = [p.poll() for p in ranks]
                failed = [c for c in codes if c]
                if failed or None not in codes:
                    # A rank that skips is no failure, whatever its end did to the others.
                    return common.SKIPPED if common.SKIPPED in failed else max(failed, default=0)
                time.sleep(0.02)
        finally:
            for p in ranks:
                p.kill()
                p.wait()


def cuts(sizes, parts):
    """first[i]: the first layer of part i. The largest part is as small as contiguous parts allow;
    the first layer needs no gradient of its input, so it counts 2 where others count 3."""
    work = [(2 if i == 0 else 3) * a * b for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
    n = len(work)
    # best[k][i]: (largest part, first layers) of k parts that hold layers 0 .. i-1
    best = [{0: (0, [])}] + [{} for _ in range(parts)]
    for k in range(1, parts + 1):
        for i in range(k, n - (parts - k) + 1):
            best[k][i] = min((max(best[k - 1][j][0], sum(work[j:i])), best[k - 1][j][1] + [j])
                             for j in range(k - 1, i) if j in best[k - 1])
    return best[parts][n][1]


def virtual_stages(args):
    """The parts that this rank holds, in model order."""
    chunks = SCHEDULES[args.schedule][1]
    if args.schedule in V_SHAPED:
        return [args.rank, 2 * args.stages - 1 - args.rank]
    return [args.rank + k * args.stages for k in range(chunks)]


def make_schedule(args, torch, pipelining, layers):
    kind = getattr(pipelining, SCHEDULES[args.schedule][0])
    parts = args.stages * SCHEDULES[args.schedule][1]
    first = cuts(args.sizes, parts) + [len(layers)]
    stages = [pipelining.PipelineStage(torch.nn.Sequential(*layers[first[s]:first[s + 1]]), s, parts,
                                       torch.device("cpu")) for s in virtual_stages(args)]
    if args.schedule in V_SHAPED:
        # Both stages at the turn of the V are here, and the greeting of neighbours before the first
        # step has a rank write to itself: NCCL can, gloo cannot and needs no greeting.
        for stage in stages:
            stage._get_init_p2p_neighbors_ops = list

    def loss(out, target):
        return torch.nn.functional.cross_entropy(out, target, reduction="sum") / args.batch

    more = {}
    if "scale_grads" in inspect.signature(kind.__init__).parameters:
        more["scale_grads"] = False  # the loss above is the mean already
    schedule = kind(stages if SCHEDULES[args.schedule][1] > 1 else stages[0], args.microbatches,
                    loss_fn=loss, **more)
    return schedule, stages, bool(more)


def run_rank(args):
    say = args.rank == 0
    if args.bind and args.stages * args.threads <= common.cores():
        mine = sorted(os.sched_getaffinity(0))[args.rank * args.threads:][:args.threads]
        os.sched_setaffinity(0, mine)
    try:
        import torch
        import torch.distributed as dist
        from torch.distributed import pipelining
    except ImportError as e:
        quiet_skip(say, "%s in %s (PyTorch 2.4 or later)" % (e, sys.executable))
    if not hasattr(pipelining, SCHEDULES[args.schedule][0]):
        quiet_skip(say, "no %s in PyTorch %s" % (SCHEDULES[args.schedule][0], torch.__version__))
    if not dist.is_gloo_available():
        quiet_skip(say, "PyTorch %s without gloo" % torch.__version__)
    import torch_parts

    torch_parts.prepare(args.threads)
    dist.init_process_group("gloo", init_method="file://" + args.store, rank=args.rank,
                            world_size=args.stages, timeout=CONNECT)
    layers = torch_parts.layers(args.sizes, args.seed)
    schedule, stages, scaled = make_schedule(args, torch, pipelining, layers)
    params = [p for s in stages for p in s.submod.parameters()]
    opt, variant = torch_parts.optimizer(params, args)
    data = torch_parts.Data(args)
    first = any(s.is_first for s in stages)
    last = any(s.is_last for s in stages)
    # Outputs that nobody asked for need not be put together again.
    quiet = ({"return_outputs": False}
             if "return_outputs" in inspect.signature(schedule.step).parameters else {})
    losses = []

    def step():
        rows = data.next_rows()
        opt.zero_grad(set_to_none=True)
        x = (data.inputs(rows),) if first else ()
        each = []
        schedule.step(*x, target=data.targets(rows) if last else None,
                      losses=each if last else None, **quiet)
        if not scaled:
            for p in params:
                p.grad.mul_(args.microbatches)
        opt.step()
        if len(losses) < 3:
            total = torch.tensor([float(sum(e.detach() for e in each))])
            dist.all_reduce(total)
            losses.append(float(total))

    def agree(n):
        box = torch.tensor([n])
        dist.broadcast(box, 0)
        return int(box)

    blocks = common.measure(step, args, agree, dist.barrier)
    if say:
        common.report("torch pipelining", torch.__version__, args, blocks, stages=args.stages,
                      schedule=args.schedule, threads=args.threads, bind=args.bind,
                      optimizer=args.optimizer, optimizer_variant=variant, losses=losses)
    dist.barrier()
    dist.destroy_process_group()


def quiet_skip(say, reason):
    """Every rank sees the same; one says it."""
    if say:
        common.skip(reason)
    time.sleep(1)
    sys.exit(common.SKIPPED)


if __name__ == "__main__":
    options = parse()
    sys.exit(start_ranks(options) if options.rank is None else run_rank(options))
