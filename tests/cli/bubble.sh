#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train, bench, tune, explain and the data of the report mean the same bubble: the mean idle
# share of all ranks, with parts that add up; and they say what limits a pipeline.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null 2>&1 || { echo '1..0 # SKIP no python3'; exit 77; }

config "$folder/net.ini" data.dataset=synthetic data.train_samples=640 data.test_samples=0 \
    'model.sizes=256 256 16 5' pipeline.stages=2 pipeline.microbatches=4 train.epochs=2 \
    train.batch_size=64

# The object at d[...] has a bubble between 0 and 1 and its parts, whose sum it is.
parts_add_up() { # file, path in python, key of the bubble
    same "$(python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))$2
b, parts = d['$3'], [d['bubble_' + k] for k in ('schedule', 'imbalance', 'waiting')]
print(0 < b < 1, abs(sum(parts) - b) < 1e-9, min(parts) > -1e-9)" "$1")" 'True True True'
}
text='[0-9.]* %: schedule [0-9.]* + imbalance [0-9.]* + transfers and waiting [0-9.]*; stage [01] has [0-9]* % of the work'

begin "train: the summary's bubble is that of its ranks, in parts"
ok run train "$folder/net.ini" --dir "$folder/run"
same "$(grep -c "^bubble           $text\$" "$folder/out")" 1
parts_add_up "$folder/run/summary.json" '' bubble_measured
same "$(python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))
mean = 1 - sum(r['busy'] for r in d['ranks']) / len(d['ranks'])
busy = [r['busy'] for r in d['ranks']] # on a crowded machine that of stage 1 may be longer
print(abs(mean - d['bubble_measured']) < 1e-9, busy[d['busiest_stage']] == max(busy), .5 <= d['busiest_share'] < 1)" \
    "$folder/run/summary.json")" 'True True True'

begin "bench, tune: the same figure and the same parts"
ok run bench "$folder/net.ini" --time 0.01 --repeat 2 --no-ceilings --format json
cp "$folder/out" "$folder/bench.json"
parts_add_up "$folder/bench.json" "['rows'][0]" bubble_measured
ok run tune "$folder/net.ini" --format json
cp "$folder/out" "$folder/best.json"
parts_add_up "$folder/best.json" "['candidates'][0]" bubble
run tune "$folder/net.ini" --stages 2 --replicas 1
same "$(grep -c "^bubble $text\$" "$folder/out")" 1

begin "a cut that no schedule helps is named, with the layer that is too large"
ok run explain "$folder/net.ini"
same "$(grep -c "^  $text\$" "$folder/out")" 1
out_has 'uneven stages: layer 0 alone is ' ' % of the work, so stage 1 ('

begin "a cut that could be better is named with the ranges that are" \
    shows 'uneven stages: stage 0 has 99 % of the work; assignment = 0-1 | 2-4 would leave no stage more than ' \
    run explain "$folder/net.ini" --set model.sizes='256 256*4 5' --set pipeline.assignment='0-3 | 4'

begin "bench misses its data before it measures ceilings"
fails 66 '' run bench "$folder/net.ini" --set data.dataset=mnist --set data.path="$folder" --set model.sizes='784 16 10'
err_lacks 'round'

begin "the ideal bubble is the textbook's, and a schedule that splits I and W is not merged"
config "$folder/merge.ini" data.dataset=synthetic data.train_samples=128 'model.sizes=20 16*3 5' \
    pipeline.stages=2 pipeline.microbatches=4 train.batch_size=32 run.backend=cpu
for pair in 'gpipe 20.0' '1f1b 20.0' 'zb-h1 7.7'; do
    run explain "$folder/merge.ini" --schedule "${pair% *}"
    out_has "ideal bubble ${pair#* } %"
done
out_lacks 'are computed at once'
run explain "$folder/merge.ini" --schedule zb-h1 --set train.coalesce=2
out_has 'ideal bubble 7.7 %'

finish
