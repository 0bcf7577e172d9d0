#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Draws the pictures of docs/understand/schedules.md again: the same 4 stages and 8 micro-batches under ten
# schedules, with what `ppcli plan` says about each.
#   experiments/draw-schedules.sh [PPCLI]      build/ppcli without a word
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
ppcli=${1:-$root/build/ppcli}
if ! [ -x "$ppcli" ]; then
    echo 'usage: experiments/draw-schedules.sh [PPCLI]' >&2
    exit 64
fi
out=$root/docs/understand/schedules
mkdir -p "$out"

for schedule in gpipe 1f1b interleaved looped-bfs hanayo zb-h1 zb-v v-half v-min dualpipev; do
    "$ppcli" plan --schedule "$schedule" --stages 4 --microbatches 8 --format svg >"$out/$schedule.svg"
    "$ppcli" plan --schedule "$schedule" --stages 4 --microbatches 8 --format json |
        sed -n "s/^  \"makespan\": \(.*\),/$schedule makespan \1/p; s/^  \"bubble_\(.*\)\": \(.*\),/$schedule bubble_\1 \2/p"
done
