#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every signal in every phase of a run: what it asks for happens, what is saved is good, the run goes
# on to the bits of one that nobody interrupted, and nobody is left: signals.sh threads|mpirun [long]
# The phase is held open until the signal has been noted, so nothing here depends on time.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
command -v pgrep >/dev/null 2>&1 || { echo "1..0 # SKIP no pgrep here (install procps)"; exit 0; }
launch=$1
long=${2:-}
if [ "$launch" = mpirun ] && ! command -v mpirun >/dev/null 2>&1; then
    echo "1..0 # SKIP no mpirun here (install openmpi-bin)"
    exit 0
fi
cd "$folder" || exit 1
config net.ini data.dataset=synthetic data.train_samples=300 data.test_samples=50 \
    'model.sizes=20 16*3 5' pipeline.stages=2 pipeline.microbatches=4 train.epochs=4 \
    train.batch_size=32 train.clip_norm=1 run.log_every=1 train.coalesce=1
steps=40
# shellcheck disable=SC2317 # called by within
nobody() { [ "$(pgrep -fc -- "--dir $folder/" || true)" = 0 ]; }

# start DIR FAULT [OPTION...]: in the background, its number in DIR.pid; none.*: no folder.
# A shell starts background jobs with INT ignored, nohup all with HUP.
start() {
    dir=$1
    fault=$2
    shift 2
    into=$folder/$dir
    case $dir in none.*) into= ;; esac
    rm -f "$dir.note"
    PPCLI_FAIL=$fault PPCLI_FAIL_NOTE=$folder/$dir.note python3 -c 'import os, signal, sys
for s in signal.SIGINT, signal.SIGHUP:
    signal.signal(s, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$PPCLI" train net.ini --dir "$into" --launch "$launch" "$@" \
        >"$dir.out" 2>"$dir.err" </dev/null &
    echo $! >"$dir.pid"
}
# shellcheck disable=SC2317 # called by within
noted() { [ 0"$(grep -c . "$1.note" 2>/dev/null || true)" -ge "$2" ]; }
held() { # held DIR FAULT: one process is where it should be, or with @* both
    ranks=1
    case $2 in *@\**) ranks=2 ;; esac
    within "noted '$1' $ranks" || complain "$1 never came to its phase: $(cat "$1.err")"
}
ended() { # ended DIR: code, out and err as after `run`
    code=0
    wait "$(cat "$1.pid")" || code=$?
    cp "$1.out" out
    cp "$1.err" err
    last="train --dir $1"
}
goes_on() { # goes_on DIR: to the bits of the run that nobody interrupted
    ok run verify "$1"
    ok run train net.ini --dir "$1" --resume --launch threads -q
    same "$(sha "$1/summary.json")" "$(sha whole/summary.json)"
}

# The site that is held, and the step after which a run is stopped that was asked to in it; 0: it
# comes to its end.
phases='data@0:1=1 start@0:1=1 F@0:1=1 update@1:15=15 test@0:1=10 save@0:1=11 commit@0:1=11 finish@0:1=0'
[ "$launch" = threads ] || phases="init@*:1=1 $phases finalize@0:1=0"
signals='TERM INT HUP USR1 USR2'

begin "a run that nobody interrupts" ok run train net.ini --dir whole --launch threads -q

# phase NAME SITE STEP SIGNAL...: runs with these signals, as threads side by side; processes that
# are held wait busily, and take the cores from each other.
phase() {
    name_=$1
    site=$2
    step=$3
    shift 3
    for signal in "$@"; do
        start "$name_.$signal" "$site=hold"
    done
    for signal in "$@"; do
        held "$name_.$signal" "$site"
        kill "-$signal" "$(cat "$name_.$signal.pid")"
    done
    for signal in "$@"; do
        dir=$name_.$signal
        begin "$launch: SIG$signal in $site"
        ended "$dir"
        if [ "$step" = 0 ]; then
            code_is 0
            same "$(sha "$dir/summary.json")" "$(sha whole/summary.json)"
        elif [ "$signal" = USR2 ]; then
            code_is 0
            err_has "saved step $step on request"
            same "$(sha "$dir/summary.json")" "$(sha whole/summary.json)"
        else
            code_is 75
            err_has "ppcli: stopped: after step $step of $steps by SIG$signal; checkpoint saved; continue with"
            same "$(grep -c 'ppcli: stopped' err)" 1
            goes_on "$dir"
        fi
    done
}

set -f # a phase of all ranks has a star
for one in $phases; do
    site=${one%=*}
    if [ "$launch" = threads ]; then
        # shellcheck disable=SC2086 # words
        phase "${site%%@*}" "$site" "${one#*=}" $signals
    elif [ "$long" = long ]; then
        for signal in $signals; do
            phase "${site%%@*}" "$site" "${one#*=}" "$signal"
        done
    else # they take long to start: another signal for each phase
        phase "${site%%@*}" "$site" "${one#*=}" "${signals%% *}"
        signals="${signals#* } ${signals%% *}"
    fi
done
set +f

for signal in TERM INT USR2; do
    begin "$launch: SIG$signal while a checkpoint is read"
    ok run train net.ini --dir "resume.$signal" --launch threads -q --set train.max_steps=20
    start "resume.$signal" resume@0:1=hold --resume
    held "resume.$signal" resume@0
    kill "-$signal" "$(cat "resume.$signal.pid")"
    ended "resume.$signal"
    if [ "$signal" = USR2 ]; then
        code_is 0
        err_has 'saved step 21 on request'
        same "$(sha "resume.$signal/summary.json")" "$(sha whole/summary.json)"
    else
        code_is 75
        err_has "after step 21 of $steps by SIG$signal"
        goes_on "resume.$signal"
    fi
done

# The step never ends, so nothing but the second signal can end the run.
for signals in 'INT INT' 'TERM INT' 'USR1 INT'; do
    begin "$launch: SIG${signals% *}, then SIGINT in the same step ends the run at once"
    dir=twice.${signals% *}
    start "$dir" W@0:60=hang --set run.hang_timeout=0
    held "$dir" W@0
    pid=$(cat "$dir.pid")
    kill "-${signals% *}" "$pid"
    if [ "$launch" = mpirun ]; then
        within "grep -q 'stopping after this step' $dir.err" || complain "not asked: $(cat "$dir.err")"
    elif [ "${signals% *}" = INT ]; then
        within "grep -q '^ppcli: stopping after this step .* Ctrl-C again' $dir.err" || complain "not told: $(cat "$dir.err")"
    else # it has been taken, and its handler is a few instructions
        within "grep -q '^ShdPnd:[[:space:]]*0*\$' /proc/$pid/status" || complain 'still pending'
        sleep 0.1
    fi
    kill -0 "$pid" || complain "SIG${signals% *} alone ended the run"
    kill -INT "$pid"
    fails 130 '' ended "$dir"
    err_lacks 'ppcli: stopped'
    goes_on "$dir"
done

for signal in INT-130 TERM-143 HUP-129; do
    begin "$launch: a run that saves nothing is ended by SIG${signal%-*}, as any program"
    dir=none.${signal%-*}
    start "$dir" W@0:60=hold --set run.hang_timeout=0
    held "$dir" W@0
    kill "-${signal%-*}" "$(cat "$dir.pid")"
    ended "$dir"
    code_is "${signal#*-}"
    err_lacks 'ppcli: '
done

begin "$launch: SIGINT that was ignored when the run began stays ignored"
rm -f ignored.note
PPCLI_FAIL=update@0:15=hold PPCLI_FAIL_NOTE=$folder/ignored.note python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$PPCLI" train net.ini --dir "$folder/ignored" --launch "$launch" \
    >ignored.out 2>ignored.err </dev/null &
echo $! >ignored.pid
held ignored update@0
kill -INT "$(cat ignored.pid)"
kill -USR2 "$(cat ignored.pid)" # which ends the hold
ok ended ignored
err_lacks 'ppcli: stopped'
same "$(sha ignored/summary.json)" "$(sha whole/summary.json)"

begin "no processes are left"
last=pgrep
within nobody || complain "left: $(pgrep -fa -- "--dir $folder/")"
finish
