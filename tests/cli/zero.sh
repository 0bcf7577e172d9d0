#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train.zero: the optimizer's state divided among the replicas. The same weights and the same checkpoints as
# without, whatever the model, the launch and the interruptions; and less memory.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

samples=$(cd "$(dirname "$0")/../../data/cifar10-sample" && pwd)
cd "$folder" || exit 1
times_table
config gpt.ini data.dataset=text data.train_file=text.txt model.type=gpt model.n_layer=3 model.n_head=2 \
    model.n_embd=64 model.block_size=8 model.dropout=0.1 pipeline.microbatches=2 train.batch_size=12 \
    train.eval_interval=50 train.optimizer=adamw train.weight_decay=0.1 train.decay=weights train.lr=0.01 \
    train.clip_norm=0.5 train.max_steps=4 checkpoint.every_epochs=0
words='conv:8x5/2,pad=same batchnorm relu maxpool:2 conv:64x3 batchnorm relu conv:128x3,pad=1 batchnorm
relu flatten linear:20 tanh linear:10'
config net.ini data.dataset=cifar10-sample "data.path=$samples" data.train_samples=50 \
    data.test_samples=20 'data.augment=crop flip' model.type=sequential \
    "model.layers=$(echo "$words" | tr '\n' ' ')" pipeline.microbatches=2 train.batch_size=20 \
    train.epochs=2 train.lr=0.003 run.backend=cpu checkpoint.every_epochs=0
config mlp.ini data.dataset=synthetic data.train_samples=194 data.test_samples=64 \
    'model.sizes=784 256 256 256 256 10' pipeline.microbatches=4 train.batch_size=64 \
    train.epochs=1 train.optimizer=momentum train.lr=0.01

# saved: the digest of all tensors that the last run saved
saved() { cat run/checkpoints/step-*/*.safetensors | sha256sum; }

# divides CONFIG [OPTION...]: the bits and the files of the same run without
divides() {
    digest=
    trains "$@"
    whole=$(saved)
    trains "$@" --set train.zero=1
    same "$(saved)" "$whole"
}

begin "the checkpoint is that of a run without, whatever the model and the optimizer"
for optimizer in momentum adamw muon; do
    divides mlp.ini --replicas 3 --stages 2 --optimizer $optimizer
done
divides gpt.ini --replicas 2 --stages 2
divides net.ini --replicas 3 --stages 2

begin "the running variance of columns whose mean is thousands of deviations"
awk 'BEGIN { srand(5); print "a,b,c,d"
    for (i = 0; i < 96; i++)
        printf "%.6g,%.6g,%.6g,%d\n", 10000 + 4 * rand(), 4 * rand() - 30000, 4 * rand(), i % 2 }' >far.csv
config far.ini data.dataset=csv data.train_file=far.csv data.test_file=far.csv model.type=sequential \
    'model.layers=batchnorm linear:8 relu linear:2' train.batch_size=96 train.max_steps=1
# largest relative error of the three
cat >far.py <<'EOF'
import csv, glob, json, struct
for name in glob.glob("run/checkpoints/step-*/*.safetensors"):
    data = open(name, "rb").read()
    at = 8 + struct.unpack("<Q", data[:8])[0]
    tensor = json.loads(data[8:at]).get("layers.0.running_var")
    if tensor:
        break
begin, end = tensor["data_offsets"]
got = struct.unpack("<3f", data[at + begin : at + end])
rows = [[struct.unpack("f", struct.pack("f", float(x)))[0] for x in r] for r in list(csv.reader(open("far.csv")))[1:]]
worst = 0
for c in range(3):
    x = [r[c] for r in rows]
    mean = sum(x) / len(x)
    want = 0.9 + 0.1 * sum((v - mean) ** 2 for v in x) / (len(x) - 1)
    worst = max(worst, abs(got[c] - want) / want)
print("right" if worst < 1e-4 else "off by %g" % worst)
EOF
for shape in "--microbatches 1" "--microbatches 5" "--replicas 2 --microbatches 3 --stages 2" \
    "--replicas 3 --set train.zero=1 --microbatches 2" "--replicas 3 --stages 2 --launch mpirun"; do
    command -v python3 >/dev/null 2>&1 || { skip "no python3"; break; }
    # shellcheck disable=SC2086
    ok run train far.ini --dir run --overwrite -q $shape
    same "$shape: $(python3 far.py)" "$shape: right"
done

begin "so do processes"
if command -v mpirun >/dev/null 2>&1; then
    for config in gpt net; do
        digest=
        trains $config.ini --stages 2 --replicas 2
        whole=$(saved)
        trains $config.ini --stages 2 --replicas 2 --launch mpirun --set train.zero=1
        same "$(saved)" "$whole"
    done
else
    skip 'no mpirun here (install openmpi-bin)'
fi

begin "a quarter of the state with four replicas; explain tells the memory, and it is what a run takes"
bytes() { sed -n 's/.*"'"$1"'": \([0-9]*\).*/\1/p' "$2" | tr '\n' ' '; }
for zero in 0 1; do
    ok run explain gpt.ini --replicas 4 --stages 2 --set train.zero=$zero --format json
    cp out $zero.json
    run train gpt.ini --replicas 4 --stages 2 --set train.zero=$zero --dir run --overwrite -q
    same "$(bytes peak_bytes run/summary.json)" " $(bytes peak_bytes $zero.json)"
done
# shellcheck disable=SC2046 # numbers
set -- $(bytes optimizer_bytes 0.json) $(bytes optimizer_bytes 1.json)
for rank in 1 2; do
    same $(($9 + ${11} + ${13} + ${15})) "$1"
    for part in "$9" "${11}" "${13}" "${15}"; do
        [ "$part" -le $(($1 / 4 + 1024)) ] || complain "rank $rank: $part of $1 bytes"
    done
    shift
done
run explain gpt.ini --replicas 4 --set train.zero=1
out_has 'train.zero = 1: '

begin "a trace shows buckets that leave before the last W, and the gather"
ok run train mlp.ini --replicas 2 --set train.zero=1 --max-steps 1 --dir traced --trace traced.json -q
grep -o '"cat":"[A-Za-z]*","ph":"X","pid":0' traced.json >kinds || grep -o '"cat":"[A-Za-z]*"' traced.json >kinds
has kinds '"gather"' || complain 'no gather'
[ "$(grep -n reduce kinds | head -1 | cut -d: -f1)" -lt "$(grep -n '"W"' kinds | tail -1 | cut -d: -f1)" ] ||
    complain 'no gradients leave before the last W'

begin "killed, and resumed without it, and with it again, it goes on with the same bits"
killed gpt.ini --replicas 2 --stages 2 --set train.zero=1 --set checkpoint.every=3 --log-every 3
for zero in 0 1; do
    ok run train gpt.ini --dir killed -q --resume --replicas 2 --set train.zero=$zero --set train.epochs=1000000 \
        --set train.max_steps="$((step += 3))"
done
ok run train gpt.ini --dir whole -q --replicas 2 --set train.epochs=1000000 --set train.max_steps="$step"
same "$(sha killed/summary.json)" "$(sha whole/summary.json)"

begin "resumed with another number of replicas it goes on, and says whose bits they are"
cp -r killed three
for zero in 0 1; do
    rm -rf other
    cp -r three other
    ok run train gpt.ini --dir other --resume --replicas 3 --set train.zero=$zero --set train.epochs=1000000 \
        --set train.max_steps="$((step + 3))"
    err_has 'has 2 replicas, but this run has 3, ' 'the bits are those of 3'
    err_lacks 'not only its last bits'
    same "$(sha other/summary.json)" "${another:=$(sha other/summary.json)}"
done

begin "with batch norm it says that more than the bits changes"
run train net.ini --dir norms -q --replicas 2 --set train.max_steps=2
ok run train net.ini --dir norms --resume --replicas 1 --set train.max_steps=3
err_has 'has 2 replicas, but this run has 1, '
err_has 'batch norm or attention takes together: what is computed changes too, not only its last bits'

begin "with one replica, or nothing to divide, it is said and does no harm"
digest=
trains gpt.ini
trains gpt.ini --set train.zero=1
run train gpt.ini --dir run --overwrite --set train.zero=1
err_has 'train.zero has no effect with pipeline.replicas = 1, only with more'
run train mlp.ini --dir run --overwrite --replicas 2 --set train.zero=1 --set train.optimizer=sgd
err_has 'train.zero has no effect with train.optimizer = sgd'
fails 78 'train.zero' run train gpt.ini --set train.zero=2

finish
