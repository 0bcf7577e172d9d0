#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How many kernels and products of libraries a step of one micro-batch launches, counted in the emulation.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"

cd "$folder" || exit 1
export PPCLI_FAKE_CALLS="$folder/calls"
common='pipeline.microbatches=1 train.batch_size=2 train.epochs=1 data.test_samples=2 run.backend=cuda
    run.precision=bf16 run.graphs=off'

# a_step MOST WORD...: two steps launch at most so many more than one
a_step() {
    most=$1 launches=0
    shift
    for steps in 1 2; do
        ok run train net.ini --dir '' -q --set data.train_samples=$((2 * steps)) "$@"
        before=$launches
        launches=$(awk '/^(launch|cublasLtMatmul|cudnnConvolution.*) / { n += $2 } END { print n }' calls)
    done
    more=$((launches - before))
    if [ $more -lt 100 ] || [ $more -gt "$most" ]; then
        complain "$more launches, expected at most $most: $*"
    fi
}

begin "a step of a 12-layer GPT takes few launches, and clipping two more"
# shellcheck disable=SC2086 # words
config net.ini data.dataset=synthetic-tokens model.type=gpt model.n_layer=12 model.n_head=2 model.n_embd=16 \
    model.block_size=128 model.vocab_size=65 train.optimizer=adamw train.decay=weights $common
a_step 323
a_step 325 --set train.clip_norm=1

begin "a step of ResNet-50 on images of 32 x 32 takes few launches, and of ResNet-18 with cuDNN"
# shellcheck disable=SC2086
config net.ini data.dataset=synthetic data.shape=32x32x3 model.type=resnet model.depth=50 model.stem=imagenet \
    train.optimizer=adam $common
a_step 450
a_step 176 --set model.depth=18 --set run.conv=cudnn

finish
