#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that are processes: one that hangs, or is stopped, ends the job with 76: hang_mpi.sh [long]
# shellcheck source=tests/fault/lib.sh
. "$(dirname "$0")/lib.sh"
command -v mpirun >/dev/null 2>&1 || { echo "1..0 # SKIP no mpirun here (install openmpi-bin)"; exit 0; }
command -v pgrep >/dev/null 2>&1 || { echo "1..0 # SKIP no pgrep here (install procps)"; exit 0; }

machine_is_slow
kinds='F@1:60=stop recv@0:60=hang'
[ "${1:-}" != long ] || kinds='F@0:60=stop F@1:60=stop F@2:60=stop F@0:60=hang F@1:60=hang F@2:60=hang
    recv@1:60=hang slot@1:60=hang meet@2:7=hang meet@0:7=stop clip@1:25=hang update@2:25=hang start@1:1=hang'
for fail in $kinds; do
    begin "3 processes, $fail: exit 76, one box, the right rank"
    rank=${fail#*@}
    rank=${rank%%:*}
    hang m 3 "$fail" --launch mpirun --set "$(limit 0.6)"
    hung m
    last="PPCLI_FAIL=$fail"
    code_is 76
    case $fail in
    *stop) err_has "ppcli: error: rank $rank (stage $rank) is stopped (pid " ;;
    *) err_has "ppcli: error: rank $rank (stage $rank) hangs in ${fail%%@*}" ;;
    esac
    same "$(grep -c 'ppcli: error' "$folder/err")" 1
    shows "the watchdog ended this run: rank $rank (stage $rank) " run diagnose "$folder/m"
    rm -rf "$folder/m" "$folder/m.code"
done

# Before the watchdog sees any rank, and after. One after the other: who waits in MPI does so busily,
# and time without a core does not count.
begin "a process that never comes to the start of MPI, or to its end: exit 76, and one line"
for phase in init finalize; do
    hang "m$phase" 2 $phase@1:1=hang --launch mpirun --set "$(limit 0.2)" --set train.max_steps=5
    hung "m$phase"
    code_is 76
    same "$(grep -c 'ppcli: error' "$folder/err")" 1
    grep -q '^ppcli: error: rank [01] (pid [0-9]*) does not get past \(the start of MPI\|MPI_Finalize\)' "$folder/err" ||
        complain "$phase: $(cat "$folder/err")"
done
grep -q '"weights_sha256"' "$folder/mfinalize/summary.json" || complain 'what was to be written is not there'

begin "a process that is stopped while the others choose a schedule: who waits says so"
hang msettle 2 settle@1:1=stop --launch mpirun --set "$(limit 0.2)" --schedule auto
hung msettle
code_is 76
same "$(grep -c 'ppcli: error' "$folder/err")" 1
err_has 'ppcli: error: rank 0 (pid '
err_has ' s in set-up, before the data is read, for a rank that does not say why'

begin "no processes are left"
last='ps'
same "$(pgrep -f "$net" | wc -l | tr -d ' ')" 0
finish
