#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/gpu-check.sh on the emulated GPU: it finds the device, runs the product on it, and reads
# the tables of the benchmarks. Small networks; the speeds mean nothing.
#   gpu_check.sh PPCLI-FAKEGPU ROOT
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in small wide pipeline; do
    printf '[model]\nsizes = 20 16*7 5\n[train]\nbatch_size = 32\noptimizer = sgd\n[data]\ntrain_samples = 256\n' \
        >"$folder/gpu-$name.ini"
done
for net in gpt-char:gpt llama-small:llama; do
    printf '[model]\ntype = %s\nn_layer = 2\nn_head = 2\nn_embd = 16\nblock_size = 8\n[train]\nbatch_size = 4\n' \
        "${net#*:}" >"$folder/${net%:*}.ini"
done
words='conv:4x5/4 batchnorm relu maxpool:2 conv:4x1 relu flatten linear:8 relu linear:10'
for net in mnist-conv resnet18-cifar10; do
    printf '[model]\ntype = sequential\nlayers = %s\n[train]\nbatch_size = 16\nlr = 0.001\n' "$words" \
        >"$folder/$net.ini"
done
LD_LIBRARY_PATH=$(dirname "$1") # before the toolkit's
export LD_LIBRARY_PATH
export PPCLI_FAKE_GPUS=1 GPU_CHECK_CONFIGS="$folder" GPU_CHECK_CEILINGS=--no-ceilings GPU_CHECK_TIMES=20
code=0
"$2/scripts/gpu-check.sh" "$folder/out" --program "$1" --only env --only ops --only nets --only g1 \
    --seconds 5000 >"$folder/table" 2>&1 || code=$?
cat "$folder/table"
[ $code -eq 0 ] || { tar -xOf "$folder/out/results.tar" --wildcards '*.log'; exit 1; }
PPCLI_FAKE_GPUS=2 "$2/scripts/gpu-check.sh" "$folder/two" --program "$1" --only devices --seconds 5000 >>"$folder/table" 2>&1 ||
    { tar -xOf "$folder/two/results.tar" --wildcards '*.log'; exit 1; }
cat "$folder/table"
grep -q '^devices *passed .*2 devices$' "$folder/table"
grep -q '^env  *passed .*0: emulated GPU$' "$folder/table"
grep -q '^ops  *skipped .*no programs' "$folder/table"
grep -q '^nets *passed .*gpt-char ok, llama-small ok, mnist-conv ok, resnet18-cifar10 ok' "$folder/table"
grep -q '^g1  *passed .*bf16 [1-9][0-9]*/s' "$folder/table"
