#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli mark: tables that are legal and fast enough, and others.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

begin "a table is marked: legal, as fast as par, within the cap; 0 or 1"
"$PPCLI" plan --schedule 1f1b --stages 4 --microbatches 8 --format csv >"$folder/a.csv"
"$PPCLI" plan --schedule gpipe --stages 4 --microbatches 8 --format csv >"$folder/b.csv"
sed 's/^0F0,0F1/0F1,0F1/' "$folder/a.csv" >"$folder/twice.csv"
ok run mark "$folder/a.csv" --par 1f1b --memory-cap 4
out_has 'mark             passed' 'schedule         1f1b' 'step             33, par 33 (1f1b)' 'holds            4 micro-batches on rank 0, cap 4'
out_has "$("$PPCLI" plan --csv "$folder/a.csv" --format csv | sha256sum | cut -d' ' -f1)"
fails 1 '--memory-cap' run mark "$folder/b.csv" --par 1f1b --memory-cap 4
fails 1 'its step takes 33, that of zb-h1 27' run mark "$folder/a.csv" --par zb-h1
fails 1 'it is not legal: '"$folder"'/twice.csv:1:2: 0F1 comes twice' run mark "$folder/twice.csv" --par 1f1b
out_has 'legal            no'
for par in '' '--par best'; do
    # shellcheck disable=SC2086 # words
    fails 1 'that of zb-h1 27' run mark "$folder/a.csv" $par --format json
done
out_has '"passed": false' '"par": "zb-h1"' '"schedule": "1f1b"'
ok run mark "$folder/a.csv" --par 1f1b --cost-f 1,2,1,1 --cost-b 2
fails 64 'name a table' run mark --par 1f1b
fails 64 "'1f2b'" run mark "$folder/a.csv" --par 1f2b
fails 64 "unknown format 'svg'" run mark "$folder/a.csv" --par 1f1b --format svg
fails 66 'none.csv' run mark "$folder/none.csv" --par 1f1b

begin "the digest in the summary is that of the table that trained"
"$PPCLI" plan --schedule gpipe --stages 2 --microbatches 4 --format csv >"$folder/two.csv"
ok run train synthetic.ini --stages 2 --microbatches 4 --schedule "file:$folder/two.csv" --max-steps 2 --dir "$folder/marked" -q
digest=$("$PPCLI" mark "$folder/two.csv" --par gpipe --format json | sed -n 's/.*schedule_sha256": "\(.*\)".*/\1/p')
grep -q "\"schedule_sha256\": \"$digest\"" "$folder/marked/summary.json" || wrong="${wrong}another digest than $digest
"

finish
