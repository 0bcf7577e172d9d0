#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/slurm/ppcli.sbatch does what it says: the signal that Slurm sends before the end becomes a
# checkpoint, the job goes back into the queue, and the next one goes on: slurm.sh SOURCE_ROOT
# Slurm's part is played by this script and by a scontrol that only notes what it is asked.
batch=$(realpath "$1")/contrib/slurm/ppcli.sbatch
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
chmod +x bin/scontrol
export PATH="$folder/bin:$PATH" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export SLURM_NTASKS=2 SLURM_JOB_ID=4711 CONFIG=net.ini PPCLI_FAIL_NOTE="$folder/note"
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
sha() { sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' "$1/summary.json"; }
within() {
    for _ in $(seq 1 3000); do
        if eval "$1"; then return 0; fi
        sleep 0.01
    done
    return 1
}
job() { # job RUN [FAULT]: a batch job in the background, $pid
    rm -f note asked
    RUN=$1 PPCLI_FAIL=${2:-} sh "$batch" >out 2>err </dev/null &
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
ended
code_is 0
same "$(sha whole.job)" "$(sha whole)"
[ ! -e asked ] || complain "scontrol $(cat asked)"

for signals in USR1 TERM 'USR1 USR1'; do
    begin "$signals: a checkpoint, the job is put back, and the next one ends with the same weights"
    job "run.$signals" update@0:15=hold
    within '[ -s note ]' || complain "it never came to step 15: $(cat err)"
    for signal in $signals; do
        kill "-$signal" "$pid"
        sleep 0.2 # Slurm's own signals are further apart
    done
    ended
    code_is 75
    err_has 'after step '
    err_has 'which is saved'
    same "$(cat asked)" 'requeue 4711'
    job "run.$signals"
    ended
    code_is 0
    err_has 'going on after step '
    same "$(sha "run.$signals")" "$(sha whole)"
    [ ! -e asked ] || complain "scontrol $(cat asked)"
done

begin "a job whose config is wrong is not put back"
echo 'nonsense = 1' >>net.ini
job wrong
ended
code_is 78
[ ! -e asked ] || complain "scontrol $(cat asked)"
finish
