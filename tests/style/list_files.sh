#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sourced by the checks, in the root of the source.
#   list_files PATTERN FOLDER...      the files there that git tracks and PATTERN (of grep -E) finds;
# all files where there is no git
list_files() {
    pattern=$1
    shift
    { git -c safe.directory='*' ls-files -- "$@" 2>/dev/null || find "$@" -type f; } | grep -E "$pattern" |
        while read -r file; do
            [ ! -f "$file" ] || echo "$file" # deleted, not yet committed
        done
}
