#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Transformers: the same weights for every cut, schedule, transport and number of micro-batches, with
# dropout and tied embeddings; and what is refused.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
net() { # net TYPE [KEY=VALUE...]: TYPE.ini, of six layers
    type=$1
    shift
    config "$type.ini" data.dataset=synthetic-tokens data.train_samples=24 data.test_samples=6 \
        "model.type=$type" model.n_layer=4 model.n_head=4 model.n_embd=16 model.block_size=7 \
        model.vocab_size=19 pipeline.microbatches=3 train.batch_size=12 train.epochs=2 \
        train.optimizer=adamw train.lr=0.003 train.clip_norm=1 run.backend=cpu "$@"
}
net gpt model.dropout=0.1
net llama model.n_kv_head=2 model.tie_weights=on
net decoder model.dropout=0.1

begin "bench --ops: of a text, where steps decide how many epochs there are" \
    shows '| attention ' run bench gpt.ini --ops --time 0.01 --no-ceilings --max-steps 4

for type in gpt llama decoder; do
    begin "$type: the same weights for every number of stages and schedule, by threads"
    digest=
    for schedule in naive gpipe 1f1b zb-h1 interleaved zb-v; do
        for stages in 1 2 3; do
            trains $type.ini --stages $stages --schedule $schedule
        done
    done
    trains $type.ini --stages 4 --schedule 1f1b
    begin "$type: and for every number of micro-batches"
    for microbatches in 1 2 4; do
        trains $type.ini --stages 2 --set pipeline.microbatches=$microbatches
    done
    begin "$type: and by mpirun"
    if command -v mpirun >/dev/null 2>&1; then
        trains $type.ini --stages 3 --schedule zb-h1 --launch mpirun
    else
        skip 'no mpirun here'
    fi
done

begin "a large tied tensor travels in pieces"
digest=
for options in '--stages 1' '--stages 2' '--stages 3 --schedule zb-h1' '--stages 2 --launch mpirun'; do
    # shellcheck disable=SC2086
    trains gpt.ini --set model.vocab_size=20000 --set model.n_embd=128 --set model.n_layer=1 \
        --set train.epochs=1 --max-steps 1 $options
done

begin "logits in pieces: the same weights and losses, whatever the size of a piece"
digest=
trains gpt.ini --stages 1
cp run/summary.json whole.json
for rows in 1 17 1000; do # pieces of 16, 32, 48 positions
    trains gpt.ini --stages 2 --set model.logits_rows=$rows --set pipeline.microbatches=2
    for key in train_loss test_loss test_accuracy; do
        same "$(grep "\"$key\"" run/summary.json)" "$(grep "\"$key\"" whole.json)"
    done
done
for schedule in naive gpipe zb-h1 interleaved zb-v zb-auto hanayo dualpipev; do
    for more in pipeline.recompute=off pipeline.recompute=all; do
        trains gpt.ini --stages 2 --schedule $schedule --set model.logits_rows=16 --set $more \
            --set pipeline.microbatches=4
    done
done
trains gpt.ini --stages 6 --set model.logits_rows=16 # the last stage has the last layer alone
run eval gpt.ini --checkpoint run --predictions whole.csv
ok run eval gpt.ini --checkpoint run --predictions pieces.csv --set model.logits_rows=16
cmp -s whole.csv pieces.csv || complain 'other predictions'
digest=
trains gpt.ini --replicas 2 --set train.zero=0
trains gpt.ini --replicas 2 --stages 2 --set train.zero=1 --set model.logits_rows=1

begin "logits in pieces take less memory, by themselves where there are many"
memory() { # memory [OPTION...]: bytes that the last rank of gpt.ini keeps
    ok run explain gpt.ini --stages 2 --format json --set pipeline.schedule=gpipe "$@"
    tr -d '\n ' <"$folder/out" | sed 's/.*"activation_bytes":\([0-9]*\).*/\1/'
}
whole=$(memory --set model.vocab_size=50257)
pieces=$(memory --set model.vocab_size=50257 --set model.logits_rows=3)
[ "$pieces" -lt $((whole / 4)) ] || complain "$pieces bytes in pieces, $whole as a whole"
out_has '"logits_rows": 16'
run explain gpt.ini --set model.vocab_size=50257
out_lacks 'logits: of at most'
run explain gpt.ini --set model.vocab_size=50257 --set model.block_size=200
out_has 'logits: of at most 320 positions at once'

begin "in pieces the last layer is done in its input gradient: the first stage waits longer for it"
bubble() { # bubble OPTION...: in per cent
    ok run explain gpt.ini --stages 2 --schedule zb-h1 --set pipeline.microbatches=4 --set model.vocab_size=3000 "$@"
    sed -n '/^bubble, if time follows flops/{n;s/^  \([0-9.]*\) %.*/\1/p;}' "$folder/out"
}
whole=$(bubble --set pipeline.split_at=lm_head)
pieces=$(bubble --set pipeline.split_at=lm_head --set model.logits_rows=16)
awk -v whole="$whole" -v pieces="$pieces" 'BEGIN { exit !(whole > 0 && pieces > whole + 0.5) }' ||
    complain "bubble $pieces % in pieces, $whole % as a whole"

begin "what cannot be in pieces is refused"
fails 78 "model.logits_rows: the last stage's input gradients do not ascend" \
    run explain gpt.ini --stages 2 --schedule looped-bfs --set model.logits_rows=4
fails 78 '' run explain gpt.ini --set model.logits_rows=4 --set model.type=sequential --set 'model.layers=linear:8 relu'

begin "replicas: the same weights for every cut"
digest=
for stages in 1 2 3; do
    trains gpt.ini --replicas 2 --stages $stages
done

begin "muon: the same weights for every number of stages, with recompute, and resumed"
for type in gpt llama; do
    digest=
    for stages in 1 2 3 4; do
        trains $type.ini --optimizer muon --set train.momentum=0.95 --stages $stages
    done
    trains $type.ini --optimizer muon --set train.momentum=0.95 --stages 2 --schedule zb-v --set pipeline.recompute=all
    trains $type.ini --optimizer muon --set train.momentum=0.95 --stages 2 --set run.threads=2
    run train $type.ini --optimizer muon --set train.momentum=0.95 --stages 3 --dir part -q --max-steps 3 \
        --set checkpoint.every=3
    code_is 0
    run train $type.ini --optimizer muon --set train.momentum=0.95 --stages 2 --dir part -q --resume
    code_is 0
    same "$(sha part/summary.json)" "$digest"
    rm -rf part
done

begin "attention over the samples: explain says that micro-batches change what is computed"
digest=
for stages in 1 2; do
    trains decoder.ini --set model.batch_first=false --stages $stages
done
run explain decoder.ini --set model.batch_first=false
out_has 'the samples of each micro-batch of each replica meet'

begin "the tutorial's transformer: names, parameters, a cut by name"
config tutorial.ini data.dataset=synthetic-ones model.type=decoder model.n_layer=8 model.n_head=8 \
    model.n_embd=512 model.block_size=500 model.vocab_size=10000 pipeline.stages=2 \
    pipeline.split_at=layers.4
shows '43883280' run explain tutorial.ini
out_has 'layers.4 to output'

begin "resumed on another number of stages: the same bits"
digest=
trains gpt.ini --stages 1
ok run train gpt.ini --stages 3 --schedule zb-h1 --dir part -q --max-steps 3 --set checkpoint.every=3
ok run train gpt.ini --stages 2 --dir part -q --resume
same "$(sha part/summary.json)" "$digest"

begin "steps alone decide how many epochs of windows there are"
config steps.ini data.dataset=shakespeare-sample model.type=gpt train.max_steps=600
shows 'epochs           = 3 ' run explain steps.ini
out_has 'chosen (default)'
run bench --ops steps.ini --set model.n_layer=1 --set model.n_head=1 --set model.n_embd=8 --set model.block_size=8 --time 0.01 \
    --no-ceilings
code_is 0
out_has 'attention'

begin "explain and plan of a shipped config need no download; train does"
for kinds in 65 256; do
    more=
    [ $kinds -eq 65 ] || more='--set data.tokens=bytes'
    # shellcheck disable=SC2086
    ok run explain gpt-char.ini $more --format json
    sed -n '/"layers"/,$p' out >known
    # shellcheck disable=SC2086
    run explain gpt-char.ini $more --set model.vocab_size=$kinds --format json
    same "$(sed -n '/"layers"/,$p' out)" "$(cat known)"
done
[ -s known ] || complain 'no layers'
ok run plan gpt-char.ini
fails 66 'ppcli download shakespeare' run train gpt-char.ini --dir ''

begin "what does not fit is refused in one line"
refused() { # refused TEXT CONFIG [OPTION...]
    text=$1
    shift
    fails 78 "$text" run explain "$@"
}
refused '5 heads do not divide the 16 channels' gpt.ini --set model.n_head=5
refused '3 heads of keys and values do not divide 4 heads' llama.ini --set model.n_kv_head=3
refused 'model.n_kv_head is not used by model.type = gpt (only by llama)' gpt.ini --set model.n_kv_head=2
refused 'model.vocab_size' gpt.ini --set model.vocab_size=0

finish
