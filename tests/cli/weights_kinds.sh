#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Weights as people have them: names with a wrapper's prefix, shards, and what only looks like weights.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
times_table
config gpt.ini data.dataset=text data.train_file=text.txt model.type=gpt model.n_layer=2 model.n_head=2 \
    model.n_embd=8 model.block_size=8 train.batch_size=8 train.eval_interval=5 train.max_steps=10
run train gpt.ini --dir g -q
ok run export g hf
want=$(sha g/summary.json)

# save.py FOLDER WHAT: the tensors of hf in another form
cat >save.py <<'PY'
import json, os, shutil, struct, sys
to, what = sys.argv[1:3]
raw = open('hf/model.safetensors', 'rb').read()
n = struct.unpack('<Q', raw[:8])[0]
head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
head.pop('__metadata__', None)
tensors = {k: (v, data[slice(*v['data_offsets'])]) for k, v in head.items()}
os.makedirs(to)
shutil.copy('hf/config.json', to)

def write(name, tensors):
    head, data = {}, b''
    for k, (v, b) in tensors.items():
        head[k] = {**v, 'data_offsets': [len(data), len(data) + len(b)]}
        data += b
    text = json.dumps(head).encode()
    open(f'{to}/{name}', 'wb').write(struct.pack('<Q', len(text)) + text + data)

names = sorted(tensors)
if what == 'shards':
    for i in range(3):
        write(f'model-{i + 1:05}-of-00003.safetensors', {k: tensors[k] for k in names[i::3]})
elif what == 'head':  # tied by config.json, and yet another last layer in the file
    v, b = tensors['transformer.wte.weight']
    write('model.safetensors', {**tensors, 'lm_head.weight': (v, b[4:] + b[:4])})
elif what == 'one':
    write('model.safetensors', {('module.' if i == 0 else '') + k: tensors[k] for i, k in enumerate(names)})
else:
    write('model.safetensors', {what + k: t for k, t in tensors.items()})
PY

evals() { run eval gpt.ini --checkpoint "$1" --format json; }
refused() {
    [ "$code" -eq 65 ] || [ "$code" -eq 78 ] || complain "$last: exit $code"
    err_has "$1"
    same "$(grep -c . err)" "${2:-1}"
}

n=0
for prefix in module. _orig_mod. base_model.model. module._orig_mod. _orig_mod.module. base_model.model.module.; do
    begin "names that begin with $prefix"
    n=$((n + 1))
    python3 save.py "prefix$n" $prefix
    for at in "prefix$n" "prefix$n/model.safetensors"; do
        ok evals "$at"
        same "$(sha out)" "$want"
    done
    ok run train gpt.ini --set "train.init=prefix$n" --max-steps 1 --dir '' -q
    ok run generate gpt.ini --checkpoint "prefix$n" --prompt 1 --tokens 3
done

begin "a prefix of one name is no prefix"
python3 save.py one one
evals one
refused 'tensor module.'

begin "shards without an index"
python3 save.py shards shards
ok evals shards
same "$(sha out)" "$want"
ok run inspect shards
ok run verify shards
mv shards/model-00002-of-00003.safetensors .
evals shards
refused 'shards: 2 of 3 files are there, model-00002-of-00003.safetensors is not: download it into this folder'
mv model-00002-of-00003.safetensors shards

begin "a Git LFS pointer in place of the file"
pointer() { printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 548105171\n' 7; }
cp -r hf lfs
pointer >lfs/model.safetensors
for at in lfs lfs/model.safetensors; do
    evals "$at"
    refused 'lfs/model.safetensors: not a safetensors file but a Git LFS pointer, not the file: run git lfs pull in its folder'
done
run verify lfs
[ "$code" -eq 1 ] || complain "exit $code"
err_has 'git lfs pull'
pointer >shards/model-00003-of-00003.safetensors
evals shards
refused 'model-00003-of-00003.safetensors: not a safetensors file but a Git LFS pointer'

begin "files of other kinds that are named as weights"
mkdir odd
while read -r bytes words; do
    # shellcheck disable=SC2059 # the bytes are the format
    printf "$bytes ......................" >odd/x.safetensors
    evals odd/x.safetensors
    refused "odd/x.safetensors: not a safetensors file but $words"
done <<'END'
PK\003\004 a file of torch.save()
\200\002\212\n a file of torch.save()
\200\004\225 a Python pickle
GGUF a GGUF file
\211HDF\r\n an HDF5 file
\223NUMPY a NumPy array
\037\213\010 compressed by gzip
<!DOCTYPE a web page
<html> a web page
END

begin "pytorch_model.bin and no safetensors"
for file in pytorch_model.bin pytorch_model-00001-of-00002.bin weights.pt model.pth; do
    rm -rf bin
    mkdir bin
    cp hf/config.json bin
    echo x >"bin/$file"
    evals bin
    refused "bin: it has $file, a Python pickle, and no model.safetensors: write one with these two lines of Python, and name NEW: from transformers import AutoModelForCausalLM; AutoModelForCausalLM.from_pretrained('bin').save_pretrained('NEW')"
done

begin "a file of another name: the message names it, and it is read"
mkdir named
cp hf/model.safetensors named/weights.safetensors
evals named
refused 'named: it has no model.safetensors: name its file, named/weights.safetensors'
ok evals named/weights.safetensors

begin "a cache folder: the message names the snapshot, and it is read"
cache=models--me--tiny
mkdir -p $cache/refs $cache/snapshots/abc123 $cache/snapshots/def456 $cache/blobs
cp hf/model.safetensors $cache/blobs/1
cp hf/config.json $cache/blobs/2
ln -s ../../blobs/1 $cache/snapshots/abc123/model.safetensors
ln -s ../../blobs/2 $cache/snapshots/abc123/config.json
printf abc123 >$cache/refs/main
evals $cache
refused "$cache: a cache folder of Hugging Face's: name $cache/snapshots/abc123"
ok evals $cache/snapshots/abc123
same "$(sha out)" "$want"
run explain --set data.dataset=text gpt.ini --set model.from=$cache
err_has "a cache folder of Hugging Face's: name $(pwd -P)/$cache/snapshots/abc123"
config from.ini data.dataset=text data.train_file=text.txt model.from=$cache/snapshots/abc123
ok run explain from.ini
rm -r $cache/refs
evals $cache
refused "name a folder in $cache/snapshots"

begin "a LoRA adapter is not a model"
mkdir lora
echo '{}' >lora/adapter_config.json
python3 save.py lora2 base_model.model.x.lora_A.
mv lora2/model.safetensors lora/adapter_model.safetensors
evals lora
refused "lora: a LoRA adapter, not a whole model: merge it in Python with AutoPeftModelForCausalLM.from_pretrained('lora').merge_and_unload()"
evals lora/adapter_model.safetensors
refused "is of a LoRA adapter, not of a whole model: merge it"
run explain gpt.ini --set model.from=lora
err_has 'a LoRA adapter, not a whole model'

begin "tied by config.json, and another last layer in the file: the advice works"
python3 save.py head head
config from.ini data.dataset=text data.train_file=text.txt model.from=head train.batch_size=8 train.eval_interval=5 \
    train.max_steps=1
run eval from.ini --checkpoint head
refused 'lm_head.weight differs from transformer.wte.weight, but this model has one for both; use model.tie_weights = off'
ok run eval from.ini --checkpoint head --set model.tie_weights=off
run train from.ini --set train.init=head --dir '' -q
refused 'use model.tie_weights = off'
ok run train from.ini --set train.init=head --dir '' -q --set model.tie_weights=off
ok run generate from.ini --checkpoint head --set model.tie_weights=off --prompt 1 --tokens 3

begin "export, eval and verify beside a run that removes checkpoints take the next one"
"$PPCLI" train gpt.ini --dir busy -q --max-steps 0 --epochs 1000000 --set checkpoint.every=1 --set checkpoint.keep=1 \
    --set train.eval_interval=100000 >out 2>err </dev/null &
pid=$!
# shellcheck disable=SC2016 # for eval
within 'find busy/checkpoints -name "step-*" 2>/dev/null | grep -qv tmp' || complain 'no checkpoint'
for i in 1 2 3 4 5 6 7 8 9 10; do
    ok run export busy "exported$i"
    same "$(cat err)" ''
done
ok run eval busy --stages 2 -q
ok run inspect busy
kill -KILL "$pid"
wait "$pid" 2>/dev/null

finish
