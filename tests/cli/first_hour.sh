#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of docs/start/first-hour.md, in order, in an empty folder; building is what the test suite began with.
#   first_hour.sh ROOT
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

page=$1/docs/start/first-hour.md
PATH=$(dirname "$PPCLI"):$PATH
cd "$folder" || exit 1
awk '/^## / { on = $2 != "Build"; print "# " $0 }
    /^    / && on { print substr($0, 5) }' "$page" >commands

begin "every command of the page succeeds"
[ -x "$1/scripts/setup.sh" ] || complain "no scripts/setup.sh"
[ "$(grep -c '^ppcli' commands)" -ge 15 ] || complain "only $(grep -c '^ppcli' commands) commands found"
sh -eux commands >out 2>err </dev/null || complain "$(tail -n 5 err)"

begin "it leaves what the page says"
for file in runs/digits/report.html compare.html my.ini runs/resumed/checkpoints; do
    [ -e $file ] || complain "no $file"
done
same "$(head -n 1 predictions.csv | cut -d, -f1-3)" 'label,prediction,logit0'
same "$(wc -l <predictions.csv)" 1001
same "$(head -n 1 predicted.csv)" 'file,line,prediction,probability,prediction2,probability2'
same "$(awk -F , 'NR > 1 { print $3 }' predicted.csv | paste -sd ' ')" 'setosa versicolor virginica setosa versicolor'
same "$(grep -h weights_sha256 runs/good/summary.json runs/bad/summary.json runs/zb-h1/summary.json \
    runs/resumed/summary.json | sort -u | wc -l)" 1
for text in 'balance 79.6 %' 'stage 1 has 63 % of the work' 'balance 96.9 %' '[pipeline]'; do
    has out "$text" || complain "no '$text' in what the commands print"
done

finish
