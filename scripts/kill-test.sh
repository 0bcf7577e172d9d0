#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Kill a run at N random instants (200) with SIGKILL, go on from its last checkpoint each time with
# another number of stages and another schedule, and compare the weights with those of a run that
# nobody killed:
#
#   scripts/kill-test.sh [--launch threads|mpirun|both] [PPCLI [N]]
#
# threads (the default): the process. mpirun: one of its 2 or 3 ranks, mpirun itself, or the ppcli
# that started it. both: one or the other, by chance. After each kill the exit code must say what
# happened, nobody may be left, and every checkpoint must be whole.
set -u
command -v pgrep >/dev/null 2>&1 || { echo 'skipped: no pgrep here (install procps)'; exit 77; }
launch=threads
if [ "${1:-}" = --launch ]; then
    launch=$2
    shift 2
fi
case $launch in
threads) ;;
mpirun | both)
    command -v mpirun >/dev/null 2>&1 || { echo 'skipped: no mpirun here (install openmpi-bin)'; exit 77; }
    ;;
*)
    echo 'usage: kill-test.sh [--launch threads|mpirun|both] [PPCLI [N]]' >&2
    exit 64
    ;;
esac
ppcli=$(realpath "${1:-build/ppcli}")
n=${2:-200}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cat >net.ini <<'INI'
[data]
dataset = synthetic
train_samples = 2000
test_samples = 100
[model]
sizes = 40 64*5 10
[pipeline]
schedule = 1f1b
[train]
batch_size = 32
epochs = 20
clip_norm = 1
[checkpoint]
every = 25
INI
sha() { sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' "$1"; }
chance() { echo $(($(od -An -N4 -tu4 /dev/urandom) % $1)); } # chance N: 0 .. N-1
pick() { # pick WORD...: one of them
    shift "$(chance $#)"
    echo "$1"
}
fail() {
    echo "after $kills kills: $1" >&2
    cat out >&2
    exit 1
}

# Who is to be killed now: a child of the child of $pid is a rank, unless it is too early for one.
choose() {
    whom=process
    target=$pid
    [ "$how" = mpirun ] || return 0
    whom=$(pick rank rank rank mpirun parent)
    mpirun=$(pgrep -P "$pid" | head -n 1)
    [ "$whom" = parent ] || target=$mpirun
    if [ "$whom" = rank ] && [ -n "$mpirun" ]; then
        # shellcheck disable=SC2046 # words
        target=$(pick $(pgrep -P "$mpirun" || echo "$mpirun"))
    fi
}

# The end of the run: killed as $whom, or complete before that.
check_end() {
    code=0
    wait "$pid" 2>/dev/null || code=$?
    case $whom:$code in
    *:0 | process:137 | parent:137) ;;
    rank:76 | mpirun:76)
        # Now and then mpirun 4.1.4 crashes, or stands still, while it ends such a job.
        grep -q 'ppcli: error: .* was ended by signal \|ppcli: error: mpirun has no ranks ' out || fail "no clear word about a killed $whom"
        [ "$(grep -c 'ppcli: error' out)" = 1 ] || fail "more than a word about a killed $whom"
        ;;
    rank:69 | mpirun:69) # before any rank had begun: then mpirun is the one that is killed
        grep -q 'ppcli: error: mpirun was ended by signal 9 and has not started a rank' out ||
            fail "no clear word about a killed $whom"
        ;;
    *) fail "a killed $whom: exit $code" ;;
    esac
    tries=0
    while pgrep -f -- "--dir $work/run " >/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 50 ] || fail "a killed $whom left $(pgrep -fa -- "--dir $work/run ")"
        sleep 0.02
    done
    code=0
    "$ppcli" verify run >checked 2>&1 || code=$?
    case $code in
    0 | 66) ;; # good; killed before the first one
    *) fail "a damaged checkpoint: $(cat checked)" ;;
    esac
}

# whole HOW: a run that nobody kills; how long it takes, in ms, is when the others are killed.
whole() {
    begin=$(date +%s%N)
    "$ppcli" train net.ini --dir "whole.$1" --stages 2 --launch "$1" -q >out 2>&1 || fail "the run that nobody kills"
    echo $((($(date +%s%N) - begin) / 1000000 + 1))
}

MS_MAX=3000 # enough for a run on a machine of its own
kills=0
case $launch in
threads) threads_ms=$(whole threads) ;;
mpirun) mpirun_ms=$(whole mpirun) ;;
both) threads_ms=$(whole threads) && mpirun_ms=$(whole mpirun) ;;
esac || exit 1
right=$(cat whole.*/summary.json | sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' | sort -u)
rounds=0
of=
while [ "$kills" -lt "$n" ]; do
    rounds=$((rounds + 1))
    rm -rf run
    # One run, killed until it is complete.
    while [ ! -e run/summary.json ]; do
        how=$launch
        [ "$how" != both ] || how=$(pick threads mpirun)
        stages=$(pick 1 2 3 4)
        [ "$how" = threads ] || stages=$(pick 2 3)
        schedule=$(pick 1f1b zb-h1 gpipe)
        "$ppcli" train net.ini --dir "$work/run" --resume --stages "$stages" --schedule "$schedule" \
            --launch "$how" -q >out 2>&1 &
        pid=$!
        whom=nobody
        if [ "$kills" -lt "$n" ]; then
            case $how in
            threads) ms=$threads_ms ;;
            *) ms=$mpirun_ms ;;
            esac
            ms=$(chance $((ms < MS_MAX ? ms : MS_MAX)))
            sleep "$((ms / 1000)).$(printf '%03d' $((ms % 1000)))"
            choose
            if [ -n "$target" ] && kill -9 "$target" 2>/dev/null; then
                kills=$((kills + 1))
                of="$of $whom"
            elif [ "$how" = threads ]; then # over before: runs are quicker now than the first one
                threads_ms=$((threads_ms * 3 / 4 + 10))
            else
                mpirun_ms=$((mpirun_ms * 3 / 4 + 10))
            fi
        fi
        check_end
    done
    if [ "$(sha run/summary.json)" != "$right" ]; then
        fail 'other weights than the run that nobody killed'
    fi
done
# shellcheck disable=SC2086 # words
echo "$kills kills in $rounds runs ($(printf '%s\n' $of | sort | uniq -c | tr -s ' \n' ' ')): the same weights"
