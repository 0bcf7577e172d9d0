#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2317 # functions that `ok` and `fails` call
# Hosts that are lost at chosen instants, and what --retries makes of those that are left: retries.sh,
# with ppcli-faults in PPCLI. A rank stands still at a failpoint until its host is cut off.
here=$(realpath "$(dirname "$0")")
# shellcheck source=tests/fault/lib.sh
. "$here/../fault/lib.sh"
unset PPCLI_HOST_AGENT
cd "$folder" || exit 1
why=$("$here/machines.sh" 1 true) || { echo "1..0 # SKIP ${why#skipped: }"; exit 0; }
machine_is_slow
config net.ini data.dataset=synthetic data.train_samples=192 data.test_samples=16 'model.sizes=12 64*5 5' \
    train.batch_size=48 train.epochs=30 pipeline.stages=3 checkpoint.every_epochs=0 checkpoint.every=20 run.retries=4 \
    run.dir=run "$(limit 1)"
ok run train net.ini -q --dir whole --launch threads --set run.retries=0
right=$(sha whole/summary.json)

cat >cuts <<'END'
"$PPCLI" train net.ini "$@" &
for h in $CUT; do
    until [ -s note ] || ! kill -0 $!; do sleep 0.02; done
    rm note
    ip -n "$h" link set eth0 down
done
wait $!
END
# loses HOST... -- WORD...: a run over three hosts, each of which is cut off when a rank stands still
loses() {
    CUT=
    while [ "$1" != -- ]; do CUT="$CUT $1" && shift; done
    shift
    last="a run that loses$CUT"
    code=0
    export CUT
    rm -f note
    timeout 300 "$here/machines.sh" 3 env PPCLI_FAIL="$fail" PPCLI_FAIL_NOTE="$folder/note" \
        sh ./cuts --hosts h0,h1,h2 "$@" >out 2>err </dev/null || code=$?
}
tries() { grep -c '^ppcli: warning: try\|^warning: try' err; }

begin "a host is lost while it writes a checkpoint; over a slow link one stage is the best of what is left"
fail=save@2:2=hold
RATE=2mbit loses h2 --
code_is 0
same "$(sha run/summary.json)" "$right"
err_has 'warning: without host h2: ' ', 1 stages of '
same "$(tries)" 1

begin "no host answers for a while: the try waits for them, and gives up when it has waited long enough"
rm -r run
cat >returns <<'END'
"$PPCLI" train net.ini --hosts h1,h2 --stages 2 --set run.retries=1 "$@" &
until [ -s note ] || ! kill -0 $!; do sleep 0.02; done
rm note
for h in h1 h2; do ip -n "$h" link set eth0 down; done
until grep -q ' asking the hosts again ' err || ! kill -0 $!; do sleep 0.1; done
sleep 6
[ -n "$GONE" ] || for h in h1 h2; do ip -n "$h" link set eth0 up; done
wait $!
END
away() { # away WORD...: of two hosts, neither is the one that started the run
    last="both hosts are away"
    code=0
    rm -f note
    timeout 300 "$here/machines.sh" 3 env PPCLI_FAIL="update@0:100=hold" PPCLI_FAIL_NOTE="$folder/note" \
        sh ./returns "$@" >out 2>err </dev/null || code=$?
}
GONE=
export GONE
ok away
same "$(sha run/summary.json)" "$right"
err_has 'no remaining host can continue the run; asking the hosts again for up to 600 s (run.host_wait)'
same "$(tries)" 1
rm -r run
GONE=yes
fails 76 'ppcli: error: no remaining host can continue the run' away --set run.host_wait=2s
same "$(tries)" 0

begin "one host is lost while the run resumes, the next in a checkpoint: two stages where one does not fit"
rm -rf run
ok run train net.ini -q --launch threads --max-steps 30 --set run.retries=0
fail=resume@2:1=hold,save@1:1=hold
loses h2 h1 -- --resume --set run.memory=280000 --set run.host_wait=1s
err_has ' 2 stages of '
code_is 76
err_has 'error: the remaining hosts cannot continue the run: no shape of at most 1 stages can run'
same "$(tries)" 1
ok run train net.ini -q --stages 1 --launch threads --resume --set run.retries=0
same "$(sha run/summary.json)" "$right"

begin "a signal while the hosts are asked, before the first try and before the second, ends the run with 75"
rm -rf run
cat >agent <<'END'
#!/bin/sh
[ ! -e "$WHEN" ] || { rm "$WHEN"; kill -TERM "$PPID"; }
exec "$AGENT" "$@"
END
chmod +x agent
cat >asked <<'END'
AGENT=$PPCLI_HOST_AGENT PPCLI_HOST_AGENT=$PWD/agent
export AGENT PPCLI_HOST_AGENT
"$PPCLI" train net.ini --hosts h0,h1,h2 "$@" &
until [ ! -e lose ] || [ -s note ] || ! kill -0 $!; do sleep 0.02; done
[ ! -e lose ] || { touch later; ip -n h2 link set eth0 down; }
wait $!
END
asked() { # asked WHEN: the run gets TERM from the agent where this file exists
    last="TERM while the hosts are asked"
    code=0
    rm -f note
    WHEN=$1 timeout 300 "$here/machines.sh" 3 env WHEN="$1" PPCLI_FAIL="update@2:25=hold" PPCLI_FAIL_NOTE="$folder/note" \
        sh ./asked >out 2>err </dev/null || code=$?
    code_is 75
    err_has 'ppcli: stopped: '
}
touch first
asked first
[ ! -e run ] || complain 'there is a run folder'
touch lose
asked later
ok run train net.ini -q --stages 3 --launch threads --resume --set run.retries=0
same "$(sha run/summary.json)" "$right"
finish
