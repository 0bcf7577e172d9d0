#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The suite under AddressSanitizer and UndefinedBehaviorSanitizer; what uses threads under
# ThreadSanitizer; size arithmetic under clang's -fsanitize=integer; one training under valgrind; all
# sources under clang-tidy. Builds into build-asan/, build-tsan/ and build-integer/, and says how
# long each took.
#   scripts/sanitize.sh [asan|tsan|integer|valgrind|tidy]...      all without words
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
    TSAN_OPTIONS=halt_on_error=1 \
        meson test -C build-tsan --no-rebuild --print-errorlogs --timeout-multiplier 10 \
        cli_resume cli_trace cli_checkpoint trace hang
}

# Unsigned wrap and lossy conversions, where sizes come from files, words and configs.
integer() {
    if ! command -v clang >/dev/null 2>&1; then
        echo "sanitize: no clang here (Debian: clang); skipped" >&2
        return 0
    fi
    if [ ! -f build-integer/build.ninja ]; then
        flags="-fsanitize=integer -fno-sanitize-recover=integer"
        CC=clang meson setup build-integer . -Dmpi=disabled -Db_lundef=false \
            -Dbuildtype=debugoptimized -Dc_link_args="-fsanitize=integer" \
            -Dc_args="$flags -fsanitize-ignorelist=$root/scripts/integer-ignore.txt" >/dev/null
    fi
    ninja -C build-integer >/dev/null
    UBSAN_OPTIONS=print_stacktrace=1 \
        meson test -C build-integer --no-rebuild --print-errorlogs --no-suite long --suite unit \
        --suite fuzz --timeout-multiplier 3
}

tidy() {
    build build-asan address,undefined # its compile_commands.json
    ./tests/style/check_tidy.sh build-asan || [ $? -eq 77 ]
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

[ $# -gt 0 ] || set -- asan tsan integer valgrind tidy
for word in "$@"; do
    begin=$(date +%s)
    case $word in
    asan | tsan | integer | tidy) "$word" ;;
    valgrind) one_run_under_valgrind ;;
    *)
        echo "usage: scripts/sanitize.sh [asan|tsan|integer|valgrind|tidy]..." >&2
        exit 64
        ;;
    esac
    echo "sanitize: $word passed in $(($(date +%s) - begin)) s"
done
