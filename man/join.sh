#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the page IN with its line @KEYS@ replaced by the option table, as this ppcli knows it.
#   join.sh IN PPCLI
set -eu
keys=$("$2" keys --format mdoc)
while IFS= read -r line; do
    if [ "$line" = '@KEYS@' ]; then
        printf '%s\n' "$keys"
    else
        printf '%s\n' "$line"
    fi
done <"$1"
