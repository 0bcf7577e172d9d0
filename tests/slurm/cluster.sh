#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A Slurm cluster on this machine: cluster.sh NODES COMMAND... runs COMMAND on the first of the nodes h0, h1, ...
# Each node is a network namespace on one bridge with a slurmd of its own. Mounts, processes and host names are
# private as well, so everything ends with COMMAND, also after SIGKILL. Skips with 77 where that is not possible.
# COMMAND may call:  node_run HOST WORDS...   node_dies HOST   node_boots HOST
# Partitions: low (the default) and high, whose jobs preempt those of low.
set -u
self=$(readlink -f "$0")

node_run() { # a host name of its own for each command: Open MPI compares names
    local host=$1
    shift
    # shellcheck disable=SC2016
    ip netns exec "$host" unshare --uts bash -c 'hostname "$0" && exec "$@"' "$host" "$@"
}

node_boots() {
    rm -rf "${CLUSTER:?}/$1" # as a machine that forgets /tmp
    mkdir -p "$CLUSTER/$1/spool" "$CLUSTER/$1/tmp"
    ip -n "$1" link set eth0 up
    node_run "$1" slurmd -f "$SLURM_CONF" -N "$1"
}

node_dies() {
    ip -n "$1" link set eth0 down
    ip netns pids "$1" | xargs -r kill -KILL 2>/dev/null || true
}

if [ -z "${CLUSTER:-}" ]; then
    for program in slurmctld slurmd munged ip unshare; do
        PATH=$PATH:/usr/sbin command -v $program >/dev/null || { echo "skipped: no $program here (install slurm-wlm, munge, iproute2)"; exit 77; }
    done
    if [ "$(id -u)" -ne 0 ] || ! unshare --net --mount --uts --pid --fork true 2>/dev/null; then
        echo "skipped: no namespaces here (needs root)"
        exit 77
    fi
    CLUSTER=$(mktemp -d)
    export CLUSTER
    trap 'rm -rf "$CLUSTER"' EXIT
    unshare --net --mount --uts --pid --fork --kill-child --mount-proc --propagation private "$self" "$@"
    exit $?
fi

# ---- inside
PATH=$PATH:/usr/sbin
nodes=$1
shift
export SLURM_CONF=$CLUSTER/slurm.conf
mount -t tmpfs none /run && mount -t tmpfs none /dev/shm && mkdir -p /run/netns
mount -t tmpfs none /sys/fs/cgroup 2>/dev/null # slurmd insists on cgroup v1 or a folder that looks empty
mkdir -p "$CLUSTER/munge" "$CLUSTER/state"
chmod 755 "$CLUSTER" "$CLUSTER/munge"
ip link set lo up
ip link add bridge0 type bridge
ip link set bridge0 up
echo 127.0.0.1 localhost >"$CLUSTER/hosts"
{
    cat <<C
ClusterName=test
SlurmctldHost=h0(10.77.0.1)
AuthType=auth/munge
# a job that was put back waits for so long
AuthInfo=socket=$CLUSTER/munge/socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$CLUSTER/state
SlurmdSpoolDir=$CLUSTER/%n/spool
# else the PMIx of two nodes share a folder
TmpFS=$CLUSTER/%n/tmp
SlurmctldPidFile=$CLUSTER/slurmctld.pid
SlurmdPidFile=$CLUSTER/slurmd-%n.pid
SlurmctldLogFile=$CLUSTER/slurmctld.log
SlurmdLogFile=$CLUSTER/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=20
KillWait=30
C
    for ((i = 0; i < nodes; i++)); do
        echo "NodeName=h$i NodeAddr=10.77.0.$((i + 1)) CPUs=2 State=UNKNOWN"
        echo "10.77.0.$((i + 1)) h$i" >>"$CLUSTER/hosts"
    done
    echo "PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1"
    echo "PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=2"
} >"$SLURM_CONF"
echo CgroupPlugin=cgroup/v1 >"$CLUSTER/cgroup.conf"
mount --bind "$CLUSTER/hosts" /etc/hosts
for ((i = 0; i < nodes; i++)); do
    ip netns add "h$i"
    ip link add "port$i" type veth peer name "cable$i"
    ip link set "cable$i" netns "h$i" name eth0
    ip link set "port$i" master bridge0 up
    ip -n "h$i" link set lo up
    ip -n "h$i" link set eth0 up
    ip -n "h$i" addr add "10.77.0.$((i + 1))/24" dev eth0
done
head -c 1024 /dev/urandom >"$CLUSTER/munge/key"
chmod 400 "$CLUSTER/munge/key"
munged --force --socket="$CLUSTER/munge/socket" --pid-file="$CLUSTER/munge/pid" --log-file="$CLUSTER/munge/log" \
    --seed-file="$CLUSTER/munge/seed" --key-file="$CLUSTER/munge/key" 2>/dev/null
node_run h0 slurmctld -f "$SLURM_CONF"
for ((i = 0; i < nodes; i++)); do
    node_boots "h$i"
done
for ((k = 0; k < 60; k++)); do
    [ "$(node_run h0 sinfo -h -p low -t idle -o %D)" = "$nodes" ] && break
    sleep 1
done
[ "$(node_run h0 sinfo -h -p low -t idle -o %D)" = "$nodes" ] || { tail -n 3 "$CLUSTER"/*.log; echo "Slurm does not start"; exit 1; }
export -f node_run node_boots node_dies
node_run h0 "$@"
