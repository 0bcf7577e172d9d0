#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that is slower than planned is named everywhere. Two replicas do the same work; rank 1 also sleeps for 10 ms
# in every step, many times what the work takes. (When a rank is called slow, on given times: tests/unit/test_pace.c.)
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
cd "$folder" || exit 1
config net.ini data.dataset=synthetic data.train_samples=1000 data.test_samples=50 'model.sizes=20 16 5' \
    pipeline.stages=1 pipeline.replicas=2 pipeline.microbatches=1 train.epochs=1000 train.batch_size=64 \
    train.max_steps=700 checkpoint.at_end=off checkpoint.every_epochs=0

begin "log, summary and metrics name a rank that is slower than planned, with its host"
host=$(uname -n)
export PPCLI_FAIL='F@1:*=sleep:10'
ok run train net.ini --dir run
err_has " rank 1 ($host) takes " ' times its expected time; is another program running there?'
err_lacks 'rank 0 ('
out_has "slow rank        rank 1 ($host): "
has run/metrics.jsonl '{"type":"pace","step":' || complain 'no record in metrics.jsonl'
same "$(grep -c '"slower_since"' run/summary.json)" 1
ok run report run

begin "ranks that are as fast as planned are not named"
unset PPCLI_FAIL
ok run train net.ini --dir good --max-steps 20
err_lacks 'its expected time'
grep -q '"slower_since"' good/summary.json && complain 'summary.json names a rank'

begin "pipeline.slower gives a slower rank fewer layers, and the bits stay"
config net.ini data.dataset=synthetic data.train_samples=300 data.test_samples=50 'model.sizes=64*9' \
    pipeline.stages=2 pipeline.microbatches=4 train.epochs=1 train.batch_size=64
ok run train net.ini --dir even -q
ok run train net.ini --dir uneven --set pipeline.assignment=time --set 'pipeline.slower=1 6'
same "$(sha uneven/summary.json)" "$(sha even/summary.json)"
# "0-6 | 7": more than half of the 8 layers are on rank 0
cut=$(sed -n 's/.*assignment time: 0-\([0-9]*\) |.*/\1/p' err)
[ "${cut:-0}" -gt 3 ] || complain "the cut: $(grep 'assignment time' err)"
fails 78 '3 numbers for 2 stages' run train net.ini --dir wrong --set 'pipeline.slower=1 2 3'
finish
