#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The suite under AddressSanitizer and UndefinedBehaviorSanitizer; what uses threads under
# ThreadSanitizer; size arithmetic under clang's -fsanitize=integer; one training under valgrind; all
# sources under clang-tidy. Builds into build-asan/, build-tsan/ and build-integer/, and says how
# long each took. A part that fails does not keep the others from running; the last line counts the
# tests of all of them (valgrind and tidy are one each).
#   scripts/sanitize.sh [--short] [asan|tsan|integer|valgrind|tidy]...      all without words
#   scripts/sanitize.sh --build asan|tsan|integer...                        only builds
# --short is for CI: the quick suite of test.sh; asan without the suites "mpi" and "waits".
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
. scripts/run-tests.sh

usage='usage: scripts/sanitize.sh [--short] [asan|tsan|integer|valgrind|tidy]...  or  --build asan|tsan|integer...'
short=no
build_only=no
case ${1-} in
--short)
    short=yes
    shift
    ;;
--build)
    build_only=yes
    shift
    ;;
esac
[ $# -gt 0 ] || [ $build_only = yes ] || set -- asan tsan integer valgrind tidy
[ $# -gt 0 ] || set -- nothing
for word in "$@"; do
    case $build_only,$word in
    *,asan | *,tsan | *,integer | no,valgrind | no,tidy) ;;
    *)
        echo "$usage" >&2
        exit 64
        ;;
    esac
done
./scripts/setup.sh --tests
export MESON_TESTTHREADS="${MESON_TESTTHREADS:-$(($(nproc) + 1))}" # as test.sh

all_passed=0 all_failed=0 all_skipped=0
add() { # add PASSED FAILED SKIPPED
    all_passed=$((all_passed + $1))
    all_failed=$((all_failed + $2))
    all_skipped=$((all_skipped + $3))
}

# What cannot be configured is one failure. build/ is that of test.sh.
configure() { # configure FOLDER [MESON OPTION...]
    [ -f "$1/build.ninja" ] || meson setup "$@" && return 0
    add 0 1 0
    return 1
}

# Quick to build: -O1, and of debug information what stacks need.
debug_build() { # debug_build FOLDER C_ARGS [MESON OPTION...]
    folder=$1
    flags=$2
    shift 2
    configure "$folder" -Db_lundef=false -Dbuildtype=debugoptimized -Doptimization=1 \
        -Dc_args="-g1 $flags" "$@"
}

# Builds the programs that these tests run, and no others.
tests() { # tests FOLDER LOG WORD...      words go to `meson test`
    log=$2
    folder=$1
    shift 2
    if [ "$build_only" = yes ]; then
        ninja -C "$folder" || add 0 1 0
        return 0
    fi
    [ "$short" = no ] || set -- --no-suite slow "$@"
    rm -f "$folder/meson-logs/$log.json"
    code=0
    meson test -C "$folder" --print-errorlogs --logbase "$log" "$@" || code=$?
    count_tests "$folder/meson-logs/$log.json"
    [ "$code" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
    add "$passed" "$failed" "$skipped"
}

asan() {
    debug_build build-asan '' -Db_sanitize=address,undefined -Dgpu_arch=90 || return 0
    # halt_on_error=0 would let a test pass with a finding on its stderr.
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    set -- testlog --no-suite long --no-suite style --timeout-multiplier 10
    if [ "$short" = yes ]; then
        tests build-asan "$@" --no-suite mpi --no-suite waits
        set -- mpi --timeout-multiplier 10 'ppcli:trace mpi'
    fi
    if [ "$1" != mpi ] || meson test -C build-asan --list 2>/dev/null | grep -q 'ppcli:mpi'; then
        tests build-asan "$@"
    fi
    unset UBSAN_OPTIONS
}

# Threads on the processor and on a device made of threads. The emulated GPU changes stacks, which
# ThreadSanitizer does not follow.
tsan() {
    debug_build build-tsan '' -Db_sanitize=thread -Dcuda=disabled || return 0
    export TSAN_OPTIONS=halt_on_error=1
    tests build-tsan suites --suite conform --suite pipe --timeout-multiplier 20
    tests build-tsan named --timeout-multiplier 20 cli_resume cli_trace cli_checkpoint cli_threads team trace \
        'bits device' 'bits schedules' 'bits threads'
    [ "$short" = yes ] || tests build-tsan hang --timeout-multiplier 20 hang
    unset TSAN_OPTIONS
}

# Unsigned wrap and lossy conversions, where sizes come from files, words and configs.
integer() {
    if ! ./scripts/setup.sh --clang; then
        echo "sanitize: integer needs clang and its runtime libraries; skipped" >&2
        add 0 0 1
        return 0
    fi
    flags="-fsanitize=integer -fno-sanitize-recover=integer"
    flags="$flags -fsanitize-ignorelist=$root/scripts/integer-ignore.txt"
    CC=clang debug_build build-integer "$flags" -Dmpi=disabled -Dcuda=disabled \
        -Dc_link_args="-fsanitize=integer" || return 0
    UBSAN_OPTIONS=print_stacktrace=1 \
        tests build-integer testlog --no-suite long --suite unit --suite fuzz --timeout-multiplier 10
}

verdict() { # verdict CODE      77 is skipped
    case $1 in
    0) add 1 0 0 ;;
    77) add 0 0 1 ;;
    *) add 0 1 0 ;;
    esac
}

tidy() {
    configure build || return 0 # its compile_commands.json
    code=0
    ./tests/style/check_tidy.sh build || code=$?
    verdict "$code"
}

one_run_under_valgrind() {
    if ! command -v valgrind >/dev/null 2>&1; then
        echo "sanitize: no valgrind here (Debian: valgrind); skipped" >&2
        add 0 0 1
        return 0
    fi
    configure build || return 0
    code=0
    ninja -C build ppcli && valgrind --quiet --error-exitcode=99 --leak-check=full \
        --errors-for-leak-kinds=definite \
        ./build/ppcli train configs/synthetic.ini --stages 2 --epochs 1 \
        --set data.train_samples=128 --set data.test_samples=64 --dir '' -q || code=1
    verdict "$code"
}

for word in "$@"; do
    begin=$(date +%s)
    before=$all_failed
    case $word in
    valgrind) one_run_under_valgrind ;;
    *) "$word" ;;
    esac
    [ "$all_failed" -eq "$before" ] && verb=passed || verb=failed
    echo "sanitize: $word $verb in $(($(date +%s) - begin)) s"
done
echo "$all_passed passed, $all_failed failed, $all_skipped skipped"
[ "$all_failed" -eq 0 ]
