#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds ppcli and its tests into build/, and runs tests:
#   scripts/test.sh            the quick suite: every module, command and transport
#   scripts/test.sh --all      everything except the suite "long", which needs hours
#   scripts/test.sh WORD...    words for `meson test`: names of tests, or --suite NAME. No such test is an error, which
#                              names the suites.
#   scripts/test.sh --list     names of all tests, with their suites, in place of running them
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
case " $* " in
*' --help '* | *' -h '*)
    sed -n '/^# Installs/,/^set/s/^# //p' "$0"
    exit 0
    ;;
esac
. "$root/scripts/run-tests.sh"
"$root/scripts/setup.sh" --tests

if [ -f "$root/build/build.ninja" ]; then
    meson configure "$root/build" -Dtests=true # train-mnist.sh builds without them
else
    meson setup "$root/build" "$root"
fi
case " $* " in *' --list '*) exec meson test -C "$root/build" --no-rebuild "$@" ;; esac
ninja -C "$root/build"

begin=$(date +%s)
rm -f "$root"/build/meson-logs/testlog*.json
code=0
# Three times the tests' own limits: they find what hangs, not a machine that others use.
limits='--timeout-multiplier 3'
# shellcheck disable=SC2086 # two words
case ${1:-} in
'') run_pools "$root/build" testlog $limits --no-suite long --no-suite slow || code=$? ;;
--all) run_pools "$root/build" testlog $limits --no-suite long || code=$? ;;
*) meson test -C "$root/build" --no-rebuild $limits --print-errorlogs "$@" || code=$? ;;
esac

count_tests "$root"/build/meson-logs/testlog*.json
echo "tests took $(($(date +%s) - begin)) s"
echo "$passed passed, $failed failed, $skipped skipped"
if [ $((passed + failed + skipped)) -eq 0 ]; then
    suites=$(meson test -C "$root/build" --list 2>/dev/null | sed -n 's/^ppcli:\([^ ]*\) .*/\1/p' | tr '+' '\n' | sort -u |
        tr '\n' ' ')
    echo "error: no test has the name $*; suites, for --suite: $suites" >&2
    exit 64
fi
[ "$failed" -eq 0 ] || exit 1
exit "$code"
