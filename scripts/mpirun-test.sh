#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run a test program under MPI: mpirun-test.sh [--expect CODE] RANKS PROGRAM [ARGUMENT...]
# Works as root, in containers, and with more ranks than cores. Ends with 77 (skipped) and a reason
# where there is no mpirun; otherwise with the code of the program (0 when it is the one expected).
set -u

expect=0
if [ "${1-}" = --expect ]; then
    expect=$2
    shift 2
fi
if [ $# -lt 2 ]; then
    echo "usage: mpirun-test.sh [--expect CODE] RANKS PROGRAM [ARGUMENT...]" >&2
    exit 64
fi
ranks=$1
shift

if ! command -v mpirun >/dev/null 2>&1; then
    echo "skipped: no mpirun here (install openmpi-bin)" >&2
    exit 77
fi

limit=${MPIRUN_TEST_TIMEOUT:-300}
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    if [ "$(id -u)" = 0 ]; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
    # Shared memory only, and no single copy: containers often forbid what it needs. Whoever set
    # one of these knows better.
    : "${OMPI_MCA_pml:=ob1}" "${OMPI_MCA_btl:=self,vader}"
    : "${OMPI_MCA_btl_vader_single_copy_mechanism:=none}"
    export OMPI_MCA_pml OMPI_MCA_btl OMPI_MCA_btl_vader_single_copy_mechanism
    # While it ends an aborted job, mpirun 4.1.4 now and then crashes, or hangs, in its own
    # PMIx_server_finalize. What the rank gave MPI_Abort is in its message then; without even that,
    # the job says nothing about the program and gets two more chances.
    story=$(mktemp)
    trap 'rm -f "$story"' EXIT
    tries=1
    if [ "$expect" != 0 ]; then
        tries=3
        limit=${MPIRUN_TEST_TIMEOUT:-60}
    fi
    while [ "$tries" -gt 0 ]; do
        tries=$((tries - 1))
        code=0
        timeout -k 2 $((limit + 5)) mpirun --oversubscribe --bind-to none --timeout "$limit" \
            -np "$ranks" "$@" 2>"$story" || code=$?
        cat "$story" >&2
        case $code in
        139 | 137 | 124) ;;
        *) break ;;
        esac
        said=$(sed -n 's/^with errorcode \([0-9][0-9]*\)\.$/\1/p' "$story" | head -n 1)
        if [ -n "$said" ]; then
            code=$said
            break
        fi
    done
else
    timeout "$limit" mpirun -np "$ranks" "$@"
    code=$?
fi

if [ "$code" = 77 ]; then
    exit 77
fi
if [ "$code" != "$expect" ]; then
    echo "mpirun-test.sh: $* ended with $code, expected $expect" >&2
    [ "$code" != 0 ] || exit 1
    exit "$code"
fi
