#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli bench as an MPI job: rows of processes beside the run with one stage on rank 0, one table.
# bench.sh PPCLI SOURCE_DIR
# shellcheck source=tests/mpi/lib.sh
. "$(dirname "$0")/lib.sh"

cat >net.ini <<'INI'
[data]
dataset = synthetic
train_samples = 200
[model]
sizes = 20 16*6 5
[pipeline]
microbatches = 4
[train]
batch_size = 32
INI

"$launcher" 2 "$ppcli" bench net.ini --time 0.02 --repeat 2 --stages 1,2,3 --schedule 1f1b,zb-h1 \
    --format csv >out 2>err
code=$?
[ "$code" = 0 ] && [ "$(grep -c ',ok,' out)" = 4 ] && [ "$(wc -l <out)" = 7 ]
report $? "rows of one and two ranks run and pass the check, printed once"
[ "$(grep -c 'skipped,"3 ranks, but 2 processes were started' out)" = 2 ]
report $? "rows with another number of ranks are skipped"

"$launcher" 2 "$ppcli" bench net.ini --time 0.02 --repeat 1 --stages 2 --no-ceilings --format json \
    >out 2>err &&
    grep -q '"ranks_are": "processes"' out && grep -q '"references": \[' out &&
    [ "$(grep -c '"weights_sha256"' out)" = 4 ] &&
    [ "$(grep '"weights_sha256"' out | tr -d ' ,' | sort -u | wc -l)" = 1 ]
report $? "two processes end with the weights of one rank"

"$launcher" 2 "$ppcli" bench net.ini --time 0.02 --repeat 1 --stages 2 --no-ceilings \
    --min-sps 1e12 >out 2>err
[ $? = 1 ] && grep -q 'slower than' err
report $? "the verdict is the exit code of the job"

"$launcher" 2 "$ppcli" bench --handover --format json >out 2>err &&
    grep -q '"processes": \[' out && [ "$(grep -c '"bytes": 64,' out)" = 1 ]
report $? "transfers between the two processes"

"$launcher" 2 "$ppcli" bench net.ini --time 0.02 --repeat 1 --stages 1,2 --no-ceilings \
    --trace trace.json >out 2>err && [ -s trace-1.json ] && [ -s trace-2.json ]
report $? "traces of threads and of processes"

echo "1..$n"
exit $bad
