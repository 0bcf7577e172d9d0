#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# First run: installs what is missing, builds ppcli into build/, fetches MNIST (or falls back to the
# sample that is here) and trains configs/mnist.ini as a pipeline of two stages.
#   scripts/train-mnist.sh [OPTION]...      options go to `ppcli train`, as --epochs 3
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
"$root/scripts/setup.sh"

if [ ! -f "$root/build/build.ninja" ]; then
    meson setup "$root/build" "$root" -Dtests=false
fi
ninja -C "$root/build"
ppcli=$root/build/ppcli

# One line decides what happens next, so the story of a failed download is kept out of the way.
story=$(mktemp)
trap 'rm -f "$story"' EXIT
echo "train-mnist: fetching MNIST (11 MB, kept for later runs)"
if "$ppcli" --no-color download-mnist >/dev/null 2>"$story"; then
    set -- --stages 2 "$@"
else
    reason=$(sed -n 's/^ppcli: error: //p' "$story" | head -n 1)
    echo "train-mnist: no download (${reason:-unknown reason}); training on the sample of real digits in data/mnist-sample"
    set -- --stages 2 --set data.dataset=mnist-sample --epochs 10 "$@"
fi
rm -f "$story"
exec "$ppcli" train "$root/configs/mnist.ini" "$@"
