#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.threads: threads inside a rank change no bit, whatever the model, the stages and the launch.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

samples=$(cd "$(dirname "$0")/../../data/cifar10-sample" && pwd)
cd "$folder" || exit 1
times_table
config mlp.ini data.dataset=mnist-sample 'model.sizes=784 250 130 10' pipeline.microbatches=3 \
    train.batch_size=200 train.optimizer=adam train.lr=0.001 train.clip_norm=0.5 train.max_steps=4
config gpt.ini data.dataset=text data.train_file=text.txt model.type=gpt model.n_layer=4 model.n_head=4 \
    model.n_embd=128 model.block_size=64 model.dropout=0.1 pipeline.microbatches=2 train.batch_size=12 \
    train.optimizer=adamw train.lr=0.01 train.clip_norm=0.1 train.max_steps=3
sed 's/type=gpt/type=llama/; s/dropout=.*/n_kv_head=2/' gpt.ini >llama.ini
config conv.ini data.dataset=cifar10-sample "data.path=$samples" data.train_samples=64 \
    data.test_samples=20 'data.augment=crop flip' model.type=sequential \
    'model.layers=conv:32x5/2,pad=same batchnorm relu maxpool:2 conv:64x3,pad=1 groupnorm:8 relu avgpool:2 flatten linear:50 gelu linear:10' \
    pipeline.microbatches=2 train.batch_size=32 train.epochs=1 train.lr=0.003 run.backend=cpu

for model in mlp gpt llama conv; do
    begin "$model: the bits of one thread"
    digest=
    for threads in 1 2 3 7 16; do
        trains $model.ini --set run.threads=$threads
    done
    trains $model.ini
    trains $model.ini --set run.threads=2 --stages 2
    trains $model.ini --set run.threads=3 --stages 3
    trains $model.ini --set run.threads=2 --stages 2 --set pipeline.recompute=all
done

begin "replicas and divided optimizers"
digest=
for threads in 1 2 5; do
    trains gpt.ini --replicas 2 --set run.threads=$threads
    trains gpt.ini --replicas 2 --set run.threads=$threads --set train.zero=1
done

begin "a run continues with another number of threads"
digest=
trains mlp.ini --set checkpoint.every=1 --set checkpoint.keep=9
ok run train mlp.ini --dir rest -q --set run.threads=3 --resume run/checkpoints/step-00000002
same "$(sha rest/summary.json)" "$digest"
run eval mlp.ini --checkpoint run
accuracy=$(grep 'test accuracy' out)
run eval mlp.ini --checkpoint run --set run.threads=3
out_has "${accuracy:-no accuracy}"

begin "a rank that is a process"
digest=
trains gpt.ini --stages 2
if "$PPCLI" env | grep -q '^ *MPI  *no'; then
    skip 'no MPI'
else
    trains gpt.ini --stages 2 --launch mpirun --set run.threads=2
fi

begin "many threads on one processor end"
if command -v taskset >/dev/null; then
    digest=
    trains mlp.ini
    PPCLI_ONE=$PPCLI
    # shellcheck disable=SC2016 # for the script to expand
    printf '#!/bin/sh\nexec taskset -c "$(taskset -cp $$ | sed "s/.*: //; s/[,-].*//")" "%s" "$@"\n' "$PPCLI_ONE" >one
    chmod +x one
    PPCLI=./one
    trains mlp.ini --set run.threads=16
    trains mlp.ini
    grep -q '"threads":1,' run/metrics.jsonl || complain 'auto: more threads than processors'
    PPCLI=$PPCLI_ONE
else
    skip 'no taskset'
fi

finish
