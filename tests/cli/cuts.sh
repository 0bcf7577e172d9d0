#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Cuts as users write them: by number, by name, by the first layers; all the way to the weights.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

config "$folder/net.ini" data.dataset=synthetic data.train_samples=256 data.test_samples=64 \
    'model.sizes=32 48*5 10' pipeline.stages=3 train.batch_size=32 train.epochs=1 run.backend=cpu

# The cut that explain shows as names and numbers must be $1.
cut_is() {
    code_is 0
    same "$(sed -n '/^stages /,/^ *(/p' "$folder/out" | awk 'NF > 5 && $1 ~ /^[0-9]+$/ { print $3 }' | xargs)" "$1"
}

sha() { python3 -c "import json,sys; print(json.load(open(sys.argv[1]))['weights_sha256'])" "$1"; }

begin "a cut is written by number, by name or by the first layers"
for cut in 'assignment=0-1 | 2 | 3-5' 'assignment=layers.0-layers.1|layers.2|layers.3-layers.5' \
    'assignment=0-layers.1 | 2 | layers.3 - 5' 'split_at=layers.2 layers.3' 'split_at=2,layers.3'; do
    run explain "$folder/net.ini" --set "pipeline.$cut"
    cut_is '0-1 2-2 3-5'
    out_has 'stages (as assigned; ' '  layers.3 to layers.5'
done
out_lacks 'batch norm'

begin "explain names layers and cut for programs"
ok run explain "$folder/net.ini" --set 'pipeline.split_at=layers.2 layers.3' --format json
same "$(python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))
print([x['name'] for x in d['layers']] == ['layers.%d' % i for i in range(6)],
      [(x['first_name'], x['last_name']) for x in d['stages']][2], d['batch_norm'],
      d['layers'][5]['shape'], d['layers'][5]['parameters'], d['layers'][5]['flops_f'])" "$folder/out")" \
    "True ('layers.3', 'layers.5') False 10 490 960"

begin "explain counts what a rank moves in a step, between stages and between replicas"
config "$folder/moves.ini" data.dataset=synthetic data.train_samples=640 'model.sizes=20 16*3 10' \
    train.batch_size=64 pipeline.microbatches=4 pipeline.stages=2 pipeline.split_at=layers.2
ok run explain "$folder/moves.ini" --format json
same "$(python3 -c "
import json, sys
a, b = json.load(open(sys.argv[1]))['ranks']
print(a['step_bytes_sent'], a['step_bytes_received'], a['step_bytes_replicas'], b['step_bytes_sent'],
      a['flops_per_byte'] == a['step_flops'] / a['step_bytes_sent'])" "$folder/out")" "4096 4096 0 4096 True"
ok run explain "$folder/moves.ini" --replicas 2 --format json
same "$(python3 -c "
import json, sys
ranks = json.load(open(sys.argv[1]))['ranks']
print([r['step_bytes_sent'] for r in ranks], [r['step_bytes_replicas'] == r['gradient_bytes'] for r in ranks])
" "$folder/out")" "[2048, 2048, 2048, 2048] [True, True, True, True]"
shows 'pass pointers' run explain "$folder/moves.ini"
run explain "$folder/moves.ini" --stages 1 --set pipeline.split_at=none
out_lacks communication

begin "a residual network has the names, shapes and counts of torchvision's"
config "$folder/net50.ini" data.dataset=cifar10 model.type=resnet model.depth=50 model.stem=imagenet \
    model.classes=1000 pipeline.stages=2 train.batch_size=64 train.lr=0.1
run explain "$folder/net50.ini" --set pipeline.split_at=layer3.0
cut_is '0-9 10-20'
out_has '  conv1 to layer2.3' '  layer3.0 to fc'
sed 's/  */ /g' "$folder/out" >"$folder/squeezed"
for expected in ' 12 layer3.2 6 ops 2 x 2 x 1024 ' ' total 25557032 ' \
    'the samples of each micro-batch of each replica meet'; do
    has "$folder/squeezed" "$expected" || complain "no '$expected' in: $(head -c 3000 "$folder/squeezed")"
done
fails 78 "'layer1.0'" \
    run explain "$folder/net50.ini" --set pipeline.split_at=layer5.0
fails 78 'range 2 begins at layer layer3.1, must begin at layer3.0 (a layer would have no stage)' \
    run explain "$folder/net50.ini" --set 'pipeline.assignment=conv1-layer2.3 | layer3.1-fc'

begin "the weights are those of one stage, and the resolved config trains them again"
ok run train "$folder/net.ini" --stages 1 --dir "$folder/one"
ok run train "$folder/net.ini" --set 'pipeline.split_at=layers.2 layers.3' --dir "$folder/split"
has "$folder/split/config.resolved.ini" 'split_at = layers.2 layers.3' || complain 'no split_at in the resolved config'
has "$folder/split/config.resolved.ini" 'assignment = auto' || complain 'no assignment in the resolved config'
ok run train "$folder/split/config.resolved.ini" --dir "$folder/again"
for dir in split again; do
    same "$(sha "$folder/$dir/summary.json")" "$(sha "$folder/one/summary.json")"
done

begin "a run continues with another cut"
ok run train "$folder/net.ini" --set 'pipeline.split_at=layers.1 layers.4' --epochs 2 --resume --dir "$folder/split"
run train "$folder/net.ini" --stages 1 --epochs 2 --dir "$folder/two"
same "$(sha "$folder/split/summary.json")" "$(sha "$folder/two/summary.json")"

begin "schedule = auto keeps a cut that is given"
config "$folder/eight.ini" data.dataset=synthetic data.train_samples=256 data.test_samples=64 \
    'model.sizes=32 48*7 10' pipeline.stages=2 pipeline.microbatches=8 pipeline.schedule=auto \
    train.batch_size=64 run.backend=cpu
for cut in 'assignment=0-3|4-7 1' 'split_at=4 1' 'assignment=0-1|2-3|4-5|6-7 2' 'split_at=2,4,6 2'; do
    shows "chunks           = ${cut##* } " run explain "$folder/eight.ini" --set "pipeline.${cut% *}"
done
fails 78 'no schedule can run: ' run explain "$folder/eight.ini" --set pipeline.split_at=9
err_has 'split_at: no layer 9'

begin "chunks are cut as stages are"
run explain "$folder/net.ini" --stages 2 --schedule interleaved --set 'pipeline.split_at=layers.1 layers.2 layers.5'
cut_is '0-0 1-1 2-4 5-5'
fails 78 'pipeline.split_at' \
    run explain "$folder/net.ini" --stages 2 --set 'pipeline.split_at=layers.1 layers.2 layers.5'

begin "a layer that is not there gets the nearest name, in one line with its place"
for command in explain 'train --dir=' plan; do
    # shellcheck disable=SC2086
    fails 78 '' run $command "$folder/net.ini" --set 'pipeline.split_at=layers.2 leyers.3'
    same "$(head -1 "$folder/err")" "ppcli: --set: error: pipeline.split_at: no layer is named 'leyers.3'; did you mean 'layers.3'?"
    same "$(wc -l <"$folder/err" | tr -d ' ')" 2
done
fails 78 'range 2 begins at layer 3, must begin at 2 (a layer would have no stage)' \
    run explain "$folder/net.ini" --set 'pipeline.assignment=0-1 | 3 | 4-5'
fails 78 'pipeline.stages' \
    run explain "$folder/net.ini" --stages 7

begin "what does not fit the model starts no processes"
fails 78 'pipeline.stages' \
    run train "$folder/net.ini" --launch mpirun --stages 500
err_lacks 'mpirun'

begin "stages that do not fit the cut say what to set" \
    fails 78 'pipeline.stages' \
    run explain "$folder/net.ini" --stages 1 --set 'pipeline.split_at=layers.2 layers.3'

begin "tune ends with lines that stand in a config"
ok run tune "$folder/net.ini" --set pipeline.split_at='layers.2 layers.3'
out_lacks '= none'
sed -n '/^\[pipeline\]$/,/^$/p' "$folder/out" >"$folder/best"
sed '/^stages=/d' "$folder/net.ini" | cat - "$folder/best" >"$folder/new.ini"
ok run explain "$folder/new.ini"

finish
