#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run folder is enough: every command that takes a config takes a run, and finds its weights.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
mkdir away
times_table
mv text.txt away
config away/net.ini data.dataset=synthetic data.train_samples=96 data.test_samples=50 'model.sizes=12 9*3 4' \
    pipeline.microbatches=3 pipeline.stages=2 train.batch_size=32 train.epochs=3
config away/gpt.ini data.dataset=text data.train_file=text.txt model.type=gpt model.n_layer=2 model.n_head=2 \
    model.n_embd=8 model.block_size=8 train.batch_size=8 train.eval_interval=5 train.max_steps=10
run train away/net.ini --dir a --epochs 2 -q
ok run train away/gpt.ini --dir g -q
mv away/net.ini away/gpt.ini . # the configs are not where they were

for at in a a/ a/checkpoints a/checkpoints/step-00000006; do
    begin "eval $at"
    ok run eval "$at" --format json
    same "$(sha out)" "$(sha a/summary.json)"
    ok run eval "$at" --stages 3 -q
done

begin "eval of a run with other weights, on MPI processes, from within the folder"
ok run eval a --checkpoint a/checkpoints/step-00000003 --format json
[ "$(sha out)" != "$(sha a/summary.json)" ] || complain 'the newest weights'
if command -v mpirun >/dev/null 2>&1; then
    ok run eval a --launch mpirun --format json
    same "$(sha out)" "$(sha a/summary.json)"
fi
(cd a && run eval . --format json && exit "$code")
code=$?
code_is 0
same "$(sha out)" "$(sha a/summary.json)"

begin "generate and export need nothing but the run"
ok run generate g --prompt '1 times' --tokens 5 --temperature 0
cp out first
run generate gpt.ini --set data.train_file=away/text.txt --checkpoint g --prompt '1 times' --tokens 5 --temperature 0
same "$(cat out)" "$(cat first)"
rm away/text.txt
ok run generate g --prompt '1 times' --tokens 5 --temperature 0
same "$(cat out)" "$(cat first)"
shows 'g/export-00000010: ' run export g
[ -f g/export-00000010/model.safetensors ] || complain 'no file'
ok run export g/checkpoints/step-00000010 else
cmp g/export-00000010/model.safetensors else/model.safetensors || complain 'other bytes'
fails 78 'g/export-00000010 is not empty' run export g

while read -r words; do
    begin "ppcli $words"
    # shellcheck disable=SC2086
    ok run $words
done <<'END'
explain a
explain a/checkpoints/step-00000003 --stages 3
plan a
plan a --microbatches 8
bench a --time 0.05 --repeat 1 --no-ceilings --stages 1,2
report a
verify a
inspect a
diagnose a
slurm a --time 1:00:00 -o job.sh
END

begin "train RUN --resume continues the run, with other values too"
fails 78 '--resume' run train a
ok run train a --resume --epochs 3 -q
run train net.ini --dir whole -q
same "$(sha a/summary.json)" "$(sha whole/summary.json)"
[ ! -d runs ] || complain 'another run folder was made'

begin "a config that differs: the message names the run's own"
for what in 'model.sizes=12 9 4' 'model.sizes=12 9*4 4' 'model.sizes=12 8*3 4' model.activation=tanh; do
    run eval net.ini --checkpoint a --set "$what"
    [ "$code" -eq 65 ] || [ "$code" -eq 78 ] || complain "$what: exit $code"
    err_has "its own config is $(pwd -P)/a/config.resolved.ini"
    same "$(grep -c . err)" 1
done
times_table
run generate gpt.ini --checkpoint g --prompt '1' --set model.n_head=1
err_has "its own config is $(pwd -P)/g/config.resolved.ini"
cp -r a/checkpoints/step-00000009 alone
run eval net.ini --checkpoint alone --set model.activation=tanh
err_has 'its own config is alone/config.ini'
ok run eval alone --format json
same "$(sha out)" "$(sha a/summary.json)"

begin "a folder that is not a run is refused in a line"
for command in train explain plan bench eval; do
    fails 66 'away: a folder, but not that of a run: it has no config.resolved.ini; name a config, or a run folder' \
        run "$command" away
done

finish
