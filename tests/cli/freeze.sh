#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# train.freeze: layers that are not trained keep their bits, and their stages have no W. run.log_norm: the norm of
# the gradients, of those that are trained.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

samples=$(cd "$(dirname "$0")/../../data/cifar10-sample" && pwd)
cd "$folder" || exit 1
config net.ini data.dataset=cifar10-sample "data.path=$samples" data.train_samples=60 data.test_samples=20 \
    model.type=sequential 'model.layers=conv:8x3/2,bias=off batchnorm relu conv:8x3 relu flatten linear:10' \
    pipeline.stages=3 pipeline.microbatches=2 pipeline.schedule=zb-h1 'pipeline.split_at=layers.3 layers.6' \
    train.batch_size=20 train.epochs=2 train.lr=0.01

# tensors RUN [PATTERN]: a line for each weight whose name matches, with a digest of its bytes
tensors() {
    python3 - "$1" "${2-.}" <<'END' | sort -u
import glob, hashlib, json, re, struct, sys
run, pattern = sys.argv[1:]
for name in sorted(glob.glob(run + '/checkpoints/step-*/*.safetensors')):
    data = open(name, 'rb').read()
    n = struct.unpack('<Q', data[:8])[0]
    for key, t in sorted(json.loads(data[8:8 + n]).items()):
        if key != '__metadata__' and re.match(pattern, key):
            from_, to = t['data_offsets']
            print(key, hashlib.sha256(data[8 + n + from_:8 + n + to]).hexdigest())
END
}

begin "frozen layers keep their bits, have no optimizer state, and their statistics move"
ok run train net.ini --dir first -q --max-steps 1 --set train.lr=0
ok run train net.ini --dir cold -q --set train.freeze=layers.0
weights='layers.(0.weight|1.weight|1.bias)'
same "$(tensors cold "$weights")" "$(tensors first "$weights")"
[ "$(tensors cold layers.1.running)" != "$(tensors first layers.1.running)" ] || complain 'the statistics stay'
[ "$(tensors cold layers.3.weight)" != "$(tensors first layers.3.weight)" ] || complain 'layers.3 is not trained'
[ -z "$(tensors cold 'optimizer.*layers.0')" ] || complain 'layers.0 has optimizer state'
[ -n "$(tensors cold 'optimizer.*layers.3')" ] || complain 'layers.3 has no optimizer state'

begin "the bits do not depend on stages and schedule, and a run continues in the middle"
digest=$(sha cold/summary.json)
for words in '--stages 1' '--stages 2 --schedule gpipe' '--stages 3 --schedule 1f1b'; do
    # shellcheck disable=SC2086 # words
    ok run train net.ini --dir other --overwrite -q --set train.freeze=layers.0 --set pipeline.split_at=none $words
    same "$(sha other/summary.json)" "$digest"
done
ok run train net.ini --dir part -q --set train.freeze='layers.[0]' --set checkpoint.every=4
rm -r part/checkpoints/step-00000006 part/summary.json
ok run train net.ini --dir part -q --set train.freeze='layers.[0]' --resume
same "$(sha part/summary.json)" "$digest"

begin "the plan has no W where nothing is trained"
shows '(stage 0: all layers frozen, so there is no W)' run explain net.ini --set train.freeze=layers.0
run plan net.ini --set train.freeze=layers.0 --format csv
out_lacks 0W
out_has 0I 1W 2W
shows '(stages 0, 1: all layers frozen, so there is no W)' run explain net.ini --set train.freeze='all but layers.6'

begin "names that no layer has, and models without anything to train, are refused"
fails 78 "train.freeze: no layer or parameter is named 'layers.9'" run train net.ini --dir '' --set train.freeze=layers.9
config res.ini data.dataset=cifar10-sample model.type=resnet
fails 78 'train.freeze: layer avgpool has no parameters; leave it out' run explain res.ini --set train.freeze=avgpool
fails 78 'freezes every parameter; leave out the layers to train, such as layers.6' \
    run train net.ini --dir '' --set train.freeze='layers.*'

begin "the norm of the gradients is in the log and in the files, and changes no bit"
ok run train net.ini --dir plain
ok run train net.ini --dir norm --set run.log_norm=true
same "$(sha norm/summary.json)" "$(sha plain/summary.json)"
grep -q '"grad_norm": [0-9]' norm/summary.json || complain 'no grad_norm in summary.json'
grep -q '"grad_norm"' plain/summary.json && complain 'a norm that nobody asked for'
for key in test_seconds save_seconds input_wait_seconds; do
    grep -q "\"$key\": [0-9]" plain/summary.json || complain "no $key in summary.json"
done
shows ' clipped=100.0%' run train net.ini --dir '' --set train.clip_norm=1e-6
shows '; 100.0 % of steps clipped' run train net.ini --dir '' --set train.clip_norm=1e-6
shows ' clipped=0.0%' run train net.ini --dir '' --set train.clip_norm=1e6
finish
