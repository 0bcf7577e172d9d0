#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of the labs in docs/course, each page's in order in an empty folder, and what its answers say of them.
# Prints how long they took.
#   course.sh ROOT
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

PATH=$(dirname "$PPCLI"):$PATH
pages=$1/docs/course

lab() { # lab LETTER LEAST: the commands of its page succeed; at least LEAST of them are ppcli's
    begin "lab $1: every command of the page succeeds"
    mkdir "$folder/$1" && cd "$folder/$1" || exit 1
    awk '/^    / { print substr($0, 5) }' "$pages/lab-$1.md" >commands
    [ "$(grep -c 'ppcli' commands)" -ge "$2" ] || complain "only $(grep -c 'ppcli' commands) commands found"
    start=$(date +%s)
    sh -eux commands >out 2>err </dev/null || complain "$(tail -n 5 err)"
    echo "# lab $1: $(($(date +%s) - start)) s"
}
says() { # says TEXT...: it is in what the page's commands print
    for text; do
        has out "$text" || has err "$text" || complain "no '$text' in what the commands print"
    done
}
equal_bits() { # equal_bits RUN...: they end with the same weights
    same "$(for run; do sha "runs/$run/summary.json"; done | sort -u | wc -l)" 1
}

lab a 9
says 'makespan 48, bubble 75.0 %' '8 micro-batches: makespan 33, bubble 27.3 %' '32 micro-batches: makespan 105, bubble 8.6 %'
equal_bits naive gpipe gpipe-2 gpipe-16
{ [ -s gpipe.svg ] && [ -s a.html ]; } || complain 'no picture'

lab b 10
says '131072' 'row 1 holds 8 micro-batches of activations, --memory-cap allows 4' 'refused with exit code' 'recompute auto: all'
same "$(grep -c '^1f1b  *0 .* 3\.014 ' out)" 3
equal_bits gpipe 1f1b again

lab c 9
says 'balance 66.7 %' 'balance 68.1 %' 'balance 93.4 %' 'makespan 300,' 'makespan 216,'
equal_bits equal mine
equal_bits good bad

lab d 11
[ -s workbench.html ] || complain 'no workbench'
for n in 1 2 3; do
    says "wrong-$n: exit code"
done
says 'these ranks wait for each other' '1F1 comes before 1F0' 'has no 1W1' 'makespan 25,' 'makespan 26,' 'makespan 30,'
equal_bits mine 1f1b

lab e 9
same "$(grep -o '^c=[0-9.]* [0-9.]* [a-z0-9-]*' out | awk '$1 != c { c = $1; print $3 }' | tr '\n' ' ')" 'zb-v zb-v zb-h2 zb-h2 zb-h2 '
says 'c=1 39 gpipe' 'c=1 41 zb-h1' '32 micro-batches, 1f1b: 157,' '32 micro-batches, gpipe: 111,'
equal_bits 1f1b zb-h1 zb-v

lab f 6
same "$(grep -c "^$(sed -n '3s/ .*//p' out) " out)" 10
says '(a + b) + c = 1' 'a + (b + c) = 0' 'found: exit code 1'
equal_bits whole parts f32

finish
