#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The clock on the wall is wrong, or jumps during a run (libfaketime): no duration, rate, order or
# weight follows it.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

library=
for place in /usr/lib/*/faketime /usr/lib/faketime /usr/lib64/faketime /usr/local/lib/faketime; do
    [ ! -e "$place/libfaketimeMT.so.1" ] || library=$place/libfaketimeMT.so.1
done
now=$folder/now

# at TIME WORD...: run, with the clock at TIME ("-1d", "@1970-01-02 00:00:00", FILE: what $now says)
at() {
    when=$1
    shift
    code=0
    last="at $when: ppcli $*"
    if [ "$when" = FILE ]; then
        set -- FAKETIME_TIMESTAMP_FILE="$now" FAKETIME_NO_CACHE=1 "$PPCLI" "$@"
    else
        set -- FAKETIME="$when" "$PPCLI" "$@"
    fi
    env LD_PRELOAD="$library" FAKETIME_DONT_FAKE_MONOTONIC=1 "$@" >"$folder/out" 2>"$folder/err" \
        </dev/null || code=$?
}

if [ -z "$library" ]; then
    echo "1..0 # SKIP no libfaketime here (Debian: libfaketime)"
    exit 0
fi
at -1d version
if [ "$code" -ne 0 ]; then
    echo "1..0 # SKIP ppcli does not start with libfaketime here (a sanitizer)"
    exit 0
fi

net=$folder/net.ini
config "$net" data.dataset=synthetic data.train_samples=640 data.test_samples=16 \
    'model.sizes=12 8*3 5' pipeline.stages=2 pipeline.microbatches=2 train.epochs=40 \
    train.batch_size=32 run.log_every=10

# no_negative DIR: every number that is a time, a rate or a share is at least 0
no_negative() {
    said=$(python3 - "$1" <<'EOF2'
import json, os, sys
names = ('seconds', 'samples_per_second', 'sps', 'bubble', 'busy', 'dur', 'ts', 'elapsed', 'step_ms')
found = 0
def look(where, x, key=''):
    global found
    if isinstance(x, dict):
        for k, v in x.items():
            look(where, v, k)
    elif isinstance(x, list):
        for v in x:
            look(where, v, key)
    elif isinstance(x, (int, float)) and any(n in key for n in names):
        found += 1
        if x < 0:
            print('%s: %s = %r' % (where, key, x))
for name in ('metrics.jsonl', 'summary.json', 'timeline.json'):
    with open(os.path.join(sys.argv[1], name), encoding='utf-8') as f:
        texts = f if name.endswith('l') else [f.read()]
        for i, text in enumerate(texts):
            look('%s:%d' % (name, i + 1), json.loads(text))
if found < 100:
    print('only %d numbers found' % found)
EOF2
    ) || complain "$last: python3: $said"
    [ -z "$said" ] || complain "$last: $said"
}
hash_of() { sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }

run train "$net" -q --dir "$folder/ref"
ref=$(hash_of "$folder/ref")

begin "a clock that is days or decades off changes nothing"
for when in -1d +1d '@1970-01-01 00:00:05' '@2038-01-19 03:14:05' '@2099-12-31 23:59:58'; do
    ok at "$when" train "$net" -q --dir "$folder/off" --overwrite
    same "$(hash_of "$folder/off")" "$ref"
    no_negative "$folder/off"
    ok at "$when" report "$folder/off" -o "$folder/page.html"
    ok at "$when" diagnose "$folder/off"
done

begin "a clock that jumps a day forth and back during a run: the same weights, no negative time"
echo +0 >"$now"
(
    while [ ! -e "$folder/enough" ]; do
        echo +1d >"$now"
        sleep 0.02
        echo -1d >"$now"
        sleep 0.02
    done
) &
jumps=$!
for k in 1 2 3; do
    ok at FILE train "$net" -q --dir "$folder/jump$k" --set run.hang_timeout=5s
    same "$(hash_of "$folder/jump$k")" "$ref"
    no_negative "$folder/jump$k"
    err_lacks 'hang'
done

begin "what a run was interrupted in a day ahead goes on a day before"
ok at +1d train "$net" -q --dir "$folder/half" --set checkpoint.every=100 --max-steps 300
ok at FILE train "$net" -q --dir "$folder/half" --resume
same "$(hash_of "$folder/half")" "$ref"
no_negative "$folder/half"

begin "bench measures with a clock that does not jump"
ok at FILE bench "$net" --repeat 2 --warmup 1 --time 0.05 --no-ceilings --format json
out_lacks '"samples_per_second": -' '"step_seconds_p50": -'
touch "$folder/enough"
wait $jumps

finish
