# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# For tests with failpoints: the words of tests/cli/lib.sh, and runs that go wrong side by side. A
# run that hangs takes no time of a core, so many can wait for their watchdog together.
#
#   hang NAME RANKS SITE@RANK:COUNT=ACTION WORD...   starts a run in the background
#   hung NAME                                        waits for it: code, out, err as after `run`
#   machine_is_slow                                  sets slow, for:
#   scaled X, limit SECONDS                          X and run.hang_timeout, longer on a slow machine
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"

config "$folder/net.ini" data.dataset=synthetic data.train_samples=300 data.test_samples=50 \
    'model.sizes=20 16*3 5' pipeline.microbatches=4 train.epochs=1000000 train.batch_size=32 train.coalesce=1 \
    train.clip_norm=1
net=$folder/net.ini

# How many times as slow as a machine where limits of 0.2 s do: by eight runs at once, at most 8.
machine_is_slow() {
    begun_=$(date +%s%N)
    for n_ in 1 2 3 4 5 6 7 8; do
        hang "slow$n_" 2 '' --epochs 5 --set run.hang_timeout=0
    done
    for n_ in 1 2 3 4 5 6 7 8; do
        hung "slow$n_"
    done
    slow=$(awk -v ns=$(($(date +%s%N) - begun_)) 'BEGIN { s = ns / 1e9; print (s < 1 ? 1 : (s > 8 ? 8 : s)) }')
}
scaled() { awk -v x="$1" -v s="$slow" 'BEGIN { print x * s }'; }
limit() { echo "run.hang_timeout=$(scaled "$1")"; }

hang() {
    of=$1
    stages=$2
    fail=$3
    shift 3
    (
        code=0
        PPCLI_FAIL=$fail timeout -k 1 300 "$PPCLI" train "$net" -q --stages "$stages" \
            --dir "$folder/$of" "$@" >"$folder/$of.out" 2>"$folder/$of.err" </dev/null || code=$?
        echo "$code" >"$folder/$of.code"
    ) &
}

hung() {
    last="PPCLI_FAIL ... $1"
    tries=0
    while [ ! -s "$folder/$1.code" ] && [ $tries -lt 6400 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    code=$(cat "$folder/$1.code" 2>/dev/null || echo 999)
    mv "$folder/$1.out" "$folder/out"
    mv "$folder/$1.err" "$folder/err"
}
