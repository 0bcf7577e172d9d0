#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The script that `ppcli slurm` writes does what it says: the signal that Slurm sends before the end becomes a
# checkpoint, the job goes back into the queue, and the next one goes on. Slurm's part is played by this script and
# by programs of its names; scripts/slurm-test.sh asks a real one.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
command -v mpirun >/dev/null 2>&1 || { echo "1..0 # SKIP no mpirun here (install openmpi-bin)"; exit 0; }
cd "$folder" || exit 1
mkdir bin
ln -s "$PPCLI" bin/ppcli
cat >bin/scontrol <<'SH'
#!/bin/sh
echo "$*" >>asked
SH
cat >bin/squeue <<'SH'
#!/bin/sh
echo "$*" >>queued
cat job_state
SH
cat >bin/srun <<'SH'
#!/bin/sh
for word; do # its own options first
    case $word in -*) shift ;; *) break ;; esac
done
[ "$1" = test ] && exec "$@"
exec mpirun -np 2 "$@"
SH
chmod +x bin/*
export PATH="$folder/bin:$PATH" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export SLURM_NNODES=1 SLURM_JOB_ID=4711 PPCLI_FAIL_NOTE="$folder/note"
cat >net.ini <<'INI'
[data]
dataset = synthetic
train_samples = 300
test_samples = 50
[model]
sizes = 20 16*3 5
[train]
epochs = 4
batch_size = 32
INI
job() { # job RUN [FAULT [LINE]]: LINE goes to the config; a batch job in the background, $pid
    rm -f note asked
    echo RUNNING >job_state
    ok run slurm net.ini --stages 2 --time 1:00:00 --dir "$1" -o job.sh
    [ -z "${3:-}" ] || echo "$3" >>net.ini
    PPCLI_FAIL=${2:-} sh job.sh >out 2>err </dev/null &
    pid=$!
}
ended() {
    code=0
    wait "$pid" || code=$?
    last="the job"
}

begin "a job that comes to its end is not put back"
run train net.ini --dir whole -q --stages 2
job whole.job
ok ended
same "$(sha whole.job/summary.json)" "$(sha whole/summary.json)"
[ ! -e asked ] || complain "scontrol $(cat asked)"

for signals in USR1 'USR1 USR1'; do
    begin "$signals: a checkpoint, the job is put back, and the next one ends with the same weights"
    job "run.$signals" update@0:15=hold
    within '[ -s note ]' || complain "it never came to step 15: $(cat err)"
    for signal in $signals; do
        kill "-$signal" "$pid"
        sleep 0.2 # Slurm's own signals are further apart
    done
    fails 75 'after step ' ended
    err_has '; checkpoint saved; continue with'
    same "$(cat asked)" 'requeue 4711'
    job "run.$signals"
    ok ended
    err_has 'continuing after step '
    same "$(sha "run.$signals/summary.json")" "$(sha whole/summary.json)"
    [ ! -e asked ] || complain "scontrol $(cat asked)"
done

begin "a job that was put back trains with the config of its first start, and a task of an array is put back alone"
export SLURM_ARRAY_JOB_ID=4711 SLURM_ARRAY_TASK_ID=3
cp net.ini kept.ini
job edited update@0:15=hold
within '[ -s note ]' || complain "it never came to step 15: $(cat err)"
kill -USR1 "$pid"
fails 75 '' ended
same "$(cat asked)" 'requeue 4711_3'
grep -q '^-h -j 4711_3 ' queued || complain "squeue $(cat queued)"
for change in 's/epochs = 4/epochs = 2/' 's/batch_size = 32/batch_size = 16/'; do
    rm -rf edited.copy
    cp -r edited-3 edited.copy
    sh -c "sed -i '$change' net.ini"
    SLURM_RESTART_COUNT=1 job edited
    ok ended
    same "$(sha edited-3/summary.json)" "$(sha whole/summary.json)"
    cp kept.ini net.ini
    rm -rf edited-3
    mv edited.copy edited-3
done
unset SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID

begin "TERM, as scancel and preemption send it: a checkpoint, and not put back"
job cancelled update@0:15=hold
within '[ -s note ]' || complain "it never came to step 15: $(cat err)"
echo COMPLETING >job_state
kill -TERM "$pid" "$(head -n 1 note)"
fails 75 '; checkpoint saved; continue with' ended
[ ! -e asked ] || complain "scontrol $(cat asked)"

begin "a rank that is killed: put back"
job killed update@1:15=kill
ended
[ "$code" -gt 75 ] || complain "exit $code"
same "$(cat asked)" 'requeue 4711'

begin "losses count from each checkpoint, and time limits and preemptions do not"
lose() { # lose N: the N-th start of job "lost" loses a rank
    SLURM_RESTART_COUNT=$1 job lost update@1:5=kill
    ended
    [ "$code" -gt 75 ] || complain "exit $code"
}
lose 40 # so many time limits before
for k in 1 2; do
    same "$(cat asked)" 'requeue 4711'
    lose 4$k
done
same "$(cat asked)" 'requeue 4711'
lose 44
[ ! -e asked ] || complain "put back after the fourth loss at the same place: $(cat lost.losses)"
job lost update@0:15=hold # a checkpoint, and it may lose again
within '[ -s note ]' || complain "it never came to step 15: $(cat err)"
kill -USR1 "$pid"
fails 75 '' ended
same "$(cat asked)" 'requeue 4711'
lose 46
same "$(cat asked)" 'requeue 4711'
SLURM_JOB_ID=4712 job away update@1:5=kill
echo PREEMPTED >job_state
ended
[ ! -e asked ] || complain "scontrol $(cat asked)"
[ ! -e away.losses ] || complain "a preemption counts: $(cat away.losses)"

begin "what Slurm would refuse is one line and no script"
for words in '' '--time 0' '--time 1:xx' '--time 1:2:3:4' '--time -5' '--time 3-' '--time 5 --nodes 3' \
    '--time 5 --nodes 2 --ranks-per-node 2' '--time 1 --save 60' '--time 5 --nodes -1'; do
    # shellcheck disable=SC2086
    fails 64 '' run slurm net.ini --stages 2 $words
    same "$(wc -l <out) $(grep -c '^ppcli: error: ' err)" '0 1'
done
fails 78 '' run slurm net.ini --stages 4 --nodes 2 --time 1-12:30 --partition gpu --account me --set train.lr="it's"
ok run slurm net.ini --stages 4 --nodes 2 --time 1-12:30 --partition gpu,cpu --set train.init="it's" \
    --set run.network=10.0.0.0/24
for text in '--nodes=2' '--ntasks-per-node=2' '--time=1-12:30' '--partition=gpu,cpu' '--signal=B:USR1@120' \
    "btl_tcp_if_include='10.0.0.0/24'" "--set train.init='it'\\''s'"; do
    out_has "$text"
done
out_lacks '@'"stages@" '--account' 'gpus'
ok run slurm mnist.ini --time 5
same "$(grep -c '^config: ' err)" 1

begin "a job whose config is wrong is not put back"
job wrong '' 'nonsense = 1'
fails 78 '' ended
[ ! -e asked ] || complain "scontrol $(cat asked)"
finish
