#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# generate and export: texts that follow from config, weights and seed alone; what is refused.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

i=0
while [ $i -lt 200 ]; do
    echo "to be, or not to be: that is the question $i; çà et là"
    i=$((i + 1))
done >"$folder/text.txt"
config "$folder/t.ini" data.dataset=text "data.train_file=$folder/text.txt" \
    model.type=gpt model.n_layer=2 model.n_head=2 model.n_embd=16 model.block_size=8 \
    train.batch_size=8 train.max_steps=40 train.lr=0.01
run train "$folder/t.ini" --dir "$folder/run" --stages 2 -q
[ "$code" -eq 0 ] || { cat "$folder/err"; exit 1; }

write() { run generate "$folder/t.ini" --checkpoint "$folder/run" "$@"; }

begin "the same words give the same text, which begins with the prompt"
ok write --prompt 'to be' --tokens 50 --seed 3
cp "$folder/out" "$folder/first"
case $(cat "$folder/out") in 'to be'*) ;; *) complain "no prompt in $(cat "$folder/out")" ;; esac
ok write --prompt 'to be' --tokens 50 --seed 3 -q
same "$(cat "$folder/out")" "$(cat "$folder/first")"
same "$(cat "$folder/err")" ''
write --prompt 'to be' --tokens 50 --seed 4
[ "$(cat "$folder/out")" != "$(cat "$folder/first")" ] || complain 'another seed, the same text'
err_has '5 tokens read, 50 made'

begin "temperature 0 takes the most likely token, whatever the seed"
ok write --prompt 'to be' --tokens 30 --temperature 0
cp "$folder/out" "$folder/first"
write --prompt 'to be' --tokens 30 --temperature 0 --seed 9
same "$(cat "$folder/out")" "$(cat "$folder/first")"
write --prompt 'to be' --tokens 30 --top-k 1 --temperature 5 --seed 9
same "$(cat "$folder/out")" "$(cat "$folder/first")"

begin "what was made is the beginning of what more tokens make"
write --prompt 'to be' --tokens 12 --temperature 0
case $(cat "$folder/first") in "$(cat "$folder/out")"*) ;; *) complain "another text: $(cat "$folder/out")" ;; esac

begin "a prompt comes from a file or standard input, and may be longer than the context"
printf 'to be, or not to be: th' >"$folder/prompt"
ok write --prompt-file "$folder/prompt" --tokens 9 --temperature 0
cp "$folder/out" "$folder/first"
err_has '8 tokens read, 9 made'
code=0
"$PPCLI" generate "$folder/t.ini" --checkpoint "$folder/run" --prompt-file - --tokens 9 --temperature 0 \
    <"$folder/prompt" >"$folder/out" 2>"$folder/err" || code=$?
code_is 0
same "$(cat "$folder/out")" "$(cat "$folder/first")"

begin "the checkpoint knows its characters: the text it was trained on may be gone"
mv "$folder/text.txt" "$folder/gone.txt"
ok write --prompt-file "$folder/prompt" --tokens 9 --temperature 0
same "$(cat "$folder/out")" "$(cat "$folder/first")"
mv "$folder/gone.txt" "$folder/text.txt"

begin "and of bytes there are always 256"
run train "$folder/t.ini" --dir "$folder/bytes" -q --max-steps 2 --set data.tokens=bytes
mv "$folder/text.txt" "$folder/gone.txt"
ok run generate "$folder/t.ini" --checkpoint "$folder/bytes" --prompt 'to bÉ' --tokens 9 --set data.tokens=bytes
case $(cat "$folder/out") in 'to bÉ'*) ;; *) complain "no prompt in $(cat "$folder/out")" ;; esac
mv "$folder/gone.txt" "$folder/text.txt"

begin "characters that the vocabulary has not are named, in one line"
fails 65 "'É'" write --prompt 'to bÉ'
same "$(wc -l <"$folder/err" | tr -d ' ')" 1
fails 64 'an empty prompt' write --prompt ''

begin "words that do not fit are refused"
fails 64 'one prompt' write
fails 64 '' write --prompt a --prompt-file b
fails 64 '' run generate "$folder/t.ini" --prompt a
for words in '--temperature -1' '--temperature x' '--tokens 0' '--top-k -2' '--tokens many'; do
    # shellcheck disable=SC2086
    fails 64 '' write --prompt a $words
done
fails 64 '' write --prompt a --hosts h0,h1
err_has "'ppcli generate' is one process, with the whole model in its memory: run it on one host (ssh HOST ppcli generate"
fails 64 "--stages" write --prompt a --stages 2
fails 66 '' write --prompt-file "$folder/none"
fails 66 '' run generate "$folder/t.ini" --checkpoint "$folder/none" --prompt a
mkdir "$folder/torch"
echo x >"$folder/torch/pytorch_model.bin"
fails 65 "model.safetensors" \
    run generate "$folder/t.ini" --checkpoint "$folder/torch" --prompt a
fails 78 'model.type' \
    run generate mnist-sample.ini --checkpoint "$folder/run" --prompt a

begin "Ctrl-C ends it with what was made"
"$PPCLI" generate "$folder/t.ini" --checkpoint "$folder/run" --prompt 'to be' --tokens 2000000000 >"$folder/out" \
    2>"$folder/err" &
while [ "$(wc -c <"$folder/out")" -lt 100 ] && kill -0 $! 2>/dev/null; do
    sleep 0.1
done
kill -TERM $! # a shell's background jobs ignore SIGINT; both do the same
code=0
wait $! || code=$?
last=generate
code_is 75
err_has 'stopped after'
same "$(tail -c 1 "$folder/out" | od -An -c | tr -d ' ')" '\n'

begin "an export is read back with the same bits"
shows "$folder/hf: model.safetensors, config.json and tokenizer.json of step 40" run export "$folder/run" "$folder/hf"
run eval "$folder/t.ini" --checkpoint "$folder/run"
cp "$folder/out" "$folder/first"
config "$folder/hf.ini" data.dataset=text "data.train_file=$folder/text.txt" "model.from=$folder/hf"
ok run eval "$folder/hf.ini" --checkpoint "$folder/hf"
same "$(grep weights_sha256 "$folder/out")" "$(grep weights_sha256 "$folder/first")"
same "$(grep accuracy "$folder/out")" "$(grep accuracy "$folder/first")"
shows 'transformer.h.1.attn.c_attn.weight  F32   [16,48]' run inspect "$folder/hf"

begin "a text of characters is refused for a model with a tokenizer of its own, or said"
sed 's/"vocab_size": [0-9]*/"vocab_size": 50257/' "$folder/hf/config.json" >"$folder/config.json"
mkdir "$folder/gpt2"
mv "$folder/config.json" "$folder/gpt2/config.json"
for command in explain train; do
    fails 78 'model.from' \
        run $command "$folder/hf.ini" --set "model.from=$folder/gpt2" --set run.dir=
done

begin "a config beside model.from must say the same, and its folder be there"
fails 78 'model.n_layer' run explain "$folder/hf.ini" --set model.n_layer=3
fails 78 'model.from' run explain "$folder/hf.ini" --set model.from="$folder/none"

begin "weights of another model are refused in one line"
config "$folder/other.ini" data.dataset=text "data.train_file=$folder/text.txt" model.type=gpt \
    model.n_layer=1 model.n_head=2 model.n_embd=16 model.block_size=8
fails 65 'no tensor transformer.h.1.attn.c_attn.bias' run eval "$folder/other.ini" --checkpoint "$folder/hf"
fails 65 'has no tensor transformer.h.2.ln_1.weight' \
    run eval "$folder/other.ini" --checkpoint "$folder/hf" --set model.n_layer=3
fails 65 'tensor transformer.wpe.weight has shape [8,16]' \
    run eval "$folder/other.ini" --checkpoint "$folder/hf" --set model.n_layer=2 --set model.block_size=16
err_has "this model's has [16,16]"

begin "weights that would compute something else are refused by the key that says so"
config="$folder/t.ini"
for words in '--set model.n_head=4' '--set model.norm_eps=0.001' '--set model.ffn_activation=relu'; do
    key=${words#--set } value=${words#*=}
    # shellcheck disable=SC2086
    fails 78 "${key%=*} was" write --prompt a $words
    err_has ", is $value; its own config is $folder/run/config.resolved.ini"
    # shellcheck disable=SC2086
    fails 78 "${key%=*} was" run eval "$config" --checkpoint "$folder/run" $words
done
fails 78 'model.n_head was 2, is 4; model.norm_eps was 1e-5, is 0.001' \
    run eval "$config" --checkpoint "$folder/run" --set model.n_head=4 --set model.norm_eps=0.001
same "$(wc -l <"$folder/err" | tr -d ' ')" 1

begin "a config.json beside the weights says the same"
fails 78 "model.n_head was 2, is 4; its own config is model.from = $folder/hf" \
    run eval "$config" --checkpoint "$folder/hf" --set model.n_head=4
ok run eval "$config" --checkpoint "$folder/hf/model.safetensors" --set model.n_head=4

begin "what has another name but computes the same is no other model" \
    ok run eval "$config" --checkpoint "$folder/run" --set model.ffn_activation=gelu_tanh --set model.n_hidden=64 \
    --set model.tie_weights=on --set model.dropout=0.1

begin "a run may begin with weights that computed something else, and is told so"
ok run train "$config" --dir '' --max-steps 1 --set train.init="$folder/run" --set model.n_head=4
err_has 'is of a model that computed something else: model.n_head was 2, is 4'
run train "$config" --dir '' --max-steps 1 --set train.init="$folder/run"
err_lacks 'something else'

begin "a last layer of its own is not passed over where the model has the embedding's"
run train "$folder/t.ini" --dir "$folder/untied" --max-steps 1 --set model.tie_weights=off -q
run export "$folder/untied" "$folder/hf-untied"
for weights in "$folder/untied" "$folder/hf-untied"; do
    fails 65 'lm_head.weight differs from transformer.wte.weight' run eval "$folder/t.ini" --checkpoint "$weights"
    ok run eval "$folder/t.ini" --checkpoint "$weights" --set model.tie_weights=off
done

begin "weights that are not finite are not trained on"
cp -r "$folder/hf" "$folder/nan"
python3 - "$folder/nan/model.safetensors" <<'END'
import sys
with open(sys.argv[1], 'r+b') as f:
    f.seek(-4, 2)
    f.write(bytes([0, 0, 0xc0, 0x7f]))
END
fails 65 'has a value that is not finite' run train "$config" --dir '' --max-steps 1 --set train.init="$folder/nan"

begin "weights that are not finite, whose digests are right, are neither exported nor continued"
cp -r "$folder/run" "$folder/odd"
python3 - "$folder/odd/checkpoints" <<'END'
import glob, hashlib, os, re, sys
step = sorted(glob.glob(sys.argv[1] + '/step-*'))[-1]
name = sorted(glob.glob(step + '/*.safetensors'))[0]
old = open(name, 'rb').read()
at = 8 + int.from_bytes(old[:8], 'little')
new = old[:at] + bytes([0, 0, 0x80, 0x7f]) + old[at + 4:]  # tensors of the model come first
open(name, 'wb').write(new)
manifest = open(step + '/MANIFEST').read()
manifest = manifest.replace(hashlib.sha256(old).hexdigest(), hashlib.sha256(new).hexdigest())
manifest = re.sub('end .*\n', '', manifest)
manifest += 'end ' + hashlib.sha256(manifest.encode()).hexdigest() + '\n'
open(step + '/MANIFEST', 'w').write(manifest)
END
ok run verify "$folder/odd"
fails 65 'has a value that is not finite' run export "$folder/odd" "$folder/no"
fails 65 'has a value that is not finite' run generate "$folder/odd" --prompt a
[ ! -e "$folder/no" ] || complain 'a folder was made'

begin "what has no other form is not exported"
fails 78 "model.type" \
    run export "$(dirname "$0")/../golden/checkpoint-v1/step-00000007" "$folder/no"
fails 78 "model.type" \
    run export "$folder/run" "$folder/no" --format onnx
fails 78 "model.type" \
    run export "$folder/run" "$folder/no" --format torch
fails 64 "'pickle'" run export "$folder/run" "$folder/no" --format pickle
fails 64 "--dtype" run export "$folder/run" "$folder/no" --dtype f16
fails 78 "$folder/hf is not empty: name a new folder" run export "$folder/run" "$folder/hf"
fails 65 'holds tensors, but no config' run export "$folder/hf" "$folder/no"
fails 66 'a folder, but not that of a run' run export "$folder/hf"
[ ! -e "$folder/no" ] || complain 'a folder was made'

begin "layers without a bias are exported with zeros"
run train "$folder/t.ini" --dir "$folder/nobias" --max-steps 1 --set model.bias=off -q
ok run export "$folder/nobias" "$folder/zeros"
run inspect "$folder/zeros"
out_has 'transformer.ln_f.bias'
run eval "$folder/t.ini" --checkpoint "$folder/nobias" --set model.bias=off
grep accuracy "$folder/out" >"$folder/first"
run eval "$folder/hf.ini" --checkpoint "$folder/zeros" --set model.from="$folder/zeros"
same "$(grep accuracy "$folder/out")" "$(cat "$folder/first")"

begin "a llama whose heads do not divide its width is exported as the Mistral that transformers loads"
llama="--set model.type=llama --set model.n_embd=30 --set model.n_head=4 --set model.head_dim=8"
# shellcheck disable=SC2086 # words
ok run train "$folder/t.ini" --dir "$folder/odd-width" --max-steps 1 $llama -q
ok run export "$folder/odd-width" "$folder/odd-hf"
for words in '"model_type": "mistral"' '"MistralForCausalLM"' '"head_dim": 8' '"sliding_window": null'; do
    grep -q "$words" "$folder/odd-hf/config.json" || complain "no $words in config.json"
done
# shellcheck disable=SC2086
ok run train "$folder/t.ini" --dir "$folder/odd-bias" --max-steps 1 $llama --set model.attention_bias=all -q
fails 78 'model.n_embd' run export "$folder/odd-bias" "$folder/no"

begin "an exported model takes pictures of the size that it was trained on, and says so"
config "$folder/small.ini" data.dataset=mnist-sample data.resize=14 model.type=mlp model.sizes="196 16 10"
ok run train "$folder/small.ini" --dir "$folder/small" --max-steps 2 -q
for form in onnx torch; do
    ok run export "$folder/small" "$folder/small-$form" --format $form
    err_has 'data.resize is not part of the exported model: give it pictures of 14 x 14 pixels'
done
grep -q '^# Pictures are not resized here' "$folder/small-torch/model.py" || complain 'model.py does not say it'

begin "training begins with a new last layer where the number of classes differs; other layers must fit"
ok run train "$folder/small.ini" --dir '' --max-steps 1 --set "model.sizes=196 16 12" --set train.init="$folder/small"
err_has '2 of 4 tensors; new, from train.seed: layers.1.weight layers.1.bias; left over in the file: layers.1.bias layers.1.weight'
fails 65 'has 10 rows, but the last layer of this model has 12 outputs; only a training begins with a new last layer' \
    run eval "$folder/small.ini" --set "model.sizes=196 16 12" --checkpoint "$folder/small"
fails 65 'has shape [16,196]' \
    run train "$folder/small.ini" --dir '' --set "model.sizes=196 12 10" --set train.init="$folder/small"

begin "what is not there is named, and a config without weights is told from it"
for words in "eval $folder/nosuch" "generate $folder/nosuch --prompt a" "export $folder/nosuch"; do
    # shellcheck disable=SC2086 # words
    fails 66 "there is no run '$folder/nosuch': No such file or directory" run $words
done
fails 64 "$folder/t.ini is a config: add --checkpoint, or name a run" run eval "$folder/t.ini"
fails 66 'nosuch.ini: no such config' run eval nosuch.ini

begin "a byte order mark is no part of a prompt, and a character without a token has a name"
printf '\357\273\277to be' >"$folder/marked"
ok write --prompt-file "$folder/marked" --tokens 3
case $(cat "$folder/out") in 'to be'*) ;; *) complain "the prompt became $(cat "$folder/out")" ;; esac
printf 'to be\r\n' >"$folder/returns"
fails 65 'character 6, a carriage return, as in line ends of Windows (U+000D), is not one of' \
    write --prompt-file "$folder/returns"

finish
