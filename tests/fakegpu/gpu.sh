#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli on an emulated GPU: checkpoints go from CPU to GPU and back, a step allocates nothing and
# never waits, and whatever the device refuses ends the run with one line.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)

cd "$folder" || exit 1
config net.ini data.dataset=synthetic data.train_samples=300 data.test_samples=50 \
    'model.sizes=12 9*5 4' pipeline.microbatches=3 pipeline.stages=2 train.batch_size=32 \
    train.epochs=2 train.lr=0.01 train.clip_norm=1 run.backend=cuda

number() { sed -n "s/.*\"$2\": \"\{0,1\}\([-0-9a-z.]*\).*/\1/p" "$1/summary.json" | head -n 1; }
# near A B: the two agree within a part of 1e-4
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && d <= 1e-4 * b) }' ||
        complain "$last: $1, expected about $2"
}
# with NAME=VALUE WORD...: run, with that in the environment
with() {
    export "${1?}"
    variable=${1%%=*}
    shift
    run "$@"
    unset "$variable"
}
# How often a function of CUDA was called in the last run that wrote its calls.
calls() { sed -n "s/^$1 //p" "$folder/calls" | grep . || echo 0; }

begin "a run on the GPU says what it computes with"
ok run train net.ini --dir gpu
err_has 'emulated GPU'
out_has 'comparable with  the same kind of GPU and version of cuBLASLt'
ok run train net.ini --dir cpu -q --backend cpu
near "$(number gpu test_loss)" "$(number cpu test_loss)"

begin "auto takes the GPUs that it can use, and says why it leaves one unused"
blas=libcublasLt.so
for row in 'PPCLI_FAKE_CAPABILITY=75:compute capability 7.5, and 8.0 is the least' \
    'PPCLI_FAKE_COUNT=802:start the fabric manager' 'PPCLI_FAKE_DRIVER=11040:the NVIDIA driver is for CUDA 11.4' \
    'PPCLI_FAKE_MODE=2:compute mode prohibited' 'PPCLI_FAKE_COUNT=100:the NVIDIA driver shows no device' \
    "PPCLI_FAKE_FAIL=$blas.13;1;1,$blas.13;2;1,$blas.12;1;1,$blas.12;2;1:cannot be loaded; install cuBLAS"; do
    ok with "$(echo "${row%%:*}" | tr ';' ':')" train net.ini --dir '' --set train.max_steps=1 --backend auto
    err_has "warning: the GPU of this machine is not used: "
    err_has "${row#*:}"
    same "$(grep -c 'warning: ' "$folder/err")" 1
done
for row in PPCLI_FAKE_GPUS=none PPCLI_FAKE_GPUS=0; do
    ok with "$row" train net.ini --dir '' --set train.max_steps=1 --backend auto
    err_lacks 'warning'
done
export PPCLI_FAKE_GPUS=2
ok with 'PPCLI_FAKE_CAPABILITY=75 90' train net.ini --dir '' --set train.max_steps=1 --backend auto
err_has 'warning: device 0 (emulated GPU) is not used: compute capability 7.5, and 8.0 is the least'
err_has 'rank 0, stage 0: cuda:1'
fails 69 'run.devices: device 0 (emulated GPU) cannot be used: compute capability 7.5' \
    with 'PPCLI_FAKE_CAPABILITY=75 90' train net.ini --dir '' --set run.devices=0
ok with 'PPCLI_FAKE_CAPABILITY=75 90' env
out_has 'cannot be used: compute capability 7.5'
unset PPCLI_FAKE_GPUS

begin "a run on the GPU goes on from its own checkpoint with the same bits"
ok run train net.ini --dir half -q --set train.max_steps=13
ok run train net.ini --dir half -q --resume --stages 3
same "$(number half weights_sha256)" "$(number gpu weights_sha256)"

begin "a checkpoint of the CPU goes on on the GPU, and back"
ok run train net.ini --dir there -q --backend cpu --set train.max_steps=7
ok run train net.ini --dir there -q --resume --set train.max_steps=14
ok run train net.ini --dir there -q --resume --backend cpu
near "$(number there test_loss)" "$(number cpu test_loss)"
ok run verify there

begin "weights trained on the GPU are evaluated on it and on the CPU alike"
ok run eval net.ini --checkpoint gpu -q
on_gpu=$(grep -o 'accuracy *[0-9.]*' "$folder/out")
ok run eval net.ini --checkpoint gpu -q --backend cpu
same "$on_gpu" "$(grep -o 'accuracy *[0-9.]*' "$folder/out")"
[ -n "$on_gpu" ] || complain "no accuracy in: $(cat "$folder/out")"

begin "values in bfloat16 make messages half as large, and evaluate to the logits of the CPU"
for precision in f32 bf16; do
    ok run explain net.ini --set run.precision=$precision
    err_lacks 'not counted'
    sed -n '/bytes to next/{n;p;}' "$folder/out" | awk '{ print $7 }' >"bytes.$precision"
done
out_has 'samples in bf16, and as many back'
same "$((2 * $(cat bytes.bf16)))" "$(cat bytes.f32)"
ok run eval net.ini --checkpoint gpu -q --set run.precision=bf16 --predictions half.csv
ok run eval net.ini --checkpoint gpu -q --backend cpu --predictions full.csv
paste -d, full.csv half.csv | awk -F, 'NR > 1 {
        for (i = 3; i <= 6; i++) { d = $i - $(i + 11); if (d < 0) d = -d; if (d > most) most = d; n++ } }
    END { exit !(n == 200 && most > 0 && most < 0.05) }' ||
    complain "logits differ: $(head -n 2 full.csv half.csv)"

begin "predictions on the GPU are written for several batches, recorded steps or not"
for graphs in auto off; do
    ok run eval net.ini --checkpoint gpu -q --predictions $graphs.csv --batch-size 16 --set run.graphs=$graphs
    same "$(wc -l <$graphs.csv | tr -d ' ')" 51
done
cmp -s auto.csv off.csv || complain 'other predictions without graphs'

# sum NAME...: calls of all of them
sum() {
    total=0
    for name_of_call in "$@"; do
        total=$((total + $(calls "$name_of_call")))
    done
    echo $total
}

# count STEPS GRAPHS: what a run of so many steps made, waited for and launched
count() {
    # without a folder: with one a short run meets 50 times for its records
    ok with "PPCLI_FAKE_CALLS=$folder/calls" train net.ini --dir '' -q \
        --set train.epochs=1 --set data.train_samples=$((32 * $1)) --set run.graphs="$2" \
        --set checkpoint.every_epochs=0 --set run.log_every=1
    made=$(sum cudaMalloc cudaHostAlloc cudaEventCreateWithFlags cudaStreamCreateWithFlags \
        cudaFree cudaGraphInstantiate cublasLtMatmulDescCreate cublasLtMatrixLayoutCreate)
    waits=$(sum cudaStreamSynchronize cudaDeviceSynchronize cudaEventSynchronize cudaMemcpy)
    launches=$(calls launch)
}

# The ranks meet after every step (run.log_every = 1), else the clock would say how often. A meeting
# waits twice.
begin "more steps cost no more allocations, and only their meetings make the host wait"
for graphs in on off; do
    count 10 $graphs
    made_before=$made waits_before=$waits launches_before=$launches
    count 30 $graphs
    same "$made" "$made_before"
    same "graphs $graphs: $((waits - waits_before)) waits in 20 steps" "graphs $graphs: 20 waits in 20 steps"
    # 20 steps of 2 ranks: with graphs none of their kernels is launched by the host
    if [ $graphs = on ]; then
        [ $((launches - launches_before)) -lt 20 ] || complain "$launches launches, before $launches_before"
    else
        [ $((launches - launches_before)) -gt 400 ] || complain "$launches launches, before $launches_before"
    fi
done

# data.resize = 28 leaves the pictures as they are, but is done on the host, and so is all the rest then.
begin "pictures that the device crops and flips are those that the host makes"
config moved.ini data.dataset=mnist-sample "data.path=$root/data/mnist-sample" 'data.augment=flip crop' \
    'model.sizes=784 12*3 10' data.train_samples=200 data.test_samples=20 train.batch_size=32 \
    pipeline.microbatches=3 train.epochs=2 run.backend=cuda
for more in '--stages 1' '--stages 2 --set run.graphs=off' '--stages 2 --replicas 2' \
    '--stages 3 --schedule zb-h1'; do
    # shellcheck disable=SC2086 # words
    ok with "PPCLI_FAKE_CALLS=$folder/calls" train moved.ini --dir moved --overwrite -q $more
    by_device=$(number moved weights_sha256)
    few=$(calls cudaHostAlloc)
    # shellcheck disable=SC2086
    ok with "PPCLI_FAKE_CALLS=$folder/calls" train moved.ini --dir moved --overwrite -q $more --set data.resize=28
    same "$more: $(number moved weights_sha256)" "$more: $by_device"
    [ "$few" -lt "$(calls cudaHostAlloc)" ] || complain "$more: the host made pictures: $few buffers"
    # shellcheck disable=SC2086
    run train moved.ini --dir moved --overwrite -q $more --set data.augment=none
    [ "$(number moved weights_sha256)" != "$by_device" ] || complain "$more: nothing was moved"
done

begin "a stage behind one that learns nothing asks the device for no gradient of its input"
config pooled.ini data.dataset=synthetic data.shape=8x8x3 data.train_samples=20 data.test_samples=10 \
    model.type=sequential 'model.layers=maxpool:2 conv:8x3 relu conv:8x3 linear:10' pipeline.microbatches=2 \
    train.batch_size=10 train.epochs=2 run.backend=cuda
ok run train pooled.ini --dir pooled -q
for more in 'split_at=layers.1' 'split_at=layers.1 layers.3'; do
    run train pooled.ini --dir cut --overwrite -q --set "pipeline.$more" --stages $(($(echo "$more" | wc -w) + 1))
    code_is 0
    same "$(number cut weights_sha256)" "$(number pooled weights_sha256)"
done

begin "a text goes on on the GPU as on the CPU, keys and values kept there"
config text.ini data.dataset=text "data.train_file=$root/LICENSE" model.type=gpt model.n_layer=2 \
    model.n_head=2 model.n_embd=16 model.block_size=24 train.batch_size=8 train.max_steps=60 train.lr=0.01
ok run train text.ini --dir text -q --backend cpu
for kind in gpt llama; do
    [ $kind = gpt ] || run train text.ini --dir text --overwrite -q --backend cpu --set model.type=llama
    code_is 0
    for words in '--prompt The' '--prompt-file long --seed 3'; do
        printf 'the licensor and the work, which' >long
        # shellcheck disable=SC2086
        run generate text.ini --set model.type=$kind --checkpoint text --tokens 40 --temperature 0 -q --backend cpu $words
        code_is 0
        cp "$folder/out" said
        # shellcheck disable=SC2086
        run generate text.ini --set model.type=$kind --checkpoint text --tokens 40 --temperature 0 -q --backend cuda $words
        code_is 0
        same "$kind: $(cat "$folder/out")" "$kind: $(cat said)"
    done
done
with "PPCLI_FAKE_CALLS=$folder/calls" generate text.ini --set model.type=llama --checkpoint text --prompt The \
    --tokens 10 --temperature 0 -q --backend cuda
made_before=$(calls cudaMalloc) launches_before=$(calls launch)
with "PPCLI_FAKE_CALLS=$folder/calls" generate text.ini --set model.type=llama --checkpoint text --prompt The \
    --tokens 20 --temperature 0 -q --backend cuda
same "$(calls cudaMalloc)" "$made_before"
[ "$(calls launch)" -gt "$launches_before" ] || complain 'nothing was launched'

begin "labelled texts of more than 256 tokens are whole on the GPU"
for i in 0 1 2 3 4 5 6 7 8 9; do
    printf '%d\tno %d of the texts\n' $((i % 3)) "$i" >>labels.tsv
done
config labels.ini data.dataset=text-labels data.train_file=labels.tsv data.test_file=labels.tsv \
    data.tokens=bytes model.type=encoder model.n_layer=2 model.n_head=2 model.n_embd=16 model.block_size=24 \
    pipeline.stages=2 pipeline.microbatches=2 train.batch_size=4 train.epochs=2
for padding in off on; do
    run train labels.ini --dir labels --overwrite -q --set model.mask_padding=$padding --backend cpu
    on_cpu=$(number labels test_loss)
    ok run train labels.ini --dir labels --overwrite -q --set model.mask_padding=$padding --backend cuda
    near "$(number labels test_loss)" "$on_cpu"
done

begin "a device that has no memory left is named, with what was asked for" \
    fails 69 'memory' with "PPCLI_FAKE_MEMORY=4096" train net.ini --dir small

begin "every call of CUDA that fails ends the run in one line"
for fail in cudaMalloc:2:2 cudaHostAlloc:1:2 cudaStreamCreateWithFlags:1:2 cudaEventCreateWithFlags:3:2 \
    cublasLtMatmul:40:13 cudaMemcpyAsync:99:719 launch:90:719 cublasLtCreate:1:3 cudaGraphLaunch:3:719; do
    with "PPCLI_FAKE_FAIL=$fail" train net.ini --dir fails --overwrite -q --set run.graphs=on
    if [ "$code" -eq 0 ] || [ "$code" -ge 99 ]; then complain "$fail: exit $code"; fi
    [ "$(grep -c 'error:' "$folder/err")" -eq 1 ] || complain "$fail: said $(head -c 600 "$folder/err")"
done

begin "a kernel that breaks the device ends all ranks"
with "PPCLI_FAKE_FAIL=kernel:300:700" train net.ini --dir broken -q
if [ "$code" -eq 0 ] || [ "$code" -ge 99 ]; then complain "exit $code"; fi
err_has 'illegal'

begin "convolutions by cuDNN are those of ppcli, and its library is asked for"
with "PPCLI_FAKE_CALLS=$folder/calls" train pooled.ini --dir dnn -q --set run.conv=cudnn
code_is 0
[ "$(calls cudnnConvolutionBackwardFilter)" -gt 0 ] || complain 'cuDNN computed nothing'
near "$(number dnn test_loss)" "$(number pooled test_loss)"
for pass in Forward BackwardData BackwardFilter; do
    ok with "PPCLI_FAKE_FAIL=cudnnConvolution$pass:2:3000" train pooled.ini --dir fails --overwrite -q --set run.conv=cudnn
    near "$(number fails test_loss)" "$(number dnn test_loss)"
done
for fail in libcudnn.so.9:1:1=69:'libcudnn.so.9 cannot be loaded; install' cudnnCreate:1:1=69:'use run.conv = own' \
    cudnnConvolutionForward:3:5003=76:'resume from'; do
    with "PPCLI_FAKE_FAIL=${fail%%=*}" train pooled.ini --dir fails --overwrite -q --set run.conv=cudnn
    why=${fail#*=}
    code_is "${why%%:*}"
    err_has "${why#*:}"
done

begin "without a device the CPU is used, and asking for a device says why not"
fails 69 'driver' with "PPCLI_FAKE_GPUS=none" train net.ini --dir none
ok with "PPCLI_FAKE_GPUS=0" train net.ini --dir auto --backend auto
err_lacks 'emulated GPU'

finish
