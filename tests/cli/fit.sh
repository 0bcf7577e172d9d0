#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# zb-fit and zb-fit-v, orders made for costs: what is written and read, and what is refused. The bits: tests/bits.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$folder" || exit 1

config net.ini data.dataset=synthetic data.train_samples=200 data.test_samples=40 \
    'model.sizes=20 64 16 16 16 16 5' pipeline.microbatches=6 train.batch_size=48 train.epochs=1

begin "the exact ones refuse what they cannot prove"
fails 78 'at most 48 micro-batches x stages x chunks, not 12 x 6 x 1: take fewer, or zb-fit' \
    run train net.ini --stages 6 --schedule zb-exact --microbatches 12
fails 78 'pipeline.recompute' \
    run train net.ini --stages 2 --schedule zb-exact --set pipeline.recompute=all

begin "costs are printed by threes, and read back"
digest=
trains net.ini --stages 2 --schedule zb-fit --set 'pipeline.costs=4 5, 6, 7,8 9 2'
same "$(sed -n 's/^costs = \([0-9, ]*[0-9]\).*/\1/p' run/config.resolved.ini)" '4,5,6 7,8,9 2'

begin "a plan for given costs is shorter than the fixed orders"
best=
for schedule in zb-fit zb-auto zb-h1 zb-h2 1f1b gpipe; do
    ok run plan --schedule $schedule --stages 4 --microbatches 8 --memory-cap 4 --cost-f 4,1,4,9 --cost-i 2,2,4,4 \
        --cost-w 8,6,9,1 --cost-comm 1 --format json
    now=$(sed -n 's/^  "makespan": \([0-9]*\).*/\1/p' out)
    best=${best:-$now}
    [ "$schedule" = zb-fit ] || [ "$now" -gt "$best" ] || complain "$schedule takes $now, zb-fit $best"
done

begin "tune has them, and the section of a zb-fit row is its order" \
    shows '"schedule": "zb-fit' run tune net.ini --stages 2 --format json

begin "schedule = auto says costs and cap where its choice is made for them"
trains net.ini --stages 3 --schedule auto
if grep -q '^schedule = zb-fit' run/config.resolved.ini; then
    same "$(grep -A 1 '^; from chosen' run/config.resolved.ini | grep -c '^costs = [0-9]*,')" 1
else
    same "$(grep -c '^costs = none' run/config.resolved.ini)" 1
fi

begin "bad costs are one line"
for bad in "x|'x' is not a whole number; write none, or whole numbers of 1 to 1000000" \
    "1,2,0|'0' is not a whole number; write none, or whole numbers of 1 to 1000000" \
    "1,2,-3|'-3' is not a whole number" "1,2,1.5|'1.5' is not a whole number" "1,2,|nothing after the last comma" \
    "1,2,1000001|'1000001' is not a whole number" \
    "1,2,3|3 numbers; write F,I,W of 2 chunks" \
    "1,2,3 4,5|5 numbers; write" "1,2,3 4,5,6 7,8|8 numbers; write"; do
    fails 78 "${bad#*|}" \
        run train net.ini --stages 2 --schedule zb-fit --set "pipeline.costs=${bad%%|*}"
    same "$(grep -c 'pipeline.costs' err)" 1
done
fails 78 'pipeline.costs' \
    run train net.ini --stages 2 --schedule zb-fit-v --set 'pipeline.costs=1,2,3 4,5,6'
fails 78 'a memory cap of 0.5 forwards per rank is too small' \
    run train net.ini --stages 2 --schedule zb-fit --set pipeline.memory_cap=0.5

begin "costs that nothing reads are said to be idle"
ok run train net.ini --stages 2 --set 'pipeline.costs=1,2,3' --set run.dir=
err_has 'pipeline.costs has no effect with pipeline.schedule = 1f1b, only with zb-fit, zb-fit-v'

finish
