#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A language model whose embedding is its output layer, too: named once, counted once, saved once, and killed and
# resumed like any other. The bits: tests/bits.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
times_table
config gpt.ini data.dataset=text data.train_file=text.txt model.type=gpt model.n_layer=6 model.n_head=2 \
    model.n_embd=16 model.block_size=16 pipeline.microbatches=4 train.batch_size=8 \
    train.eval_interval=50 train.optimizer=adamw train.lr=0.01 train.clip_norm=0.5
six="-q --set train.max_steps=6 --set checkpoint.every_epochs=0"

# trained STAGES SCHEDULE [OPTION...]: six steps, to the bits of one stage
trained() {
    stages=$1
    schedule=$2
    shift 2
    # shellcheck disable=SC2086 # the options are words
    ok run train gpt.ini $six --dir run --overwrite --stages "$stages" --schedule "$schedule" "$@"
    same "$(sha run/summary.json)" "$whole"
}

# shellcheck disable=SC2086
ok run train gpt.ini $six --dir whole --stages 1
whole=$(sha whole/summary.json)

begin "explain names it and who exchanges it, and counts it once"
run explain gpt.ini --stages 4
out_has 'tied: weight of lm_head = transformer.wte.weight, '
out_has ' floats exchanged between ranks 0 and 3 a step'
tied=$(sed -n 's/^  total *\([0-9]*\) .*/\1/p' out)
floats=$(sed -n 's/.*transformer.wte.weight, \([0-9]*\) floats.*/\1/p' out)
run explain gpt.ini --stages 2 --schedule zb-v
out_has ' floats added up within rank 0 a step'
run explain gpt.ini --stages 4 --set model.tie_weights=off
out_lacks 'tied:'
same "$(sed -n 's/^  total *\([0-9]*\) .*/\1/p' out)" "$((tied + floats))"

begin "a plan has the exchange at the end, and takes the time for it"
shows 'G0' run plan gpt.ini --stages 2 --cost-tie 2
out_has 'T0'
with=$(sed -n 's/^makespan \([0-9]*\),.*/\1/p' out)
run plan gpt.ini --stages 2
same "$with" "$(($(sed -n 's/^makespan \([0-9]*\),.*/\1/p' out) + 4))"
run plan gpt.ini --stages 2 --format csv
out_lacks 'G0'

begin "a table trains it too"
cp out table.csv
trained 2 file:table.csv

begin "a trace of the run shows both actions"
# shellcheck disable=SC2086
ok run train gpt.ini $six --dir traced --stages 2 --trace traced.json
for kind in G T; do
    has traced.json "\"cat\":\"$kind\"" || complain "no $kind in the trace"
done

begin "a checkpoint has it once"
# shellcheck disable=SC2086
run inspect run
same "$(grep -c '^ *transformer.wte.weight ' out)" 1
out_lacks 'lm_head'

begin "killed, and resumed with other stages, it goes on with the same bits"
killed gpt.ini --stages 4 --set checkpoint.every=5 --log-every 5
end="--set train.epochs=1000000 --set train.max_steps=$((step + 3))"
# shellcheck disable=SC2086
ok run train gpt.ini --dir killed -q --resume --stages 2 $end
# shellcheck disable=SC2086
ok run train gpt.ini --dir killed.whole -q --stages 3 $end
same "$(sha killed/summary.json)" "$(sha killed.whole/summary.json)"

finish
