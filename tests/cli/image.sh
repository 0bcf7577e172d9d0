#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models of images, with every op and augmentation: evaluated, interrupted; and what is refused. The bits: tests/bits.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

samples=$(cd "$(dirname "$0")/../../data/cifar10-sample" && pwd)
cd "$folder" || exit 1

# Eight layers with every word; NORM stands for a norm.
words='conv:8x5/2,pad=same NORM relu maxpool:2 conv:16x3,groups=4 silu conv:16x3,bias=off NORM relu
conv:16x1 groupnorm:4 add:5 relu avgpool:2 conv:24x3/2,pad=1 layernorm gelu conv:16x1 tanh dropout:0.1
flatten linear:20 tanh dropout:0.2 linear:16 relu linear:10'
net() { # net FILE NORM
    config "$1" data.dataset=cifar10-sample data.train_samples=50 data.test_samples=40 \
        'data.mean=0.49 0.48 0.45' 'data.std=0.2 0.2 0.2' 'data.augment=crop flip' \
        model.type=sequential "model.layers=$(echo "$words" | sed "s/NORM/$2/g" | tr '\n' ' ')" \
        pipeline.microbatches=4 train.batch_size=20 train.epochs=2 train.lr=0.003 run.backend=cpu
}
net batch.ini batchnorm
config resnet.ini data.dataset=cifar10-sample data.train_samples=8 data.test_samples=4 \
    model.type=resnet pipeline.microbatches=2 train.batch_size=4 train.epochs=1 \
    checkpoint.at_end=false checkpoint.every_epochs=0

begin "eval of a checkpoint finds the accuracy and the loss that training ended with"
ok run train batch.ini --stages 2 --dir run --overwrite
out_has "$(printf 'test accuracy    %.4f' "$(sed -n 's/.*"test_accuracy": \(.*\),/\1/p' run/summary.json)")"
for stages in 1 3; do
    ok run eval batch.ini --checkpoint run --stages $stages --format json
    for key in test_accuracy test_loss weights_sha256; do
        same "$(grep "\"$key\"" out | tr -d ,)" "$(grep "\"$key\"" run/summary.json | tr -d ,)"
    done
done

begin "killed in the middle of an epoch, it goes on with the same pictures and the same bits"
long="--epochs 1000000 --set data.train_samples=500 --set checkpoint.every_epochs=0" # epochs of 25 steps
newest() { find killed/checkpoints -name 'step-????????' 2>/dev/null | sort | tail -n 1; }
# shellcheck disable=SC2086
"$PPCLI" train batch.ini --dir killed -q $long --stages 2 --set checkpoint.every=7 >out 2>err </dev/null &
pid=$!
for _ in $(seq 1 600); do
    case $(newest) in '' | *step-0000000? | *step-0000001?) sleep 0.05 ;; *) break ;; esac
done
kill -9 "$pid" 2>/dev/null || complain "it ended: $(cat err)"
wait "$pid" 2>/dev/null
step=$(newest | sed 's/.*-0*//')
if [ $((${step:-0} % 25)) -eq 0 ]; then
    rm -r "$(newest)"
    step=$(newest | sed 's/.*-0*//')
fi
# shellcheck disable=SC2086
ok run train batch.ini --dir killed --resume $long --stages 3 --schedule gpipe --max-steps $((step + 9))
err_has "continuing after step $step, from "
# shellcheck disable=SC2086
ok run train batch.ini --dir whole -q $long --max-steps $((step + 9))
same "$(sha killed/summary.json)" "$(sha whole/summary.json)"

# refused CODE TEXT OPTION...: by explain as by train, in one line and before a run folder is made
refused() {
    expected=$1
    text=$2
    shift 2
    for command in explain 'train --dir refused'; do
        # shellcheck disable=SC2086
        run $command "$@"
        code_is "$expected"
        err_has "$text"
        same "$(grep -c 'error: ' err)$(grep -c problem err)" "$([ "$expected" = 78 ] && echo 21 || echo 10)"
        [ ! -e refused ] || complain "$last: left a run folder"
        rm -rf refused
    done
}

begin "keys of another type of model"
refused 78 'model.depth' batch.ini --set model.depth=50
refused 78 'model.layers' resnet.ini --set model.layers=linear:10
config mlp.ini data.dataset=mnist-sample model.type=mlp 'model.sizes=784 10'
refused 78 'model.depth' mlp.ini --set model.depth=50
refused 78 'model.norm_momentum' mlp.ini --set model.norm_momentum=0.5
refused 78 "model.depth" resnet.ini --set model.depth=19
run explain resnet.ini --set model.stride=1x1 --set model.norm=group --set model.norm_momentum=0.5
err_has '--set: note: model.stride has no effect with model.depth = 18, only with 50 and 101'
err_has '--set: note: model.norm_momentum has no effect with model.norm = group, only with batch'

begin "keys of other data, and what does not fit the data, are told with their place"
refused 78 'data.mean' \
    resnet.ini --set 'data.mean=0.5 0.5'
refused 78 'data.augment' \
    resnet.ini --set data.dataset=mnist-sample --set data.augment=autoaugment
refused 78 "data.shape" resnet.ini --set data.dataset=synthetic --set data.shape=8x8
refused 78 'data.shape' \
    resnet.ini --set data.shape=8x8x3
refused 78 'data.train_images' resnet.ini --set data.dataset=idx \
    --set data.train_labels=absent --set data.test_images=absent --set data.test_labels=absent
refused 78 'model.classes' resnet.ini --set model.classes=5
for model in resnet.ini batch.ini; do
    refused 66 'absent-i: No such file' $model --set data.dataset=idx --set data.train_images=absent-i \
        --set data.train_labels=absent --set data.test_images=absent --set data.test_labels=absent
done

begin "words that are no layers, or do not fit, say which word and what would be one"
sequential() { refused 78 "$1" batch.ini --set "model.layers=$2"; }
sequential "--set: error: model.layers: word 1, 'flaten', is none of conv, linear" 'conv:8x3 flaten linear:10'
sequential "word 0, 'conv', is not understood; write such as conv:32x3" 'conv relu linear:10'
sequential "word 1, 'conv:8x3', is for images, but comes after flatten" 'flatten conv:8x3 linear:10'
sequential 'a convolution needs an image, but gets 10' 'linear:10 conv:8x3 linear:10'
sequential 'cannot add values of shapes 32 x 32 x 8 and 32 x 32 x 3' 'conv:8x3 add:1 linear:10'
sequential "the last word must be a linear with an output for each class" 'conv:8x3 relu'
sequential 'has 9 outputs, but a sample of cifar10-sample has 32 x 32 x 3 = 3072 values and there are 10 classes' 'linear:9'
sequential 'larger than 2^31 - 1 numbers' 'conv:16777216x3 conv:16777216x3 linear:10'

begin "an image that strides and windows reduce to nothing"
sequential 'a convolution reduces an image of 6 x 6 x 8 to nothing: its window is 9 x 9' \
    'conv:8x9/4,pad=0 conv:8x9,pad=0 linear:10'
sequential 'a max pool reduces an image of 1 x 1 x 3 to nothing' \
    'maxpool:2 maxpool:2 maxpool:2 maxpool:2 maxpool:2 maxpool:2 linear:10'

begin "a cut at a layer that is not there gets the nearest name"
refused 78 "'layer3.0'" \
    resnet.ini --stages 2 --set pipeline.split_at=layer3.2
refused 78 "'layer2.0'" \
    resnet.ini --stages 2 --set 'pipeline.assignment=conv1-layer2.2 | layer3.0-fc'

begin "one value for each channel in batch norm"
one='layer layer4.0: batch norm has one value for each channel, and no variance, in a micro-batch of 1 sample'
refused 78 "pipeline.microbatches" resnet.ini --set pipeline.microbatches=4
refused 78 "data.drop_last = on" resnet.ini --set data.train_samples=9
refused 78 "train.batch_size" resnet.ini --set train.batch_size=1 \
    --set pipeline.microbatches=1
refused 78 "$one, as the last batch of 1 has; use more training samples" resnet.ini --set data.train_samples=1
ok run explain resnet.ini --set model.stem=cifar --set pipeline.microbatches=4
ok run explain resnet.ini --set data.train_samples=9 --set data.drop_last=on

begin "files of pictures that are cut short, empty or have a label 10"
record=3073
gzip -dc "$samples/test_batch.bin.gz" | head -c $((5 * record)) >test.bin
head -c $((4 * record + 100)) test.bin >short.bin
: >empty.bin
gzip -c test.bin | head -c 5000 >short.bin.gz
{
    head -c $((3 * record)) test.bin
    printf '\012'
    tail -c +$((3 * record + 2)) test.bin
} >label.bin
pictures() { refused 65 "$2" resnet.ini --set data.dataset=cifar10 --set "data.train_file=$1" --set data.test_file=test.bin; }
pictures short.bin 'short.bin: cut short: 4 whole records of 3073 bytes, then 100 bytes'
pictures short.bin.gz 'short.bin.gz: cut short: the file ends after 5000 bytes, inside its gzip stream'
pictures empty.bin 'empty.bin: empty file'
pictures label.bin 'label.bin: record 3 has label 10, expected 0 to 9'
run train resnet.ini --dir '' -q --set data.dataset=cifar10 --set data.train_file=test.bin --set data.test_file=test.bin \
    --set pipeline.microbatches=1 --set train.batch_size=5
code_is 0
finish
