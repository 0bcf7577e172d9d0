#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train and explain with values that are legal and unusual, and with a world that does not help.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

config "$folder/small.ini" data.dataset=synthetic data.train_samples=300 data.test_samples=50 \
    'model.sizes=20 16*3 5' pipeline.stages=2 train.epochs=2 train.batch_size=32
config=$folder/small.ini

begin "a run that fails leaves no summary of the run it overwrote"
ok run train "$config" --dir "$folder/again"
[ -f "$folder/again/summary.json" ] || complain "no summary.json after a good run"
fails 78 '' run train "$config" --dir "$folder/again"
[ -f "$folder/again/summary.json" ] || complain "a refused run removed summary.json"
fails 80 '' run train "$config" --dir "$folder/again" --overwrite --lr 1000 --optimizer sgd
[ ! -e "$folder/again/summary.json" ] || complain "the old summary.json is still there"
[ -s "$folder/again/metrics.jsonl" ] || complain "no metrics.jsonl of the failed run"

begin "a run that is told to end does so at once, by the signal"
"$PPCLI" train "$config" --dir '' --epochs 1000000 >"$folder/out" 2>"$folder/err" &
child=$!
sleep 0.5
kill -TERM $child
last='ppcli train, TERM'
code=0
wait $child || code=$?
code_is 143

begin "the record of actions is in the run folder, one file a rank, and outlives kill -9"
"$PPCLI" train "$config" --dir "$folder/killed" --epochs 1000000 >"$folder/out" 2>"$folder/err" &
child=$!
tries=0
while [ ! -s "$folder/killed/metrics.jsonl" ] && [ $tries -lt 100 ]; do sleep 0.05; tries=$((tries + 1)); done
kill -9 $child
last='ppcli train, KILL'
code=0
wait $child 2>/dev/null || code=$?
code_is 137
same "$(find "$folder/killed/actions" -name 'rank-000[01].ring' | wc -l | tr -d ' ')" 2
ok run train "$config" --dir "$folder/killed" --overwrite

begin "a run folder that cannot hold the record is one clear error before the run"
(ulimit -f 16 && exec "$PPCLI" train "$config" --dir "$folder/full" --microbatches 32) >"$folder/out" 2>"$folder/err"
code=$?
last='ppcli train, file size limit'
code_is 74
err_has 'actions/rank-000' 'File too large'
same "$(grep -c 'ppcli: error:' "$folder/err")" 1

begin "a launcher whose processes ppcli cannot connect is refused before each trains a copy"
for words in 'RANK=0 WORLD_SIZE=2' 'RANK=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none LOCAL_RANK=1' \
    'RANK=0 WORLD_SIZE=8 ACCELERATE_MIXED_PRECISION=no SLURM_STEP_NUM_TASKS=1 PMI_RANK=0'; do
    for command in "train $config --dir $folder/copies" "eval $config --checkpoint $folder/again" \
        "bench $config"; do
        code=0
        last="$words $command"
        # shellcheck disable=SC2086 # words
        env $words "$PPCLI" $command >"$folder/out" 2>"$folder/err" </dev/null || code=$?
        code_is 64
        same "$(grep -c 'ppcli: error:' "$folder/err")" 1
        err_has 'RANK and WORLD_SIZE are set' 'run ppcli without it' 'unset RANK WORLD_SIZE'
    done
done
[ ! -e "$folder/copies" ] || complain "a refused run left a folder"
for words in 'RANK=0 WORLD_SIZE=1' 'WORLD_SIZE=2'; do # one process, and a leftover
    last="$words train"
    code=0
    # shellcheck disable=SC2086 # words
    env $words "$PPCLI" train "$config" -q --dir '' --max-steps 1 >"$folder/out" 2>"$folder/err" || code=$?
    code_is 0
done

begin "the time in which a run was stopped is marked, and does not count in its speed"
"$PPCLI" train "$config" --dir "$folder/pause" --epochs 1000000 --set data.train_samples=30000 --set run.log_every=20 \
    --set checkpoint.every_epochs=0 >"$folder/out" 2>"$folder/err" </dev/null &
child=$!
within "grep -q '\"step\"' $folder/pause/metrics.jsonl 2>/dev/null"
for _ in 1 2 3; do # one may fall into a test, which has no speed
    kill -STOP $child
    sleep 5
    kill -CONT $child
    sleep 1
    ! grep -q 'step=.* paused=' "$folder/out" || break
done
kill -TERM $child
last='train, STOP and CONT'
code=0
wait $child || code=$?
code_is 75
out_has ' paused='
grep '"type":"step".*"paused_seconds":' "$folder/pause/metrics.jsonl" | head -n 1 |
    sed 's/.*"samples":\([0-9]*\),.*"samples_per_second":\([0-9.]*\),.*"paused_seconds":\([0-9.]*\).*/\1 \2 \3/' >"$folder/times"
awk '{ exit !(NF == 3 && $3 > 4 && $3 < 60 && $1 / $2 < 4) }' "$folder/times" || complain "samples, speed, pause: $(cat "$folder/times")"

begin "two runs that start together have a folder each"
mkdir "$folder/two"
last='ppcli train, twice'
for n in 1 2; do
    (cd "$folder/two" && exec "$PPCLI" train "$config" --max-steps 2 >"$folder/out$n" 2>"$folder/err$n") &
done
wait
same "$(find "$folder/two/runs" -name summary.json | wc -l | tr -d ' ')" 2

begin "the comparison backend, which is gone, is named with what does its work"
run train "$config" --dir '' --backend compare
code_is 78
err_has "'compare' is gone: the test program checkops compares all kernels; write cpu"
same "$(grep -c 'ppcli: error:' "$folder/err")" 1

begin "explain, log and summary say when bits may not be those of exact mode"
run explain "$config" --set train.exact=off
out_has 'weight gradients of 4 micro-batches are computed at once (train.coalesce = 4):'
out_has '  other last bits are possible, but W can fill no gaps'
run explain "$config" --set train.exact=off --batch-size 1024
out_lacks 'weight gradients'
run explain "$config" --set run.gemm=cblas
out_lacks 'weight gradients'
if "$PPCLI" env | grep -q 'own products'; then
    run explain "$config"
    out_has 'weight gradients of 4 micro-batches are computed at once (train.coalesce = 4):'
    out_has '  same bits, but W can fill no gaps'
fi
ok run train "$config" --dir "$folder/off" --set train.exact=off --set train.coalesce=2
err_has 'train.exact = off: weight gradients of 2 micro-batches at a time; bits may differ'
grep -q '"exact": false' "$folder/off/summary.json" || complain 'summary.json: no "exact": false'
grep -q '"coalesce": 2' "$folder/off/summary.json" || complain 'summary.json: no "coalesce": 2'
run train "$config" --dir "$folder/exact"
err_lacks 'train.exact'
grep -q '"exact": true' "$folder/exact/summary.json" || complain 'summary.json: no "exact": true'

begin "explain counts the steps of two thousand million samples" \
    shows 'data: 2147483647 training samples in 2 steps an epoch (batch 1073741824, last 1073741823)' \
    run explain "$config" --set data.train_samples=2147483647 --set train.batch_size=1073741824

begin "explain refuses a model that no machine holds"
fails 78 'model.sizes' run explain "$config" --set 'model.sizes=16777216*4096 10'
err_has 'more than any machine has'

begin "a command line too long to pass on to mpirun is refused, not cut"
words=$(printf ' -q%.0s' $(seq 5000))
# shellcheck disable=SC2086 # words
run train "$config" --launch mpirun $words
last='ppcli train --launch mpirun -q -q ...'
code_is 69
err_lacks 'mistake in ppcli'

begin "a key that changes nothing is mentioned with file and line"
printf '[data]\ndataset = synthetic\n[train]\nmax_steps = 1\noptimizer = sgd\nbeta1 = 0.8\n' >"$folder/idle.ini"
ok run train "$folder/idle.ini" --dir ''
err_has 'idle.ini:6: note: train.beta1 has no effect'
run train "$folder/idle.ini" --dir '' -q
err_lacks 'no effect'

begin "what is asked of a GPU is mentioned where backend = auto finds none"
(
    CUDA_VISIBLE_DEVICES=''
    export CUDA_VISIBLE_DEVICES
    run train "$config" --dir '' --max-steps 1 --set run.precision=tf32 --set run.devices=0
    echo "$code" >"$folder/code"
)
code=$(cat "$folder/code")
code_is 0
err_has 'warning: run.precision has no effect: backend auto is cpu here'
err_has 'warning: run.devices has no effect: backend auto is cpu here'
err_lacks 'run.graphs'

begin "a GPU that is asked for and not there is one line and 69"
(
    CUDA_VISIBLE_DEVICES=''
    export CUDA_VISIBLE_DEVICES
    run train "$config" --dir '' --backend cuda
    echo "$code" >"$folder/code"
)
code=$(cat "$folder/code")
code_is 69
err_has 'backend cuda cannot run here: '
same "$(wc -l <"$folder/err" | tr -d ' ')" 1

begin "a batch larger than the data set is said"
ok run explain mnist-sample.ini --set data.train_samples=50
err_has 'warning: train.batch_size = '
ok run train mnist-sample.ini --dir '' -q --epochs 1 --set data.train_samples=50
err_has 'warning: train.batch_size = 128, but there are 50 training samples: each step takes all of them'
run train mnist-sample.ini --dir '' -q --epochs 1 --set data.train_samples=50 --batch-size 50
err_lacks warning

begin "learning rates without effect, and steps without one, are said before the run, with the rates"
ok run train "$config" --dir '' --max-steps 8 --set train.lr_schedule=cosine --set train.lr_steps=4 -q
err_has 'warning: learning rate: 0.001 at step 1, 0.0001464 at step 4, 0 at step 8'
err_has 'warning: train.lr_steps = 4 is shorter than the run of 8 steps: the learning rate is 0 in steps 5 to 8'
shows 'learning rate: 0.00025 at step 1, 0.001 at step 4, 0.001 at step 8' \
    run explain "$config" --set train.max_steps=8 --set train.lr_schedule=linear --set train.lr_steps=2 \
    --set train.warmup_steps=4
err_has 'train.lr_steps = 2 ends within the warm-up of 4 steps, so lr_schedule = linear has no effect'
run train "$config" --dir '' --max-steps 8 --set train.lr_schedule=constant --set train.lr_steps=5
err_has 'learning rate: 0.001 at step 1, 0.001 at step 4, 0.001 at step 8'
err_has 'note: train.lr_steps has no effect with train.lr_schedule = constant, only with linear, cosine and wsd'
err_lacks warning
run explain "$config" --set train.max_steps=8 --set train.lr_schedule=constant --set train.lr_steps=5
out_has 'learning rate: 0.001 at step 1, 0.001 at step 4, 0.001 at step 8'
err_has 'note: train.lr_steps has no effect with train.lr_schedule = constant, only with linear, cosine and wsd'
ok run train "$config" --dir '' --max-steps 8 --set train.lr_schedule=linear
err_has 'learning rate: 0.001 at step 1, 0.000625 at step 4, 0.000125 at step 8'
err_lacks warning

begin "a pipeline that is hardly faster than one stage is said, and costs no bits"
config "$folder/short.ini" data.dataset=synthetic data.train_samples=64 data.test_samples=16 'model.sizes=16 8*3 4' \
    pipeline.stages=2 pipeline.microbatches=4 train.epochs=1 train.batch_size=32
ok run train "$folder/short.ini" --dir ''
err_has 'one stage would be about as fast: in a simulation 2 stages have 1.0 times its speed (--stages 1 gives the same weights)'
ok run train "$folder/short.ini" --dir '' --stages 1
err_lacks 'one stage'
ok run train "$folder/short.ini" --dir '' -q
err_lacks 'one stage'
ok run train mnist-sample.ini --max-steps 1 --dir ''
err_lacks 'one stage'

finish
