#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli without MPI, libcurl, CBLAS and CUDA: builds it into build-small/, and runs the tests that meet
# what is missing: of messages, products, downloads, and of the program's words. The last line counts.
#   scripts/small-build.sh [WORD]...      words go to `meson test`, instead of these tests
#   scripts/small-build.sh --build        only builds
set -eu
cd "$(dirname -- "$0")/.."
. scripts/run-tests.sh
./scripts/setup.sh --tests
[ $# -gt 0 ] || set -- base comm link team dev_gemm dev_conv dev_cuda dev_devices data_fetch nn cli_words cli_keys cli_env cli_train

# -O1 builds quickly
[ -f build-small/build.ninja ] ||
    meson setup build-small -Dmpi=disabled -Dcurl=disabled -Dblas=none -Dcuda=disabled -Doptimization=1
if [ "$1" = --build ]; then
    ninja -C build-small
    exit 0
fi
code=0
rm -f build-small/meson-logs/testlog.json
meson test -C build-small --timeout-multiplier 10 --print-errorlogs "$@" || code=$?
count_tests build-small/meson-logs/testlog.json
[ "$code" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
