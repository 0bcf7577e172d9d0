#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A value that is not finite: the layer, rank and stage that computed it are named, and the advice fits.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
awk 'BEGIN { srand(3); print "a,b,c,label"
    for (i = 0; i < 64; i++)
        printf "%.6g,%.6g,%.6g,%d\n", 1e12 * (rand() - 0.5), 1e12 * (rand() - 0.5), 1e12 * rand(), i % 2 }' >big.csv
config big.ini data.dataset=csv data.train_file=big.csv data.test_file=big.csv model.type=sequential \
    model.layers=linear:2 train.batch_size=32 train.max_steps=4 train.optimizer=sgd train.lr=1000 \
    run.backend=cpu
config image.ini data.dataset=mnist-sample data.std=1e-11 data.test_samples=64 model.type=sequential \
    model.layers=linear:10 pipeline.microbatches=2 train.batch_size=32 train.max_steps=4 \
    train.optimizer=sgd train.lr=1000 run.backend=cpu

begin "convolutions, which promise nothing: the layer in the middle is named, not the last"
layers='conv:4x3 relu conv:4x3 relu conv:4x3 relu flatten linear:10'
for shape in "--stages 1" "--stages 3" "--stages 3 --replicas 2 --schedule zb-h1"; do
    # shellcheck disable=SC2086
    fails 80 '' run train image.ini --dir '' -q $shape --set "model.layers=$layers"
    at=$(sed -n 's/.*the output of layers.\([0-9]*\) is not finite (Inf), first of micro-batch 0, on rank.*/\1/p' "$folder/err")
    same "$at" 4
    err_has "; the largest weight is "
done
err_has 'on rank 1 (stage 1)'

begin "inside a block: that block, not the one before"
config gpt.ini data.dataset=shakespeare-sample model.type=gpt model.n_layer=3 model.n_head=2 model.n_embd=16 \
    model.block_size=16 train.batch_size=8 train.max_steps=1 run.backend=cpu train.eval_interval=100
ok run train gpt.ini --dir whole -q
cat >damage.py <<'EOF'
import glob, json, struct
name = [n for n in glob.glob("whole/checkpoints/step-*/*.safetensors") if "optim" not in n][0]
data = bytearray(open(name, "rb").read())
at = 8 + struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:at])
tensor = [t for k, t in head.items() if k.endswith("h.1.ln_1.weight")][0]
for i in range(at + tensor["data_offsets"][0], at + tensor["data_offsets"][1], 4):
    data[i : i + 4] = struct.pack("<f", 3e38)
open("damaged.safetensors", "wb").write(data)
EOF
if command -v python3 >/dev/null 2>&1 && python3 damage.py; then
    for stages in 1 3; do
        fails 80 'the output of h.1 is not finite (Inf), first of micro-batch 0' \
            run train gpt.ini --dir '' -q --stages $stages --set train.init=damaged.safetensors
        err_has '; the largest weight is 3e+38'
    done
    err_has 'on rank 1 (stage 1)'
else
    skip "no python3"
fi

begin "a sum of squares that no float holds is no gradient" \
    fails 80 'the new value of layers.2.running_var is not finite (Inf) on rank 0 (stage 0); the largest weight is ' \
    run train big.ini --dir '' -q --set 'model.layers=linear:8 relu batchnorm linear:8 relu linear:8 relu linear:2'

begin "a test after weights have grown too large: which layer, and no word about the samples"
for stages in 1 3; do
    fails 80 '' run train big.ini --dir run$stages -q --stages $stages --max-steps 1 \
        --set 'model.layers=linear:8 linear:8 relu linear:8 relu linear:2'
    err_has 'step 1 (epoch 1): the test loss is not finite (NaN), in 2 of 2 batches: the output of layers.1 is not finite'
    err_has "on rank 0 (stage 0); the largest weight is "
    err_has "they are saved. Lower train.lr (it is 1000)"
    err_lacks 'ook at'
    fails 80 '' run eval run$stages
    err_has 'in 2 of 2 batches: the output of layers.1 is not finite (Inf), first of micro-batch 0, on rank 0 (stage 0)'
done

begin "some samples alone: they are to be looked at"
head -n 33 big.csv | awk -F, 'NR == 1 { print } NR > 1 { print $1 / 1e12 "," $2 / 1e12 "," $3 / 1e12 "," $4 }' >small.csv
{ cat small.csv; awk -F, 'BEGIN { for (i = 0; i < 32; i++) print "3e38,3e38,3e38,1" }'; } >odd.csv
fails 80 'in 1 of 2 batches: the output of layers.' \
    run train big.ini --dir '' -q --stages 2 --set train.lr=0.1 --set data.train_file=small.csv \
    --set data.test_file=odd.csv --set 'model.layers=linear:64 linear:8 relu linear:2'
err_has 'Look at the samples of these batches, lower train.lr'

begin "the losses after one enormous batch are those of the same batches without it"
awk 'BEGIN { srand(5); for (i = 0; i < 640; i++) { v = rand() - 0.5; print v "," (v > 0) } }' >small.csv </dev/null
awk -F, 'NR == 100 { $1 = "1e18" } { print $1 "," $2 }' small.csv >cell.csv
config cell.ini data.dataset=csv data.train_file=cell.csv data.test_file=small.csv 'model.sizes=1 4 2' \
    train.optimizer=sgd train.lr=1e-30 train.epochs=1 train.batch_size=16 run.log_every=1 run.backend=cpu
for stages in 1 2; do
    ok run train cell.ini --dir cell -q --overwrite --stages $stages
    grep '"type":"step"' cell/metrics.jsonl | sed 's/.*"loss":\([^,]*\),.*/\1/' >with
    ok run train cell.ini --dir cell -q --overwrite --stages $stages --set data.train_file=small.csv
    grep '"type":"step"' cell/metrics.jsonl | sed 's/.*"loss":\([^,]*\),.*/\1/' >without
    same "$(paste with without | awk '$1 != $2' | wc -l)" 1
done
run train cell.ini --dir '' --stages 1
grep -q 'loss=[0-9.]*e+[0-9]* ' "$folder/out" || complain "the large loss: $(grep -o 'loss=[^ ]*' "$folder/out" | sort -u | tail -1)"
same "$(grep -o ' loss=[^ ]*' "$folder/out" | grep -c '[0-9]\{12\}')" 0

finish
