#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A host that is lost while it is asked, before a run over hosts begins: lost.sh PPCLI
PPCLI=$(realpath "$1")
export PPCLI
here=$(realpath "$(dirname "$0")")
# shellcheck source=tests/cli/lib.sh
. "$here/../cli/lib.sh"
unset PPCLI_HOST_AGENT
cd "$folder" || exit 1
why=$("$here/machines.sh" 1 true) || { echo "1..0 # SKIP ${why#skipped: }"; exit 0; }
config net.ini data.dataset=synthetic data.train_samples=192 data.test_samples=16 'model.sizes=12 16*5 5' \
    train.batch_size=48 train.epochs=1 run.dir=run

# The agent. Before h1 hears its question number AT it is lost in the way HOW: its helper is killed, nothing
# comes from it any more, or only its way to other hosts is cut.
cat >gate <<'END'
#!/bin/sh
case " $* " in *" h1 "*) ;; *) exec AGENT "$@" ;; esac
n=0
while IFS= read -r line; do
    case $((n += 1)),$HOW in
    $AT,killed) exit ;;
    $AT,silent) sleep 100000 ;;
    $AT,cut) ip -n h1 link set eth0 down ;;
    esac
    printf '%s\n' "$line"
done | AGENT "$@"
END
sed -i "s#AGENT#$here/agent.sh#" gate
chmod +x gate
# What is left of it on any host would keep this from its end.
cat >ends <<'END'
export PPCLI_HOST_AGENT=$PWD/gate
code=0
"$PPCLI" "$@" || code=$?
while cat /proc/[0-9]*/comm | grep -qx 'ppcli\|gate\|sleep\|mpirun'; do sleep 0.05; done
ls -A run .ppcli-* 2>/dev/null
exit $code
END
# loses HOW AT TEXT WORD...: that is what the command says, once
loses() {
    export HOW="$1" AT="$2"
    text=$3
    shift 3
    last="$1: h1 is $HOW at question $AT"
    code=0
    timeout 60 "$here/machines.sh" 2 sh ./ends "$@" --hosts h0,h1 net.ini >out 2>err </dev/null || code=$?
    code_is 69
    err_has "$text"
    same "$(grep -c '^ppcli: ' err)" 1
    out_lacks weights .ppcli-
}

begin "a helper that ends is the end of the preflight, whatever was asked: facts, config, checkpoints, folder, ports, way"
loses killed 1 'h1 cannot be asked: its agent ended' train -q --stages 2
for at in 2 3 4 5 6; do
    loses killed $at 'h1 was lost while it was asked: its agent ended' train -q --stages 2
done

begin "a host that says nothing any more is given up after the time for an answer"
loses silent 1 'h1 cannot be asked: no answer for 4 s' train -q --stages 2
loses silent 3 'h1 was lost while it was asked: no answer for 2.5 s' train -q --stages 2
loses silent 6 'h1 was lost while it was asked: no answer for 2.5 s' train -q --stages 2

begin "a host whose link goes down is not reached"
loses cut 2 'h0 does not reach h1: ' train -q --stages 2
loses cut 6 ' does not reach h' train -q --stages 2

begin "env shows what the others know"
loses killed 6 'h1 was lost while it was asked: its agent ended' env
out_has '  h0 ' '  h1             no: its agent ended'
for at in 1 3; do # of a host that is lost nobody knows that it has something else
    loses killed $at 'h1 ' env
    out_has '  run folder     all that answer see it'
    out_lacks 'not the same'
done
loses silent 2 'h1 was lost while it was asked: no answer for 2.5 s' env
out_has '  network        10.77.0.0/24'

begin "a keeper that is killed leaves no segments of memory and no files"
cat >robs <<'END'
"$PPCLI" train net.ini -q --stages 4 --hosts h0:2,h1:2 --epochs 1000000 --dir '' &
until [ "$(ls /dev/shm | wc -l)" -ge 4 ] || ! kill -0 $!; do sleep 0.05; done
kill -KILL "$(pgrep -o -x -f '[^ ]*ppcli env --keep .*')"
code=0
wait $! || code=$?
n=0
while [ -n "$(ls /dev/shm)$(ls "$TMPDIR" | grep ompi)" ] && [ $((n += 1)) -lt 400 ]; do sleep 0.05; done
ls /dev/shm "$TMPDIR"
exit $code
END
code=0
last='a run whose keeper is killed'
timeout 100 "$here/machines.sh" 2 sh ./robs >out 2>err </dev/null || code=$?
code_is 76
out_lacks vader_segment ompi

begin "TERM to all processes on all hosts, to one orted, its keeper, or mpirun: the ranks save"
cat >told <<'END'
"$PPCLI" train net.ini -q --stages 4 --hosts h0:2,h1:2 --epochs 1000000 --dir run --overwrite &
until [ -s run/metrics.jsonl ] || ! kill -0 $!; do sleep 0.05; done
case $WHO in
all) pkill -TERM 'ppcli|mpirun|orted' ;;
keeper) kill -TERM "$(pgrep -o -x -f '[^ ]*ppcli env --keep .*')" ;;
*) pkill -TERM -x "$WHO" ;;
esac
wait $!
END
for who in all orted keeper mpirun; do
    rm -rf run
    code=0
    last="TERM to $who"
    WHO=$who timeout 100 "$here/machines.sh" 2 sh ./told >out 2>err </dev/null || code=$?
    code_is 75
    err_has 'by SIGTERM; checkpoint saved'
done
finish
