#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A digest that is expected, and runs that are trained again: ten that are equal, and ten in which something was
# changed. Outputs that do not depend on the batch.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

golden=$(cd "$(dirname "$0")/../golden/pt2" && pwd)
cd "$folder" || exit 1
export TMPDIR="$folder"
times_table
for i in $(seq 32); do printf 'sad\tnot good %d\nglad\tgood indeed %d\n' "$i" "$i"; done >labels.tsv
short='train.epochs=1 checkpoint.every=3 checkpoint.keep=9 run.log_every=1'
rows='data.dataset=synthetic data.train_samples=96 data.test_samples=20 train.batch_size=16 pipeline.microbatches=2'
text='data.dataset=text data.train_file=text.txt model.n_layer=2 model.n_head=2 model.n_embd=16 model.block_size=8 train.batch_size=8 train.max_steps=6'
# shellcheck disable=SC2086
config mlp.ini $rows "model.sizes=12 9*3 4" train.optimizer=adam $short
# shellcheck disable=SC2086
config sequential.ini $rows data.shape=8x8x3 model.type=sequential "model.layers=conv:4x3 batchnorm relu flatten linear:4" $short
# shellcheck disable=SC2086
config resnet.ini $rows data.shape=16x16x3 model.type=resnet model.depth=18 model.stem=cifar $short
# shellcheck disable=SC2086
config gpt.ini $text model.type=gpt $short model.dropout=0.1
# shellcheck disable=SC2086
config llama.ini $text model.type=llama $short
# shellcheck disable=SC2086
config encoder.ini data.dataset=text-labels data.train_file=labels.tsv data.test_file=labels.tsv model.type=encoder \
    model.n_layer=2 model.n_head=2 model.n_embd=16 model.n_hidden=16 model.block_size=24 train.batch_size=8 train.max_steps=6 $short

# again RUN OPTION...: reproduces it; nothing of it may change, and nothing may be left
again() {
    before=$(find "$1" -type f -exec cksum {} + | sort)
    run reproduce "$@"
    same "$(find "$1" -type f -exec cksum {} + | sort)" "$before"
    same "$(find . -maxdepth 1 -name 'ppcli-reproduce-*')" ''
}
# equal RUN OPTION...: it is reproduced
equal() {
    again "$@"
    code_is 0
    out_has 'is reproduced'
}
# other TEXT RUN OPTION...: it is not, and TEXT is said
other() {
    said=$1
    shift
    again "$@"
    code_is 81
    err_has 'is not reproduced' "$said"
}

begin "train --expect takes the digest, or its beginning"
ok run train mlp.ini --dir mlp --stages 2 -q
want=$(sha mlp/summary.json)
ok run train mlp.ini --dir '' -q --expect "$want"
ok run train mlp.ini --dir '' -q --stages 3 --expect "$(echo "$want" | cut -c 1-8)"

begin "another digest is exit code 81, and names what may differ"
fails 81 "weights_sha256 is $want" run train mlp.ini --dir '' -q --expect 0123456789
err_has 'not the expected 0123456789' 'data, config or version differ'
fails 81 'gradients of 2 replicas' run train mlp.ini --dir '' -q --replicas 2 --expect 0123456789
fails 81 'not the expected' run train mlp.ini --dir mlp --resume --expect 0123456789
ok run train mlp.ini --dir mlp --resume --expect "$want"
fails 64 'not a digest' run train mlp.ini --dir '' --expect xyz
fails 64 'not a digest' run train mlp.ini --dir '' --expect 01234

for kind in mlp sequential resnet gpt llama encoder; do
    begin "a run is reproduced: $kind"
    [ -d $kind ] || ok run train $kind.ini --dir $kind -q
    equal $kind
    out_has 'checkpoints      2 of 2 equal' 'losses of steps  6 of 6 equal'
done

begin "a run of a PyTorch program is reproduced"
cp "$golden/text.pt2" my.pt2
run init my.pt2 text.txt -o my.ini
ok run train my.ini --dir program --max-steps 6 -q --set checkpoint.every=3
equal program

begin "two stages are reproduced by one, by three, by threads and by other micro-batches"
equal mlp --stages 1
equal mlp --stages 3 --schedule gpipe --set run.threads=2
out_has '6 of 6 equal' 'weights_sha256'
equal mlp --microbatches 4

begin "each instruction set of the processor reproduces the others"
kinds=$(PPCLI_KERNELS=none "$PPCLI" train mlp.ini --set run.backend=cpu --dir '' 2>&1 | sed -n 's/.*this processor runs \(.*\); write.*/\1/p' | tr -d ,)
for kernels in $kinds; do
    PPCLI_KERNELS=$kernels equal gpt
done

begin "a run that was resumed, on other stages, is reproduced"
ok run train mlp.ini --dir resumed --max-steps 4 -q --stages 2
ok run train resumed --resume --max-steps 0 -q --stages 1
equal resumed
begin "so is one whose config changed with --allow"
ok run train mlp.ini --dir allowed --max-steps 4 -q
ok run train allowed --resume --max-steps 0 -q --lr 0.0001 --allow train.lr
equal allowed
begin "so is one with other replicas from a step on"
ok run train mlp.ini --dir replicas --max-steps 4 -q
ok run train replicas --resume --max-steps 0 -q --replicas 2
equal replicas
begin "so is one that became longer while its learning rate fell"
ok run train mlp.ini --dir falls -q --epochs 1 --set train.lr_schedule=cosine
ok run train falls --resume --epochs 2 -q
equal falls --stages 3
begin "so is one that was killed"
killed mlp.ini --set data.train_samples=4000
equal killed --stages 1
out_has 'checkpoints      '
out_lacks 'not compared'
begin "so is one that diverged"
awk 'BEGIN { print "a,b,c,label"
    for (i = 0; i < 64; i++)
        printf "%d,%d,%d,%d\n", 1e9 * (i * 7 % 13 - 6), 1e9 * (i * 11 % 17 - 8), 1e9 * i, i % 2 }' >big.csv
config big.ini data.dataset=csv data.train_file=big.csv data.test_file=big.csv model.type=sequential \
    'model.layers=linear:8 linear:8 relu linear:8 relu linear:2' train.batch_size=32 train.max_steps=1 train.optimizer=sgd \
    train.lr=1000 run.backend=cpu
fails 80 'not finite' run train big.ini --dir diverged -q
equal diverged
begin "so is one whose records the clock decided"
ok run train mlp.ini --dir clock -q --set run.log_every=0 --epochs 3
equal clock --stages 2
begin "the new run may be kept"
equal mlp --dir kept
[ -f kept/summary.json ] || complain 'no new run'

begin "another seed is named"
other 'another config: train.seed was ' mlp --seed 7
err_has 'first step known to differ is 1: loss of step 1'
begin "another learning rate, of the original's config file"
cp -r mlp spoiled
sed -i 's/^lr = .*/lr = 0.5/' spoiled/config.resolved.ini
other 'another config: train.lr was' spoiled
begin "one bit of the data"
cp -r gpt data
tr 7 8 <text.txt >text.new
mv text.txt text.old && mv text.new text.txt
other 'other data: the CRC-32 of the train images' data
mv text.old text.txt
err_has 'tensor transformer.' # a weight, though names of the optimizer come first
begin "one sample fewer"
other 'another config: data.train_samples was 96, is 95' mlp --set data.train_samples=95
begin "another batch"
other 'another config: train.batch_size was 16, is 8' mlp --batch-size 8
begin "other replicas"
other 'another config: pipeline.replicas was 1, is 2' mlp --replicas 2
begin "other precision"
other 'run.precision was f32, is bf16' mlp --set run.precision=bf16
begin "one weight of a checkpoint, in its middle"
rm -rf spoiled
cp -r mlp spoiled
part=$(find spoiled/checkpoints/step-00000003 -name '*.safetensors' | sort | head -1)
size=$(wc -c <"$part")
printf '\101' | dd of="$part" conv=notrunc bs=1 seek=$((size - 2)) 2>/dev/null
other 'the checkpoint was changed after it was written' spoiled
err_has 'first step known to differ is 3' 'at the checkpoint of step 3 tensor' 'differs first: element [' '(1 of '
begin "a loss of metrics.jsonl"
rm -rf spoiled
cp -r mlp spoiled
sed -i '/"type":"step","step":4,/s/"loss":[0-9.]*/"loss":0.125/' spoiled/metrics.jsonl
other 'first step known to differ is 4: loss of step 4 was 0.125' spoiled
begin "a file of a checkpoint that is missing"
rm -rf spoiled
cp -r mlp spoiled
rm "$part"
other 'the original cannot be read' spoiled
begin "data of a run whose header has no digests"
rm -rf spoiled
cp -r gpt spoiled
sed -i 's/,"train_images_crc32":[0-9]*//' spoiled/metrics.jsonl
tr 7 8 <text.txt >text.new
mv text.txt text.old && mv text.new text.txt
other 'other data: the CRC-32 of the train images' spoiled
mv text.old text.txt
begin "another build"
rm -rf spoiled
cp -r mlp spoiled
sed -i -e 's/"build":"[^"]*"/"build":"other, -ffast-math"/' -e '/"type":"step","step":5,/s/"loss":[0-9.]*/"loss":0.125/' \
    spoiled/metrics.jsonl
other "another build: was 'other, -ffast-math'" spoiled
begin "weights of train.init that are other ones now"
# shellcheck disable=SC2086
config init.ini $rows "model.sizes=12 9*3 4" train.optimizer=adam $short "train.init=$folder/kept/checkpoints/step-00000003"
ok run train init.ini --dir init -q
equal init
rm -rf kept/checkpoints/step-00000003
cp -r allowed/checkpoints/step-00000004 kept/checkpoints/step-00000003 2>/dev/null
sed -i "s/step-00000003/step-00000004/" init/config.resolved.ini
cp -r allowed/checkpoints/step-00000004 kept/checkpoints/ 2>/dev/null
other 'train.init = ' init

begin "a backend with sums in another order is refused before it trains"
if ok run train mlp.ini --dir linked -q --set run.gemm=cblas 2>/dev/null && [ "$code" -eq 0 ]; then
    fails 78 'bits cannot be compared' run reproduce linked --set run.gemm=fma
else
    skip 'no linked library'
fi
begin "what is no run is refused"
fails 64 'name a run folder' run reproduce
fails 66 'no run' run reproduce nothing
fails 64 'is a config' run reproduce mlp.ini
fails 64 '' run reproduce mlp --epochs 2

begin "predictions are the same bytes at batch 1, 7 and 128, with any threads"
for kind in mlp resnet encoder; do
    ok run eval $kind --predictions one.csv
    for batch in 1 7 128; do
        for threads in 1 3; do
            ok run eval $kind --predictions other.csv --stages 1 --microbatches 1 --batch-size $batch --set run.threads=$threads
            cmp -s one.csv other.csv || complain "$kind, batch $batch, $threads threads: other predictions"
        done
    done
done
begin "a text is the same at batch 1, 7 and 128, with any threads"
for kind in gpt llama; do
    ok run generate $kind --prompt '3 times 4' --tokens 20 --seed 3
    cp out one.txt
    for batch in 1 7 128; do
        for threads in 1 3; do
            ok run generate $kind --prompt '3 times 4' --tokens 20 --seed 3 --set pipeline.microbatches=1 --set train.batch_size=$batch --set run.threads=$threads
            cmp -s one.txt out || complain "$kind, batch $batch, $threads threads: another text"
        done
    done
done
finish
