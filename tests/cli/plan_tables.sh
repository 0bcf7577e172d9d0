#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli plan --table: the tables of docs/results/2026-11-23-papers.md are what it prints.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
page="$(cd "$(dirname "$0")/../../docs/results" && pwd)/2026-11-23-papers.md"

begin "the page has all tables as they are printed"
for table in zb4 zb5 zb9 zb6 cm primus megatron-bridge; do
    run plan --table "$table"
    code_is 0
    echo >>"$folder/tables"
    cat "$folder/out" >>"$folder/tables"
done
sed -n '/^### /,$p' "$page" >"$folder/page"
sed 1d "$folder/tables" | diff "$folder/page" - >"$folder/difference" ||
    complain "differs: $(head -5 "$folder/difference")"

begin "a table is a plan by itself, and has a name"
fails 64 'use it alone' run plan mnist.ini --table zb4
fails 64 'zb4' run plan --table zb3

finish
