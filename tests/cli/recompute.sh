#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pipeline.recompute: tables, memory, traces, plans, interruptions, and what is refused. The bits: tests/bits.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
times_table
config gpt.ini data.dataset=text data.train_file=text.txt model.type=gpt model.n_layer=6 model.n_head=2 \
    model.n_embd=16 model.block_size=16 model.dropout=0.1 pipeline.microbatches=4 train.batch_size=8 \
    train.eval_interval=50 train.optimizer=adamw train.lr=0.01 train.clip_norm=0.5 \
    train.max_steps=4 checkpoint.every_epochs=0
config mlp.ini data.dataset=synthetic data.train_samples=256 data.test_samples=64 \
    'model.sizes=784 32 32 32 32 32 32 32 10' pipeline.microbatches=8 train.batch_size=64 \
    train.epochs=1

begin "a table says itself what is computed again"
shows '0R0' run plan gpt.ini --stages 3 --schedule gpipe --set pipeline.recompute=h.1 --format csv
out_lacks '2R0'
cp out table.csv
digest=
trains gpt.ini --stages 1
trains gpt.ini --stages 3 --schedule file:table.csv
trains gpt.ini --stages 3 --schedule file:table.csv --set pipeline.recompute=all
"$PPCLI" plan --csv table.csv >out
out_has 'R3'

begin "explain tells the memory with and without, and it is what a run takes"
wide="--stages 2 --schedule gpipe --set pipeline.microbatches=8 --set model.n_embd=64"
activations() { sed -n 's/.*"activation_bytes": \([0-9]*\).*/\1/p' "$1" | sort -n | tail -1; }
# shellcheck disable=SC2086
for what in off all; do
    ok run explain gpt.ini $wide --set pipeline.recompute=$what --format json
    cp out "$what.json"
    ok run train gpt.ini $wide --set pipeline.recompute=$what --set train.max_steps=2 --dir bytes --overwrite -q
    same "$(sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "bytes/summary.json" | tr -d '\n')" \
        "$(sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$what.json" | tr -d '\n')"
done
[ "$(activations all.json)" -le $(($(activations off.json) * 4 / 10)) ] ||
    complain "$(activations off.json) bytes become $(activations all.json) only"
same "$(sed -n 's/.*"activation_bytes_off": \([0-9]*\).*/\1/p' all.json | tr '\n' ' ')" \
    "$(sed -n 's/.*"activation_bytes": \([0-9]*\).*/\1/p' off.json | tr '\n' ' ')"
# shellcheck disable=SC2086
run explain gpt.ini $wide --set pipeline.recompute=all
out_has 'recompute = all: at most '

begin "chunks of a rank take turns in the same memory"
halves="--stages 2 --schedule interleaved --set pipeline.microbatches=8 --set model.n_embd=64"
# shellcheck disable=SC2086
for what in off all; do
    ok run explain gpt.ini $halves --set pipeline.recompute=$what --format json
    cp out "halves.$what.json"
done
[ "$(activations halves.all.json)" -le $(($(activations all.json) * 8 / 10)) ] ||
    complain "a chunk at a time: $(activations halves.all.json), a stage: $(activations all.json) bytes"
begin "without packed weights a rank holds less, and that is what a run takes"
ok run explain gpt.ini --stages 2 --set run.packed=off --format json
same "$(sed -n 's/.*"packed_bytes": \([1-9][0-9]*\).*/\1/p' out)" ''
peak=$(sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' out | tr -d '\n')
ok run train gpt.ini --stages 2 --set run.packed=off --dir bytes --overwrite -q
same "$(sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' bytes/summary.json | tr -d '\n')" "$peak"

begin "a trace of the run shows it, and what is held: one micro-batch where there were four"
most() { sed -n 's/.*"live activations".*"pid":0,.*"bytes":\([0-9]*\).*/\1/p' "$1" | sort -n | tail -1; }
for what in off all; do
    ok run train gpt.ini --stages 2 --schedule gpipe --set pipeline.recompute=$what --dir traced --overwrite -q \
        --trace traced.$what.json
done
has traced.all.json '"cat":"R"' || complain 'no R in the trace'
[ "$(most traced.all.json)" -gt 0 ] || complain 'nothing is held'
same "$(($(most traced.all.json) * 4))" "$(most traced.off.json)"

begin "plan draws it, in tables, traces and pictures"
for format in grid csv svg trace json page; do
    ok run plan --schedule gpipe --stages 2 --microbatches 3 --recompute all --format $format
    [ $format = json ] || out_has 'R'
done
run plan --schedule 1f1b --stages 4 --microbatches 8 --recompute 1,3 --format csv
out_lacks '0R'
out_has '1R'
run plan --schedule looped-bfs --stages 2 --microbatches 4 --recompute all --format csv
out_has ',0R0,'
cp "$folder/out" read.csv
run plan --csv read.csv
out_has 'makespan 17,'
run plan --schedule 1f1b --stages 4 --microbatches 8 --recompute all
out_has 'makespan 39,'
run plan --schedule v-min --stages 4 --microbatches 8 --recompute all # 37.5 with R right before I
out_has 'makespan 36,'

begin "killed, and resumed without it and with other stages, it goes on with the same bits"
killed gpt.ini --stages 4 --set pipeline.recompute=all --set checkpoint.every=5 --log-every 5
end="--set train.epochs=1000000 --set train.max_steps=$((step + 3))"
cp -r killed other
# shellcheck disable=SC2086
for resumed in killed other; do
    what=off
    [ $resumed = killed ] || what=all
    ok run train gpt.ini --dir $resumed -q --resume --stages 2 --set pipeline.recompute=$what $end
    same "$(sha $resumed/summary.json)" "${first:=$(sha $resumed/summary.json)}"
done
# shellcheck disable=SC2086
ok run train gpt.ini --dir whole -q --stages 3 $end
same "$first" "$(sha whole/summary.json)"

begin "auto: what fits is left alone, what does not is computed again; the same weights"
ok run train mlp.ini --stages 2 --schedule gpipe --set pipeline.recompute=auto --dir auto1
err_has 'recompute auto: off; a rank holds '
for schedule in gpipe auto; do
    ok run train mlp.ini --stages 2 --schedule $schedule --set pipeline.recompute=auto \
        --set run.memory=600k --dir auto2
    [ $schedule = auto ] || err_has 'recompute auto: 0'
    same "$(sha auto1/summary.json)" "$(sha auto2/summary.json)"
    rm -r auto2
done

begin "what cannot be computed again is refused in one line"
fails 78 "pipeline.recompute" run train gpt.ini --set pipeline.recompute=h.9
fails 78 "write off, all, or layers in model order" run train gpt.ini --set pipeline.recompute=h.2-h.1
fails 78 'pipeline.stages' \
    run train mlp.ini --stages 9 --set pipeline.recompute=auto --set pipeline.assignment=time
err_has 'each needs a layer, so at most '
fails 78 "'auto'" run train gpt.ini --set "pipeline.recompute=auto h.1"
ok run plan gpt.ini --recompute auto
err_has 'recompute auto: off; a rank holds'
fails 69 'run.memory' \
    run train gpt.ini --stages 2 --set pipeline.recompute=auto --set run.memory=1k
fails 69 'pipeline.recompute' run train gpt.ini --stages 2 --schedule auto --set run.memory=1k
fails 64 "needs off, all, or stages from 0 to 3" run plan --schedule 1f1b --stages 4 --microbatches 8 --recompute 4

finish
