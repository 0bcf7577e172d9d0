#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Kill a run at N random instants (200) with SIGKILL, go on from its last checkpoint each time with
# another number of stages, and compare the weights with those of a run that nobody killed:
#
#   scripts/kill-test.sh [PPCLI [N]]
set -u
ppcli=$(realpath "${1:-build/ppcli}")
n=${2:-200}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cat >net.ini <<'INI'
[data]
dataset = synthetic
train_samples = 2000
test_samples = 100
[model]
sizes = 40 64*5 10
[pipeline]
schedule = 1f1b
[train]
batch_size = 32
epochs = 20
clip_norm = 1
[checkpoint]
every = 25
INI
sha() { sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' "$1"; }

"$ppcli" train net.ini --dir whole -q >out 2>&1 || { cat out; exit 1; }
kills=0
rounds=0
while [ "$kills" -lt "$n" ]; do
    rounds=$((rounds + 1))
    rm -rf run
    # One run, killed until it is complete.
    while [ ! -e run/summary.json ]; do
        stages=$(awk -v s="$kills$rounds$$" 'BEGIN { srand(s); print 1 + int(rand() * 4) }')
        "$ppcli" train net.ini --dir run --resume --stages "$stages" -q >out 2>&1 &
        pid=$!
        if [ "$kills" -lt "$n" ]; then
            sleep "$(awk -v s="$pid$kills" 'BEGIN { srand(s); print rand() * 0.8 }')"
            kill -9 "$pid" 2>/dev/null && kills=$((kills + 1))
        fi
        code=0
        wait "$pid" 2>/dev/null || code=$?
        case $code in 0 | 137) ;; *) cat out; exit 1 ;; esac
    done
    if [ "$(sha run/summary.json)" != "$(sha whole/summary.json)" ]; then
        echo "after $kills kills: other weights than the run that nobody killed"
        exit 1
    fi
done
echo "$kills kills in $rounds runs: the same weights"
