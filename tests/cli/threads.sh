#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.threads: runs that continue with another number, and many threads on one processor. The bits: tests/bits.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$folder" || exit 1
config mlp.ini data.dataset=mnist-sample 'model.sizes=784 250 130 10' pipeline.microbatches=3 \
    train.batch_size=200 train.optimizer=adam train.lr=0.001 train.clip_norm=0.5 train.max_steps=4

begin "a run continues with another number of threads"
digest=
trains mlp.ini --set checkpoint.every=1 --set checkpoint.keep=9
ok run train mlp.ini --dir rest -q --set run.threads=3 --resume run/checkpoints/step-00000002
same "$(sha rest/summary.json)" "$digest"
run eval mlp.ini --checkpoint run
accuracy=$(grep 'test accuracy' out)
run eval mlp.ini --checkpoint run --set run.threads=3
out_has "${accuracy:-no accuracy}"

begin "many threads on one processor end"
if command -v taskset >/dev/null; then
    digest=
    trains mlp.ini
    PPCLI_ONE=$PPCLI
    # shellcheck disable=SC2016 # for the script to expand
    printf '#!/bin/sh\nexec taskset -c "$(taskset -cp $$ | sed "s/.*: //; s/[,-].*//")" "%s" "$@"\n' "$PPCLI_ONE" >one
    chmod +x one
    PPCLI=./one
    trains mlp.ini --set run.threads=16
    trains mlp.ini
    grep -q '"threads":1,' run/metrics.jsonl || complain 'auto: more threads than processors'
    PPCLI=$PPCLI_ONE
else
    skip 'no taskset'
fi

finish
