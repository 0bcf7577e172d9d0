#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a run that continues may change: what changes no bit as it is, what changes bits with --allow.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
config net.ini data.dataset=synthetic data.train_samples=300 data.test_samples=50 \
    'model.sizes=12 9*5 4' pipeline.microbatches=3 pipeline.stages=2 train.batch_size=32 \
    train.epochs=3 train.lr=0.01
run train net.ini --dir whole -q
want=$(sha whole/summary.json)
run train net.ini --dir begun --max-steps 13 -q

# resumes OPTION...: the run that was begun, to its end, in ./r
resumes() {
    rm -rf r
    cp -r begun r
    run train net.ini --dir r --resume --max-steps 0 "$@"
}

# Beside linked products the number of micro-batches is one of the things that change bits.
"$PPCLI" train net.ini --dir '' -q --microbatches 2 --max-steps 13 >out 2>err
own=$([ "$(sha out)" = "$("$PPCLI" train net.ini --dir '' -q --max-steps 13 | sha /dev/stdin)" ] && echo yes)

while read -r what words; do
    begin "no bit changes: $what"
    case $what in micro-batches | exact | logits-rows) [ "$own" = yes ] || { skip "products of a library" && continue; } ;; esac
    # shellcheck disable=SC2086
    ok resumes $words
    same "$(sha r/summary.json)" "$want"
    grep -q '"changes"' r/summary.json && complain 'a change is recorded'
done <<'E'
micro-batches --microbatches 2
exact --set train.exact=off --set train.coalesce=2
logits-rows --set model.logits_rows=16
test-samples --set data.test_samples=20
momentum-of-adam --set train.momentum=0.5
decay-of-nothing --set train.decay=weights
lr_steps-of-constant --set train.lr_steps=7
lr_by-of-constant --set train.lr_by=epoch
lr_gamma --set train.lr_gamma=0.5
initial-weights --set model.init=xavier_normal
evaluation-of-texts --set train.eval_interval=7
stages-and-schedule --stages 3 --schedule gpipe
E

begin "idle keys of other optimizers change no bit, those of this one do"
run train net.ini --dir sgd --optimizer momentum --max-steps 13 -q
run train net.ini --dir sgd --optimizer momentum --resume --max-steps 14 -q --set train.beta1=0.5 --set train.eps=1e-3
code_is 0
fails 78 'train.nesterov was false, is true' \
    run train net.ini --dir sgd --optimizer momentum --resume --max-steps 15 -q --set train.nesterov=on

begin "the number of micro-batches matters where samples share statistics"
config norm.ini data.dataset=synthetic data.shape=8x8x3 data.train_samples=60 data.test_samples=20 \
    model.type=sequential 'model.layers=conv:4x3 batchnorm relu flatten linear:4' train.batch_size=12 train.epochs=2 \
    pipeline.microbatches=2
ok run train norm.ini --dir norm --max-steps 5 -q
fails 78 'pipeline.microbatches was 2, is 3; its own config is ' \
    run train norm.ini --dir norm --max-steps 0 -q --resume --microbatches 3
err_has '/norm/config.resolved.ini. Give these values again, or change them from here on with --allow pipeline.microbatches'
ok run train norm.ini --dir norm --max-steps 0 -q --resume --microbatches 3 --allow pipeline.microbatches

begin "the data may have another name where their bytes are the same"
awk 'BEGIN { print "a,b,y"; for (i = 0; i < 90; i++) printf "%g,%g,%d\n", i % 7 / 7, i % 5 / 5, i % 3 }' >a.csv
config table.ini data.dataset=csv data.train_file=a.csv data.test_file=a.csv 'model.sizes=2 8 3' \
    train.batch_size=10 train.epochs=2
run train table.ini --dir table --max-steps 5 -q
ok run train table.ini --dir table --max-steps 0 -q --resume --set data.label=y --set data.train_samples=1000
run train table.ini --dir table2 --max-steps 5 -q
fails 78 'data.train_samples was 0, is 80; ' \
    run train table.ini --dir table2 --max-steps 0 -q --resume --set data.train_samples=80
err_has 'To begin a new run with its weights: --set train.init='

begin "what changes bits is refused, and the advice that is given works"
fails 78 'train.lr was 0.01, is 0.02; train.beta1 was 0.9, is 0.8; ' resumes --lr 0.02 --set train.beta1=0.8
err_has 'Give these values again, or change them from here on with --allow train.lr,train.beta1'
fails 78 'train.lr' resumes --lr 0.02 --set train.beta1=0.8 --allow train.lr
ok resumes --lr 0.02 --set train.beta1=0.8 --allow train.lr,train.beta1
err_has 'after step 13 train.lr is 0.02, was 0.01' 'after step 13 train.beta1 is 0.8, was 0.9'
out_has 'changed          after step 13 train.lr is 0.02, was 0.01'
cp -r r both
resumes --lr 0.02 --set train.beta1=0.8 --allow 'train.lr, train.beta1' -q
same "$(sha r/summary.json)" "$(sha both/summary.json)"
resumes --lr 0.02 --set train.beta1=0.8 --allow train.lr --allow train.beta1 -q
same "$(sha r/summary.json)" "$(sha both/summary.json)"
fails 78 'train.seed was 1, is 2; ' resumes --lr 0.02 --seed 2 --allow train.lr
err_has 'To begin a new run with its weights: --set train.init='
ok run train net.ini --dir again --seed 2 --set train.init=begun/checkpoints/step-00000013 -q
fails 78 '--dir' \
    resumes --set 'model.sizes=12 9 4'

begin "moments and order of data are kept: the same as with that rate from there on"
resumes --lr 0.005 --allow train.lr -q
# A schedule that has this rate from step 14 on is the same run.
run train net.ini --dir steps -q --set train.lr_schedule=multistep --set train.lr_milestones=13 --set train.lr_gamma=0.5
same "$(sha r/summary.json)" "$(sha steps/summary.json)"

begin "what changed is in metrics.jsonl, in summary.json, in the report, and in later checkpoints"
ok resumes --lr 0.02 --allow train.lr --max-steps 16 -q
ok run train net.ini --dir r --resume -q --lr 0.02
ok run train net.ini --dir elsewhere --resume r/checkpoints/step-00000030 --lr 0.04 --allow train.lr --epochs 4 -q
for dir in r elsewhere; do
    python3 - "$dir" >err 2>&1 <<'E' || complain "$(cat err)"
import json, sys
dir = sys.argv[1]
want = [{'step': 13, 'key': 'train.lr', 'was': '0.01', 'is': '0.02'}]
if dir != 'r':
    want.append({'step': 30, 'key': 'train.lr', 'was': '0.02', 'is': '0.04'})
lines = [json.loads(l) for l in open(dir + '/metrics.jsonl')]
changes = [{k: l[k] for k in want[0]} for l in lines if l['type'] == 'change']
assert changes == want, changes
assert json.load(open(dir + '/summary.json'))['changes'] == want
rates = {l['step']: l['lr'] for l in lines if l['type'] == 'step'}
assert all(lr == (0.01 if t <= 13 else 0.02 if t <= 30 else 0.04) for t, lr in rates.items()), rates
E
    run report "$dir" -o page.html
    has page.html '"type":"change"' || complain "the report of $dir does not show it"
done
fails 78 'train.lr was 0.02, is 0.01' run train net.ini --dir r --resume -q --epochs 4

begin "another batch size continues at the same sample, and steps count on"
ok resumes --batch-size 16 --allow train.batch_size -q
python3 - >err 2>&1 <<'E' || complain "$(cat err)"
import json
s = json.load(open('r/summary.json'))
# 10 steps of 32 (the last of 12) and 3 of 32; then 204 samples by 16, and an epoch by 16
assert s['samples'] == 900 and s['steps'] == 13 + 13 + 19 and s['epochs'] == 3, s
epochs = {e['epoch']: e['step'] for e in map(json.loads, open('r/metrics.jsonl')) if e['type'] == 'epoch'}
assert epochs == {1: 10, 2: 26, 3: 45}, epochs
E
cp -r r smaller
resumes --batch-size 16 --allow train.batch_size -q --max-steps 20
ok run train net.ini --dir r --resume -q --batch-size 16 --max-steps 0 --stages 1
same "$(sha r/summary.json)" "$(sha smaller/summary.json)"
ok run train net.ini --dir r --resume -q --batch-size 16 --max-steps 0 --epochs 4
same "$(sed -n 's/.*"samples": \([0-9]*\).*/\1/p' r/summary.json)" 1200
ok resumes --batch-size 48 --allow train.batch_size -q
fails 78 '' resumes --batch-size 40 --allow train.batch_size
err_has 'is 96 samples into epoch 2, where no batch of train.batch_size = 40 begins; use a size that divides 96, or resume from the end of an epoch'
ok run train net.ini --dir from_end --resume begun/checkpoints/step-00000010 --batch-size 40 --allow train.batch_size -q
same "$(sed -n 's/.*"samples": \([0-9]*\).*/\1/p' from_end/summary.json)" 900

begin "epochs of another batch size are epochs of the learning rate too"
words='--set train.lr_schedule=multistep --set train.lr_milestones=2 --set train.lr_by=epoch -q'
# shellcheck disable=SC2086
run train net.ini --dir by_epoch --max-steps 13 $words
# shellcheck disable=SC2086
ok run train net.ini --dir by_epoch --max-steps 0 --resume --batch-size 16 --allow train.batch_size $words
same "$(python3 -c 'import json
print(*dict.fromkeys((l["epoch"], l["lr"]) for l in map(json.loads, open("by_epoch/metrics.jsonl")) if "lr" in l))')" \
    '(1, 0.01) (2, 0.01) (3, 0.001)'

begin "a text counts steps, whatever the batch"
times_table
config text.ini data.dataset=text data.train_file=text.txt model.type=gpt model.n_layer=1 model.n_head=2 \
    model.n_embd=8 model.block_size=8 train.batch_size=8 train.eval_interval=5 train.max_steps=7
run train text.ini --dir text -q
ok run train text.ini --dir text -q --resume --max-steps 12 --batch-size 4 --allow train.batch_size
same "$(sed -n 's/.*"samples": \([0-9]*\).*/\1/p' text/summary.json)" 76

begin "an optimizer needs the numbers that it keeps"
ok resumes --optimizer adamw --allow train.optimizer -q
run train net.ini --dir plain --optimizer sgd --max-steps 13 -q
fails 78 'train.optimizer was sgd, is adam; ' \
    run train net.ini --dir plain --optimizer adam --resume --allow train.optimizer
err_has 'To begin a new run with its weights: --set train.init='

while read -r key text; do
    begin "--allow $key is refused in a line"
    fails 64 "$text" run train net.ini --dir begun --resume --allow "$key"
done <<'E'
model.sizes it cannot change in the middle of a run
train.seed it cannot change in the middle of a run
data.dataset it cannot change in the middle of a run
lr unknown key; did you mean 'train.lr'?
train.lrr unknown key; did you mean 'train.lr'?
train.epochs not needed, a resumed run may change this key as it is
run.dir not needed, a resumed run may change this key as it is
, --allow needs keys separated by commas
E

begin "--allow is a word to --resume"
fails 64 'add --resume' run train net.ini --dir fresh --allow train.lr
ok run train net.ini --dir fresh --allow train.lr --resume -q

finish
