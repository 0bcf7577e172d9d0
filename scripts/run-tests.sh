# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts that run tests.
#   run_pools BUILD LOG WORD...   runs `meson test` with the words, none of which is --suite, in two pools at once. Tests
#                                 of the suite "waits" need little processor time: eight run at a time. The others run as
#                                 many at a time as there are cores. Everything must be built. Returns meson's exit code,
#                                 and the results are in BUILD/meson-logs/LOG*.json.
#   count_tests LOG.json...       sets passed, failed and skipped; a missing log counts nothing
run_pools() {
    build_=$1
    log_=$2
    shift 2
    code_=0
    rm -f "$build_/meson-logs/$log_"*.json
    MESON_TESTTHREADS=8 meson test -C "$build_" --no-rebuild --print-errorlogs --logbase "$log_-waits" \
        --suite waits "$@" >"$build_/meson-logs/$log_-waits.out" 2>&1 &
    waiting_=$!
    trap 'kill "$waiting_" 2>/dev/null' INT TERM
    MESON_TESTTHREADS="${MESON_TESTTHREADS:-$(nproc)}" meson test -C "$build_" --no-rebuild --print-errorlogs \
        --logbase "$log_" --no-suite waits "$@" || code_=$?
    wait "$waiting_" || code_=$?
    trap - INT TERM
    cat "$build_/meson-logs/$log_-waits.out"
    return "$code_"
}

# shellcheck disable=SC2034 # for whoever sources this
count_tests() {
    # One JSON object a line, one line a test; inside strings quotes are escaped, so this cannot
    # match what a test printed.
    count_results() {
        pattern=$1
        shift
        cat "$@" 2>/dev/null | grep -cE "\"result\": \"($pattern)\"" || true
    }
    passed=$(count_results 'OK|EXPECTEDFAIL' "$@")
    skipped=$(count_results 'SKIP|IGNORED' "$@")
    failed=$(count_results 'FAIL|ERROR|TIMEOUT|INTERRUPT|UNEXPECTEDPASS' "$@")
}
