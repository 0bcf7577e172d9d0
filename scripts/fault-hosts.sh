#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Breaks runs over three hosts, which are namespaces of this machine, at N random instants (50):
#
#   scripts/fault-hosts.sh [PPCLI [N [SEED]]]
#
# A rank is killed or stopped, orted or mpirun is killed, a link goes down, a host is taken away. Without
# --retries the run ends within its deadline, with exit code 76 and a line that names the host (or
# mpirun); with --retries it ends with the weights of a run that nothing disturbs. Each second fault is
# one with --retries. The other kinds:
#   two      with --retries, all hosts but the first are cut off: the run ends there
#   away     with --retries, the run of another machine loses all its hosts for 2 to 15 s, then they are back
#   silent   before its ranks come, 60 connections that say nothing are made to the heartbeat port: no harm
#   disk     the disk of rank 0 is full: 74 after one try, and the last line says that the run is complete
#   network, ports   run.network is nowhere, or ports of run.ports are closed to h1 or h2: refused at once
# Nothing is left on any host: no process, file or shared memory. VERBOSE=1 shows each; KINDS="kill link": only
# these.
# shellcheck disable=SC2046,SC2086 # words
set -u
here=$(dirname "$(readlink -f "$0")")
machines=$(readlink -f "$here/../tests/hosts/machines.sh")
TIMEOUT=3 # run.hang_timeout; a deadline adds 2 s of silence, the end of mpirun, and a crowded machine's time
DEADLINE=90

# ---- on the first host: one run, one fault

rank_pid() {
    for p in $(pgrep -x "$program"); do
        r=$(tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
        [ "$r" = "$1" ] && echo "$p"
    done
}
daemon_pid() {
    if [ "$1" = 0 ]; then pgrep -x 'mpirun|prterun'; else pgrep -x 'orted|prted' | while read -r p; do
        tr '\0' ' ' <"/proc/$p/cmdline" | grep -q "ess_base_vpid $1 " && echo "$p"
    done; fi
}
pulse_port() {
    tr '\0' '\n' <"/proc/$(pgrep -x 'mpirun|prterun' | head -n 1)/environ" | sed -n 's/^PPCLI_PULSE=[^:]*:\([0-9]*\):.*/\1/p'
}
open_silent() { # 60 connections to a port of this host, held open
    local port
    port=$(pulse_port) && [ -n "$port" ] || return 1
    for ((k = 0; k < 60; k++)); do eval "exec $((k + 20))<>/dev/tcp/127.0.0.1/$port" || return 1; done
}
break_it() { # break_it KIND HOST
    case $1 in
    two | away) for h in h1 h2; do ip -n $h link set eth0 down; done ;;
    silent) open_silent ;;
    kill) kill -9 $(rank_pid "$2") ;;
    stop) kill -STOP $(rank_pid "$2") ;;
    orted | mpirun) kill -9 $(daemon_pid "$2") ;;
    link) ip -n "h$2" link set eth0 down ;;
    host) # its cable first: nothing says good-bye
        ip -n "h$2" link set eth0 down
        kill -9 $(rank_pid "$2") $(daemon_pid "$2")
        ;;
    esac
}
# Starts orted and its keeper outside of mpirun's process tree: on a real host, what is killed here does not reach
# them. Their agent waits for them, as ssh would.
serve_hosts() {
    while read -r id; do
        # shellcheck disable=SC1090
        (
            . "$TMPDIR/job.$id"
            setsid "$agent" "${words[@]}" </dev/null >"/proc/$id/fd/1" 2>"/proc/$id/fd/2"
            echo $? >"$TMPDIR/code.$id.new" && mv "$TMPDIR/code.$id.new" "$TMPDIR/code.$id"
        ) &
    done <>"$TMPDIR/asked"
}
if [ "${1:-}" = agent ]; then
    shift
    case " $* " in *" --keep "*) ;; *) exec "$(dirname "$machines")/agent.sh" "$@" ;; esac
    words=("$@")
    { export -p; declare -p words; } >"$TMPDIR/job.$$"
    echo $$ >"$TMPDIR/asked"
    until [ -e "$TMPDIR/code.$$" ]; do sleep 0.05; done
    exit "$(cat "$TMPDIR/code.$$")"
fi
if [ "${1:-}" = inside ]; then
    shift
    kind=$1 host=$2 ms=$3 when=$4
    shift 4
    program=$(basename "$1")
    agent=$(dirname "$machines")/agent.sh
    mkfifo "$TMPDIR/asked"
    serve_hosts 2>/dev/null &
    printf '#!/bin/sh\nexec "%s" agent "$@"\n' "$(readlink -f "$0")" >away && chmod +x away
    export PPCLI_HOST_AGENT=$PWD/away
    mount -t tmpfs none /dev/shm
    case $kind in
    disk) mkdir run && mount -t tmpfs -o size=900k none run ;;
    ports) ip -n "h$host" rule add pref 1 ipproto tcp dport "$((52000 + ms % 32))-52031" prohibit ;;
    esac
    begin=$(date +%s%N)
    "$@" >out 2>err </dev/null &
    pid=$!
    for ((k = 0; k < 1200; k++)); do # until all ranks work, or may begin to
        [ -e run/metrics.jsonl ] && break
        [ "$when" = early ] && pgrep -x 'mpirun|prterun' >/dev/null && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.05
    done
    sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
    broken=late
    case $kind in disk | ports | network) broken=yes ;; esac # from the beginning
    while [ $broken = late ] && kill -0 $pid 2>/dev/null && [ ! -e run/summary.json ]; do
        break_it "$kind" "$host" 2>broken.err && broken=yes && break
        [ "$kind" = host ] && broken=yes && break # nobody was there yet
        sleep 0.01
    done
    case $kind in disk | ports | network) ;; *) begin=$(date +%s%N) ;; esac
    if [ "$kind" = away ]; then
        sleep "$((2 + ms % 14))"
        for h in h1 h2; do ip -n $h link set eth0 up; done
    fi
    code=0
    wait $pid || code=$?
    took=$((($(date +%s%N) - begin) / 1000000))
    left=
    for ((k = 0; k < 600; k++)); do
        left=$(pgrep -lx "$program|orted|mpirun|prted|prterun"; ls -d "$TMPDIR"/ompi.*/* "$TMPDIR"/prted.*/* /dev/shm/* 2>/dev/null)
        [ -z "$left" ] && break
        sleep 0.05
    done
    echo "$code $took $broken" $left >end
    exit 0
fi

# ---- all of them

ppcli=$(realpath "${1:-build/ppcli}")
n=${2:-50}
seed=${3:-$(($(od -An -N4 -tu4 /dev/urandom) % 100000))}
RANDOM=$seed
why=$("$machines" 1 true) || { echo "skipped: ${why#skipped: }"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# The net of kill-test.sh, on three ranks.
{
    sed -n '/^\[data\]/,/^every = /p' "$here/kill-test.sh"
    printf '[pipeline]\nstages = 3\n[run]\nhang_timeout = %s\n' $TIMEOUT
} >net.ini
sha() { sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' "$1"; }
epochs=8
whole() { # the run that nothing disturbs
    rm -rf whole
    "$ppcli" train net.ini --dir whole -q --launch threads --epochs $epochs >out 2>&1 || { cat out; exit 1; }
    right=$(sha whole/summary.json)
}
whole
failures=0 done_faults=0 worst=0 all=
complain() {
    failures=$((failures + 1))
    echo "not ok: seed $seed, fault $done_faults: $*"
    sed 's/^/    /' err
}
judge_lost() { # the run without --retries
    [ "$code" = 76 ] || complain "$what: exit code $code"
    [ "$took" -lt $((DEADLINE * 1000)) ] || complain "$what: ended after $took ms"
    [ "$(grep -c '^ppcli: error: ' err)" = 1 ] || complain "$what: not one line"
    case $kind in
    mpirun) grep -q '^ppcli: error: mpirun was ended by signal 9' err || complain "$what: mpirun is not named" ;;
    *) # of the first rank that the line names; who waited follows
        [ "$(sed -n 's/^ppcli: error: [^(]*(host \(h[0-9]\)[,)].*/\1/p' err)" = h$host ] ||
            grep -q " or h$host is down or cut off" err ||
            grep -q "before its ranks had begun: without host h$host:" err ||
            grep -q "before its ranks had begun: this host is cut off from h[0-9]: h$host has no way" err ||
            complain "$what: h$host is not named"
        ;;
    esac
}
judge_refused() { # judge_refused CODE TEXT: before anything starts
    [ "$code" = "$1" ] || complain "$what: exit code $code"
    [ "$took" -lt 30000 ] || complain "$what: refused after $took ms"
    [ "$(grep -c '^ppcli: error: ' err)" = 1 ] || complain "$what: not one line"
    grep -q "^ppcli: error: .*$2" err || complain "$what: no '$2'"
}
judge_whole() { # the weights of the run that nothing disturbs
    [ "$code" = 0 ] || complain "$what: exit code $code"
    [ "$(sha run/summary.json 2>/dev/null)" = "$right" ] || complain "$what: other weights"
}
judge_disk() {
    [ "$code" = 74 ] || complain "$what: exit code $code"
    [ "$(grep -c '^weights_sha256' out)" = 1 ] || complain "$what: not one run"
    grep -q "^weights_sha256 *$right" out || complain "$what: other weights"
    tail -n 1 err | grep -q '^ppcli: error: the run is complete, but its last checkpoint' || complain "$what: the last line"
}
read -r -a kinds <<<"${KINDS:-kill stop orted mpirun link host two away silent disk network ports}"
while [ "$done_faults" -lt "$n" ]; do
    done_faults=$((done_faults + 1))
    kind=${kinds[$((((done_faults - 1) / 2 + seed) % ${#kinds[@]}))]} # few faults: other kinds each time
    host=$((RANDOM % 3)) list=h0,h1,h2 extra=
    [ $kind != orted ] || host=$((1 + RANDOM % 2))
    [ $kind != mpirun ] || host=0
    [ $kind != host ] || host=$((1 + RANDOM % 2)) # with h0 the one who could speak is gone
    # Known: of a rank that is killed in its first 50 ms the line may not know which it was.
    ms=$((RANDOM % 2500)) when=work
    [ $((RANDOM % 2)) = 1 ] && case $kind in stop | link | host | orted) when=early ms=$((ms % 1000)) ;; esac
    retries=$(((done_faults - 1) % 2 * 3))
    case $kind in
    two) retries=3 ;;
    away) retries=3 list=h1:2,h2:1 ;;
    silent) when=early ms=0 ;;
    network) extra=--set=run.network=10.$((RANDOM % 70 + 80)).0.0/16 ;;
    ports) host=$((1 + RANDOM % 2)) extra=--set=run.ports=52000-52031 ;;
    esac
    what="$kind of h$host $ms ms after the start of $when, $retries retries"
    rm -rf run end out err
    timeout -k 5 400 "$machines" 3 "$here/fault-hosts.sh" inside $kind $host $ms $when "$ppcli" train net.ini --dir run \
        --hosts $list $extra --set run.retries=$retries --epochs $epochs >log 2>&1
    [ -e end ] || { touch err; complain "$what: did not end: $(tail -n 3 log)"; continue; }
    read -r code took broken left <end
    tr -d '\0' <err >err.text && mv err.text err
    [ -z "$left" ] || complain "$what: left behind: $left"
    if [ "$broken" = late ]; then
        done_faults=$((done_faults - 1)) epochs=$((epochs * 2)) # it was over: a longer one
        whole
        continue
    fi
    case $kind$retries in
    network*) judge_refused 78 'run.network: h[0-9] has no address in ' ;;
    ports*) judge_refused 69 "h$host does not reach h[0-9]: no connection to port 520" ;;
    disk*) judge_disk ;;
    silent* | *3) judge_whole ;;
    *)
        judge_lost
        worst=$((took > worst ? took : worst))
        ;;
    esac
    [ -n "${VERBOSE:-}" ] && { echo "$what: code $code, $took ms"; grep '^ppcli: ' err | cut -c 1-220 | sed 's/^/    /'; }
    all="$all $kind"
done
echo "seed $seed: $done_faults faults ($(printf '%s\n' $all | sort | uniq -c | tr -s ' \n' ' ')), $failures wrong, the slowest end without --retries after $worst ms"
[ "$failures" = 0 ]
