#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The claims of docs/understand/pitfalls.md: each case here is named there, and each section there names a case here.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

page=$(cd "$(dirname "$0")/../../docs/understand" && pwd)/pitfalls.md
here=$(cd "$(dirname "$0")" && pwd)/pitfalls.sh
samples=$(cd "$(dirname "$0")/../../data/cifar10-sample" && pwd)
cd "$folder" || exit 1
times_table
# 10 layers; 150 samples in batches of 32, so the last batch has 22; the rate falls to the end.
config net.ini data.dataset=synthetic data.train_samples=150 data.test_samples=50 \
    'model.sizes=12 9*9 4' pipeline.microbatches=4 train.batch_size=32 train.epochs=3 train.optimizer=adam \
    train.lr=0.01 train.lr_schedule=cosine checkpoint.every=1 checkpoint.keep=20
config gpt.ini data.dataset=text data.train_file=text.txt model.type=gpt model.n_layer=3 model.n_head=2 \
    model.n_embd=32 model.block_size=8 model.dropout=0.1 pipeline.microbatches=2 train.batch_size=12 \
    train.optimizer=adamw train.lr=0.01 train.max_steps=6 checkpoint.every=1 checkpoint.keep=9
config conv.ini data.dataset=cifar10-sample "data.path=$samples" data.train_samples=50 \
    data.test_samples=20 'data.augment=crop flip' model.type=sequential \
    'model.layers=conv:8x5/2,pad=same batchnorm relu maxpool:2 conv:16x3 batchnorm relu flatten linear:20 tanh linear:10' \
    pipeline.microbatches=2 train.batch_size=20 train.epochs=2 train.lr=0.003 run.backend=cpu

# column NAME FILE: a value of every step in metrics.jsonl
column() { sed -n '/"type":"step"/s/.*"'"$1"'":\([^,}]*\).*/\1/p' "$2"; }
# continues CONFIG STEP OPTION...: from a checkpoint of ./whole to the same end, in ./rest
continues() {
    from=$(printf 'whole/checkpoints/step-%08d' "$2")
    continued=$1
    shift 2
    rm -rf rest
    ok run train "$continued" --dir rest -q --resume "$from" "$@"
    same "$(sha rest/summary.json)" "$(sha whole/summary.json)"
    same "$(column loss rest/metrics.jsonl)" "$(column loss whole/metrics.jsonl | tail -n "+$(($(echo "${from##*-}" | sed "s,^0*,,") + 1))")"
}
# whole CONFIG OPTION...: the run that is not interrupted, in ./whole
whole() {
    ok run train "$@" --dir whole --overwrite -q
}

begin "resume in the middle of an epoch"
whole net.ini
for step in 2 7 12; do
    continues net.ini $step
done

begin "order of samples after a resume"
continues net.ini 5
same "$(column loss rest/metrics.jsonl | wc -l)" 10

begin "learning rate after a resume"
same "$(column lr rest/metrics.jsonl | wc -l)" 10
same "$(column lr rest/metrics.jsonl)" "$(column lr whole/metrics.jsonl | tail -n 10)"
ok run train net.ini --dir rest -q --resume --epochs 5
err_has 'learning'

begin "moments of the optimizer after a resume"
for optimizer in momentum adam adamw; do
    whole net.ini --optimizer $optimizer
    continues net.ini 6 --optimizer $optimizer
done

begin "gradients scaled by the number of micro-batches"
digest=
for m in 1 2 4 8 32; do
    trains net.ini --microbatches $m
done

begin "a last batch that is smaller"
run train net.ini --dir run --overwrite -q
same "$(column samples run/metrics.jsonl | tr '\n' ' ')" '32 32 32 32 22 32 32 32 32 22 32 32 32 32 22 '
digest=
for m in 1 3 5; do
    trains net.ini --microbatches $m
    [ "$m" -ne 1 ] || column loss run/metrics.jsonl >losses
    column loss run/metrics.jsonl | paste losses - | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-6) exit 1 }' ||
        complain "losses with 1 and $m micro-batches differ"
done

begin "layers lost by an integer division"
for stages in 1 3 4 7 10; do
    ok run explain net.ini --stages $stages
    same "$(sed -n '/^stages/,/^ *(bytes/p' "$folder/out" | grep -o 'names.*\|layers\.[0-9]* to layers\.[0-9]*\|layers\.[0-9]*' |
        sed -n 's/layers\.//gp' | awk '{ for (i = $1; i <= $NF; i++) printf "%d ", i }')" '0 1 2 3 4 5 6 7 8 9 '
done
digest=
for stages in 1 3 4 7 10; do
    trains net.ini --stages $stages
done

begin "layouts stored in checkpoints"
whole net.ini --stages 4
continues net.ini 7 --stages 1
continues net.ini 7 --stages 3 --schedule gpipe
continues net.ini 7 --stages 5 --schedule interleaved
run eval net.ini --checkpoint whole
accuracy=$(grep 'test accuracy' out)
run eval net.ini --checkpoint rest
out_has "${accuracy:-no accuracy}"

begin "the same dropout mask everywhere, or another after a resume"
digest=
for stages in 1 2 3; do
    trains gpt.ini --stages $stages
done
trains gpt.ini --stages 2 --set pipeline.recompute=all
whole gpt.ini --stages 3
same "$(sha whole/summary.json)" "$digest"
continues gpt.ini 3 --stages 2

begin "copies of a tied embedding that drift apart"
digest=
for stages in 1 2 4; do
    trains gpt.ini --stages $stages --set model.tie_weights=on
done

begin "gradients clipped by the norm of one stage"
digest=
for stages in 1 2 3; do
    trains gpt.ini --stages $stages --set train.clip_norm=0.1
done

begin "a test loss that depends on how the test set is cut"
run train net.ini --dir run --overwrite -q
run eval net.ini --checkpoint run --microbatches 1 --batch-size 50
accuracy=$(grep 'test accuracy' out)
for m in 1 3 7; do
    shows "${accuracy:-no accuracy}" run eval net.ini --checkpoint run --microbatches $m --batch-size 13
done

begin "evaluation or recording that changes the training"
digest=
trains gpt.ini
trains gpt.ini --set train.eval_interval=2
trains gpt.ini --trace trace.json

begin "replicas that see the same samples"
run train net.ini --dir whole --overwrite -q
ok run train net.ini --dir run --overwrite -q --replicas 2
same "$(column samples run/metrics.jsonl)" "$(column samples whole/metrics.jsonl)"
column loss run/metrics.jsonl >losses
column loss whole/metrics.jsonl | paste losses - | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) exit 1 }' ||
    complain 'losses with one and two replicas differ'

begin "statistics of batch norm that each stage or replica has its own"
digest=
for stages in 1 2 3; do
    trains conv.ini --stages $stages
done
digest=
for stages in 1 2 3; do
    trains conv.ini --replicas 2 --stages $stages
done

begin "a schedule that waits for itself"
printf '%s\n' '0F0,0F1,1F0,1F1,0B0,1B0,0B1,1B1' '1F0,0F0,1F1,0F1,0B0,0B1,1B0,1B1' >crossed.csv
printf '%s\n' '0F0,0F1,0B0,0B1' '0B0,0F0,0F1,0B1' >early.csv
for table in crossed early; do
    run plan --csv $table.csv
    [ "$code" -ne 0 ] || complain "plan accepts $table.csv: $(cat out)"
    same "$(wc -l <err)" 1
done

begin "every section of the page names a case of this test, and the other way round"
sed -n 's/^begin "\(.*\)"$/\1/p' "$here" | sed '$d' | sort >cases
sed -n 's/^Test: \(.*\)\.$/\1/p' "$page" | sort >named
same "$(diff cases named)" ''

finish
