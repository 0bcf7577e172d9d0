#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The digests of tests/golden/digests.txt: this processor gives them, with the vectors of each
# instruction set that it has. "print" writes the table anew.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

source=$(cd "$(dirname "$0")/../.." && pwd)
table=$source/tests/golden/digests.txt
cd "$folder" || exit 1
for i in $(seq 32); do printf 'sad\tnot good %d\nglad\tgood indeed %d\n' "$i" "$i"; done >train.tsv
cp train.tsv test.tsv
cp "$source/configs/encoder-classifier.ini" .
cut='--launch threads --max-steps 2 --set checkpoint.every_epochs=0 --set data.test_samples=4'
mnist="$source/configs/mnist-sample.ini --launch threads --max-steps 60 --set model.sizes=784,300,100,10"
gpt="--set data.dataset=shakespeare-sample --set model.n_embd=48 --set model.n_layer=2 --batch-size 4 $cut"

# The words of a run, by its name in the table.
words_of() {
    case $1 in
    adam) echo "$mnist --stages 1 --optimizer adam --lr 0.001 --batch-size 128" ;;
    sgd) echo "$mnist --stages 2 --microbatches 5 --optimizer sgd --lr 0.05 --batch-size 100" ;;
    tanh) echo "$mnist --stages 2 --optimizer momentum --lr 0.02 --batch-size 96 --set model.activation=tanh" ;;
    gelu) echo "$mnist --stages 2 --optimizer adamw --lr 0.002 --set model.activation=gelu" ;;
    replicas) echo "$mnist --stages 2 --replicas 2 --optimizer sgd --lr 0.05" ;;
    conv) echo "$source/configs/mnist-conv.ini --set data.dataset=mnist-sample --set pipeline.assignment=flops --batch-size 16 $cut" ;;
    resnet18) echo "$source/configs/resnet18-cifar10.ini --set data.dataset=cifar10-sample --batch-size 4 --microbatches 2 $cut" ;;
    gpt) echo "$source/configs/gpt-char.ini $gpt" ;;
    llama) echo "$source/configs/llama-small.ini $gpt" ;;
    encoder) echo "encoder-classifier.ini --batch-size 8 $cut" ;;
    decoder) echo "$source/configs/transformer-pytorch.ini --set model.n_embd=64 --set model.n_layer=2 --set pipeline.split_at=none --set model.block_size=24 --set model.vocab_size=90 --batch-size 4 $cut" ;;
    esac
}

find_digest() { # find_digest NAME PRECISION: in $got
    rm -rf run
    # shellcheck disable=SC2046
    run train $(words_of "$1") --set run.precision="$2" --set run.backend=cpu --dir run --overwrite -q
    code_is 0
    got=$(sha run/summary.json)
}

if [ "${1:-}" = print ]; then
    for name_of in ${NAMES:-adam sgd tanh gelu replicas conv resnet18 gpt llama encoder decoder}; do
        for precision in f32 bf16; do
            find_digest "$name_of" $precision
            echo "$got $name_of $precision"
        done
    done
    printf '%s' "$wrong" >&2
    [ -z "$wrong" ]
    exit
fi
all=$(PPCLI_KERNELS=none "$PPCLI" train "$source/configs/mnist-sample.ini" --set run.backend=cpu --max-steps 1 --dir no 2>&1)
all=$(echo "$all" | sed -n 's/.*this processor runs \(.*\); write.*/\1/p' | tr -d ,)
for kernels in ${KERNELS:-$all}; do
    begin "$kernels: the digests of the table"
    export PPCLI_KERNELS="$kernels"
    while read -r wanted name_of precision; do
        # Plain C without the processor's fused multiply-add takes minutes: all of the table in the suite
        # long, here a run of each kind that takes seconds. dev_bf16 judges its products in bfloat16.
        case "${1:-} $kernels $name_of $precision" in
        ' base '[stre]* | ' base gelu '* | ' base adam bf16') continue ;;
        esac
        find_digest "$name_of" "$precision"
        same "$got" "$wanted"
    done <"$table"
done
begin "an instruction set that is not here is refused with those that are"
export PPCLI_KERNELS=none
fails 69 "this processor runs ${all%% *}" run train "$source/configs/mnist-sample.ini" --dir no
unset PPCLI_KERNELS

begin "bfloat16 needs own products"
fails 78 "run.precision" run train "$source/configs/mnist-sample.ini" --set run.precision=bf16 --set run.gemm=cblas \
    --set run.backend=cpu --dir no
finish
