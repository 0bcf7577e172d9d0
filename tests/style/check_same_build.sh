#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One commit built in two folders, one of them deeper, is the same program, byte for byte. Two builds,
# hence suite "long". -O0: where paths get into a program does not depend on the level.
#   check_same_build.sh ROOT
set -eu
if ! git -c safe.directory='*' -C "$1" rev-parse HEAD >/dev/null 2>&1; then
    echo "skipped: no git, or $1 is no clone"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CCACHE_DISABLE=1
for folder in a deep/er/b; do
    mkdir -p "$work/$folder"
    git -c safe.directory='*' -C "$1" archive HEAD | tar -x -C "$work/$folder"
    build=$work/$folder/build
    [ "$folder" = a ] || build=$work/out/of/source # and one of them elsewhere
    { meson setup "$build" "$work/$folder" -Dtests=false -Doptimization=0 -Dgpu_arch=80 &&
        ninja -C "$build" ppcli; } >"$work/log" 2>&1 || {
        tail -n 20 "$work/log"
        exit 1
    }
done
if ! cmp "$work/a/build/ppcli" "$work/out/of/source/ppcli"; then
    echo "the files that differ:"
    (cd "$work/a/build" && find . -name '*.o' | sort) | while read -r file; do
        cmp -s "$work/a/build/$file" "$work/out/of/source/$file" || echo "$file"
    done
    exit 1
fi
