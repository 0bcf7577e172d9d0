#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the results of tests decide: which checkpoint is the best, when a run ends, when its learning
# rate falls; what runs after an epoch; and which samples an epoch has.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
config net.ini data.dataset=mnist-sample data.train_samples=600 data.test_samples=200 'model.sizes=784 16 10' \
    train.batch_size=50 train.epochs=40 train.lr=0.02 train.patience=4 checkpoint.best=test_loss checkpoint.keep=1

# number KEY FILE: the value of a key of the summary; of best: its step
number() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\).*/\1/p" "$2" | head -n 1; }
best_step() { sed -n '/"best": {/,/}/s/^ *"step": \([0-9]*\).*/\1/p' "$1"; }
# rates FILE: the learning rates of the records of steps
digest() { sed -n 's/^weights_sha256 *//p' "$folder/out"; }
rates() { sed -n 's/.*"type":"step".*"epoch":\([0-9]*\),.*"lr":\([^,]*\),.*/\1 \2/p' "$1" | sort -un; }

begin "the best checkpoint is kept beside the newest one, and the run ends by patience"
ok run train net.ini --dir a --set run.log_every=12
err_has 'train.patience = 4: the run ends after step ' 'because test_loss has not improved in 4 tests'
out_has ' best' 'best             test_loss ' 'ended by         train.patience = 4: no better test in 4'
best=$(best_step a/summary.json)
end=$(number steps a/summary.json)
same "$((best + 4 * 12))" "$end"
# shellcheck disable=SC2012
same "$(ls a/checkpoints | tr '\n' ' ')" "$(printf 'best step-%08d step-%08d ' "$best" "$end")"
grep -q '"ended_by": "train.patience"' a/summary.json || complain 'the summary does not say why'

begin "the best checkpoint is named like any other"
ok run eval a/checkpoints/best --format json
same "$(number test_loss out)" "$(sed -n 's/.*"value": \([0-9.]*\).*/\1/p' a/summary.json | head -n 1)"
ok run export a/checkpoints/best exported --format torch
ok run train net.ini --dir b --set train.init=a/checkpoints/best --max-steps 1
err_has 'weights from '

begin "a run that patience has ended is complete; with more patience it continues"
ok run train net.ini --dir a --resume
err_has 'train.patience = 4 has ended this run; use a larger one to continue'
same "$(number steps a/summary.json)" "$end"
ok run train net.ini --dir a --resume --set train.patience=6
same "$(number steps a/summary.json)" "$((best + 6 * 12))"
ok run train net.ini --dir a --resume a/checkpoints/best --max-steps "$((best + 5))"
same "$(number steps a/summary.json)" "$((best + 5))"
same "$(best_step a/summary.json)" "$best"

begin "a run that is stopped and resumed decides the same, on any number of stages"
set -- --set train.lr_schedule=plateau --set train.lr_patience=1 --set train.lr_gamma=0.3 --set train.lr_floor=0.0005 \
    --set checkpoint.best=accuracy --set run.log_every=12 --set train.patience=7
ok run train net.ini --dir whole "$@"
err_has 'train.lr_schedule = plateau: train.lr falls from 0.02 to 0.006, because accuracy has not improved in 2 tests'
ok run train net.ini --dir parts "$@" --max-steps 41
for until in 90 133; do
    run train net.ini --dir parts "$@" --resume --max-steps "$until" --stages 2 --schedule gpipe
done
ok run train net.ini --dir parts "$@" --resume --max-steps 0
same "$(sha parts/summary.json)" "$(sha whole/summary.json)"
same "$(number steps parts/summary.json)" "$(number steps whole/summary.json)"
same "$(best_step parts/summary.json)" "$(best_step whole/summary.json)"
rates whole/metrics.jsonl >rates.whole
rates parts/metrics.jsonl >rates.parts
same "$(cat rates.parts)" "$(cat rates.whole)"
[ "$(cut -d' ' -f2 rates.whole | sort -u | wc -l)" -ge 3 ] || complain "the rate falls less than twice: $(cat rates.whole)"

begin "what a test measures changes no bit, but with plateau"
config same.ini data.dataset=synthetic data.train_samples=60 data.test_samples=20 'model.sizes=12 9 4' train.batch_size=20 \
    train.epochs=2
for rates in constant plateau; do
    ok run train same.ini --dir "same.$rates" --set "train.lr_schedule=$rates" --max-steps 4
done
ok run train same.ini --dir same.constant --resume --max-steps 0 --set data.test_samples=10 --set train.test_every=2
fails 78 'data.test_samples was 20, is 10; train.test_every was 1, is 2; ' \
    run train same.ini --dir same.plateau --set train.lr_schedule=plateau --resume --max-steps 0 \
    --set data.test_samples=10 --set train.test_every=2

begin "a signal ends a run while the program of run.on_epoch runs"
printf '#!/bin/sh\n>begun\nsleep 60\n' >slow
chmod +x slow
"$PPCLI" train net.ini --dir signal --set run.on_epoch=./slow >out 2>err &
pid=$!
within '[ -e begun ]' || complain 'the program does not start'
kill -TERM $pid
wait $pid
code=$?
last='a run that gets SIGTERM'
code_is 75
err_has 'continue with the same command and --resume'
[ -d signal/checkpoints/step-00000012 ] || complain 'nothing is saved'

begin "the overwritten run has no best checkpoint of the earlier one"
ok run train net.ini --dir whole --overwrite --epochs 1 --set checkpoint.best=off
[ ! -L whole/checkpoints/best ] || complain 'checkpoints/best is still there'

begin "without test samples a test decides nothing"
awk 'BEGIN { for (i = 0; i < 400; i++) print "all work and no play" }' >text
config text.ini data.dataset=text data.train_file=text data.validation=0 model.type=gpt model.n_layer=1 model.n_head=1 \
    model.n_embd=8 model.block_size=8 train.batch_size=4 train.eval_interval=3 train.max_steps=9
for key in checkpoint.best=accuracy train.patience=3 train.lr_schedule=plateau; do
    fails 78 "${key%=*} goes by the results of tests, and data.dataset = text has no test samples; use checkpoint.best = train_loss" \
        run explain text.ini --set "$key"
done
ok run train text.ini --dir text.run --set checkpoint.best=train_loss --set train.patience=3
out_has 'best             train_loss '

begin "tests follow some epochs, and the end"
ok run train net.ini --dir '' --epochs 4 --set train.test_every=3
same "$(grep -c test_loss= out)" 2
same "$(grep test_loss= out | cut -d' ' -f1 | tr '\n' ' ')" 'epoch=3/4 epoch=4/4 '

begin "a program gets the record of every epoch; what happens to it is a warning"
# shellcheck disable=SC2016 # the program expands it
printf '#!/bin/sh\ncat >>got\necho "$1" of the program\n' >program
chmod +x program
ok run train net.ini --dir c --epochs 2 --set 'run.on_epoch=./program words'
grep '"type":"epoch"' c/metrics.jsonl >expected
same "$(cat got)" "$(cat expected)"
err_has 'words of the program'
out_lacks 'of the program'
ok run train net.ini --dir '' --epochs 1 --set run.on_epoch=false
err_has 'run.on_epoch = false, after epoch 1: it ended with exit code 1'
ok run train net.ini --dir '' --epochs 1 --set run.on_epoch=./nothing
err_has 'run.on_epoch = ./nothing, after epoch 1: cannot start ./nothing'
ok run train net.ini --dir '' --epochs 1 --set 'run.on_epoch=sleep 60' --set run.hang_timeout=2s
err_has 'run.on_epoch = sleep 60, after epoch 1: it did not end within 1' 's and was killed'

begin "the last smaller batch is left out, and the order is that of the file"
set -- --epochs 2 --set train.patience=0 --set train.batch_size=64
ok run train net.ini --dir '' "$@" --set data.drop_last=on
out_has ' 18 steps'
all=$(digest)
ok run train net.ini --dir '' "$@" --set data.drop_last=on --stages 2 --replicas 2
[ "$all" ] || complain 'no digest'
ok run train net.ini --dir d "$@" --set data.drop_last=on --max-steps 13
ok run train net.ini --dir d "$@" --set data.drop_last=on --resume --max-steps 0
same "$(sha d/summary.json)" "$all"
ok run train net.ini --dir '' "$@" --set data.drop_last=on --set data.shuffle=off
some=$(digest)
[ "$some" != "$all" ] || complain 'data.shuffle = off changes nothing'
ok run train net.ini --dir '' "$@" --set data.train_samples=576 --set data.shuffle=off
same "$(digest)" "$some"
fails 78 'data.drop_last leaves no batch of train.batch_size = 601: there are 600 training samples; use a batch size of 600 or less' \
    run train net.ini --dir '' --set train.batch_size=601 --set data.drop_last=on
fails 78 'data.shuffle = off has no effect with data.dataset = shakespeare-sample, whose windows begin at random places' \
    run explain gpt-char.ini --set data.dataset=shakespeare-sample --set data.shuffle=off
finish
