#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli tune, schedule = auto, assignment = time: what they print, not how fast things are.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

config "$folder/net.ini" data.dataset=synthetic data.train_samples=200 data.test_samples=50 \
    'model.sizes=20 16*6 5' pipeline.stages=2 pipeline.microbatches=4 train.epochs=1 \
    train.batch_size=32 run.dir=

begin "a ranked table, and the lines of the winner"
ok run tune "$folder/net.ini" --stages 2 --replicas 1
for word in schedule microbatches chunks coalesce assignment 'step ms' 'samples/s' \
    'bubble = sched + cut + wait' 'peak MiB' '[pipeline]' 'stages = '; do
    out_has "$word"
done
# what limits the winner, where it has more than one stage
grep -qE '^(limited by |uneven stages: |nothing left to gain: )|^stages = 1$' "$folder/out" ||
    complain "says nothing of what limits: $(cat "$folder/out")"
same "$(grep -c '^ *one  *1  *1 ' "$folder/out")" 1
same "$(grep -c '^as is  *2  *1  *[0-9]*  *1f1b ' "$folder/out")" 1
same "$(grep -c '^this config: [0-9.]* ms; best: [0-9.]* ms, [0-9]* % faster$' "$folder/out")" 1
same "$(grep -c '^assignment = 0.* | .*6$' "$folder/out")" 1

begin "the row of the config is its own, whatever --stages lists"
ok run tune "$folder/net.ini" --stages 1,2
same "$(grep -c '^as is  *2  *1  *[0-9]*  *1f1b ' "$folder/out")" 1
run tune "$folder/net.ini"

begin "the numbers of the first line add up"
same "$(sed -n 's/^\([0-9]*\) combinations: \([0-9]*\) to compare, \([0-9]*\) not allowed by their schedule, \([0-9]*\) duplicates$/\1 \2 \3 \4/p' \
    "$folder/out" | awk '{ print ($1 == $2 + $3 + $4 && $2 > 0) }')" 1

begin "the lines of the winner can be trained with"
sed -n '/^\[pipeline\]/,$p' "$folder/out" >"$folder/winner"
together=$(awk '$1 == 1 { print $8; exit }' "$folder/out")
sed '/^\[pipeline\]/,/^microbatches/d' "$folder/net.ini" >"$folder/won.ini"
cat "$folder/winner" >>"$folder/won.ini"
shows 'weights_sha256' run train "$folder/won.ini" -q
out_has "$(sed -n 's/^schedule = //p' "$folder/winner"), stages $(sed -n 's/^stages = //p' "$folder/winner")"
shows "\"coalesce\": $together," run explain "$folder/won.ini" --format json

begin "json has every candidate"
shows '"candidates"' run tune "$folder/net.ini" --format json --cores 2
out_has '"zb-v"' '"peak_bytes"'
if command -v python3 >/dev/null 2>&1; then
    same "$(python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))
c = d['candidates']
shown = [x for x in c if 'bubble' in x]
print(len(c) + d['refused'] + d['too_large'] + d['same'] == d['tried'], len(c) > 50,
      len(shown) >= 20 and all(abs(x['bubble'] - x['bubble_schedule'] - x['bubble_imbalance'] -
                                   x['bubble_waiting']) < 1e-9 for x in shown),
      not any(x['schedule'] == 'gpipe' and x['microbatches'] == 1 for x in c))" "$folder/out")" \
        'True True True True'
fi

begin "a list of stages is searched"
ok run tune "$folder/net.ini" --stages 1,3
same "$(grep -c '^stages = [13]$' "$folder/out")" 1
# as many at once as there are cores, of which this test may have one
at_once=$(sed -n 's/^measured in [0-9.]* s: \(.*\) at once on \([0-9]*\) core.*/\1 of \2/p' "$folder/out")
case $at_once in
'1 rank of 1' | '2 ranks of 2') out_has "3 ranks on ${at_once##* } core" ;;
*) same "$at_once" "3 ranks of ${at_once##* }" ;;
esac
fails 64 'no other list' run tune "$folder/net.ini" --stages 1,3 --microbatches 2,4

begin "a cut that limits is named, with the layer that is too large"
run tune "$folder/net.ini" --stages 2 --replicas 1 --set model.sizes="20 512 512 5" --set data.train_samples=64
code_is 0
out_has 'uneven stages: layer 1 alone is ' 'use layers of similar size, or fewer stages'

begin "a memory limit that nothing keeps is 78"
fails 78 '' run tune "$folder/net.ini" --memory 1kB
out_has 'need more than 0.0 MiB per rank'
err_has 'no shape can run within --memory 1kB: the smallest found holds 0.' 'Ki fits it'
fails 78 '' run tune "$folder/net.ini" --memory 1kB --replicas 4 --set train.zero=1 --set train.optimizer=adamw \
    --set 'model.sizes=64 256*4 8' --set train.batch_size=8 --set pipeline.microbatches=1
same "$(awk '/smallest found holds/ {
    for (i = 1; i < NF; i++) { if ($i == "holds") all = $(i + 1); if ($i == "has") fixed = $(i + 1) }
    print (fixed > 0), (fixed <= all)
}' "$folder/err")" '1 1'

begin "more stages than layers: what can run" \
    fails 78 'no shape can run: stages are at most the ' run tune "$folder/net.ini" --stages 900

begin "half the memory of the config: a plan that fits, and runs in it"
config "$folder/gpt.ini" data.dataset=text "data.train_file=$folder/text.txt" model.type=gpt model.n_layer=4 \
    model.n_head=4 model.n_embd=64 model.block_size=64 pipeline.stages=2 pipeline.microbatches=4 \
    train.batch_size=12 train.optimizer=adamw train.max_steps=2
awk 'BEGIN { for (i = 0; i < 600; i++) printf "%d times %d is %d\n", i % 13, i % 17, (i % 13) * (i % 17) }' >"$folder/text.txt"
peak() { sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$1" | sort -n | tail -1; }
run explain "$folder/gpt.ini" --format json
half=$(($(peak "$folder/out") / 2))
ok run tune "$folder/gpt.ini" --memory $half --replicas 1 --cores 2
sed -n '/^\[[pr][iu][pn].*\]/,$p' "$folder/out" >"$folder/winner"
sed '/^\[pipeline\]/,/^microbatches/d' "$folder/gpt.ini" >"$folder/won.ini"
cat "$folder/winner" >>"$folder/won.ini"
for config in gpt won; do
    ok run train "$folder/$config.ini" -q --dir "$folder/$config"
done
[ "$(peak "$folder/won/summary.json")" -le $half ] ||
    complain "$(peak "$folder/won/summary.json") bytes, not $half"
same "$(sed -n 's/.*"weights_sha256": "\([0-9a-f]*\).*/\1/p' "$folder/won/summary.json")" \
    "$(sed -n 's/.*"weights_sha256": "\([0-9a-f]*\).*/\1/p' "$folder/gpt/summary.json")"

begin "what is recomputed is in the section, layer 0 too"
config "$folder/first.ini" data.dataset=synthetic data.train_samples=70 data.test_samples=20 \
    'model.sizes=12 200 5 5 5 7' train.batch_size=24 train.max_steps=1 train.optimizer=sgd \
    pipeline.stages=3 pipeline.microbatches=2 run.packed=off
ok run tune "$folder/first.ini" --memory 41420 --stages 3 --replicas 1
same "$(grep '^ *1 ' "$folder/out" | head -1 | grep -c ' off  ')" "$(grep -c '^recompute = off' "$folder/out")"
same "$(grep -c '^recompute = ' "$folder/out")" 1
sed -n '/^\[pipeline\]/,$p' "$folder/out" >"$folder/winner"
sed '/^\[pipeline\]/,/^microbatches/d' "$folder/first.ini" >"$folder/won.ini"
cat "$folder/winner" >>"$folder/won.ini"
ok run explain "$folder/won.ini" --format json
[ "$(peak "$folder/out")" -le 41420 ] || complain "$(peak "$folder/out") bytes, not 41420"
fails 78 'no shape can run: stages are at most the 5 layers' run tune "$folder/first.ini" --stages 6

# Cores as one stage, as stages, as replicas; only what is measured here is more than a rule.
begin "cores are divided in all ways: one stage with all of them first, none with more than there are"
rows() { awk '/^ *(one|[0-9]+) +[0-9]+ +[0-9]/ { print $1, $2, $3, $4 }' "$folder/out" | tr -d '~'; }
ok run tune "$folder/net.ini" --cores 4
same "$(rows | head -1)" 'one 1 1 4'
out_has ' at once here, for 4 cores'
same "$(rows | awk '$2 * $3 * $4 > 4' | wc -l)" 0
sed -n '/^ *one/,/^$/p' "$folder/out" >"$folder/ways" && mv "$folder/ways" "$folder/out"
same "$(rows | awk '{ print $2 "x" $3 }' | uniq | tr '\n' ' ')" '1x1 2x1 1x2 4x1 1x4 2x2 '
run tune "$folder/net.ini" --cores 4
out_has 'stages x replicas x threads: ' 'ppcli train '
ok run tune "$folder/net.ini" --cores 4 --set run.threads=2 --format json
if command -v python3 >/dev/null 2>&1; then
    same "$(python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))
c = d['candidates']
print({x['threads'] for x in c}, max(x['stages'] * x['replicas'] for x in c), d['one_stage']['threads'],
      all(x['sums_seconds'] > 0 for x in c if x['replicas'] > 1))" "$folder/out")" '{2} 2 2 True'
fi

begin "the command that is advised can be run, and has the words that were given"
ok run tune "$folder/net.ini" --batch-size 64 --stages 1
grep '^ppcli train ' "$folder/out" | sed "s,^ppcli,\"\$PPCLI\"," >"$folder/advised"
grep -q -- '--set train.batch_size=64 .*--set run.threads=[0-9]' "$folder/advised" ||
    complain "advised: $(cat "$folder/advised")"
sh -e "$folder/advised" >"$folder/out" 2>"$folder/err" || complain "$(cat "$folder/err")"
out_has 'stages 1'

begin "--stages and --replicas are lists"
ok run tune "$folder/net.ini" --stages 1,2 --replicas 1,2
same "$(awk '/^ *(one|[0-9]+) +[0-9]/ { print $2, $3 }' "$folder/out" | sort -u | tr '\n' ' ')" '1 1 1 2 2 1 2 2 '
for words in '--cores 0' '--cores 1025' '--cores 4 --check'; do
    # shellcheck disable=SC2086
    fails 64 '--cores ' run tune "$folder/net.ini" $words
done

begin "wrong words are 64"
fails 64 'name a config' run tune
for bytes in x 0 -1 1x 1.5Gx 99999999999999999999 4GiBB B 1e 0x10 1_0; do
    fails 64 '--memory' run tune "$folder/net.ini" --memory "$bytes"
done
for bytes in 1G 1GB 1GiB 0.5G 1e9 1000000K; do
    ok run tune "$folder/net.ini" --memory "$bytes" --stages 1
done
fails 64 '' run tune "$folder/net.ini" --cost-f 2
fails 64 '' run tune "$folder/net.ini" --format svg

# The section is that of the one that ran fastest.
begin "--check runs three plans that differ, and the config as it is"
shows 'predicted ms' run tune "$folder/net.ini" --check --stages 2 --replicas 1 --set train.max_steps=1
out_has 'measured ms'
sed -n '/^checked/,/^predicted/p' "$folder/out" | grep ' %  [0-9.]* = ' >"$folder/ran"
same "$(grep -c . "$folder/ran")" 4
same "$(grep -c '^as is' "$folder/ran")" 1
same "$(sed -n '/^checked/,/^predicted/p' "$folder/out" | grep -c '^ *one  *1  *1 ')" 1
# Rows can be equal in the digits that are printed.
grep -v '^as is' "$folder/ran" | sort -k8n | awk 'NR == 1 { least = $8 } $8 == least { print $5 }' >"$folder/fastest"
grep -qx "$(sed -n 's/^schedule = //p' "$folder/out")" "$folder/fastest" ||
    complain "the section is not that of $(tr '\n' ' ' <"$folder/fastest")"
for n in 0 21 x 3x; do
    fails 64 "--check" run tune "$folder/net.ini" --check "$n"
done

# Both ranks on one core.
begin "--check says that ranks waited for a core"
core=$(taskset -pc $$ 2>/dev/null | sed 's/.*: *\([0-9]*\).*/\1/')
if [ -z "$core" ] || ! [ -r /proc/self/schedstat ]; then
    skip 'no taskset or no schedstat here'
else
    taskset -c "$core" "$PPCLI" tune "$folder/net.ini" --check=1 --set train.max_steps=1 \
        >"$folder/out" 2>"$folder/err"
    code=$?
    code_is 0
    out_has 'few cores: 2 ranks share 1 core and waited '
    out_lacks 'busy machine'
fi

begin "a run says what was chosen, once"
ok run train "$folder/net.ini" --schedule auto
same "$(grep -c '^schedule auto: ' "$folder/err")" 1
err_has 'ms a step predicted for 4 micro-batches'
ok run train "$folder/net.ini" --set pipeline.assignment=time --dir "$folder/run"
err_has 'assignment time: 0'
same "$(grep -c '^assignment = 0[-0-9]* | [-0-9]*6$' "$folder/run/config.resolved.ini")" 1

begin "schedule = auto finds what fits only without packed weights"
config "$folder/wide.ini" data.dataset=synthetic data.train_samples=64 data.test_samples=8 \
    'model.sizes=20 128*3 5' pipeline.stages=2 pipeline.microbatches=4 pipeline.schedule=auto \
    train.epochs=1 train.batch_size=32 run.dir=
fails 69 'pipeline.recompute' run train "$folder/wide.ini" --set run.memory=1
least=$(awk '/no shape holds less/ { for (i = 1; i < NF; i++) if ($i == "than") printf "%d", ($(i + 1) + .01) * 1048576 }' "$folder/err")
fails 69 'run.packed' run train "$folder/wide.ini" --set run.memory="$least" --set run.packed=on
ok run train "$folder/wide.ini" --set run.memory="$least" --dir "$folder/unpacked"
err_has 'packed off: '
same "$(sed -n 's/^packed = //p' "$folder/unpacked/config.resolved.ini")" false
[ "$(peak "$folder/unpacked/summary.json")" -le "$least" ] ||
    complain "$(peak "$folder/unpacked/summary.json") bytes, not $least"

begin "explain shows the chosen shape" shows 'chosen (--schedule)' run explain "$folder/net.ini" --schedule auto

begin "of plans that ran the fastest is chosen, and the config as it is ran too"
config "$folder/small.ini" data.dataset=synthetic data.train_samples=128 'model.sizes=20 16*5 5' \
    pipeline.stages=2 pipeline.microbatches=4 train.batch_size=32 run.backend=cpu
ok run tune "$folder/small.ini" --check=1 --format json
same "$(python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))
ran = [c['measured_step_seconds'] for c in d['candidates'] if 'measured_step_seconds' in c]
own = d['this_config']['measured_step_seconds']
one = d['one_stage'].get('measured_step_seconds', min(ran))
k, alone = d['chosen'], [x['stages'] * x['replicas'] == 1 for x in d['candidates']]
print(len(ran), k == -1 if own <= min(ran + [one]) else alone[k] and k >= len(ran) if one < min(ran)
      else k == ran.index(min(ran)))" "$folder/out")" '1 True'

finish
