#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli and its peers in turns, and a table of who is how fast: see compare.py, which does it.
#   scripts/peers/compare.sh [--build BUILD] [--case c1|resnet50|gpt-char|...|all] [--out DIR] [--seconds 2] ...
set -eu
if ! command -v python3 >/dev/null 2>&1; then
    echo "skipped: no python3" >&2
    exit 77
fi
exec python3 "$(dirname -- "$0")/compare.py" "$@"
