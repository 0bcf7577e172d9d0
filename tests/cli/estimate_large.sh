#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli estimate: a model and a cluster that are larger than this machine: estimate_large.sh [long]
# shellcheck disable=SC2086,SC3045 # words; ulimit -v: dash, bash and busybox have it
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

words='--stages 32' # the whole search takes twice as long
[ "${1:-}" != long ] || words=
begin "70 billion parameters on 64 ranks, in little memory"
limit=2097152
(ulimit -v "$limit" && exec "$PPCLI" version) >/dev/null 2>&1 || limit=unlimited # a sanitizer
code=0
(ulimit -v "$limit" && exec "$PPCLI" estimate llama-70b.ini --machine 8xh100-nvlink --ranks 64 $words) \
    >"$folder/out" 2>"$folder/err" </dev/null || code=$?
last="ppcli estimate llama-70b.ini"
code_is 0
out_has '69.0 billion parameters, 4.2 million tokens a step' '64 ranks of 8xh100-nvlink' 'recompute'
same "$(grep -c '^microbatches = ' "$folder/out")" 1
out_has 'p---' # pure pipeline and replicas, among others

finish
