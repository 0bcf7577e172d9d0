#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the middle of a run the disk becomes full, or the folder read-only: training goes on, every
# save that fails is a warning, the exit code is 74 when the last one did, and the checkpoint before
# is whole and is gone on from: disk.sh
# The disk is a tmpfs in a name space of its own.
if [ "${1:-}" != inside ]; then
    if ! unshare -rm sh -c 'mount -t tmpfs tmpfs /mnt' 2>/dev/null; then
        echo '1..0 # SKIP no mounts in a name space here (unshare -rm)'
        exit 0
    fi
    exec unshare -rm "$0" inside
fi
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
cd "$folder" || exit 1
config net.ini data.dataset=synthetic data.train_samples=300 data.test_samples=50 \
    'model.sizes=20 100*3 5' pipeline.stages=2 train.epochs=4 train.batch_size=32 \
    run.log_every=1
# start FAULTS: a run on a small disk of its own that stands at the first of them; $pid
start() {
    umount disk 2>/dev/null
    mkdir -p disk
    mount -t tmpfs -o size=4m tmpfs disk || complain 'no disk'
    rm -f note
    PPCLI_FAIL=$1 PPCLI_FAIL_NOTE=$folder/note "$PPCLI" train net.ini --dir disk/run -q >out 2>err </dev/null &
    pid=$!
    within '[ -s note ]' || complain "it never came to $1: $(cat err)"
}
ended() { # after the hold: USR2 asks for one more checkpoint
    kill -USR2 "$pid" 2>/dev/null
    code=0
    wait "$pid" || code=$?
    last='the run'
}
# The run trained to its end and says so; nothing but step 10 was saved, and it is good.
complete_but_not_saved() {
    code_is 74
    same "$(grep -c "^ppcli: warning: step [0-9]*: no checkpoint saved: .*$1" err)" "$2"
    same "$(grep -c 'ppcli: error' err)" 1
    err_has 'ppcli: error: the run is complete, but its last checkpoint was not saved: '
    same "$(sed -n 's/^weights_sha256 *//p' out)" "$(sha whole/summary.json)"
    ok run verify disk/run
    same "$(cat out)" "$(grep 'step 10,' out)"
}
goes_on() {
    ok run train net.ini --dir disk/run --resume -q
    same "$(sha disk/run/summary.json)" "$(sha whole/summary.json)"
}

begin "a run that nothing happens to" ok run train net.ini --dir whole -q

begin "the disk becomes full: training goes on, exit 74, and the checkpoint before is whole"
start save@0:2=hold
dd if=/dev/zero of=disk/others bs=4096 2>/dev/null
ended
complete_but_not_saved ' are free' 4
rm disk/others
goes_on

begin "the disk is full while a checkpoint is written, and has room again: later ones are good"
start commit@0:2=hold,update@0:25=hold
dd if=/dev/zero of=disk/others bs=4096 2>/dev/null
kill -USR2 "$pid"
within "grep -q 'no checkpoint saved' err" || complain "nothing said: $(cat err)"
# shellcheck disable=SC2016 # for within to expand
within '[ "$(grep -c . note)" = 2 ]' || complain "$(cat err)"
rm disk/others
ended
err_has 'step 20: no checkpoint saved: ' 'No space left on device'
# What was to be logged meanwhile may be lost, and that is said.
case $code in
0) same "$(sha disk/run/summary.json)" "$(sha whole/summary.json)" ;;
74)
    err_has 'metrics.jsonl: No space left on device'
    ;;
*) complain "exit $code" ;;
esac
shows 'step 40,' run verify disk/run

begin "the folder becomes read-only: training goes on, exit 74, and the checkpoint before is whole"
start save@0:2=hold
mount --bind disk disk
mount -o remount,ro,bind disk || complain 'cannot remount'
ended
complete_but_not_saved 'Read-only file system' 4
umount disk
goes_on

begin "files may not grow any more: training goes on, exit 74, and the checkpoint before is whole"
if command -v prlimit >/dev/null 2>&1; then
    start save@0:2=hold
    prlimit --pid "$pid" --fsize=4096
    ended
    complete_but_not_saved 'File too large' 4
    goes_on
else
    skip 'no prlimit'
fi
umount disk
finish
