#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run as MPI processes fails as clearly as one as threads. The bits: tests/bits.
# train.sh PPCLI SOURCE_DIR
# shellcheck source=tests/mpi/lib.sh
. "$(dirname "$0")/lib.sh"

# A small network whose last batch and last micro-batch are smaller than the others.
common="--set data.dataset=synthetic --set data.train_samples=203 --set data.test_samples=57
    --batch-size 32 --epochs 2 --microbatches 5 --lr 0.01"
cat >"$work/net.ini" <<'INI'
[model]
sizes = 20 17 33 8 5
activation = tanh
[train]
optimizer = adam
clip_norm = 0.5
INI

hash_of() { sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' "$1/summary.json" 2>/dev/null; }

# shellcheck disable=SC2086 # the options are words
one() { # one RUN_DIR OPTION...: a run as threads
    dir=$1
    shift
    "$ppcli" train net.ini $common -q --dir "$dir" "$@" >"$work/out" 2>&1
}

# shellcheck disable=SC2086
many() { # many RANKS RUN_DIR OPTION...: a run as processes
    ranks=$1
    dir=$2
    shift 2
    "$launcher" "$ranks" "$ppcli" train net.ini $common -q --dir "$dir" "$@" >"$work/out" 2>&1
}

one ref || { report 1 "a run as threads" "$(cat "$work/out")"; echo "1..$n"; exit 1; }
ref=$(hash_of ref)
many 2 by-hand --stages 2 && [ "$(hash_of by-hand)" = "$ref" ]
report $? "processes that mpirun starts give the bits of one rank" "$(cat "$work/out")"

# The reports of MPI's own memory at its end say nothing about ppcli.
one launched --stages 2 --launch mpirun && [ "$(hash_of launched)" = "$ref" ]
report $? "--launch mpirun starts the processes itself" "$(cat "$work/out")"

many 3 wrong --stages 2
code=$?
[ "$code" = 78 ] && grep -q "started with 3 processes" "$work/out" && [ ! -e wrong ]
report $? "a wrong number of processes is one clear error, and nothing is written" "$(cat "$work/out")"
[ "$(grep -c 'ppcli: error' "$work/out")" = 1 ]
report $? "the error is said once, not by every process" "$(cat "$work/out")"

many 2 diverged --stages 2 --optimizer sgd --set train.clip_norm=0 --set train.lr=1000 \
    --set train.weight_decay=1 --epochs 20
code=$?
[ "$code" = 80 ]
report $? "divergence ends all processes with 80 (it was $code)" "$(cat "$work/out")"

# Two stages of one W x W layer each, Adam: at least 16 bytes a weight. 70 % of the memory each.
width=$(awk '/^MemAvailable:/ { printf "%d", sqrt($2 * 1024 * 0.7 / 16) }' /proc/meminfo 2>/dev/null)
if [ -n "$width" ]; then
    many 2 roomless --stages 2 --set "model.sizes=784 $width*3 10" --max-steps 1
    code=$?
    [ "$code" = 69 ] && grep -q 'this run of 2 processes needs ' "$work/out" &&
        [ "$(grep -c 'ppcli: error' "$work/out")" = 1 ]
    report $? "memory that does for each process but not for both is refused, once (it was $code)" \
        "$(cat "$work/out")"
fi

PATH=/nonexistent "$ppcli" train net.ini --set data.dataset=synthetic --launch mpirun --dir '' \
    >"$work/out" 2>&1
code=$?
[ "$code" = 69 ] && grep -q "cannot find mpirun" "$work/out"
report $? "without mpirun --launch mpirun says what to install" "$(cat "$work/out")"

echo "1..$n"
exit "$bad"
