#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds ppcli and its tests into build/, and runs them.
#   scripts/test.sh [WORD]...      words go to `meson test`: --suite long, or names of tests
# Without --suite the suite "long" is left out.  No test is an error, which names the suites.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
. "$root/scripts/count-tests.sh"
"$root/scripts/setup.sh" --tests

if [ -f "$root/build/build.ninja" ]; then
    meson configure "$root/build" -Dtests=true # train-mnist.sh builds without them
else
    meson setup "$root/build" "$root"
fi
ninja -C "$root/build"

choice='--no-suite=long'
for word in "$@"; do
    case $word in
    --suite | --suite=* | --no-suite | --no-suite=*) choice= ;;
    esac
done

# One test more at a time than there are cores: many of them mostly wait.
export MESON_TESTTHREADS="${MESON_TESTTHREADS:-$(($(nproc) + 1))}"
rm -f "$root"/build/meson-logs/testlog*.json
code=0
# shellcheck disable=SC2086 # nothing or one word
# Three times the tests' own limits: they find what hangs, not a machine that others use.
meson test -C "$root/build" --no-rebuild --timeout-multiplier 3 --print-errorlogs $choice "$@" || code=$?

count_tests "$root"/build/meson-logs/testlog*.json
echo "$passed passed, $failed failed, $skipped skipped"
if [ $((passed + failed + skipped)) -eq 0 ]; then
    suites=$(meson test -C "$root/build" --list 2>/dev/null | sed -n 's/^ppcli:\([^ ]*\) .*/\1/p' | tr '+' '\n' | sort -u |
        tr '\n' ' ')
    echo "error: no test has the name $*; suites, for --suite: $suites" >&2
    exit 64
fi
[ "$failed" -eq 0 ] || exit 1
exit "$code"
