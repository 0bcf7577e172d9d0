#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An installed ppcli, wherever it came from, gives the digests of the source: six trainings of the digits that came
# with it, in an empty folder. Prints a line for each; 1 where one differs.
#   scripts/package-check.sh DIGESTS [PROGRAM]     DIGESTS: tests/golden/digests.txt; PROGRAM: ppcli of PATH
set -eu
table=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
program=${2:-ppcli}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
failed=0
check() { # check NAME WORD...: the digest of NAME in f32
    name=$1
    shift
    got=$("$program" train mnist-sample.ini --dir '' -q --max-steps 60 --set 'model.sizes=784 300 100 10' "$@" |
        sed -n 's/^weights_sha256 *//p')
    if [ -n "$got" ] && grep -qx "$got $name f32" "$table"; then
        echo "same bits: $*"
    else
        echo "OTHER BITS: '$got', expected those of '$name': $*"
        failed=1
    fi
}
check adam --stages 1 --microbatches 4 --optimizer adam --lr 0.001 --batch-size 128
check adam --stages 3 --microbatches 4 --schedule gpipe --optimizer adam --lr 0.001 --batch-size 128
check sgd --stages 2 --microbatches 5 --schedule 1f1b --optimizer sgd --lr 0.05 --batch-size 100
check tanh --stages 2 --microbatches 4 --optimizer momentum --lr 0.02 --batch-size 96 --set model.activation=tanh
check gelu --stages 2 --microbatches 4 --optimizer adamw --lr 0.002 --batch-size 128 --set model.activation=gelu
check replicas --stages 2 --replicas 2 --microbatches 4 --optimizer sgd --lr 0.05 --batch-size 128
exit $failed
