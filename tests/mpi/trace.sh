#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Traces of runs whose ranks are processes: collected by rank 0, on one clock:
# trace.sh PPCLI SOURCE_DIR
# shellcheck source=tests/mpi/lib.sh
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null 2>&1 || { echo "1..0 # SKIP no python3 here"; exit 0; }

cat >"$work/net.ini" <<'INI'
[data]
dataset = synthetic
train_samples = 203
test_samples = 57
[model]
sizes = 20 17 33 8 5
[pipeline]
stages = 3
microbatches = 5
schedule = zb-h1
[train]
epochs = 2
batch_size = 32
INI

check() { python3 "$source/tests/cli/check_trace.py" "$@" 2>&1; }

"$launcher" 3 "$ppcli" train net.ini --dir run --trace trace.json --trace-steps 2-9 >out 2>&1
report $? "a run of 3 processes writes a trace" "$(cat out)"
said=$(check trace.json "{e['pid'] for e in x} == {0, 1, 2}" \
    "{e['args']['step'] for e in x if not e['args']['eval']} == set(range(2, 10))" \
    "sorted(e['pid'] for e in x if e['cat'] == 'update') == [0] * 8 + [1] * 8 + [2] * 8" \
    "len(head['clock_offset_ns']) == 3 and head['clock_offset_ns'][0] == 0" \
    "all(0 < e < 100000000 for e in head['clock_error_ns'][1:])")
report $? "it has the steps of all ranks, and how far their clocks agree" "$said"
[ "$(grep -c 'trace: trace.json (steps 2-9' out)" = 1 ]
report $? "one process says where it is" "$(cat out)"
said=$(check run/timeline.json "{e['pid'] for e in x} == {0, 1, 2, 10000, 10001, 10002}" \
    "head['bubble_predicted'] == summary['bubble_predicted']")
report $? "the time line of a step has all ranks too" "$said"

"$launcher" --expect 66 2 "$ppcli" train net.ini --stages 2 --dir '' --trace no/folder/trace.json \
    >out 2>&1
code=$?
[ "$code" = 0 ] && [ "$(grep -c 'cannot create the trace' out)" = 1 ]
report $? "a trace that cannot be written ends all processes, and is said once" "$(cat out)"

echo "1..$n"
exit "$bad"
