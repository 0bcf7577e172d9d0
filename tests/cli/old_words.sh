#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Options of plan that are commands of their own today: the same result and exit code, and a line that
# shows the command.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
profiles=$(cd "$(dirname "$0")/../profiles" && pwd)
cd "$folder" || exit 1
config net.ini data.dataset=synthetic data.train_samples=64 'model.sizes=20 16*6 5' pipeline.stages=2 \
    pipeline.microbatches=4 train.batch_size=32 run.dir=
"$PPCLI" plan --schedule 1f1b --stages 4 --microbatches 8 --format csv >'a table.csv'

# was CODE TEXT WORDS: what plan WORDS does is what the command does that it names, and begins with TEXT
was() {
    code_=$1 text_=$2
    shift 2
    run plan "$@"
    code_is "$code_"
    same "$(grep -c "^ppcli: warning: plan --[a-z]* is now: $text_" err)" 1
    mv out old
    sed -n "s/^ppcli: warning: plan --[a-z]* is now: ppcli/\"\$PPCLI\"/p" err >now
    code=0
    sh now >out 2>err || code=$?
    last=$(cat now)
    code_is "$code_"
    cmp -s old out || complain "$last prints something else"
    err_lacks 'is now'
}

begin "mark"
was 0 "ppcli mark 'a table.csv' --par 1f1b --memory-cap 4" --csv 'a table.csv' --par 1f1b --memory-cap 4
was 1 "ppcli mark --par=zb-h1 'a table.csv' --format json" --par=zb-h1 --csv='a table.csv' --format json

begin "profile"
was 0 'ppcli profile .*primus/pp8 --format json' --profile "$profiles/primus/pp8" --format json
was 66 'ppcli profile nowhere' --profile=nowhere

begin "estimate"
was 0 'ppcli estimate net.ini --machine laptop --ranks 2' net.ini --machine laptop --ranks 2
was 64 'ppcli estimate --measure' --measure

begin "tune, whose figures are measured: the exit code and the command"
ok run plan net.ini --best --stages 1 --memory 1Gi
err_has 'plan --best is now: ppcli tune net.ini --stages 1 --memory 1Gi'
out_has '[pipeline]'
was 64 'ppcli tune --check 0 net.ini' --check 0 net.ini
fails 64 "see 'ppcli help tune'" run plan --best

begin "what is no such option stays with plan"
ok run plan --schedule 1f1b --stages 2 --microbatches 2 --format csv
same "$(cat err)" ''
fails 64 "'--best'" run train net.ini --best

begin "ranks that mpirun starts, and quiet ones, do not repeat it"
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1
export OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK
ok run plan --profile "$profiles/primus/pp8"
same "$(cat out err)" ''

finish
