#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measure everything that docs/results/ shows; writes a page of what the commands print.
#   scripts/benchmarks.sh [--build BUILD] [--out runs/benchmarks.md] [--repeat 7] [--peers]
# Takes about five minutes on a quiet machine; --peers adds the peers that are installed (PEERS_PYTHON
# names a Python with torch, SHALLOWSPEED_DIR a checkout of shallowspeed) and ten minutes.
set -eu

build=build
out=runs/benchmarks.md
repeat=7
peers=no
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --repeat) repeat=$2; shift 2 ;;
    --peers) peers=yes; shift ;;
    *) echo "usage: scripts/benchmarks.sh [--build BUILD] [--out FILE] [--repeat N] [--peers]" >&2; exit 64 ;;
    esac
done
ppcli=$build/ppcli
[ -x "$ppcli" ] || { echo "benchmarks.sh: no $ppcli; build first, or name the folder with --build" >&2; exit 66; }

page=$(mktemp)
trap 'rm -f "$page"' EXIT

# show HEADING WORDS...: the command as one would type it, and what it printed.
show() {
    heading=$1
    shift
    echo "benchmarks.sh: $heading" >&2
    {
        printf '\n## %s\n\n' "$heading"
        # shellcheck disable=SC2016 # the quotes of Markdown
        printf '```sh\n%s\n```\n\n' "$*"
    } >>"$page"
    program=$1
    shift
    if [ "$program" = ppcli ]; then
        program=$ppcli
        set -- "$@" --quiet
    fi
    # The environment of the one who measured may name folders of theirs.
    { "$program" "$@" || echo "(exit code $?)"; } | grep -v '^environment: ' >>"$page"
}

cat >"$page" <<'TEXT'
# Benchmarks

Made by `scripts/benchmarks.sh` from what the commands print. Every table begins with the ceilings of the machine, measured in the same minute: compare
rates with them and with one another, not with those of another machine or another day. A row counts
only when its check passed: its weights after all its steps are those of the run with one stage, bit
for bit. `ppcli help bench` and ppcli(1) explain the columns.
TEXT

show "The clean pipeline: 784-512x16-10, batch 512, 16 micro-batches" \
    ppcli bench --stages 1,2 --schedule gpipe,1f1b,zb-h1,zb-h2 --repeat "$repeat"
show "The same, 8 micro-batches of 64 rows and 32 of 16" \
    ppcli bench --stages 1,2 --schedule zb-h1 --microbatches 8,32 --repeat "$repeat" --no-ceilings
show "shallowspeed's model: configs/shallowspeed.ini" \
    ppcli bench configs/shallowspeed.ini --set data.dataset=synthetic --stages 1,2 \
    --schedule naive,gpipe,1f1b,zb-h1,zb-h2 --repeat "$repeat"
show "Wide layers: configs/mlp-16x1024.ini, batch 1024, 8 micro-batches" \
    ppcli bench configs/mlp-16x1024.ini --set data.dataset=synthetic --batch-size 1024 \
    --microbatches 8 --stages 1,2 --schedule 1f1b,zb-h2 --warmup 1 --repeat 3
show "Weight gradients of several micro-batches at once" \
    ppcli bench --stages 1,2 --schedule 1f1b --microbatches 16,64 --set train.coalesce=1,0 --repeat "$repeat" --no-ceilings
show "What a message between two ranks costs" ppcli bench --handover
if [ "$peers" = yes ]; then
    for name in c1 c2 mlp16; do
        show "Peers: $name" scripts/peers/compare.sh --build "$build" --case $name --blocks 7
    done
fi
mkdir -p "$(dirname "$out")"
mv "$page" "$out"
chmod 644 "$out"
trap - EXIT
echo "benchmarks.sh: wrote $out" >&2
