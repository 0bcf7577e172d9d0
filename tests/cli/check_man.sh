#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mandoc has nothing to say about the manual pages; skipped (77) without it.
#   check_man.sh PAGE...
set -eu
if ! command -v mandoc >/dev/null 2>&1; then
    echo "skipped: no mandoc"
    exit 77
fi
mandoc -Tlint -W warning "$@"
