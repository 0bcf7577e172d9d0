#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models of texts: characters, tokens, labels; what is shown, saved, and refused.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
source=$(cd "$(dirname "$0")/../.." && pwd)

cd "$folder" || exit 1
cat >text.ini <<'END'
[data]
dataset = shakespeare-sample
test_samples = 24
[model]
type = gpt
n_layer = 2
n_head = 2
n_embd = 32
block_size = 16
[train]
max_steps = 23
eval_interval = 10
batch_size = 8
lr = 0.01
optimizer = adamw
[pipeline]
microbatches = 2
[checkpoint]
every = 5
keep = 9
END
value() { # value FILE KEY
    sed -n "s/^ *\"$2\": *\"\{0,1\}\([^\",]*\).*/\1/p" "$1"
}

begin "max_steps ends in the middle of an interval, with an evaluation there; the loss falls"
ok run train text.ini --dir a
same "$(grep -c '^epoch=./3 .* test_ppl=.* tps=' out)" 3
same "$(value a/summary.json steps)" 23
same "$(grep '"type":"epoch"' a/metrics.jsonl | grep -c '"test_perplexity":')" 3
out_has 'test loss '
awk -v loss="$(value a/summary.json test_loss)" -v ppl="$(value a/summary.json test_perplexity)" \
    'BEGIN { exit !(loss < 3.6 && ppl / exp(loss) > 0.999999 && ppl / exp(loss) < 1.000001) }' ||
    complain "loss $(value a/summary.json test_loss), perplexity $(value a/summary.json test_perplexity)"
awk -v sps="$(value a/summary.json samples_per_second)" -v tps="$(value a/summary.json tokens_per_second)" \
    'BEGIN { exit !(tps / sps > 15.999 && tps / sps < 16.001) }' || complain 'tokens/s'

begin "the same weights on two stages, with any schedule"
for how in '--stages 2' '--stages 2 --schedule gpipe' '--stages 3 --schedule zb-h1'; do
    # shellcheck disable=SC2086
    ok run train text.ini -q --dir b --overwrite $how
    same "$(value b/summary.json weights_sha256)" "$(value a/summary.json weights_sha256)"
done

begin "the interval changes how often it is tested, not the weights"
ok run train text.ini -q --dir b --overwrite --set train.eval_interval=7
same "$(value b/summary.json epochs)" 4
same "$(value b/summary.json weights_sha256)" "$(value a/summary.json weights_sha256)"

begin "a resumed run ends with the same weights and the same numbers"
cp -r a part
rm -r part/checkpoints/step-*0020 part/checkpoints/step-*0023 part/summary.json
ok run train text.ini -q --resume part --stages 2
for key in weights_sha256 test_loss train_loss; do
    same "$(value part/summary.json $key)" "$(value a/summary.json $key)"
done

begin "eval and predictions have a row for each position"
shows "24 windows of 16 tokens" run eval text.ini --checkpoint a --predictions p.csv
out_has "accuracy $(awk -F, 'NR > 1 { ok += $1 == $2 } END { printf "%.4f", ok / (NR - 1) }' p.csv)"
same "$(wc -l <p.csv)" $((24 * 16 + 1))

begin "a context of one token has its perplexity too"
ok run train text.ini --dir one --set model.block_size=1 --set data.test_samples=50
same "$(grep -c '^epoch=./3 .* test_ppl=.* tps=' out)" 3
out_has 'test loss '
run eval text.ini --checkpoint one --set model.block_size=1 --set data.test_samples=50
out_has '50 windows of 1 tokens'

begin "a checkpoint keeps the characters, and another text is refused"
grep -q '"vocabulary": "\\n !' a/checkpoints/step-*23/state.json || complain 'no vocabulary'
# as many kinds of characters, one of them another
gzip -dc "$source/data/shakespeare-sample/input.txt.gz" | tr 'Y' 'Z' >other.txt
set -- --set data.dataset=text --set data.train_file=other.txt
fails 65 'was trained on a text of 61 kinds of characters' run eval text.ini --checkpoint a "$@"
fails 65 'tokens would have other numbers' run train text.ini -q --dir c --set "train.init=a" "$@"

begin "files of tokens: any of two bytes, all checked before the first step"
mkdir tokens
i=0
while [ $i -lt 400 ]; do # 0 1 2 ... 39 0 1 ...
    printf '%b' "\\0$(printf %03o $((i % 40)))\\0000"
    i=$((i + 1))
done >tokens/train.bin
cp tokens/train.bin tokens/val.bin
set -- --set data.dataset=tokens --set data.path=tokens --set model.block_size=8
ok run train text.ini -q --dir d --set model.vocab_size=40 --stages 2 "$@"
awk -v acc="$(value d/summary.json test_accuracy)" 'BEGIN { exit !(acc > 0.1) }' || complain 'nothing learned'
fails 65 'train.bin: token ' run train text.ini -q --dir e --set model.vocab_size=39 "$@"
err_has 'is 39, and the model'
[ ! -e e ] || complain 'a run folder for a run that did not begin'
for file in train val; do # the last one, which no window of training or of a test of 1 has
    cp -r tokens last
    printf '\50\0' | dd of=last/$file.bin bs=1 seek=798 conv=notrunc status=none
    for command in 'train --max-steps 1' 'eval --checkpoint d'; do
        # shellcheck disable=SC2086
        fails 65 "last/$file.bin: token 399 is 40, and the model's vocabulary has 40" \
            run $command text.ini -q --set run.dir= --set model.vocab_size=40 "$@" --set data.path=last \
            --set data.test_samples=1
    done
    rm -r last
done
fails 78 'vocab_size' run train text.ini -q --dir e "$@"

begin "explain and plan need none of these files, and tell the same memory"
for command in explain plan; do
    run $command text.ini --stages 2 --set model.vocab_size=40 --format json "$@"
    cp out there
    mv tokens away
    ok run $command text.ini --stages 2 --set model.vocab_size=40 --format json "$@"
    same "$(grep _bytes\" out)" "$(grep _bytes\" there)"
    mv away tokens
done

begin "a run on files of tokens is resumed with the same ones"
ok run train text.ini -q --dir same --set model.vocab_size=40 "$@"
cp tokens/train.bin kept.bin
printf '\1' | dd of=tokens/train.bin bs=1 seek=798 conv=notrunc status=none
fails 65 "train.images" \
    run train text.ini -q --resume same --max-steps 30 --set model.vocab_size=40 "$@"
mv kept.bin tokens/train.bin
ok run train text.ini -q --resume same --max-steps 30 --set model.vocab_size=40 "$@"

begin "ignored tokens: as if they were not there"
words() { # words TOKEN...: each of two bytes
    for token; do
        printf '%b' "\\0$(printf %03o "$token")\\0000"
    done
}
mkdir short long
words 1 2 3 4 >short/train.bin
words 1 2 3 4 9 9 9 9 9 >long/train.bin
for at in short:3 long:8; do
    cp ${at%:*}/train.bin ${at%:*}/val.bin
    run train text.ini -q --dir ${at%:*}-run --set data.dataset=tokens --set data.path=${at%:*} \
        --set model.vocab_size=10 --set model.block_size=${at#*:} --set data.ignored_token=9 \
        --set train.optimizer=sgd --set train.lr=0.5 --set train.label_smoothing=0.1 --stages 2
    code_is 0
done
for key in train_loss test_loss; do
    awk -v a="$(value short-run/summary.json $key)" -v b="$(value long-run/summary.json $key)" \
        'BEGIN { exit !(a > 0 && a < 2 && a - b < 1e-6 && b - a < 1e-6) }' ||
        complain "$key: $(value short-run/summary.json $key), with padding $(value long-run/summary.json $key)"
done

begin "a token that the model has not cannot be ignored"
fails 78 'data.ignored_token' \
    run train text.ini -q --dir none --set data.dataset=tokens --set data.path=short --set model.vocab_size=10 \
    --set model.block_size=3 --set data.ignored_token=10
[ ! -e none ] || complain 'a run folder was made'

begin "without validation there is nothing to test, and the key is named" \
    fails 78 'data.validation' run eval text.ini --checkpoint a --set data.validation=0

begin "where no target counts there is nothing to test, and nothing to learn"
words 9 9 9 9 9 >short/val.bin
set -- --set data.dataset=tokens --set data.path=short --set model.vocab_size=10 --set model.block_size=3 \
    --set data.ignored_token=9 --set train.max_steps=2
ok run train text.ini -q --dir none "$@"
err_has "warning: $PWD/short/val.bin: every target is 9, which data.ignored_token leaves out, so there is no test loss"
out_lacks 'test loss'
[ -z "$(value none/summary.json test_loss)" ] || complain "test loss $(value none/summary.json test_loss)"
fails 65 "data.ignored_token" \
    run eval text.ini --checkpoint none "$@"
cp short/val.bin short/train.bin
for layout in '' '--stages 2' '--replicas 2' '--launch mpirun --stages 2'; do
    # shellcheck disable=SC2086
    fails 65 '' run train text.ini -q --dir none2 "$@" $layout
    err_has "$PWD/short/train.bin: every target is 9, which data.ignored_token leaves out, so there is nothing to learn"
    same "$(grep -c . "$folder/err")" 1
done

begin "a step without a target has no loss, and neither has an epoch of them"
mkdir gaps
# shellcheck disable=SC2046
words $(seq 0 8) $(yes 9 | head -4000) >gaps/train.bin
cp gaps/train.bin gaps/val.bin
ok run train text.ini --dir gaps/run --set data.dataset=tokens --set data.path=gaps --set model.vocab_size=10 \
    --set model.block_size=3 --set data.ignored_token=9 --set train.max_steps=6 --set train.eval_interval=3 \
    --set run.log_every=1 --set run.tensorboard=on --set train.batch_size=4
grep -q ' loss=none acc=none sps' "$folder/out" "$folder/err" || complain 'no step without a loss'
! grep -q 'loss=0.0000' "$folder/out" "$folder/err" || complain 'a loss of nothing'
grep -q '"loss":null,"perplexity":null,"accuracy":null' gaps/run/metrics.jsonl || complain 'no step is null'
ok run train gaps/run/config.resolved.ini --resume gaps/run --max-steps 8 -q
! grep -q 'nan' "$folder/out" "$folder/err" || complain 'nan'
ok run report gaps/run

begin "the same weights for every layout: a mean over all targets of a step that count"
set -- --set data.dataset=tokens --set data.path=tokens --set model.block_size=8 --set model.vocab_size=40 \
    --set train.max_steps=7 --set data.ignored_token=5
for replicas in 1 2; do
    ok run train text.ini -q --dir ignored --overwrite --replicas $replicas "$@"
    one=$(value ignored/summary.json weights_sha256)
    for how in '--stages 3 --schedule zb-h1' '--stages 2 --set pipeline.microbatches=4' \
        '--stages 2 --set model.logits_rows=5' '--set pipeline.microbatches=1'; do
        # shellcheck disable=SC2086
        ok run train text.ini -q --dir ignored --overwrite --replicas $replicas "$@" $how
        same "$(value ignored/summary.json weights_sha256)" "$one"
    done
done
run train text.ini -q --dir ignored --overwrite "$@" --set data.ignored_token=-1
[ "$(value ignored/summary.json weights_sha256)" != "$one" ] || complain 'nothing was ignored'
fails 78 'data.ignored_token' run train text.ini -q --dir g "$@" --set train.microbatch_loss=sum
fails 78 'only a text has targets to ignore' run train mnist-sample.ini -q --dir g --set data.ignored_token=5

begin "texts with labels"
i=0
while [ $i -lt 60 ]; do
    printf 'up\tabcabc%d\ndown\tcbacba%d\n' $((i % 7)) $((i % 5))
    i=$((i + 1))
done >labels.txt
shows 'test accuracy    ' \
    run train text.ini -q --dir f --set data.dataset=text-labels --set data.train_file=labels.txt \
    --set data.test_file=labels.txt --set data.test_samples=0 --set model.type=encoder --stages 2
awk -v acc="$(value f/summary.json test_accuracy)" 'BEGIN { exit !(acc > 0.9) }' ||
    complain "accuracy $(value f/summary.json test_accuracy)"

begin "a label keeps its number beside one that training has not"
{ head -n 20 labels.txt && printf 'other\tabcabc\n'; } >mixed.txt
ok run train text.ini -q --dir mixed --set data.dataset=text-labels --set data.train_file=labels.txt \
    --set data.test_file=mixed.txt --set data.test_samples=0 --set model.type=encoder --set model.classes=3
awk -v acc="$(value mixed/summary.json test_accuracy)" 'BEGIN { exit !(acc > 0.9 && acc < 1) }' ||
    complain "accuracy $(value mixed/summary.json test_accuracy), not 20 of 21"
printf '1\tabc\n2\tcba\n' >numbers.txt
fails 65 'all labels are numbers' \
    run train text.ini -q --dir numbers --set data.dataset=text-labels --set data.train_file=numbers.txt \
    --set data.test_file=mixed.txt --set model.type=encoder

begin "a byte order mark is no part of a label"
printf '\357\273\277' | cat - labels.txt >marked.txt
ok run train text.ini -q --dir marked --set data.dataset=text-labels --set data.train_file=marked.txt \
    --set data.test_file=labels.txt --set data.test_samples=0 --set model.type=encoder
same "$(value marked/summary.json weights_sha256)" "$(value f/summary.json weights_sha256)"

begin "padding that is masked changes nothing, however much of it there is"
awk 'BEGIN { for (i = 0; i < 60; i++) printf "%s\t%s\n", i % 2 ? "up" : "down", substr(i % 2 ? "abcabcabcabcabcd" : "cbacbacbacbacba", 1, 1 + i % 16) }' >uneven.txt
set -- --set data.dataset=text-labels --set data.train_file=uneven.txt --set data.test_file=uneven.txt \
    --set data.test_samples=0 --set model.type=encoder
for size in 16 29 70; do # 70: two blocks of keys
    ok run train text.ini -q --dir h$size --set model.mask_padding=true --set model.block_size=$size "$@"
    for key in train_loss test_loss test_accuracy; do
        awk -v a="$(value h$size/summary.json $key)" -v b="$(value h16/summary.json $key)" \
            'BEGIN { exit !(a > 0 && a - b < 1e-5 && b - a < 1e-5) }' ||
            complain "$size positions: $key $(value h$size/summary.json $key), of 16 $(value h16/summary.json $key)"
    done
done
run train text.ini -q --dir i --set model.block_size=29 "$@"
[ "$(value i/summary.json test_loss)" != "$(value h29/summary.json test_loss)" ] || complain 'nothing was masked'

begin "and every rank knows it: the same weights for every layout"
set -- --set model.mask_padding=true --set model.dropout=0.1 "$@"
run train text.ini -q --dir i --overwrite "$@"
one=$(value i/summary.json weights_sha256)
for how in '--stages 4 --schedule zb-h1' '--stages 2 --schedule interleaved --set pipeline.microbatches=4' \
    '--stages 3 --set pipeline.recompute=all' '--stages 4 --launch mpirun' \
    '--set pipeline.microbatches=8 --set model.logits_rows=1 --stages 2'; do
    case $how in *mpirun*) command -v mpirun >/dev/null 2>&1 || continue ;; esac
    # shellcheck disable=SC2086
    ok run train text.ini -q --dir i --overwrite "$@" $how
    same "$(value i/summary.json weights_sha256)" "$one"
done
fails 78 'model.mask_padding' \
    run train text.ini --set model.type=encoder --set data.dataset=shakespeare-sample --set model.mask_padding=true

begin "what does not fit is one line"
printf 'u\000p\tabc\ndown\tcba\n' >nul.txt
fails 65 'nul.txt:1: a NUL in the label' run train text.ini "$@" --set data.train_file=nul.txt
words 1 2 3 >short/val.bin
run train text.ini --set data.dataset=tokens --set data.path=short --set model.vocab_size=10 --set model.block_size=3
code_is 65
err_has '3 tokens for validation, and a window needs model.block_size + 1 = 4'
err_lacks 'data.validation'
fails 78 '' run train text.ini --set model.type=mlp --set model.sizes="16 61"
fails 65 'model.block_size' run train text.ini --set model.block_size=200000
fails 78 'model.vocab_size' run train text.ini --set model.vocab_size=60
fails 78 'has no meaning for tokens' run train text.ini --set data.mean=0.5

finish
