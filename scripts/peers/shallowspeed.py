#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer that ppcli's C1 is named after: shallowspeed, pipelines in NumPy and mpi4py.

  shallowspeed.py --repo DIR                             all its ways: 1 rank, 2 ranks naive and gpipe,
                                                         each with 1 and 2 BLAS threads
  shallowspeed.py --repo DIR --ranks 2 --schedule gpipe --threads 1

DIR is a checkout of github.com/siboehm/shallowspeed. Its own model, worker, schedules and optimizer
do the work, driven as its train.py does; only the reading of files and the accuracy between epochs
are left out, so that a sample costs what training it costs. Its loss is the mean squared error."""

import contextlib
import io
import os
import shutil
import subprocess
import sys

import common

SIZES = "784-128-127-126-125-124-123-10"


def parse():
    parser = common.options(__doc__.splitlines()[0])
    parser.set_defaults(sizes=common.sizes_of(SIZES), batch=128, microbatches=4, lr=0.006)
    parser.add_argument("--repo", default=os.environ.get("SHALLOWSPEED_DIR"), metavar="DIR",
                        help="checkout of shallowspeed ($SHALLOWSPEED_DIR)")
    parser.add_argument("--ranks", type=common.positive, help="only with so many")
    parser.add_argument("--schedule", choices=("naive", "gpipe"), help="only this one")
    parser.add_argument("--threads", type=common.positive, help="only with so many BLAS threads")
    parser.add_argument("--worker", action="store_true", help=common.argparse.SUPPRESS)
    args = parser.parse_args()
    common.check(parser, args)
    if not args.repo:
        common.skip("no checkout of shallowspeed (--repo DIR or SHALLOWSPEED_DIR)")
    if not os.path.exists(os.path.join(args.repo, "shallowspeed", "pipe.py")):
        common.skip("no shallowspeed/pipe.py in " + args.repo)
    # Its package needs pandas to be imported, for a data set that is not read here.
    common.need("numpy", "mpi4py", "pandas")
    return args


def launcher(ranks):
    """The words that start a job; one rank needs none."""
    if ranks == 1:
        return []
    if not shutil.which("mpirun"):
        common.skip("no mpirun")
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if "Open MPI" in version:
        return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
    return ["mpirun", "-np", str(ranks)]


def run_all(args):
    ways = [(1, "naive"), (2, "naive"), (2, "gpipe")]
    if args.ranks and args.ranks > 2:
        ways = [(args.ranks, "naive"), (args.ranks, "gpipe")]
    ways = [(r, s) for r, s in ways if args.ranks in (None, r)
            and (r == 1 or args.schedule in (None, s))]
    # As root and in containers, as scripts/mpirun-test.sh has it; whoever set one knows better.
    environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader",
                   "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    environment.update(os.environ)
    for ranks, schedule in ways:
        for threads in (args.threads,) if args.threads else (1, 2):
            for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
                environment[name] = str(threads)
            words = launcher(ranks) + [
                sys.executable, *sys.argv, "--repo", args.repo, "--worker", "--ranks", str(ranks),
                "--schedule", schedule, "--threads", str(threads)]
            code = subprocess.run(words, env=environment).returncode
            if code:
                return code
    return 0


class Data:
    """Random images where its Dataset would have read files; the same methods."""

    def __init__(self, numpy, args):
        random = numpy.random.RandomState(args.seed)
        self.mubatch_size = args.batch // args.microbatches
        self.batch = args.batch
        self.x = random.random_sample((args.samples, args.sizes[0])).astype(numpy.float32) - 0.5
        self.y = numpy.eye(args.sizes[-1], dtype=numpy.float32)[
            random.randint(0, args.sizes[-1], args.samples)]

    def rows(self, batch, mubatch):
        start = batch * self.batch + mubatch * self.mubatch_size
        return slice(start, start + self.mubatch_size)

    def load_micro_batch_input(self, batch_id, mubatch_id):
        return self.x[self.rows(batch_id, mubatch_id)]

    def load_micro_batch_target(self, batch_id, mubatch_id):
        return self.y[self.rows(batch_id, mubatch_id)]


def work(args):
    sys.path.insert(0, args.repo)  # before this folder, where this file has the package's name
    import numpy
    from mpi4py import MPI
    from shallowspeed.layers import MLP
    from shallowspeed.optimizer import SGD
    from shallowspeed.pipe import GPipeSchedule, NaiveParallelSchedule, Worker

    world = MPI.COMM_WORLD
    if world.size != args.ranks:
        sys.exit("%d ranks expected, %d started: mpirun is not of mpi4py's MPI" %
                 (args.ranks, world.size))
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its layers
        model = MLP(args.sizes, stage_idx=world.rank, n_stages=args.ranks, batch_size=args.batch)
    model.train()
    for p in model.parameters():
        # It divides float32 by a NumPy scalar, which NumPy 2 makes float64 and NumPy 1 does not.
        p.data = p.data.astype(numpy.float32, copy=False)
    # As its train.py: one communicator for the pipeline, one (of one rank) for the replicas.
    alone = world.Split(color=world.rank)
    data = Data(numpy, args)
    worker = Worker(alone, world, model, data, SGD(model.parameters(), lr=args.lr))
    kind = {"naive": NaiveParallelSchedule, "gpipe": GPipeSchedule}[args.schedule]
    batches = args.samples // args.batch
    done = 0

    def step():
        nonlocal done
        worker.execute(kind(num_micro_batches=args.microbatches, num_stages=args.ranks,
                            stage_id=world.rank), done % batches)
        done += 1

    blocks = common.measure(step, args, world.bcast, world.Barrier)
    if world.rank == 0:
        common.report("shallowspeed", "numpy " + numpy.__version__, args, blocks, ranks=args.ranks,
                      schedule=args.schedule, threads=args.threads)


if __name__ == "__main__":
    options = parse()
    sys.exit(work(options) if options.worker else run_all(options))
