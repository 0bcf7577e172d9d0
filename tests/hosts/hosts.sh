#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One command for ranks on several hosts, which are namespaces of this machine: hosts.sh PPCLI
PPCLI=$(realpath "$1")
export PPCLI
here=$(realpath "$(dirname "$0")")
# shellcheck source=tests/cli/lib.sh
. "$here/../cli/lib.sh"
unset PPCLI_HOST_AGENT
cd "$folder" || exit 1
why=$("$here/machines.sh" 1 true) || { echo "1..0 # SKIP ${why#skipped: }"; exit 0; }

config net.ini data.dataset=synthetic data.train_samples=192 data.test_samples=16 \
    'model.sizes=12 16*5 5' train.batch_size=48 train.epochs=1 run.dir=
on() { # on HOSTS WORD...: words on the first of that many hosts, results in `out`
    hosts=$1
    shift
    last="$* (on $hosts hosts)"
    code=0
    timeout 60 "$here/machines.sh" "$hosts" "$@" >out 2>err </dev/null || code=$?
}
trains_on() { # trains_on HOSTS OPTION...: the digest is that of threads
    shows "weights_sha256   $(digest "${4:-1}")" \
        on "$1" "$PPCLI" train net.ini -q --hosts "$2" --stages "$3" --replicas "${4:-1}"
}
digest() { "$PPCLI" train net.ini -q --replicas "$1" | sed -n 's/^weights_sha256 *//p'; }

begin "two and three hosts end with the weights of one process"
trains_on 2 h0,h1 2
trains_on 2 h1:2,h0:2 4
trains_on 3 h0:2,h1:2,h2:2 3 2
err_lacks ppcli
same "$(wc -c <err)" 0 # nor a word of MPI

begin "messages that the kernel does not hold keep the bits"
config wide.ini data.dataset=synthetic data.train_samples=2048 data.test_samples=16 'model.sizes=12 4096 5' \
    train.batch_size=1024 train.epochs=1 pipeline.microbatches=2 run.dir=
shows "$("$PPCLI" train wide.ini -q | grep weights_sha256)" on 2 "$PPCLI" train wide.ini -q --hosts h0,h1 --stages 2

begin "an interface with the same address on every host does no harm"
DECOY=1 trains_on 2 h0,h1 2

begin "a hostfile, a network and ports are taken as they are"
printf '# ours\nh0 slots=1\nh1 slots=1 max_slots=4\n' >hostfile
ok on 2 "$PPCLI" train net.ini --hosts file:hostfile --stages 2 --set run.network=eth0 --set run.ports=52000-52031
err_has 'hosts: h0:1,h1:1 over eth0 (run.network)'
ok on 2 "$PPCLI" train net.ini -q --hosts h0,,h1, --stages 2

begin "a network that a host does not have, and one that is none, are refused before anything starts"
without_network() { # without_network NETWORK TEXT [FIRST]
    fails 78 "run.network: $2" \
        on 2 sh -c "${3:-:}; exec $PPCLI train net.ini -q --hosts h0,h1 --stages 2 --set run.network=$1"
    same "$(grep -c '^ppcli: ' err)" 1
}
without_network eth7 'h0 has no interface eth7, only eth0 (10.77.0.1/24)'
without_network 10.99.0.0/16 'h0 has no address in 10.99.0.0/16, only eth0 (10.77.0.1/24)'
without_network 10.99.0.0/16 'h1 has no address in 10.99.0.0/16, only eth0 (10.77.0.2/24)' 'ip addr add 10.99.0.1/16 dev eth0'
without_network 10.77.0.0/33 "'10.77.0.0/33' is not a network"
config other_net.ini data.dataset=synthetic 'model.sizes=12 5' run.network=10.99.0.0/16
on 2 sh -c "ip addr add 10.99.0.1/16 dev eth0; ip -n h1 addr add 10.99.0.2/16 dev eth0; exec $PPCLI env --hosts h0,h1 other_net.ini" # the ways are those that the messages will take
code_is 0
out_has '  h0 -> h1: 10.99.0.1 by eth0, 10.99.0.2: connect '

begin "the same config runs under mpirun by hand"
config more.ini data.dataset=synthetic data.train_samples=192 data.test_samples=16 \
    'model.sizes=12 16*5 5' train.batch_size=48 train.epochs=1 run.dir= run.hosts=h7,h8 pipeline.stages=2
cat >by_hand <<'END'
exec mpirun --allow-run-as-root -np 2 --host h0,h1 --mca plm_rsh_agent "$PPCLI_HOST_AGENT" --mca pml ob1 \
    --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 "$PPCLI" train more.ini -q
END
shows "weights_sha256   $(digest 1)" on 2 sh by_hand

begin "a signal saves on all hosts, and eval reads what they left"
cat >stopped <<'END'
"$PPCLI" train net.ini -q --hosts h1,h0 --stages 2 --dir run --epochs 100000 &
while ! [ -s run/metrics.jsonl ]; do sleep 0.1; done
kill -TERM $!
wait $!
END
fails 75 'ppcli: stopped: after step' on 2 sh stopped
shows 'weights_sha256' on 2 "$PPCLI" eval net.ini --checkpoint run --hosts h0,h1 --stages 2

begin "replicas of a stage on one host, stages across: the same weights" shows "weights_sha256   $(digest 2)" \
    on 2 "$PPCLI" train net.ini -q --hosts h0:2,h1:2 --stages 2 --replicas 2 --set run.rank_order=replicas

begin "tune measures the link between hosts and says what a host should hold"
shows ', to another host ' on 2 "$PPCLI" tune net.ini --hosts h0:2,h1:2 --stages 2 --replicas 2 --schedule 1f1b
out_has 'on each host the '
fails 64 '--hosts' on 2 "$PPCLI" tune net.ini --check --hosts h0,h1 --stages 2

begin "checkpoint.copies: with hosts' own disks the run goes on without the host of rank 0"
mkdir disk # h0's; under the same name h1 has another
cat >own_disks <<'END'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
mkdir -p "$PWD/disk-$1"
exec unshare --mount sh -c 'mount --bind "$PWD/disk-$1" "$PWD/disk" && exec AGENT "$@"' sh "$@"
END
sed -i "s#AGENT#$here/agent.sh#; s#\$PWD#$folder#g" own_disks
chmod +x own_disks
config own.ini data.dataset=synthetic data.train_samples=192 data.test_samples=16 'model.sizes=12 16*5 5' \
    train.batch_size=48 train.epochs=200 checkpoint.every_epochs=0 checkpoint.every=20 checkpoint.copies=1 \
    run.dir=disk/run run.hang_timeout=1 run.retries=5
whole=$("$PPCLI" train own.ini -q --dir whole --set run.retries=0 --set checkpoint.copies=0 | sed -n 's/^weights_sha256 *//p')
cat >lost <<'END'
export PPCLI_HOST_AGENT=$PWD/own_disks
"$PPCLI" train own.ini --hosts h1,h0 --stages 2 &
until ls disk/run/checkpoints/step-* >there 2>&1 || ! kill -0 $!; do sleep 0.02; done
ip -n h1 link set eth0 down
wait $!
END
shows "weights_sha256   $whole" on 2 sh lost
err_has 'warning: without host h1: ' ', 1 stages of '

begin "a checkpoint that another host has is found, and copies that no host can keep are refused"
rm -r disk-h1/run
ok on 2 sh -c "PPCLI_HOST_AGENT=$folder/own_disks $PPCLI train own.ini --hosts h1,h0 --stages 2 --resume"
err_has 'disk/run/checkpoints/step-00000800 comes from h0'
out_has "weights_sha256   $whole"
on 2 sh -c "PPCLI_HOST_AGENT=$folder/own_disks $PPCLI train own.ini --hosts h0,h1 --stages 2 --set checkpoint.copies=2 --resume"
code_is 78
err_has 'checkpoint.copies = 2 needs 3 hosts, but the ranks are on 2'

begin "a list of hosts that does not fit is one line"
fails 78 'run.hosts' \
    on 1 "$PPCLI" train net.ini --hosts h0,h1:2 --stages 2
for bad in 'h0,-oProxyCommand=x' 'h0:x' 'h0,h0' ',' 'h0 h1' 'h0:1:2,h1' 'localhost,h1' 'h0,127.0.0.1' '[fe80::1],h1'; do
    fails 78 '' on 1 "$PPCLI" train net.ini --hosts "$bad" --stages 2
    same "$(grep -c '^ppcli: error: ' err)" 1
done
for bad in "'fe80::1' is not a host name or IPv4 address" "'h1' after a host" 'localhost is another machine for every host'; do
    case $bad in *fe80*) list=fe80::1 ;; *after*) list='h0 h1' ;; *) list=h0,localhost ;; esac
    fails 78 "$bad" run train net.ini --hosts "$list" --stages 2
done
fails 66 'cannot read none' run train net.ini --hosts file:none --stages 2
fails 78 '' on 1 "$PPCLI" train net.ini --hosts h0,h1 --launch threads --stages 2

begin "env compares the hosts that answer"
# shellcheck disable=SC2016 # the agent expands it
printf '#!/bin/sh\ncase $1 in h1) echo no way today; exit 1 ;; esac\nexec %s "$@"\n' "$here/agent.sh" >no_h1
chmod +x no_h1
fails 69 '' on 3 sh -c "PPCLI_HOST_AGENT=$folder/no_h1 exec $PPCLI env --hosts h1,h0,h2 net.ini"
out_has '  h1             no: no way today'
for line in program MPI config processors; do out_has "$(printf '  %-14s the same' $line)"; done
out_lacks 'not the same:'

begin "env tells what it finds, of each host and each way"
ok on 3 "$PPCLI" env --hosts h0,h1,h2 net.ini
for line in '  h2  ' '  h2 -> h1: 10.77.0.3 by eth0, 10.77.0.2: connect ' '  program        the same' '  config         the same' \
    '  run folder     all see it' '  network        10.77.0.0/24'; do
    out_has "$line"
done
same "$(grep -c ' -> ' out)" 6
ok on 2 "$PPCLI" env --hosts h0,h1 --format json
for line in '"run_folder_shared": true' '"h0": "10.77.0.2 by eth0, 10.77.0.1: connect '; do out_has "$line"; done
fails 64 '' run env net.ini

wrong() { # wrong CODE TEXT: one line with it, and no rank was started
    code_is "$1"
    err_has "$2"
    same "$(grep -c '^ppcli: ' err)" 1
    out_lacks weights
}
trains_and() { on 2 sh -c "$1; exec $PPCLI train net.ini -q --hosts h0,h1 --stages 2 \"\$@\"" sh; }

begin "a host without a name, and one that is this machine, are named"
on 2 "$PPCLI" train net.ini --hosts h0,h9 --stages 2
wrong 69 'h0 knows no address of h9'
NAMES='127.0.1.1 h1' on 2 "$PPCLI" train net.ini --hosts h0,h1 --stages 2
wrong 69 'on h0 the name h1 means 127.0.1.1, which is the machine itself'

begin "a name with the address of another host, and two names of one, are refused"
NAMES='10.77.0.3 h1' on 3 "$PPCLI" train net.ini --hosts h0,h1 --stages 2
wrong 69 'on h0 the name h1 means 10.77.0.3, but the host that the agent reaches has 10.77.0.2 and calls itself h1'
NAMES='10.77.0.1 x0' on 2 "$PPCLI" train net.ini --hosts h0,x0,h1 --stages 3
wrong 78 'run.hosts: h0 and x0 are one host (h0, 10.77.0.1)'

begin "every port of run.ports is tried, and a way that carries short packets only is found"
for ports in 52016-52031 52003 52000-52007; do
    trains_and "ip -n h1 rule add pref 1 ipproto tcp dport $ports prohibit; set -- --set run.ports=52000-52031"
    wrong 69 "h1 does not reach h0: no connection to port ${ports%-*} of 10.77.0.1 from "
done
# Packets that would be made small only at the bridge.
cat >narrow <<'END'
for h in h0 h1; do ip -n "$h" link set eth0 gso_max_segs 1 || exit 77; done
nsenter --net=/proc/1/ns/net ip link set p1 mtu 1400 || exit 77
exec "$PPCLI" train net.ini -q --hosts h0,h1 --stages 2
END
on 2 sh narrow
if [ $code = 77 ]; then
    skip 'this kernel or ip cannot make such a way'
else
    wrong 69 'h0 does not reach h1: short messages from 10.77.0.1 (eth0) to 10.77.0.2 arrive, full packets do not; give all'
fi

begin "a host that the agent does not reach, and one that the network does not"
printf '#!/bin/sh\necho "ssh: connect to host h1 port 22: No route to host" >&2; exit 255\n' >agent
chmod +x agent
trains_and "export PPCLI_HOST_AGENT=$folder/agent"
wrong 69 'h1 cannot be asked: ssh: connect to host h1 port 22: No route to host'
printf '#!/bin/sh\nsleep 30\n' >agent
trains_and "export PPCLI_HOST_AGENT=$folder/agent"
wrong 69 'h1 cannot be asked: no answer for 4 s'
trains_and 'ip -n h1 link set eth0 down'
wrong 69 'h0 does not reach h1: no connection to port '
trains_and 'ip -n h1 route add prohibit 10.77.0.1'
wrong 69 'h0 does not reach h1: no connection to port '

begin "a host that is cut off before its rank has said a word is named"
cp "$PPCLI" same
printf '#!/bin/sh\ncase " $* " in *" env "*) ;; *) ip link set eth0 down ;; esac\nexec "%s" "$@"\n' "$folder/same" >other
# shellcheck disable=SC2016 # the agent expands it
printf '#!/bin/sh\nexec unshare --mount sh -c '"'"'mount --bind "%s" "%s" && exec "%s/agent.sh" "$@"'"'"' sh "$@"\n' \
    "$folder/other" "$PPCLI" "$here" >agent
chmod +x other agent
config net.ini data.dataset=synthetic data.train_samples=192 data.test_samples=16 \
    'model.sizes=12 16*5 5' train.batch_size=48 train.epochs=1 run.dir= run.hang_timeout=0.2
trains_and "export PPCLI_HOST_AGENT=$folder/agent"
case $(mpirun --version) in
*') 5.'*) wrong 76 'before its ranks had begun: without host h1: ' ;; # its mpirun gives up first
*) wrong 76 'orted (host h1) sends no heartbeat for ' ;;
esac

begin "mpirun's host is cut off before there is a rank: orted elsewhere ends, and its files go; so do mpirun's after kill -9"
# An agent that hears as little of the end as ssh would. Beside orted, and only to make this quick: its
# keeper is connected, and has two seconds to hear that it is watched.
sed 's#exec \("[^"]*agent.sh" "$@"\)#\1; case " $* " in *" --keep "*) sleep 30 ;; esac#' agent >stays
chmod +x stays
cat >other <<'END'
#!/bin/sh
case " $* " in *" --keep "*) ;; *) exec SAME "$@" ;; esac
port=${3#*:} # token:port:addresses
export port=$(printf %04X "${port%%:*}")
for k in 1 2 3 4; do w="$w $1"; shift; done
exec SAME $w sh -c 'until grep -q ":$port 01 " /proc/net/tcp; do sleep 0.05; done
    sleep 2; ip link set eth0 down; echo "$TMPDIR" >tmp; echo "$$ $PPID" >pids; exec "$@"' sh "$@"
END
sed -i "s#SAME#$folder/same#" other
cat >alone <<'END'
export PPCLI_HOST_AGENT=$PWD/stays
"$PPCLI" train net.ini -q --hosts h0,h1 --stages 2 &
until [ -s pids ] || ! kill -0 $!; do sleep 0.05; done
for pid in $(cat pids); do # orted, and its keeper
    while kill -0 "$pid"; do sleep 0.05; done
done
kill -0 $! && echo "ended before" # the line of h0 comes later
kill -9 $!
wait $!
ls -d "$(cat tmp)"/ompi.h1.* "$(cat tmp)"/prted.* 2>/dev/null | sed 's/^/left: /'
while ls -d "$(cat tmp)"/ompi.*; do sleep 0.05; done >removed 2>&1
echo "none of h0"
END
on 2 sh alone
case $(mpirun --version) in
*') 5.'*) skip "mpirun of Open MPI 5 gives up first, and leaves a folder on the other host" ;;
*) out_has 'ended before'; out_lacks 'left: ' ;;
esac
out_has 'none of h0'

begin "an orted that ends by itself, as one that cannot reach mpirun, leaves no file"
cat >other <<'END'
#!/bin/sh
case " $* " in *" --keep "*) ;; *) exec SAME "$@" ;; esac
for k in 1 2 3 4; do w="$w $1"; shift; done
exec SAME $w sh -c 'job=$(echo " $* " | sed "s/.* ess_base_jobid \([0-9]*\) .*/\1/")
    mkdir -p "$TMPDIR/ompi.h1.$(id -u)/jf.$((job >> 16))/0" && ls "$TMPDIR/ompi.h1.$(id -u)" >made; exit 1' sh "$@"
END
sed -i "s#SAME#$folder/same#" other
cat >failing <<'END'
export PPCLI_HOST_AGENT=$PWD/agent
"$PPCLI" train net.ini -q --hosts h0,h1 --stages 2 && exit 1
for k in $(seq 200); do ls -d "$TMPDIR"/ompi.h1.* 2>/dev/null >left || break; sleep 0.05; done
cat made left
END
on 2 sh failing
case $(mpirun --version) in
*') 5.'*) skip "Open MPI 5 has other folders" ;;
*) out_has 'jf.'; out_lacks ompi.h1 ;;
esac

begin "a host that is cut off before its orted has come is asked for, and named; one that is slow is waited for"
cat >first <<'END'
#!/bin/sh
case " $* " in *" --keep "*) AWAY ;; esac
exec HERE/agent.sh "$@"
END
chmod +x first
loses_first() { # loses_first WORDS: before its orted starts h1 does this
    sed -i "s#HERE#$here#; s#AWAY#$1#" first
    on 2 sh -c "export PPCLI_HOST_AGENT=$folder/first; exec $PPCLI train net.ini -q --hosts h0,h1 --stages 2 --set run.hang_timeout=30"
}
cp first first.sh
loses_first 'ip -n h1 link set eth0 down; sleep 100'
wrong 76 'before its ranks had begun: without host h1: ' # in 60 s, which is more than `on` gives it
cp first.sh first
shows weights_sha256 loses_first 'sleep 14'

begin "another program, config or data set on a host is named"
{ cat "$PPCLI" && echo; } >other
config other.ini train.lr=0.5
trains_and "export PPCLI_HOST_AGENT=$folder/agent"
wrong 78 'h1 has another program ppcli ('
sed "s#$folder/other\" \"$PPCLI#$folder/other.ini\" \"$folder/net.ini#" agent >agent2
chmod +x agent2
trains_and "export PPCLI_HOST_AGENT=$folder/agent2"
wrong 78 'h1 has another config file ('
i=0
while [ $((i += 1)) -le 60 ]; do echo "$i,$((i % 7)),$((i % 2))"; done >train.csv
sed 's/^7,/8,/' train.csv >other.csv
config net.ini data.dataset=csv data.train_file=train.csv data.test_file=train.csv 'model.sizes=2 4 3 2' \
    train.batch_size=12 train.epochs=1 run.dir=
sed "s#$folder/other.ini\" \"$folder/net.ini#$folder/other.csv\" \"$folder/train.csv#" agent2 >agent
trains_and "export PPCLI_HOST_AGENT=$folder/agent"
wrong 78 'h1 has another data set ('
finish
