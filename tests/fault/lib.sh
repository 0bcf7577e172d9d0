# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# For tests with failpoints: the words of tests/cli/lib.sh, and runs that go wrong side by side. A
# run that hangs takes no time of a core, so many can wait for their watchdog together.
#
#   hang NAME RANKS SITE@RANK:COUNT=ACTION WORD...   starts a run in the background
#   hung NAME                                        waits for it: code, out, err as after `run`
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"

config "$folder/net.ini" data.dataset=synthetic data.train_samples=300 data.test_samples=50 \
    'model.sizes=20 16*3 5' pipeline.microbatches=4 train.epochs=1000000 train.batch_size=32 train.coalesce=1 \
    train.clip_norm=1
net=$folder/net.ini

hang() {
    of=$1
    stages=$2
    fail=$3
    shift 3
    (
        code=0
        PPCLI_FAIL=$fail timeout -k 1 100 "$PPCLI" train "$net" -q --stages "$stages" \
            --dir "$folder/$of" "$@" >"$folder/$of.out" 2>"$folder/$of.err" </dev/null || code=$?
        echo "$code" >"$folder/$of.code"
    ) &
}

hung() {
    last="PPCLI_FAIL ... $1"
    tries=0
    while [ ! -s "$folder/$1.code" ] && [ $tries -lt 2200 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    code=$(cat "$folder/$1.code" 2>/dev/null || echo 999)
    mv "$folder/$1.out" "$folder/out"
    mv "$folder/$1.err" "$folder/err"
}
