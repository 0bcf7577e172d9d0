#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# machines.sh N WORD...: N hosts h0, h1, ... with addresses 10.77.0.1, ... on one network, each with its
# own interfaces and host name; the words run on h0. All of it is in namespaces that end with the
# command, also when that is killed. Ends with 77 and a reason where the kernel does not let us.
#   DECOY=1         every host also has a docker0 with an address that is the same everywhere
#   RATE=100mbit    what a host's link carries
#   NAMES='...'     more lines of /etc/hosts, before the good ones
set -u
if [ -z "${IN_MACHINES:-}" ]; then
    [ "$(id -u)" = 0 ] || { echo "skipped: hosts need root"; exit 77; }
    for program in ip unshare mpirun pgrep; do
        command -v "$program" >/dev/null 2>&1 || { echo "skipped: no $program here"; exit 77; }
    done
    unshare --net --mount ip link add br0 type bridge 2>/dev/null || { echo "skipped: no namespaces or bridges here"; exit 77; }
    IN_MACHINES=1 exec unshare --net --mount --uts --pid --fork --kill-child --mount-proc \
        --propagation private "$0" "$@"
fi
here=$(dirname "$(readlink -f "$0")")
n=$1
shift
# A /run of our own: names of network namespaces are files there.
mount -t tmpfs none /run && mkdir -p /run/netns || exit 1
# Nor do others, whose hosts have the same names, share our segments of memory.
mount -t tmpfs none /dev/shm || exit 1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
{
    echo "127.0.0.1 localhost"
    printf '%s\n' "${NAMES:-}"
    for ((i = 0; i < n; i++)); do echo "10.77.0.$((i + 1)) h$i"; done
} >"$tmp/hosts"
mount --bind "$tmp/hosts" /etc/hosts
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
for ((i = 0; i < n; i++)); do
    ip netns add "h$i"
    ip link add "e$i" type veth peer name "p$i"
    ip link set "p$i" master br0 up
    ip link set "e$i" netns "h$i" name eth0
    ip -n "h$i" link set lo up
    ip -n "h$i" link set eth0 up
    ip -n "h$i" addr add "10.77.0.$((i + 1))/24" dev eth0
    if [ -n "${RATE:-}" ]; then
        tc -n "h$i" qdisc add dev eth0 root tbf rate "$RATE" burst 32kbit latency 50ms
    fi
    if [ -n "${DECOY:-}" ]; then
        ip -n "h$i" link add docker0 type bridge
        ip -n "h$i" addr add 172.17.0.1/16 dev docker0
        ip -n "h$i" link set docker0 up
    fi
done
export TMPDIR="$tmp" PPCLI_HOST_AGENT="$here/agent.sh"
"$here/agent.sh" h0 "$(printf '%q ' "$@")"
