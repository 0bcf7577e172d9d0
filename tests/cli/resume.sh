#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of a run, going on from them, and the signals that ask for them.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
config net.ini data.dataset=synthetic data.train_samples=300 data.test_samples=50 \
    'model.sizes=12 9*5 4' pipeline.microbatches=3 pipeline.stages=2 train.batch_size=32 \
    train.epochs=3 train.lr=0.01
endless="--set train.epochs=1000000 --set checkpoint.every_epochs=0"

# The step of the newest checkpoint in a folder, 0 without one.
# shellcheck disable=SC2317 # called by within
newest() { find "$1/checkpoints" -name 'step-*' 2>/dev/null | sed 's/.*-0*//' | sort -n | tail -n 1 | grep . || echo 0; }

# start DIR [OPTION...]: a run in the background that has trained for a while; its number is $pid
start() {
    dir=$1
    shift
    # A shell starts background jobs with INT ignored, nohup all with HUP.
    # shellcheck disable=SC2086
    python3 -c 'import os, signal, sys
for s in signal.SIGINT, signal.SIGHUP:
    signal.signal(s, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$PPCLI" train net.ini --dir "$dir" $endless --log-every 50 "$@" >"$folder/out" 2>"$folder/err" </dev/null &
    pid=$!
    within "grep -q '\"type\":\"step\"' $dir/metrics.jsonl 2>/dev/null" || complain "no step of $dir"
}
ended() { code=0; wait "$pid" || code=$?; last="the run"; }

begin "a run saves after every epoch and keeps the newest two"
ok run train net.ini --dir a -q
same "$(find a/checkpoints -mindepth 1 -maxdepth 1 | sort | tr '\n' ' ')" \
    'a/checkpoints/step-00000020 a/checkpoints/step-00000030 '
ok run verify a

begin "exact weight gradients of another number of micro-batches at once are the same run"
ok run train net.ini --dir sums -q --set train.coalesce=1 --set train.max_steps=13
ok run train net.ini --dir sums -q --resume
same "$(sed -n 's/.*"weights_sha256": "\([0-9a-f]*\).*/\1/p' sums/summary.json)" \
    "$(sed -n 's/.*"weights_sha256": "\([0-9a-f]*\).*/\1/p' a/summary.json)"
run train net.ini --dir inexact -q --set train.coalesce=1 --set train.exact=off --set run.gemm=cblas --set train.max_steps=13
code_is 0
fails 78 'train.coalesce was 1, is 2' \
    run train net.ini --dir inexact -q --resume --set train.coalesce=2 --set train.exact=off --set run.gemm=cblas

begin "a folder with nothing but an unfinished checkpoint, as a lost host leaves it, is begun in"
mkdir -p cut/checkpoints/step-00000020.tmp-1
ok run train net.ini --dir cut --resume -q
same "$(find cut/checkpoints -name '*.tmp-*')" ''

begin "checkpoint.every, every_epochs, keep and at_end say when and how many"
ok run train net.ini --dir b -q --set checkpoint.every=7 --set checkpoint.keep=9 \
    --set checkpoint.every_epochs=2 --set checkpoint.at_end=false
same "$(find b/checkpoints -mindepth 1 -maxdepth 1 | sort | sed 's/.*-0*//' | tr '\n' ' ')" '7 14 20 21 28 '

begin "a folder in use is refused, naming its process"
start c
fails 69 "process $pid on" run train net.ini --dir c --overwrite
fails 69 '' run train net.ini --dir c --resume
kill -9 "$pid" 2>/dev/null
ended

begin "a killed run goes on from its last checkpoint, and its metrics have every step once"
# Only the newest two stay, and a step takes microseconds: no single one can be waited for.
start d --set checkpoint.every=20
# shellcheck disable=SC2016 # for within to expand
within 'test "$(newest d)" -ge 100' || complain 'no checkpoint'
kill -9 "$pid"
ended
step=$("$PPCLI" inspect d | sed -n 's/^step *//p')
ok run train net.ini --dir d --resume --set train.max_steps=$((step + 15)) --epochs 1000000 --stages 3 --log-every 50
err_has "continuing after step $step, from "
out_has "ms a step, 15 steps after step $step, "
run train net.ini --dir whole --set train.max_steps=$((step + 15)) --epochs 1000000 -q --log-every 50
same "$(sha d/summary.json)" "$(sha whole/summary.json)"
python3 -c '
import json, sys
lines = [[l for l in map(json.loads, open(d + "/metrics.jsonl")) if l["type"] == "epoch"] for d in ("d", "whole")]
steps = [l["step"] for l in lines[0]]
assert steps == sorted(set(steps)), steps
ends = [json.load(open(d + "/summary.json")) for d in ("d", "whole")]
assert [s["steps"] - s["steps_before"] for s in ends] == [15, ends[1]["steps"]], ends
keys = ("epoch", "step", "train_loss", "train_accuracy", "test_loss", "test_accuracy")
assert [[l[k] for k in keys] for l in lines[0]] == [[l[k] for k in keys] for l in lines[1]]' 2>err ||
    complain "$(cat err)"

begin "a damaged checkpoint is passed over, or stops when it should"
newest=$(find a/checkpoints -name 'step-*30')
printf 'Z' | dd of="$newest/state.json" bs=1 seek=5 conv=notrunc status=none
fails 65 "$newest/state.json: damaged" run train net.ini --dir a --resume --set checkpoint.on_corrupt=stop
ok run train net.ini --dir a --resume
err_has 'cannot be used; trying the one before it' 'continuing after step 20'
same "$(sha a/summary.json)" "$(sha b/summary.json)"

begin "--resume of a complete run changes no file, however it is asked for"
run train net.ini --dir end -q --set checkpoint.keep=3
state() { find end -type f -exec sha256sum {} + | sort; }
before=$(state)
for words in '--resume' '--resume end' '--resume end/checkpoints/step-00000010 --epochs 1' \
    '--resume --launch mpirun --trace t.json'; do
    # shellcheck disable=SC2086
    ok run train net.ini --dir end $words --set checkpoint.keep=1
    err_has 'there is nothing left to train, and '
    same "$(state)" "$before"
done
[ ! -e t.json ] || complain 'a trace of no step'

begin "a longer run is the same run where lr_steps says over how many steps lr falls"
falls='--set train.lr_schedule=cosine --set train.lr_steps=40 -q'
# shellcheck disable=SC2086
run train net.ini --dir short --epochs 1 $falls
# shellcheck disable=SC2086
run train net.ini --dir short --resume --epochs 3 $falls
err_lacks 'schedule now spans'
# shellcheck disable=SC2086
run train net.ini --dir long $falls
same "$(sha short/summary.json)" "$(sha long/summary.json)"

begin "a longer run whose schedule stretches is told, with the way to avoid it"
run train net.ini --dir stretched --epochs 1 --set train.lr_schedule=cosine -q
run train net.ini --dir stretched --resume --epochs 3 --set train.lr_schedule=cosine -q
err_has 'warning: the learning-rate schedule now spans '
err_has 'train.lr_schedule = constant, or set train.lr_steps'

begin "a learning rate by epoch is that of the run also when it goes on in mid-epoch"
falls='--set train.lr_schedule=multistep --set train.lr_milestones=2 --set train.lr_by=epoch'
falls="$falls --set train.warmup_epochs=1 -q"
# shellcheck disable=SC2086
run train net.ini --dir by_epoch --max-steps 15 $falls
# shellcheck disable=SC2086
run train net.ini --dir by_epoch --resume --max-steps 0 $falls
err_lacks 'schedule now spans'
# shellcheck disable=SC2086
run train net.ini --dir by_epoch_whole $falls
same "$(sha by_epoch/summary.json)" "$(sha by_epoch_whole/summary.json)"
same "$(python3 -c 'import json
print(*dict.fromkeys(json.loads(l)["lr"] for l in open("by_epoch_whole/metrics.jsonl") if "\"lr\"" in l))')" \
    '0.005 0.01 0.001'

begin "a checkpoint of a wrong name stops --resume, and nothing is removed"
cp -r end wrong
rm -r wrong/checkpoints/step-00000010
mv wrong/checkpoints/step-00000030 wrong/checkpoints/step-00000900
fails 65 'step-00000900: holds step 30; name the folder step-00000030' run train net.ini --dir wrong --resume
fails 1 'holds step 30' run verify wrong
mv wrong/checkpoints/step-00000900 wrong/checkpoints/step-00000020.tmp-1
rm wrong/summary.json
ok run train net.ini --dir wrong --resume wrong/checkpoints/step-00000020.tmp-1
ok run verify wrong/checkpoints/step-00000020.tmp-1

begin "of a checkpoint that is a link the link alone is removed"
cp -r end linked
mv linked/checkpoints/step-00000030 kept
ln -s "$PWD/kept" linked/checkpoints/step-00000030
ok run train net.ini --dir linked --resume linked/checkpoints/step-00000010 -q
same "$(find linked/checkpoints -name '.trash*')" ''
ok run verify kept linked

begin "--resume begins anew where there is nothing, and says so"
ok run train net.ini --dir fresh --resume -q
ok run train net.ini --dir fresh2 --resume=auto
err_has '--resume: no checkpoint in'
same "$(sha fresh/summary.json)" "$(sha a/summary.json)"
fails 64 '' run train net.ini --dir '' --resume
fails 66 '' run train net.ini --dir nothing --resume nowhere

begin "--resume with a path goes on in another folder when there is one"
ok run train net.ini --dir other --resume b/checkpoints/step-00000007 -q
same "$(sha other/summary.json)" "$(sha b/summary.json)"
ok run train net.ini --resume b/checkpoints/step-00000014 --set run.dir=auto -q
same "$(find b/checkpoints -mindepth 1 -maxdepth 1 | sort | sed 's/.*-0*//' | tr '\n' ' ')" '20 30 '

begin "without --dir the newest run of this config goes on"
ok run train net.ini -q --set train.max_steps=5
ok run train net.ini --resume
err_has 'continuing after step 5, from runs/net-'
same "$(find runs -mindepth 1 -maxdepth 1 | wc -l | tr -d ' ')" 1

begin "eval tests a checkpoint on any number of stages"
shows "$(sha a/summary.json)" run eval net.ini --checkpoint a
head -n 2 out >first
ok run eval net.ini --checkpoint a/checkpoints --stages 4 --format json
same "$(sha out)" "$(sha a/summary.json)"
same "$(sed -n 's/ *"test_loss": \([0-9.]*\),/\1/p' out)" "$(sed -n 's/ *"test_loss": \([0-9.]*\),/\1/p' a/summary.json)"
fails 64 '' run eval net.ini
fails 65 'has shape' run eval net.ini --checkpoint a --set model.sizes="12 9*6 4"
fails 65 '' run eval net.ini --checkpoint net.ini
fails 64 "--lr" run eval net.ini --checkpoint a --lr 1
run inspect a
grep -Eq '^data.train.images +[0-9]+$' out || complain "a checksum is no whole number: $(grep images out)"

begin "weights alone cannot be gone on from" \
    fails 65 'train.init' run train net.ini --dir '' --resume a/checkpoints/step-00000030/stage-0000-of-0002.safetensors

for signal in TERM INT HUP USR1; do
    begin "SIG$signal saves, ends with 75, and the run goes on from there"
    start "$signal"
    kill "-$signal" "$pid"
    fails 75 "ppcli: stopped: after step " ended
    err_has "--resume "
    step=$(sed -n 's/.*after step \([0-9]*\) of.*/\1/p' err)
    same "$(find "$signal/checkpoints" -mindepth 1 -maxdepth 1 | sed 's/.*-0*//')" "$step"
    ok run train net.ini --dir "$signal" --resume --epochs 1000000 --set train.max_steps="$step" -q
    run train net.ini --dir "$signal.whole" --epochs 1000000 --set train.max_steps="$step" -q
    same "$(sha "$signal/summary.json")" "$(sha "$signal.whole/summary.json")"
done

begin "SIGUSR2 saves and the run goes on"
start usr2
kill -USR2 "$pid"
within 'grep -q "on request" err' || complain 'nothing saved'
kill -0 "$pid" || complain 'the run ended'
kill -TERM "$pid"
fails 75 '' ended
ok run verify usr2
same "$(grep -c good out)" 2

begin "a checkpoint that cannot be saved is a warning, then exit 74"
# Files of at most 2 MiB; a part of the checkpoint has more.
(ulimit -f 4096 && run train net.ini --dir full -q --set train.max_steps=2 --set model.sizes="12 512*4 4" && exit "$code")
code=$?
code_is 74
has err 'step 2: no checkpoint saved: ' || complain "$(cat err)"
has err 'the run is complete, but its last checkpoint was not saved' || complain "$(cat err)"
same "$(find full/checkpoints -mindepth 1 | wc -l | tr -d ' ')" 0
begin "convolutions and running statistics are the same after a way through files in PyTorch's order"
config conv.ini data.dataset=synthetic data.shape=9x7x3 data.train_samples=60 data.test_samples=20 \
    model.type=sequential \
    'model.layers=conv:8x3/2 batchnorm relu maxpool:2 conv:6x3,groups=2 relu linear:12 relu linear:4' \
    pipeline.microbatches=2 pipeline.stages=2 train.batch_size=12 train.epochs=3
ok run train conv.ini --dir conv-a -q
ok run train conv.ini --dir conv-b -q --max-steps 7
ok run train conv.ini --dir conv-b -q --resume
same "$(sha conv-b/summary.json)" "$(sha conv-a/summary.json)"
shows "$(sha conv-a/summary.json)" run eval conv.ini --checkpoint conv-a --stages 1 --format json
shows ': step 15, epoch 3, 814 parameters, ' run inspect conv-a
out_has 'layers.0.weight               F32   [8,3,3,3] '
out_has 'layers.4.weight               F32   [6,4,3,3] ' 'layers.1.running_var          F32   [8] '
out_has 'layers.1.num_batches_tracked  I64   [] '
same "$(grep -c 'optimizer.*running\|optimizer.*tracked' "$folder/out")" 0

begin "running statistics in a file of weights alone"
ok run train conv.ini --dir conv-a --overwrite -q --stages 1
weights=$(find conv-a/checkpoints/step-00000015 -name 'stage-*')
shows "$(sha conv-a/summary.json)" run eval conv.ini --checkpoint "$weights" --format json
fails 65 '' run eval conv.ini --checkpoint "$weights" \
    --set 'model.layers=conv:8x3/2 groupnorm:4 relu maxpool:2 conv:6x3,groups=2 relu linear:12 relu linear:4'
has err 'its first is layers.0.weight' || complain "$(cat err)"
if command -v python3 >/dev/null 2>&1; then # PyTorch takes 0 for a count that is not there
    python3 -c '
import json, sys
with open(sys.argv[1], "rb") as f:
    n = int.from_bytes(f.read(8), "little")
    header, data = json.loads(f.read(n)), f.read()
kept, out = {}, b""
for name, t in sorted(header.items(), key=lambda x: x[1].get("data_offsets", [0])[0]):
    if not name.startswith(("optimizer.", "__")) and not name.endswith("num_batches_tracked"):
        piece = data[slice(*t["data_offsets"])]
        kept[name] = {**t, "data_offsets": [len(out), len(out) + len(piece)]}
        out += piece
text = json.dumps(kept).encode()
sys.stdout.buffer.write(len(text).to_bytes(8, "little") + text + out)' "$weights" >uncounted.safetensors
    ok run eval conv.ini --checkpoint uncounted.safetensors --format json
    same "$(grep test_loss out | tr -d ,)" "$(grep '"test_loss"' conv-a/summary.json | tr -d ,)"
else
    skip 'no python3'
fi

finish
