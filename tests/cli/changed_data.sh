#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files that others change while a run uses them.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
LC_ALL=C
export LC_ALL
awk 'BEGIN { for (i = 0; i < 60000; i++) printf "%c", 33 + (i * i * 31 + i * 7) % 90 }' >bytes </dev/null
cp bytes train.good
head -c 4000 bytes >val.good
config net.ini model.type=gpt model.n_layer=2 model.n_head=2 model.n_embd=16 model.block_size=16 \
    model.vocab_size=128 data.dataset=tokens "data.path=$folder" data.token_bytes=1 train.batch_size=16 \
    train.epochs=1000000 pipeline.stages=2 pipeline.microbatches=2 run.log_every=1

# hurt RUN COMMAND...: trains until a step is recorded, runs the command and waits for the end
hurt() {
    run_folder=$1
    shift
    rm -rf "$run_folder"
    cp train.good train.bin
    cp val.good val.bin
    "$PPCLI" train net.ini --dir "$run_folder" >out 2>err </dev/null &
    child=$!
    within "grep -q '\"step\"' $run_folder/metrics.jsonl 2>/dev/null"
    "$@"
    code=0
    last="train, and then $*"
    wait $child || code=$?
}
# shellcheck disable=SC2317 # hurt calls it
change_data() { # change_data KIND: training data, in place
    case $1 in
    out_of_vocabulary) printf '\377\377\377\377' | dd of=train.bin conv=notrunc bs=1 seek=100 2>/dev/null ;;
    other_tokens) tr '\041-\172' '\042-\173' <train.good | dd of=train.bin conv=notrunc bs=60000 2>/dev/null ;;
    cut) : >train.bin ;;
    longer) cat train.good >>train.bin ;;
    esac
}

begin "training data that change end the run with the file's name, and with the weights of the step before"
for kind in other_tokens out_of_vocabulary cut longer; do
    hurt run change_data $kind
    code_is 65
    same "$(grep -c 'ppcli: error:' err)" 1
    err_has "$folder/train.bin" 'another program' 'they are saved' "--resume $folder/run"
    err_lacks 'internal error'
    step=$(sed -n 's/.*The weights are those of step \([0-9]*\);.*/\1/p' err)
    [ -d "run/checkpoints/step-$(printf %08d "$step")" ] || complain "$kind: step $step is not saved"
done

begin "the run continues with the file restored, and ends with the weights of one that nothing disturbed"
cp train.good train.bin
ok run train net.ini --dir run --resume --max-steps $((step + 3)) -q
same "$(wc -l <"$folder/err")" 0
sum=$(grep weights_sha256 "$folder/out")
ok run train net.ini --dir '' --max-steps $((step + 3)) -q
same "$(grep weights_sha256 "$folder/out")" "$sum"

begin "test data that change end the evaluation in the same way"
config_lines=$(cat net.ini)
{ echo "$config_lines" | sed 's/^epochs=.*/epochs=100000\neval_interval=2/'; } >net.ini
hurt run truncate -s 100 val.bin
code_is 65
err_has "$folder/val.bin" 'another program' 'they are saved'

begin "the record of actions is not read back: a run whose file is cut or overwritten warns and continues"
for kind in 'truncate -s 0' 'cp val.good'; do
    cp train.good train.bin
    cp val.good val.bin
    rm -rf run
    "$PPCLI" train net.ini --dir run >out 2>err </dev/null &
    child=$!
    within "grep -q '\"step\"' run/metrics.jsonl 2>/dev/null"
    $kind run/actions/rank-0000.ring
    within 'grep -q warning err'
    kill -TERM $child
    code=0
    last="train, and then $kind rank-0000.ring"
    wait $child || code=$?
    code_is 75
    same "$(grep -c 'rank-0000.ring: another program' err)" 1
done

finish
