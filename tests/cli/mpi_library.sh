#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# MPI is loaded by those who need it: without it, and beside one of the other family, ppcli starts and
# says what it found. $1: a library that gives itself out for the other family.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
other=$(realpath "$1")
cd "$folder" || exit 1
sample='mnist-sample.ini --epochs 1 --set train.max_steps=2'

# loads WORD...: the libraries that ppcli opens, by the loader's own account
loads() { LD_DEBUG=files "$PPCLI" "$@" 2>&1 >/dev/null | sed -n 's/.*file=\([^ ]*\) .*/\1/p' | sort -u; }

# hide LIBRARY...: a folder where libraries of that name cannot be loaded
hide() {
    rm -rf hidden
    mkdir hidden
    for library; do : >"hidden/$library"; done
}

begin "env loads MPI and names it"
loads env >all
file=$(sed -n 's/^\(libmpi\(ch\)*\.so\.[0-9]*\)$/\1/p' all)
run env
mpi=$("$PPCLI" version | sed -n 's/^MPI: //p')
if [ "$(wc -l <all)" -lt 3 ]; then
    skip 'this loader does not tell what it loads (LD_DEBUG=files)'
else
    [ -n "$file" ] || complain "no MPI library among: $(cat all)"
    grep -q '^  mpi  *[A-Z]' "$folder/out" || complain "names no MPI: $(cat "$folder/out")"
fi

begin "ranks that are threads never load it, nor does the program by itself"
if [ -z "$file" ]; then
    skip 'nothing tells what is loaded'
else
    for stages in 1 2; do
        # shellcheck disable=SC2086 # words
        loads train $sample --stages $stages --dir= -q >all
        grep -q '^libz' all || complain "only $(cat all)"
        ! grep -q 'libmpi\|libopen-rte\|libpmi' all || complain "$stages stages: $(grep 'mpi\|open-rte\|pmi' all)"
    done
fi

begin "where it is absent env says so and threads train"
if [ -z "$file" ]; then
    skip 'nothing tells what is loaded'
else
    hide "$file" libmpi.so.40 libmpi.so.12 libmpich.so.12
    export LD_LIBRARY_PATH="$folder/hidden"
    shows 'no: MPI cannot be loaded: ' run env
    out_has 'LD_LIBRARY_PATH'
    same "$("$PPCLI" version | sed -n 's/^MPI: //p')" "$mpi"
    # shellcheck disable=SC2086 # words
    ok run train $sample --stages 2 --dir= -q
fi

begin "where it is absent --launch mpirun, and a rank of mpirun, end with one line and 69"
if [ -z "$file" ]; then
    skip 'nothing tells what is loaded'
else
    # shellcheck disable=SC2086 # words
    fails 69 'MPI cannot be loaded: ' run train $sample --stages 2 --dir= -q --launch mpirun
    err_has 'run.transport = threads'
    same "$(wc -l <"$folder/err")" 1
    # shellcheck disable=SC2086 # words
    PMI_RANK=0 PMI_SIZE=1 run train $sample --dir= -q
    code_is 69
    err_has 'MPI cannot be loaded: '
    same "$(wc -l <"$folder/err")" 1
fi

begin "the other family is named and not used, whatever its file is called"
if [ -z "$file" ]; then
    skip 'nothing tells what is loaded'
else
    case $file in
    libmpi.so.40) theirs='libmpi.so.12 libmpich.so.12' version='MPICH 4.0.2' ;;
    *) theirs=libmpi.so.40 version='Open MPI 4.1.4' ;;
    esac
    for as in "$file" $theirs; do
        hide "$file" libmpi.so.40 libmpi.so.12 libmpich.so.12
        cp "$other" "hidden/$as"
        shows "no: $version is here, but this ppcli was built with $mpi" run env
        # shellcheck disable=SC2086 # words
        fails 69 "$version is here" run train $sample --stages 2 --dir= -q --launch mpirun
    done
fi
unset LD_LIBRARY_PATH

begin "under the launcher of another MPI, ranks that are each alone do not train"
# shellcheck disable=SC2086 # words
PMI_RANK=0 PMI_SIZE=2 run train $sample --dir= -q
code_is 69
err_has 'the launcher has started 2 ranks, and '

finish
