#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TensorBoard's event files.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

check=$(dirname "$0")/check_events.py
config "$folder/small.ini" data.dataset=synthetic data.train_samples=320 data.test_samples=50 \
    'model.sizes=20 16*3 5' pipeline.stages=2 train.epochs=3 train.batch_size=32 \
    run.log_every=4
config=$folder/small.ini
a=$folder/a

# checked WORD...: what check_events.py says
checked() {
    said=$(python3 "$check" "$@" 2>&1) || {
        [ $? -eq 77 ] && skip "$said" && return
        complain "check_events.py $*: $said"
    }
}

run train "$config" --dir "$a" --set run.tensorboard=on

begin "TensorBoard's event file holds the numbers of metrics.jsonl"
code_is 0
checked events "$a"

begin "TensorBoard reads it"
checked board "$a"

begin "a resumed run has no step twice"
run train "$config" --dir "$folder/again" --set run.tensorboard=on --set checkpoint.keep=9
sleep 1
ok run train "$config" --resume "$(find "$folder/again/checkpoints" -name 'step-*' | sort | head -n 1)" \
    --dir "$folder/again" --set run.tensorboard=on --set checkpoint.keep=9
same "$(find "$folder/again/tensorboard" -type f | wc -l | tr -d ' ')" 2
checked events "$folder/again"
checked board "$folder/again"

begin "of a text perplexity stands beside the loss"
config "$folder/text.ini" data.dataset=synthetic-tokens data.train_samples=24 data.test_samples=6 \
    model.type=gpt model.n_layer=1 model.n_head=1 model.n_embd=8 model.block_size=4 model.vocab_size=9 \
    train.batch_size=8 train.epochs=4 run.log_every=1
ok run train "$folder/text.ini" --dir "$folder/text" --set run.tensorboard=on
checked events "$folder/text"

begin "a perplexity that no float holds is left out of the board"
fails 80 '' run train "$folder/text.ini" --dir "$folder/high" --set run.tensorboard=on \
    --set train.optimizer=sgd --set train.lr=300 --set model.n_embd=16
grep -q '"perplexity":null\|"perplexity":[0-9.]*e+[0-9]' "$folder/high/metrics.jsonl" || skip "no such perplexity"
checked events "$folder/high"

begin "overwriting a run removes its event files"
ok run train "$config" --dir "$a" --overwrite --set run.tensorboard=on
checked events "$a"
ok run train "$config" --dir "$a" --overwrite
same "$(find "$a/tensorboard" -type f | wc -l | tr -d ' ')" 0

begin "without being asked, nothing is written"
ok run train "$config" --dir "$folder/plain" --max-steps 2
[ ! -e "$folder/plain/tensorboard" ] || complain "there is a folder tensorboard"

begin "TensorBoard without a run folder is mentioned"
ok run train "$config" --dir '' --max-steps 2 --set run.tensorboard=on
err_has 'run.tensorboard has no effect'

finish
