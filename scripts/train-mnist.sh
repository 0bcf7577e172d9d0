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

echo "train-mnist: fetching MNIST (11 MB, kept for later runs)"
if "$ppcli" --no-color download mnist >/dev/null 2>&1; then
    set -- --stages 2 "$@"
else
    echo "train-mnist: no download; training on the sample of real digits in data/mnist-sample instead ('ppcli download mnist' says why)"
    set -- --stages 2 --set data.dataset=mnist-sample --epochs 10 "$@"
fi
exec "$ppcli" train "$root/configs/mnist.ini" "$@"
