#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a run folder must not lose: to another run, to a link that leads nowhere, to a name that is like its own.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
config net.ini data.dataset=synthetic data.train_samples=96 data.test_samples=16 'model.sizes=12 9*2 4' \
    train.batch_size=32 train.epochs=6 checkpoint.keep=6
run train net.ini --dir whole -q
# rings are not results
files() { find "$1" -type f ! -name .lock ! -name '*.ring' -exec sha256sum {} + | sort | sha256sum; }
unchanged() { same "$(files "$1")" "$before"; }
steps() { find "$1/checkpoints" -maxdepth 1 -name 'step-*' | sed 's/.*-0*//' | sort -n | tr '\n' ' '; }

begin "checkpoints behind a link to a disk that is not mounted: an error, and no file changes"
cp -r whole linked
mv linked/checkpoints disk
ln -s "$PWD/unmounted" linked/checkpoints
before=$(files linked)
fails 74 'linked/checkpoints is a link to ' run train net.ini --dir linked --resume -q
fails 74 'which does not exist' run train net.ini --dir linked --overwrite -q
fails 74 'which does not exist' run train net.ini --dir linked -q
unchanged linked

begin "a folder of checkpoints that may not be read: 77, and no file changes"
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null 2>&1; then # root may read all
    cp -r whole closed
    before=$(files closed)
    chmod 755 "$folder"
    chmod -R a+rwX closed
    chmod 000 closed/checkpoints
    for word in --resume --overwrite; do
        code=0
        last="ppcli train --dir closed $word"
        setpriv --reuid 54321 --regid 54321 --clear-groups --bounding-set=-all "$PPCLI" train net.ini --dir closed \
            $word -q >out 2>err </dev/null || code=$?
        code_is 77
    done
    chmod 755 closed/checkpoints
    unchanged closed
else
    skip 'needs root and setpriv'
fi

begin "--resume that begins at step 0 where a run has been warns, with -q too"
cp -r whole bare
rm -r bare/checkpoints
ok run train net.ini --dir bare --resume -q
err_has 'warning: --resume: no checkpoint in ' '/bare, where a run has been; beginning at step 0'
ok run train net.ini --dir fresh --resume -q
err_lacks 'beginning at step 0'

begin "a run whose folder was moved saves nothing into the folder that another run made in its place"
"$PPCLI" train net.ini --dir a --epochs 1000000 --set checkpoint.every=50 -q >out 2>moved.err </dev/null &
pid=$!
# shellcheck disable=SC2016 # for within to expand
within '[ -n "$(find a/checkpoints -name "step-*" ! -name "*.tmp*" 2>/dev/null)" ]' || complain 'no checkpoint'
mv a b
run train net.ini --dir a -q
code_is 0
before=$(files a/checkpoints)
within 'grep -q "no checkpoint saved: .*/a/.lock is not this run" moved.err' || complain "$(tail -n 2 moved.err)"
unchanged a/checkpoints
"$PPCLI" train net.ini --dir a --resume --epochs 1000000 -q >out2 2>err2 </dev/null &
other=$!
within 'test -s a/.lock' || complain 'no lock of the other run'
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
last='the run that lost its folder'
code_is 74
ok run verify b
[ -s a/.lock ] || complain 'the lock of the other run is gone'
kill -KILL "$other" 2>/dev/null
wait "$other" 2>/dev/null

begin "a run that ends in a folder of another one writes no summary there"
cp -r whole c
run train net.ini --dir c -q --overwrite --max-steps 3
cp c/summary.json summary
"$PPCLI" train net.ini --dir late --epochs 20000 --set checkpoint.every_epochs=0 -q >out 2>late.err </dev/null &
pid=$!
within 'test -s late/metrics.jsonl' || complain 'no metrics'
mv late late-moved
cp -r c late
code=0
wait "$pid" || code=$?
last='the run that ended elsewhere'
code_is 74
cmp late/summary.json summary || complain 'another summary'

begin "a run among the checkpoints of another one is refused"
for dir in whole/checkpoints whole/checkpoints/step-00000003 whole/checkpoints/new; do
    fails 78 'is inside the checkpoints of the run ' run train net.ini --dir $dir -q
    fails 78 'is inside the checkpoints of the run ' run train net.ini --dir $dir --resume -q
done
[ ! -e whole/checkpoints/new ] || complain 'a folder was made'
ok run train net.ini --dir whole/more -q
rm -r whole/more

begin "--resume of exp does not take a run of exp-2"
mkdir runs
cp net.ini exp.ini
cp -r whole runs/exp-2-20260102-030405
cp -r whole runs/exp-20260102
cp -r whole runs/exp-20260101-000000-2
before=$(files runs/exp-2-20260102-030405)
ok run train exp.ini --resume --epochs 7
err_has 'from runs/exp-20260101-000000-2' || err_has 'exp-20260101-000000-2'
unchanged runs/exp-2-20260102-030405
rm -r runs

begin "--resume of an older checkpoint names those that it removes"
cp -r whole back
ok run train net.ini --dir back --resume back/checkpoints/step-00000009 -q
err_has 'warning: removing what is newer than step 9 in ' 'step-00000018, step-00000015, step-00000012'
same "$(sha back/summary.json)" "$(sha whole/summary.json)"

begin "a smaller checkpoint.keep leaves the checkpoints of before, without --overwrite"
cp -r whole kept
ok run train net.ini --dir kept --resume --epochs 9 --set checkpoint.keep=1 -q
err_has 'warning: checkpoint.keep is 1, was 6: 6 earlier checkpoints are kept, and the newest 1'
same "$(steps kept)" '3 6 9 12 15 18 27 '
ok run train net.ini --dir kept --resume --epochs 10 --set checkpoint.keep=1 -q
err_lacks 'checkpoint.keep'
same "$(steps kept)" '3 6 9 12 15 18 30 '
ok run train net.ini --dir kept --resume --epochs 11 --set checkpoint.keep=1 -q --overwrite
same "$(steps kept)" '33 '

begin "a file, a pipe or a dead link of a checkpoint's name hides none of the others"
cp -r whole odd
echo mine >odd/checkpoints/step-00000100
mkfifo odd/checkpoints/step-00000101
ln -s nowhere odd/checkpoints/step-00000102
ok run train net.ini --dir odd --resume --epochs 7 -q
err_has 'step-00000100: is not a folder' 'step-00000101: is not a folder' 'step-00000102: is not a folder'
err_has 'removing what is newer than step 18 in ' ': step-00000102'
same "$(cat odd/checkpoints/step-00000100)" mine
[ -p odd/checkpoints/step-00000101 ] || complain 'the pipe is gone'
[ ! -L odd/checkpoints/step-00000102 ] || complain 'the dead link is there'
ok run train net.ini --dir seven --epochs 7 -q
same "$(sha odd/summary.json)" "$(sha seven/summary.json)"
same "$(steps odd)" '6 9 12 15 18 21 100 101 '

begin "what a killed process left and cannot be removed is a warning"
cp -r whole left
mkdir -p left/checkpoints/.trash-step-00000001-1/sub left/checkpoints/step-00000005.tmp-1/sub
ok run train net.ini --dir left --resume --epochs 7 -q
err_has '/left/checkpoints/.trash-step-00000001-1 is left: cannot remove '
same "$(sha left/summary.json)" "$(sha seven/summary.json)"

begin "--overwrite removes nothing before the weights to begin with have been read"
cp -r whole init
before=$(files init)
fails 66 '' run train net.ini --dir init --overwrite -q --set train.init=nowhere
unchanged init
fails 65 '' run train net.ini --dir init --overwrite -q --set train.init=net.ini
unchanged init
ok run train net.ini --dir init --overwrite -q --set train.init=init
run train net.ini --dir elsewhere -q --set train.init=whole
same "$(sha init/summary.json)" "$(sha elsewhere/summary.json)"

finish
