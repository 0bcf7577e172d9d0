#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sourced by test.sh and sanitize.sh: sets passed, failed and skipped from meson's logs.
#   count_tests LOG.json...      a log that is not there counts nothing
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
