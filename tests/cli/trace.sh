#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a run leaves of its time: timeline.json, and what train --trace writes.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
here=$(dirname "$0")

command -v python3 >/dev/null 2>&1 || { echo "1..0 # SKIP no python3 here"; exit 0; }

trace_is() { # trace_is [--cut] FILE CONDITION...
    wrong_here=$(python3 "$here/check_trace.py" "$@" 2>&1) || complain "$last: $wrong_here"
}

config "$folder/small.ini" data.dataset=synthetic data.train_samples=300 data.test_samples=50 \
    'model.sizes=20 16*3 5' pipeline.stages=2 pipeline.microbatches=4 pipeline.schedule=1f1b \
    train.epochs=2 train.batch_size=32 train.coalesce=1
config=$folder/small.ini

begin "a run leaves one step of its own, beside the simulated one"
shows ' + transfers and waiting ' run train "$config" --dir "$folder/run"
trace_is "$folder/run/timeline.json" \
    "head['kind'] == 'measured' and head['schedule'] == '1f1b'" \
    "{e['pid'] for e in x} == {0, 1, 10000, 10001}" \
    "len({e['args']['step'] for e in x}) == 1" \
    "all(sum(e['pid'] == p and e['cat'] == c for e in x) == 4 for p in (0, 1, 10000, 10001) for c in 'FIW')" \
    "all(sum(e['pid'] == p and e['cat'] == 'update' for e in x) == 1 for p in (0, 1, 10000, 10001))" \
    "min(e['ts'] for e in x if e['cat'] == 'F' and e['pid'] < 10000) == 0" \
    "min(e['ts'] for e in x if e['cat'] == 'F' and e['pid'] >= 10000) == 0"

begin "the figures of the step are those of its slices"
trace_is "$folder/run/timeline.json" \
    "abs(sum(e['dur'] for e in x if e['pid'] < 10000 and e['cat'] in COMPUTE) * 1e-6 - 2 * head['step_seconds'] * (1 - head['bubble_measured'])) < 1e-8" \
    "head['bubble_predicted'] == summary['bubble_predicted']" \
    "0 < summary['schedule_bound'] * summary['train_seconds'] * 32 / summary['samples'] <= summary['step_seconds_predicted'] * 1.000001" \
    "abs(sum(e['dur'] for e in x if e['pid'] == 10001 and e['cat'] == 'F') * 1e-6 - 4 * summary['times'][1]['F']) < 1e-8"

begin "several chunks a rank: slices name their stage"
ok run train "$config" --dir "$folder/chunks" --schedule zb-v --set pipeline.chunks=2
trace_is "$folder/chunks/timeline.json" \
    "{e['name'] for e in x if e['pid'] == 0 and e['cat'] == 'W'} == {f'{s}W{m}' for s in (0, 3) for m in range(4)}" \
    "[e['args']['name'] for e in d if e['name'] == 'process_name'][0] == 'rank 0 (stages 0 3)'"

begin "two replicas: every rank has its process, one pipeline is simulated"
ok run train "$config" --dir "$folder/replicas" --replicas 2 --microbatches 2
trace_is "$folder/replicas/timeline.json" \
    "{e['pid'] for e in x} == {0, 1, 2, 3, 10000, 10001}" \
    "sum(e['cat'] == 'reduce' for e in x) == 4"

begin "one step is enough for a time line, and so is an epoch of one smaller batch"
ok run train "$config" --dir "$folder/one" --max-steps 1
trace_is "$folder/one/timeline.json" "{e['args']['step'] for e in x} == {1}"
ok run train "$config" --dir "$folder/less" --batch-size 1000 --microbatches 3
trace_is "$folder/less/timeline.json" "{e['args']['step'] for e in x} <= {1, 2}"

begin "without a run folder nothing is written"
(cd "$folder" && mkdir empty && cd empty && "$PPCLI" train "$config" --dir '' >/dev/null 2>&1)
last='ppcli train --dir ""'
same "$(find "$folder/empty" -type f)" ''

begin "--trace has every action of the steps, and says where it is"
ok run train "$config" --dir "$folder/traced" --trace "$folder/traced/trace.json" --epochs 1
err_has "trace: $folder/traced/trace.json (steps 1-10, " 'open it in ui.perfetto.dev'
trace_is "$folder/traced/trace.json" \
    "len([e for e in x if e['cat'] in 'FIW' and not e['args']['eval']]) == (9 * 4 + 2) * 2 * 3" \
    "sorted(e['args']['step'] for e in x if e['cat'] == 'update') == sorted(2 * list(range(1, 11)))" \
    "all(abs(sum(e['dur'] for e in x if e['pid'] == r['rank'] and e['cat'] in COMPUTE and not e['args']['eval']) * 1e-6 - r['busy'] * summary['train_seconds']) < 1e-6 for r in summary['ranks'])" \
    "min(e['ts'] for e in x) < 1000 and {e['ph'] for e in d} == set('MXsfC')" \
    "[e['args']['bytes'] for e in d if e['ph'] == 'C' and e['pid'] == 0][:2] == [8 * 20 * 4 + 8 * 16 * 4, 2 * (8 * 20 * 4 + 8 * 16 * 4)]"

# Every F of the last stage in training has a loss, no other slice has one, and the losses of a step of
# equal micro-batches have the mean that metrics.jsonl gives for the step.
losses_fit() { # losses_fit RUN TRACE STAGE
    trace_is "$2" \
        "all(('loss' in e['args']) == (e['cat'] == 'F' and not e['args']['eval'] and e['args']['stage'] == $3) for e in x)" \
        "all(abs(r['loss'] - sum(l) / len(l)) < 1e-12 * r['loss'] for r in map(json.loads, open('$1/metrics.jsonl')) if r['type'] == 'step'
             for l in [[e['args']['loss'] for e in x if 'loss' in e['args'] and e['args']['step'] == r['step']]] if r['samples'] == 32)"
}

begin "the losses of micro-batches are in the trace, from any rank, and change no bit"
for how in '--stages 2' '--stages 1 --replicas 2 --microbatches 2' '--stages 2 --replicas 2 --microbatches 2' \
    '--schedule zb-v --set pipeline.chunks=2' '--schedule gpipe --set pipeline.recompute=all'; do
    stage=1
    case $how in *'stages 1'*) stage=0 ;; *chunks*) stage=3 ;; esac
    # shellcheck disable=SC2086 # several words
    ok run train "$config" $how --dir "$folder/losses" --overwrite --log-every 1 --trace "$folder/losses.json"
    losses_fit "$folder/losses" "$folder/losses.json" $stage
    # shellcheck disable=SC2086
    run train "$config" $how --dir "$folder/untraced" --overwrite
    same "$(grep weights_sha "$folder/losses/summary.json")" "$(grep weights_sha "$folder/untraced/summary.json")"
done

begin "a trace is of the steps one asks for, with the evaluations in between"
ok run train "$config" --dir '' --trace "$folder/some.json" --trace-steps 9-12
err_has 'some.json (steps 9-12, '
trace_is "$folder/some.json" \
    "{e['args']['step'] for e in x if not e['args']['eval']} == {9, 10, 11, 12}" \
    "sorted(e['args']['step'] for e in x if e['args']['eval'] and e['cat'] == 'F' and e['pid'] == 0) == [0, 0, 0, 0, 1, 1, 1]" \
    "max(e['ts'] + e['dur'] for e in x if e['args']['step'] == 10 and e['cat'] == 'update') <= min(e['ts'] for e in x if e['args']['eval'])"
ok run train "$config" --dir '' --trace "$folder/some.json" --trace-steps 19-500
err_has 'some.json (steps 19-20, '
ok run train "$config" --dir '' --trace "$folder/some.json" --trace-steps 20
trace_is "$folder/some.json" "{e['args']['step'] for e in x} == {20}"

begin "a trace replaces no other file"
before=$(cat "$config" "$folder"/run/*.json*)
for file in "$config" "$folder/run/metrics.jsonl" "$folder/run/summary.json" "$folder/summary.json"; do
    fails 64 "--trace $file: " run train "$config" --dir "$folder/run" --overwrite --trace "$file"
done
same "$(cat "$config" "$folder"/run/*.json*)" "$before"

begin "a resumed run is traced from where it goes on"
run train "$config" --dir "$folder/resumed" --epochs 1
ok run train "$config" --dir "$folder/resumed" --epochs 2 --resume --trace "$folder/some.json"
err_has 'some.json (steps 11-20, '
ok run train "$config" --dir "$folder/resumed" --epochs 3 --resume --trace "$folder/some.json" --trace-steps 5-22
err_has 'some.json (steps 21-22, '
trace_is "$folder/some.json" "{e['args']['step'] for e in x} == {21, 22}"
fails 64 'continues after step 30' \
    run train "$config" --dir "$folder/resumed" --epochs 4 --resume --trace "$folder/some.json" --trace-steps 5-22

begin "ranks meet often enough that nothing is overwritten"
ok run train "$config" --dir '' --stages 1 --set pipeline.microbatches=64 --batch-size 64 --epochs 100 \
    --log-every 100000 --set data.train_samples=32000 --set data.test_samples=0 --max-steps 480 \
    --trace "$folder/long.json" --trace-steps 1-480
err_lacks 'missing'
trace_is "$folder/long.json" "sum(e['cat'] == 'F' for e in x) == 480 * 64" \
    "sum(e['cat'] == 'meet' for e in x) > 3"

begin "a run that is killed leaves whole lines"
"$PPCLI" train "$config" --dir '' --epochs 100000 --trace "$folder/killed.json" \
    --trace-steps 1-1000000 >"$folder/out" 2>"$folder/err" &
child=$!
last='ppcli train --trace, KILL'
n=0
while [ "$( (wc -c <"$folder/killed.json") 2>/dev/null || echo 0)" -lt 100000 ] && [ $n -lt 600 ]; do
    n=$((n + 1))
    sleep 0.05
done
kill -KILL $child
wait $child 2>/dev/null
same "$(tail -n 1 "$folder/killed.json" | tail -c 2)" '}'
trace_is --cut "$folder/killed.json" "len(x) > 300"

begin "both kinds of trace open side by side"
run plan "$config" --format trace
cp "$folder/out" "$folder/plan.json"
trace_is "$folder/plan.json" "head['kind'] == 'simulated'" \
    "{e['pid'] for e in x}.isdisjoint(e['pid'] for e in json.load(open('$folder/some.json')) if e['ph'] == 'X')" \
    "{e['cat'] for e in x} == {'F', 'I', 'W', 'recv'}"

begin "what cannot be traced is said before anything is trained"
fails 66 'cannot create the trace' run train "$config" --dir '' --trace "$folder/no/such/folder.json"
out_lacks 'epoch='
fails 64 'the run has only 20' run train "$config" --dir '' --trace "$folder/some.json" --trace-steps 21-30
out_lacks 'epoch='
for steps in '' 0-5 5-4 1-x 1-2-3 x -3 1e3 99999999999 '1 -2'; do
    fails 64 'the first and the last step' \
        run train "$config" --dir '' --trace "$folder/some.json" --trace-steps "$steps"
done
fails 64 '--trace' run train "$config" --dir '' --trace-steps 1-5

begin "a trace that does not fit on the disk does not stop the training"
if [ -w /dev/full ]; then
    fails 74 'cannot write all of the trace /dev/full' run train "$config" --dir '' --trace /dev/full
    out_has 'weights_sha256'
else
    skip 'no /dev/full here'
fi

begin "tracing changes no bit"
run train "$config" --dir '' -q
grep weights_sha256 "$folder/out" >"$folder/plain"
run train "$config" --dir '' -q --trace "$folder/some.json"
same "$(grep weights_sha256 "$folder/out")" "$(cat "$folder/plain")"
same "$(cat "$folder/err")" ''

finish
