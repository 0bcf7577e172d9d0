#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `ppcli slurm` writes, on a real Slurm whose two nodes are namespaces (tests/slurm/cluster.sh): two nodes give
# the bits of one process; the time limit, a preemption, scancel and a dead node cost no step.
#
#   scripts/slurm-test.sh [PPCLI-FAULTS]     takes about four minutes; 77 without root, Slurm or munge
#
# The program is the one with failpoints (tests/fault): a run that is to be disturbed holds before its 15th update.
root=$(realpath "$(dirname "$0")/..")
PPCLI=$(realpath "${1:-$root/build/tests/fault/ppcli-faults}")
export PPCLI
if [ -z "${CLUSTER:-}" ]; then
    "$root/tests/slurm/cluster.sh" 2 "$(realpath "$0")" "$PPCLI"
    exit $?
fi
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
cd "$folder" || exit 1
export PPCLI_FAIL_NOTE=$folder/note OMPI_MCA_mpi_yield_when_idle=1
config net.ini data.dataset=synthetic data.train_samples=300 data.test_samples=50 'model.sizes=20 16*3 5' \
    train.epochs=4 train.batch_size=32 run.hang_timeout=10m

state() { squeue -h -t all -j "$job" -o %T 2>/dev/null | tr -d ' '; }
until_true() { # SECONDS COMMAND...
    local k
    for ((k = $1 * 5; k > 0; k--)); do
        "${@:2}" && return 0
        is FAILED && break
        sleep 0.2
    done
    complain "not within $1 s: ${*:2}; job $(state); $(tail -n 8 ./*-job.log 2>/dev/null)"
    return 1
}
is() { [ "$(state)" = "$1" ]; }
# shellcheck disable=SC2317
noted() { [ -s note ]; }
log_has() { has "net-$job.log" "$1" || complain "no '$1' in the job's log: $(tail -n 30 "net-$job.log")"; }
# Nothing of a job is left on any node.
clean() {
    until_true 30 eval '! pgrep -f "[p]pcli-faults train" >/dev/null' || complain "left: $(pgrep -af '[p]pcli-faults')"
    [ -z "$(ls /dev/shm)" ] || complain "left in /dev/shm: $(ls /dev/shm)"
}
# submit MINUTES [FAULT]: job.sh as ppcli writes it; the fault is for its first start only
submit() {
    rm -f note job.sh
    run slurm net.ini --nodes 2 --stages 2 --time "$1" --save "${save:-30}" -o job.sh
    code_is 0
    [ -z "${2:-}" ] || sed -i "/^RUN=/i [ \"\${SLURM_RESTART_COUNT:-0}\" -ne 0 ] || export PPCLI_FAIL=$2" job.sh
    job=$(sbatch --parsable job.sh) || complain "sbatch refuses job.sh"
    last="job $job"
}
ends_with_the_bits() { # the job has ended
    until_true 120 is COMPLETED
    same "$(sha "runs/net-job$job/summary.json")" "$whole"
    clean
}
continued() {
    ends_with_the_bits
    log_has 'continuing after step '
}

begin "a job over two nodes gives the bits of one process"
run train net.ini --dir whole -q --stages 1
code_is 0
whole=$(sha whole/summary.json)
submit 10
ends_with_the_bits
for host in h0 h1; do
    has "runs/net-job$job/summary.json" "\"$host\"" || complain "summary.json does not name $host"
done

begin "time limit: saved before it, put back, continued"
submit 1 update@0:15=hold
until_true 60 noted
until_true 120 is PENDING
log_has 'by SIGUSR1 after step '
continued

begin "preemption: saved, requeued, continued"
submit 10 update@0:15=hold
until_true 60 noted
sbatch -p high --nodes=2 --exclusive --time=1 --output=/dev/null --wrap 'sleep 1' --quiet --parsable >other
until_true 60 is PENDING
log_has 'by SIGTERM after step '
continued

begin "a node dies: requeued by Slurm, continued when the node is back"
submit 10 update@0:15=hold
until_true 60 noted
node_dies h1
until_true 120 is PENDING
node_boots h1
continued

begin "a rank dies: put back by the script, continued"
submit 10 update@1:15=kill
until_true 60 noted
until_true 20 is PENDING # the ranks that are left do not wait until Slurm kills them (KillWait, 30 s)
continued

begin "scancel: saved and ended, not put back; another job continues in its folder"
submit 10 update@0:15=hold
until_true 60 noted
scancel "$job"
until_true 60 is CANCELLED
log_has 'by SIGTERM after step '
clean
sleep 8 # longer than a job waits that was put back
is CANCELLED || complain "the job is $(state)"
before=$job
sed -i "/PPCLI_FAIL/d; s|^RUN=.*|RUN=runs/net-job$before|" job.sh
job=$(sbatch --parsable job.sh)
until_true 60 is COMPLETED
same "$(sha "runs/net-job$before/summary.json")" "$whole"
log_has 'continuing after step '

begin "a mistake in the config ends the job and is not repeated"
submit 10
scancel "$job"
echo 'nonsense = 1' >>net.ini
job=$(sbatch --parsable job.sh)
until_true 60 is FAILED
log_has 'nonsense'
finish
