#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that were started differently, processes that cannot talk to each other, and machines that
# mpirun cannot start on: one line, the right code, and nothing is trained: alike.sh PPCLI
# shellcheck disable=SC2016 # for other shells to expand
PPCLI=$(realpath "$1")
export PPCLI
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
cd "$folder" || exit 1
command -v mpirun >/dev/null 2>&1 || { echo "1..0 # SKIP no mpirun here (install openmpi-bin)"; exit 0; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_odls_base_sigkill_timeout=0 # else mpirun waits a second for ranks that have ended

config net.ini data.dataset=synthetic data.train_samples=64 data.test_samples=16 \
    'model.sizes=12 8*3 5' pipeline.stages=2 train.batch_size=32 train.max_steps=2 train.optimizer=adam
# apart "WORD..." "WORD...": two ranks with these words
apart() {
    code=0
    last="ranks '$1' and '$2'"
    # shellcheck disable=SC2086 # words
    timeout 60 mpirun --oversubscribe -np 1 "$PPCLI" $1 : -np 1 "$PPCLI" $2 >out 2>err </dev/null || code=$?
}
refused() { # refused WORD OTHER: ours is refused for what OTHER names
    apart "train net.ini -q --dir run" "train net.ini -q --dir run $1"
    code_is 78
    same "$(grep -c '^ppcli: error' err)" 1
    err_has "ppcli: error: rank 1: $2"
    [ ! -e run/summary.json ] || complain "$1: it trained"
    rm -rf run
}

begin "keys of which ranks have different values"
refused '--seed 2' "train.seed is '2' here, but '1' on rank 0"
refused '--microbatches 2' "pipeline.microbatches is '2' here"
refused '--batch-size 16' "train.batch_size is '16' here"
refused '--schedule gpipe' "pipeline.schedule is 'gpipe' here"
refused '--stages 1' "pipeline.stages is '1' here"
refused '--set pipeline.recompute=all' "pipeline.recompute is 'all' here"
refused '--max-steps 1' "train.max_steps is '1' here"
refused '--set train.beta2=0.9' "train.beta2 is '0.9' here"
refused '--set run.hang_timeout=30' "run.hang_timeout is '30s' here"
refused '--set run.gemm=cblas' "run.gemm is 'cblas' here"

begin "other options, other commands, a mistake of one rank"
refused '--resume' "--resume is 'auto' here"
refused '--set train.lr=x' "--set: error: train.lr: 'x'"
apart "train net.ini -q --dir run" "eval net.ini --checkpoint run"
code_is 78
err_has "command is 'eval' here, but 'train' on rank 0"

begin "data with another content"
mkdir one two
awk 'BEGIN { for (i = 0; i < 40; i++) printf "%d,%d,%d\n", i % 7, i % 5, i % 3 }' >one/t.csv
awk 'BEGIN { for (i = 0; i < 40; i++) printf "%d,%d,%d\n", i % 7, i % 4, i % 3 }' >two/t.csv
cp one/t.csv same.csv
config csv.ini data.dataset=csv 'model.sizes=2 8 3' pipeline.stages=2 train.batch_size=8 train.max_steps=2
files() { echo "train csv.ini -q --dir run --overwrite --set data.train_file=$1 --set data.test_file=$1"; }
apart "$(files one/t.csv)" "$(files two/t.csv)"
code_is 78
err_has "rank 1: training data is 'sha256 "
apart "$(files one/t.csv)" "$(files same.csv)"
code_is 0

begin "what concerns one rank may differ"
apart "train net.ini -q --dir own" "train net.ini -v --dir own"
code_is 0

begin "processes that cannot talk to each other"
run train net.ini -q --dir ''
code_is 0
code=0
last='mpirun --launch threads'
timeout 60 mpirun --oversubscribe -np 2 "$PPCLI" train net.ini -q --dir '' --launch threads >out 2>err </dev/null || code=$?
code_is 78
same "$(grep -c '^ppcli: error' err)" 1
err_has 'run.launch = threads, but mpirun started 2 processes'
for command in 'train net.ini' 'eval net.ini --checkpoint run'; do
    code=0
    last="srun --mpi=none $command"
    # shellcheck disable=SC2086 # words
    env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$PPCLI" $command >out 2>err </dev/null || code=$?
    code_is 78
    err_has 'use srun --mpi=pmix'
done
for words in 'SLURM_PROCID=0' 'SLURM_PROCID=0 PMI_RANK=0 PMI_SIZE=2'; do
    for command in 'train net.ini --launch mpirun' 'train net.ini' 'eval net.ini --checkpoint run' \
        'bench net.ini --handover' 'tune net.ini'; do
        [ "$words $command" != 'SLURM_PROCID=0 PMI_RANK=0 PMI_SIZE=2 train net.ini --launch mpirun' ] || continue
        code=0
        last="srun ($words) $command"
        # shellcheck disable=SC2086 # words
        timeout 60 env SLURM_STEP_NUM_TASKS=2 $words "$PPCLI" $command >out 2>err </dev/null || code=$?
        code_is 78
        same "$(wc -l <err)" 1
        err_has 'use srun --mpi=pmix'
    done
done
code=0
last="srun --mpi=none, the other process"
timeout 60 env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "$PPCLI" train net.ini >out 2>err </dev/null || code=$?
code_is 78
same "$(cat err)" ''

begin "one process of Slurm's, and leftovers of its variables, are threads"
for launch in auto threads mpirun; do
    code=0
    last="srun -n1 --launch $launch"
    env SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 PMIX_RANK=0 "$PPCLI" train net.ini -q --dir '' --launch $launch \
        >out 2>err </dev/null || code=$?
    code_is 0
    out_has 'weights_sha256'
done

begin "what mpirun needs of the machine"
lacks() { # lacks TEXT COMMAND: 69 and the cause, in a mount namespace where COMMAND was done
    last="mpirun after $2"
    code=0
    unshare -m sh -c "$2"' && exec "$PPCLI" train net.ini -q --dir "" --launch mpirun' >out 2>err </dev/null || code=$?
    code_is 69
    same "$(grep -c '^ppcli: error' err)" 1
    err_has "$1"
    err_has 'use --launch threads'
}
if [ "$(id -u)" -eq 0 ] && unshare -m sh -c 'mount -t tmpfs t /dev/shm' 2>/dev/null; then
    lacks 'but 4.0 MiB are free' 'mount -t tmpfs -o size=4m t /dev/shm'
    lacks 'can be created' 'mount -t tmpfs -o nr_inodes=2 t /dev/shm'
    lacks 'Read-only' 'mkdir -p ro && mount -t tmpfs -o ro t ro && export TMPDIR=$PWD/ro'
    lacks 'its session folder' 'mkdir -p no && mount -t tmpfs -o size=4k t no && head -c 4096 /dev/zero >no/x; export TMPDIR=$PWD/no'
else
    skip 'no mount namespaces here'
fi

finish
