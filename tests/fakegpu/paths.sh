#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Messages between emulated devices: which way they take, what is loaded first, and what is refused. The bits: tests/bits.
#   paths.sh PPCLI SOURCE [MPIRUN-TEST]
set -u
ppcli=$1 source=$2 mpirun=${3:-}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
n=0 failed=0

# A short run; the rest are options of ppcli train. Its digest in $sha, its exit code in $code.
train() {
    # shellcheck disable=SC2086 # the launcher is several words or none
    $launcher "$ppcli" train "$source/configs/mnist-sample.ini" --backend cuda --dir '' \
        --set train.max_steps=5 --set checkpoint.at_end=off --set data.test_samples=100 \
        --set train.clip_norm=1 "$@" >"$out" 2>&1
    code=$?
    sha=$(sed -n 's/^weights_sha256 *//p' "$out")
}

report() { # ok? WHAT
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        failed=$((failed + 1))
        echo "not ok $n - $2"
        sed 's/^/# /' "$out"
        { echo "$2" && cat "$out"; } >&2 # meson shows no comments of TAP
    fi
}

same() { # WHAT OPTIONS...: as the run before that set $one
    what=$1
    shift
    train "$@"
    [ "$code" = 0 ] && [ -n "$sha" ] && [ "$sha" = "$one" ]
    report $? "$what"
}

launcher=
PPCLI_FAKE_GPUS=4
export PPCLI_FAKE_GPUS
deep='model.sizes=784 32*7 10'
train --stages 4 --transport nccl --set run.graphs=on --set "$deep"
[ "$code" = 0 ] && grep -q 'graphs on' "$out"
report $? "nccl, 4 stages: steps are recorded"

# Every way to start loads all kernels before the first call of CUDA: a kernel that is loaded at its
# first launch may wait for a receive.
calls=$(mktemp)
PPCLI_FAKE_CALLS=$calls
export PPCLI_FAKE_CALLS
loaded() { # WHAT: nothing was loaded late in the run before
    if [ "$code" = 0 ] && grep -q '^queues 32' "$calls" && ! grep -q '^load ' "$calls"; then ok=0; else ok=1; fi
    : >"$calls"
    report $ok "all kernels are loaded first: $1"
}
export PPCLI_FAKE_PEERS=0
# Devices that do not reach each other: host memory where NCCL is old, or devices are shared.
train --stages 1 --set "$deep"
one=$sha
PPCLI_FAKE_NCCL=21704
export PPCLI_FAKE_NCCL
same "no peer access, an old NCCL" --stages 3 --set "$deep"
grep -q 'transport staged: messages go through host memory: ' "$out"
report $? "uses host memory"
unset PPCLI_FAKE_NCCL
same "no peer access, 6 ranks on 4 devices" --stages 6 --schedule zb-h1 --set "$deep"
grep -q 'transport staged' "$out"
report $? "uses host memory too"
train --stages 2
grep -q 'transport nccl' "$out" || code=1
loaded "train, devices that do not reach each other"
unset PPCLI_FAKE_PEERS
train --stages 2 --transport nccl
loaded "train --transport nccl"
train --stages 2 --transport nccl --schedule auto
loaded "train --schedule auto"
"$ppcli" bench "$source/configs/mnist-sample.ini" --backend cuda --stages 2 --transport nccl --repeat 1 --time 0.1 --no-ceilings \
    --set data.test_samples=100 >"$out" 2>&1
code=$?
loaded "bench"
if [ -n "$mpirun" ]; then
    launcher="$mpirun 2"
    train --stages 2 --transport mpi
    launcher=
    loaded "mpirun"
fi
unset PPCLI_FAKE_CALLS
rm -f "$calls"
half='run.precision=bf16'
train --stages 1 --set "$deep" --set $half
in_bf16=$sha one=$sha

for version in 21800 21704; do
    PPCLI_FAKE_NCCL=$version
    export PPCLI_FAKE_NCCL
    train --stages 2 --transport nccl
    [ $version = 21800 ] || { [ "$code" = 69 ] && grep -q 'is NCCL 2.17.4, and ppcli needs 2.18' "$out" && code=0; }
    report "$code" "NCCL $version is taken from 2.18 on"
done
unset PPCLI_FAKE_NCCL
# Memory that NCCL takes counts: half a GiB a rank.
PPCLI_FAKE_MEMORY=600000000
export PPCLI_FAKE_MEMORY
same "threads, 600 MB a device" --stages 2 --set "$deep" --set $half
train --stages 2 --transport nccl --set "$deep" --set $half
[ "$code" = 69 ] && grep -q 'need 0.6[0-9] GiB of its memory, but 0.56 of 0.56 GiB are free' "$out"
report $? "NCCL needs more"
unset PPCLI_FAKE_MEMORY
# A driver of CUDA 12.0 (525 and later) is enough for a build with CUDA 12, without parts.
PPCLI_FAKE_DRIVER=12000
export PPCLI_FAKE_DRIVER
train --stages 2 --set "$deep" --set $half
case $(sed -n 's/.*driver is for CUDA 12.0, this build needs \([0-9]*\).*/\1/p' "$out") in
'') [ "$sha" = "$one" ] && train --stages 2 --set run.devices=0 --set run.partition_sms=on &&
    grep -q 'has no green contexts' "$out" ;;
*) [ "$code" = 69 ] ;;
esac
report $? "a driver of CUDA 12"
unset PPCLI_FAKE_DRIVER

PPCLI_FAKE_FAIL=ncclMessage:30:6
export PPCLI_FAKE_FAIL
train --stages 2 --transport nccl --set run.graphs=on
[ "$code" = 76 ] && grep -q 'NCCL, rank . to .*while it moved a message' "$out"
report $? "a message of a recorded step that is lost ends the run"
PPCLI_FAKE_FAIL=launch:120:220
train --stages 2 --transport nccl
[ "$code" = 76 ] && grep -q 'a link between devices failed' "$out"
report $? "a lost link between devices is a lost rank"
unset PPCLI_FAKE_FAIL

# Helper threads of CUDA and NCCL inherit what a rank may use: ranks with devices are not pinned.
if [ "$(nproc)" -gt 1 ]; then
    "$ppcli" train "$source/configs/mnist-sample.ini" --backend cuda --dir '' -q --stages 2 \
        --set train.max_steps=100000 --set train.epochs=1000 >"$out" 2>&1 &
    child=$!
    allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
    tries=0 threads=0
    while [ $tries -lt 600 ] && [ "$threads" -lt 6 ] && kill -0 $child 2>/dev/null; do
        tries=$((tries + 1))
        sleep 0.1
        threads=$(find "/proc/$child/task" -maxdepth 1 | wc -l)
    done
    sleep 0.5
    lists=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/$child/task/*/status 2>/dev/null | sort -u)
    kill -9 $child
    wait $child 2>/dev/null
    [ "$lists" = "$allowed" ]
    report $? "no thread of ranks with devices is pinned ($threads threads on $lists)"
fi

PPCLI_FAKE_GPUS=1
train --stages 2 --transport nccl
[ "$code" = 69 ] && grep -q 'ranks 0 and 1 share device' "$out"
report $? "nccl refuses ranks that share a device"

if [ -n "$mpirun" ]; then
    train --stages 1 --set "$deep"
    one=$sha
    launcher="$mpirun 1"
    same "one rank under mpirun" --stages 1 --set "$deep"
    grep -q 'graphs on' "$out"
    report $? "whose steps are recorded, as by hand"
    launcher="$mpirun 2"
    PPCLI_FAKE_GPUS=2
    train --stages 2 --transport nccl --set run.network=nowhere
    [ "$code" = 78 ] && grep -q 'run.network: .* has no interface nowhere' "$out"
    report $? "NCCL between processes: run.network names an interface that is there"
    train --stages 2 --transport nccl --set run.network=127.0.0.0/8 # the emulation is of one process
    grep -q 'has not come over =lo' "$out"
    report $? "and is the one that NCCL uses"
    PPCLI_FAKE_GPUS=1
    same "mpi, 2 processes that share a device" --stages 2 --set "$deep"
    grep -q 'messages go through host memory' "$out"
    report $? "which says that messages go through host memory"
    one=$in_bf16
    same "bf16: mpi, 2 processes" --stages 2 --set "$deep" --set $half
fi
echo "1..$n"
[ "$failed" = 0 ]
