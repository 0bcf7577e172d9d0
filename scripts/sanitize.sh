#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The suite under AddressSanitizer and UndefinedBehaviorSanitizer, what uses threads under
# ThreadSanitizer, and one training under valgrind. Builds into build-asan/ and build-tsan/.
#   scripts/sanitize.sh [asan|tsan|valgrind]...      all three without words
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
./scripts/setup.sh --tests

build() { # build FOLDER SANITIZERS
    if [ ! -f "$1/build.ninja" ]; then
        meson setup "$1" . -Db_sanitize="$2" -Db_lundef=false -Dbuildtype=debugoptimized >/dev/null
    fi
    ninja -C "$1" >/dev/null
}

asan() {
    build build-asan address,undefined
    # The libraries of MPI leave memory behind at their end; ppcli's own leaks show without MPI.
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        meson test -C build-asan --no-rebuild --print-errorlogs --no-suite long --no-suite style \
        --timeout-multiplier 5
}

tsan() {
    build build-tsan thread
    TSAN_OPTIONS=halt_on_error=1 \
        meson test -C build-tsan --no-rebuild --print-errorlogs --suite conform --suite pipe \
        --timeout-multiplier 10
}

one_run_under_valgrind() {
    if ! command -v valgrind >/dev/null 2>&1; then
        echo "sanitize: no valgrind here (Debian: valgrind); skipped" >&2
        return 0
    fi
    [ -f build/build.ninja ] || meson setup build . >/dev/null
    ninja -C build >/dev/null
    valgrind --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite \
        ./build/ppcli train configs/synthetic.ini --stages 2 --epochs 1 \
        --set data.train_samples=128 --set data.test_samples=64 --dir '' -q
}

[ $# -gt 0 ] || set -- asan tsan valgrind
for word in "$@"; do
    case $word in
    asan | tsan) "$word" ;;
    valgrind) one_run_under_valgrind ;;
    *)
        echo "usage: scripts/sanitize.sh [asan|tsan|valgrind]..." >&2
        exit 64
        ;;
    esac
    echo "sanitize: $word passed"
done
