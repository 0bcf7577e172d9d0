#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Processes and threads go on from each other's checkpoints; --launch mpirun passes signals on, and
# leaves nobody behind: resume.sh PPCLI
PPCLI=$(realpath "$1")
export PPCLI
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
cd "$folder" || exit 1
command -v mpirun >/dev/null 2>&1 || { echo "1..0 # SKIP no mpirun here (install openmpi-bin)"; exit 0; }
command -v pgrep >/dev/null 2>&1 || { echo "1..0 # SKIP no pgrep here (install procps)"; exit 0; }

config net.ini data.dataset=synthetic data.train_samples=203 data.test_samples=57 \
    'model.sizes=20 17*5 5' pipeline.stages=2 train.batch_size=32 train.epochs=3
# Processes of this test's endless runs.
# shellcheck disable=SC2317 # called by within
nobody() { [ "$(pgrep -fc -- "--dir $folder/" || true)" = 0 ]; }
start() { # start DIR: endless, as processes; $pid: who was started
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$PPCLI" train net.ini --dir "$folder/$1" --launch mpirun \
        --epochs 1000000 --log-every 5 --set checkpoint.every=20 >out 2>err </dev/null &
    pid=$!
    last="the run"
    within "\"$PPCLI\" inspect $1 >/dev/null 2>&1" || complain "no checkpoint in $1: $(cat err)"
}
goes_on() { # goes_on DIR: three steps more, to the bits of a run that nobody interrupted
    step=$("$PPCLI" inspect "$1" | sed -n 's/^step *//p')
    run train net.ini --dir "$1" -q --resume --epochs 1000000 --set train.max_steps=$((step + 3))
    code_is 0
    run train net.ini --dir "$1.whole" -q --epochs 1000000 --set train.max_steps=$((step + 3))
    same "$(sha "$1/summary.json")" "$(sha "$1.whole/summary.json")"
}
ended() { code=0; wait "$pid" || code=$?; }

begin "what threads saved processes go on from, and the other way round"
run train net.ini --dir whole -q
code_is 0
run train net.ini --dir a -q --set train.max_steps=10
run train net.ini --dir a -q --resume --launch mpirun --stages 3
code_is 0
same "$(sha a/summary.json)" "$(sha whole/summary.json)"
run train net.ini --dir b -q --set train.max_steps=11 --launch mpirun
run train net.ini --dir b -q --resume --stages 4
code_is 0
same "$(sha b/summary.json)" "$(sha whole/summary.json)"

begin "TERM to the run saves on all ranks, ends with 75, and leaves nobody"
start c
kill -TERM "$pid"
ended
code_is 75
err_has 'ppcli: stopped: after step '
within nobody || complain "processes are left: $(pgrep -fa -- "--dir $folder/")"
goes_on c

begin "a rank is killed: one line, exit 76, nobody is left, and the run goes on"
start f
kill -9 "$(pgrep -f -- "^$PPCLI.*--dir $folder/f " | grep -vx "$pid" | tail -n 1)"
ended
code_is 76
err_has 'ppcli: error: a rank was ended by signal 9 (Killed) and the others with it; '
err_has '--resume'
same "$(grep -c 'ppcli: error' err)" 1
within nobody || complain "processes are left: $(pgrep -fa -- "--dir $folder/")"
goes_on f

begin "who started the processes is killed: nobody is left, and the run goes on"
start d
kill -9 "$pid"
ended
within nobody || complain "processes are left: $(pgrep -fa -- "--dir $folder/")"
goes_on d

begin "an mpirun that does not end after its ranks have: killed, exit 76, one line"
mkdir bin
cat >bin/mpirun <<'SH'
#!/bin/sh
OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 "$PPCLI" version # a rank that starts
sleep 2
read -r _ <fifo # nobody ever writes into it
SH
mkfifo fifo
chmod +x bin/mpirun
code=0
PATH="$folder/bin:$PATH" "$PPCLI" train net.ini --dir stuck --launch mpirun >out 2>err </dev/null || code=$?
last='the stuck mpirun'
code_is 76
err_has 'ppcli: error: mpirun did not exit after its ranks had ended; it was killed after 1'
same "$(grep -c 'ppcli: error' err)" 1
finish
