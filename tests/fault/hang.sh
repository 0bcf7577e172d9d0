#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that hangs is found, whatever it hangs in, and the right one is named: hang.sh [long]
# shellcheck source=tests/fault/lib.sh
. "$(dirname "$0")/lib.sh"
how=${1:-}

# Far enough into the run that first steps with their longer limit are over.
count_of() {
    case $1 in
    start | data | settle | save | commit) echo 1 ;;
    report | meet) echo 7 ;;
    clip | vote | update | reduce) echo 25 ;;
    *) echo 60 ;;
    esac
}

# Several start together here, so who is only slow to start must not look like who hangs.
limit_of() {
    case $1 in
    start) limit 1.5 ;;
    *) limit 0.4 ;;
    esac
}

start_all() { # start_all NAME STAGES REPLICAS RANKS KIND WORD...
    name_=$1
    stages_=$2
    replicas_=$3
    ranks_=$4
    kind_=$5
    shift 5
    rank_=0
    while [ "$rank_" -lt "$ranks_" ]; do
        hang "$name_$rank_" "$stages_" "$kind_@$rank_:$(count_of "$kind_")=hang" \
            --replicas "$replicas_" --set "$(limit_of "$kind_")" "$@"
        rank_=$((rank_ + 1))
    done
}

judge_all() { # judge_all NAME RANKS KIND
    rank_=0
    while [ "$rank_" -lt "$2" ]; do
        hung "$1$rank_"
        last="$3 on rank $rank_ of $2"
        code_is 76
        err_has "ppcli: error: rank $rank_ " " hangs in $3"
        has "$folder/$1$rank_/hang.txt" "rank $rank_ " || complain "$last: no hang.txt"
        has "$folder/$1$rank_/hang.txt" 'not over' || complain "$last: no actions in hang.txt"
        same "$(grep -c 'ppcli: error' "$folder/err")" 1
        rank_=$((rank_ + 1))
    done
}

until_diagnosed() { # until_diagnosed NAME TEXT: diagnose says so
    tries=0
    run diagnose "$folder/$1"
    while ! has "$folder/out" "$2" && [ $tries -lt 300 ]; do
        sleep 0.1
        tries=$((tries + 1))
        run diagnose "$folder/$1"
    done
    out_has "$2"
}

kinds='start F I W recv slot send release clip update meet'
machine_is_slow
start_all hreduce 2 2 4 reduce
start_all hreport 2 1 1 report
start_all hvote 2 1 2 vote --set train.clip_norm=0
hang slow 3 'F@1:*=sleep:150' --set "$(limit 0.4)" --set train.max_steps=3 --epochs 1
for stages in 1 2; do
    hang "hsettle$stages" $stages settle@0:1=hang --set "$(limit 0.2)"
done
hang hdata 2 data@0:2=hang --set "$(limit 0.2)"
start_all hsave 2 1 2 save
hang hcommit 2 commit@0:1=hang --set "$(limit 0.3)"
hang steady 2 "F@1:*=sleep:$(scaled 700 | cut -d . -f 1)" --set "$(limit 0.3)" --set train.max_steps=2 --microbatches 2
hang hfirst 2 F@1:2=hang --set "$(limit 0.2)"
for stages in 2 3; do
    previous=
    for kind in $kinds ''; do # the next kind starts while one is waited for
        [ -z "$kind" ] || start_all "h$stages$kind" "$stages" 1 "$stages" "$kind"
        if [ -n "$previous" ]; then
            begin "$stages stages: a rank that hangs in $previous is named, on every rank"
            judge_all "h$stages$previous" "$stages" "$previous"
        fi
        previous=$kind
    done
done

begin "a rank that hangs in reduce is named, on each of 2 x 2 ranks"
judge_all hreduce 4 reduce

begin "a rank that hangs in vote is named, on each of 2"
judge_all hvote 2 vote

begin "rank 0 that hangs in report is named, after ten times the limit"
judge_all hreport 1 report

begin "a rank that hangs while it saves is named, after ten times the limit"
judge_all hsave 2 save
hung hcommit
code_is 76
err_has 'ppcli: error: rank 0 (stage 0) hangs in save, step '

begin "a run that hangs before the watchdog sees its ranks ends too, and names the phase"
hung hdata
last='reading the second split'
code_is 76
err_has 'ppcli: error: rank 0 (pid ' ') hangs in reading the data, for '
for stages in 1 2; do
    hung "hsettle$stages"
    last='choosing what is left open'
    code_is 76
    err_has 'ppcli: error: rank 0 (pid ' ') hangs in set-up, before the data is read, for 1'
done

begin "a rank that hangs in its first step is named, after ten times the limit"
hung hfirst
last='F in the first step'
code_is 76
err_has 'rank 1 (stage 1) hangs in F of micro-batch 1, stage 1, step 1, for '
for_=$(sed -n 's/.*step 1, for \([0-9.]*\) s.*/\1/p' "$folder/err")
awk -v s="${for_:-0}" 'BEGIN { exit !(s >= 2) }' || complain "after $for_ s, expected 2 or more"

begin "a single rank that hangs is named too"
hang hone 1 W@0:60=hang --set "$(limit 0.3)"
hung hone
code_is 76
err_has 'rank 0 (stage 0) hangs in W of micro-batch'

begin "with two chunks a rank, and without a run folder, the culprit is named"
hang hchunks 2 I@1:60=hang --set "$(limit 0.3)" --schedule interleaved --set pipeline.chunks=2 \
    --set 'model.sizes=20 16*5 5' --dir ''
hung hchunks
code_is 76
err_has 'rank 1 (stages 1 3) hangs in I of micro-batch' 'rank 0 (stages 0 2) waits for rank 1:'
err_lacks 'ppcli diagnose'

begin "a measured run that hangs ends too, and names the rank; nothing is printed as a result"
# 15 steps until then: five seconds hold more of them on any machine.
code=0
PPCLI_FAIL=F@0:60=hang timeout 300 "$PPCLI" bench "$net" --stages 2 --set "$(limit 0.3)" \
    --repeat 1 --time 5 --no-ceilings >"$folder/out" 2>"$folder/err" </dev/null || code=$?
last=bench
code_is 76
err_has 'ppcli: error: rank 0 (stage 0) hangs in F of micro-batch '
[ ! -s "$folder/out" ] || complain "$(cat "$folder/out")"

begin "hang_timeout = 0 ends nothing"
hang hnever 2 F@1:60=hang --set run.hang_timeout=0
until_diagnosed hnever 'rank 1 (stage 1) hangs in F'
sleep 1
[ ! -e "$folder/hnever.code" ] || complain "the run has ended"
shows 'rank 1 (stage 1) hangs in F of micro-batch' run diagnose "$folder/hnever"
out_has 'rank 0 (stage 0): running'
pid=$(sed -n 's/.*running, pid \([0-9]*\),.*/\1/p' "$folder/out" | head -n 1)
kill -9 "$pid"
hung hnever
code_is 137

begin "after kill -9 diagnose says the same from the files"
shows 'rank 1 (stage 1) blocked the others in F of micro-batch' run diagnose "$folder/hnever"
out_has 'rank 0 (stage 0) waited for rank 1' 'rank 1 (stage 1): gone, pid'
same "$(grep -c 'not over' "$folder/out")" 2
shows '"verdict": "hangs"' run diagnose "$folder/hnever" --format json
out_has '"culprit": 1'

begin "no false alarm: actions that always take longer than the limit, as the first step showed"
hung steady
code_is 0

begin "no false alarm: standard output whose reader stands still"
mkfifo "$folder/pipe"
(exec sleep 300) <"$folder/pipe" &
reader=$!
head -c 4000000 /dev/zero >"$folder/pipe" & # fills the pipe, and waits
filler=$!
timeout 300 "$PPCLI" train "$net" --stages 2 --dir "$folder/full" --set run.log_every=1 \
    --set "$(limit 0.2)" >"$folder/pipe" 2>"$folder/full.err" &
writer=$!
steps_are() { # steps_are MORE: waits until the run has logged more steps than that; sets steps
    tries=0
    steps=0
    while [ "$steps" -le "$1" ] && [ $tries -lt 200 ]; do
        sleep 0.5
        steps=$(wc -l 2>/dev/null <"$folder/full/metrics.jsonl" || echo 0)
        tries=$((tries + 1))
    done
    [ "$steps" -gt "$1" ] || complain "$steps steps, and no more: $(cat "$folder/full.err")"
}
steps_are 0
sleep "$(scaled 2.5)" # ten times the limit, and more
steps_are "$steps"
kill -0 $writer || complain "the run has ended: $(cat "$folder/full.err")"
kill $writer $reader $filler
[ ! -e "$folder/full/hang.txt" ] || complain "the watchdog spoke"

begin "no false alarm: a stage that sleeps less than the limit, while all others wait"
hung slow
code_is 0

begin "no false alarm: a process that was stopped for longer than the limit goes on"
hang paused 2 'F@1:*=sleep:10' --set "$(limit 0.3)"
until_diagnosed paused ': running, pid'
pid=$(sed -n 's/.*running, pid \([0-9]*\),.*/\1/p' "$folder/out" | head -n 1)
kill -STOP "$pid"
until_diagnosed paused ': stopped, pid'
sleep "$(scaled 0.9)"
kill -CONT "$pid"
sleep 0.5
kill -TERM "$pid"
hung paused
code_is 75

rounds=2
[ "$how" != long ] || rounds=20
begin "no false alarm: $((10 * rounds)) normal runs, 10 at a time on all cores"
while [ $rounds -gt 0 ]; do
    rounds=$((rounds - 1))
    for n in 1 2 3 4 5 6 7 8 9 10; do
        rm -f "$folder/crowd$n.code"
        hang "crowd$n" $((n % 3 + 1)) '' --epochs 5 --overwrite --set "$(limit 0.5)"
    done
    for n in 1 2 3 4 5 6 7 8 9 10; do
        hung "crowd$n"
        code_is 0
    done
done

begin "a new run in the folder of one that hung knows nothing of it"
ok run train "$net" -q --stages 2 --dir "$folder/h2F0" --overwrite --epochs 1
[ ! -e "$folder/h2F0/hang.txt" ] || complain "hang.txt is still there"
shows 'every rank finished' run diagnose "$folder/h2F0"
out_lacks 'did not finish'

begin "diagnose without a run, without its config, and with rings that are none"
fails 66 'no-such-run' run diagnose "$folder/no-such-run"
fails 66 '' run diagnose "$folder"
shows 'the watchdog ended this run: rank 1 (stage 1) hangs in F of micro-batch' run diagnose "$folder/h3F1"
rm "$folder/h3F1/config.resolved.ini" "$folder/h3F1/hang.txt"
ok run diagnose "$folder/h3F1"
err_has 'cannot be rebuilt'
out_has 'rank 1 blocked the others in F of micro-batch'
for n in 1 2 3; do
    head -c 16384 /dev/urandom | dd of="$folder/h3W1/actions/rank-0001.ring" bs=128 seek=1 conv=notrunc 2>/dev/null
    ok run diagnose "$folder/h3W1"
    ok run diagnose "$folder/h3W1" --format json
done
printf 'ring' >"$folder/h3W1/actions/rank-0002.ring"
fails 65 'rank-0002.ring' run diagnose "$folder/h3W1"

begin "ppcli itself holds nothing of the failpoints"
last='strings in the program'
grep -q PPCLI_FAIL "$PPCLI" || complain "the test looks for the wrong word"
! grep -q PPCLI_FAIL "$PPCLI_RELEASE" || complain "PPCLI_FAIL is in $PPCLI_RELEASE"

begin "a failpoint that is none is refused"
PPCLI_FAIL=nonsense "$PPCLI" train "$net" --dir '' --max-steps 1 >"$folder/out" 2>"$folder/err"
code=$?
last='PPCLI_FAIL=nonsense'
code_is 64

finish
