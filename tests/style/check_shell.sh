#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shell scripts pass shellcheck; skipped (77) without it.
#   check_shell.sh ROOT
set -eu
cd "$1"
. tests/style/list_files.sh
if ! command -v shellcheck >/dev/null 2>&1; then
    echo "skipped: no shellcheck"
    exit 77
fi
list_files '(\.sh|^\.ci/run)$' scripts experiments tests .ci | xargs -d '\n' shellcheck -x
