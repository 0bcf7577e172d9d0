#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Transformers: logits in pieces, cuts by name, epochs of windows, and what is refused. The bits: tests/bits.
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

begin "logits in pieces: the same predictions"
trains gpt.ini --stages 6 --set model.logits_rows=16
run eval gpt.ini --checkpoint run --predictions whole.csv
ok run eval gpt.ini --checkpoint run --predictions pieces.csv --set model.logits_rows=16
cmp -s whole.csv pieces.csv || complain 'other predictions'

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
fails 78 "model.logits_rows" \
    run explain gpt.ini --stages 2 --schedule looped-bfs --set model.logits_rows=4
fails 78 '' run explain gpt.ini --set model.logits_rows=4 --set model.type=sequential --set 'model.layers=linear:8 relu'

begin "attention over the samples: explain says that micro-batches change what is computed"
run explain decoder.ini --set model.batch_first=false
out_has 'the samples of each micro-batch of each replica meet'

begin "the tutorial's transformer: names, parameters, a cut by name"
config tutorial.ini data.dataset=synthetic-ones model.type=decoder model.n_layer=8 model.n_head=8 \
    model.n_embd=512 model.block_size=500 model.vocab_size=10000 pipeline.stages=2 \
    pipeline.split_at=layers.4
shows '43883280' run explain tutorial.ini
out_has 'layers.4 to output'

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
