#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# profile: measured pipelines of Primus, PyTorch, Megatron, ppcli and of tables; what ran, how
# well a simulation has it, and what it says of bad files.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
profiles=$(cd "$(dirname "$0")/../profiles" && pwd)
cd "$folder" || exit 1

# The number of a key of the last JSON.
value() { sed -n "s/^  \"$1\": \"*\([^\",]*\).*/\1/p" out; }

# at_most KEY PERCENT: a share, whatever its sign.
at_most() {
    awk -v x="$(value "$1")" -v most="$2" 'BEGIN { x = x < 0 ? -x : x; exit !(x != "" && x * 100 <= most) }' ||
        complain "$1 is $(value "$1"), more than $2 %"
}

begin "Primus, 1f1b: the step within 1 %, memory of every rank within 2 %"
run profile "$profiles/primus/pp8" --format json
code_is 0
same "$(value schedule) $(value stages) $(value chunks) $(value microbatches) $(value steps) $(value first_step)" \
    "1f1b 8 1 16 20 3"
at_most error_each 1
at_most memory_error 2
out_has '"bubble_schedule": 0.3'

begin "Primus, interleaved, from its own times within 1 %"
run profile "$profiles/primus/pp8-vpp2" --format json
code_is 0
same "$(value schedule) $(value chunks) $(value microbatches)" "interleaved 2 16"
at_most error_each 1
at_most memory_error 2

begin "Primus, interleaved predicted from 1f1b alone within 4 %, memory within 2 %"
run profile "$profiles/primus/pp8" --against "$profiles/primus/pp8-vpp2" --format json
code_is 0
at_most error 4
same "$(sed -n '/memory_error/,/]/p' out | grep -c '[0-9]')" 8
for error in $(sed -n '/memory_error/,/]/p' out | grep '[0-9]' | tr -d ' ,-'); do
    awk -v x="$error" 'BEGIN { exit !(x <= 0.02) }' || complain "memory is off by $error"
done
run profile "$profiles/primus/pp8" --against "$profiles/primus/pp8-vpp2"
code_is 0
out_has 'rank   7: memory predicted'

begin "traces that torch wrote: schedule and shape, the step within 3 %"
for trace in "gpipe-2 gpipe 2 1" "1f1b-2 1f1b 2 1" "int-2 interleaved 2 2" "zb-2 interleaved-zb 2 2" \
    "1f1b-4 1f1b 4 1" "int-4 interleaved 4 2"; do
    # shellcheck disable=SC2086 # words
    set -- $trace
    run profile "$profiles/torch/$1" --format json
    code_is 0
    same "$1 $(value schedule) $(value stages) $(value chunks) $(value microbatches)" "$1 $2 $3 $4 4"
    at_most error_each 3
done

begin "traces with the first step and ProfilerStep spans: Schedule1F1B without marks, LoopedBFS, DualPipeV, ZBV"
for trace in "1f1b 1f1b 1 4" "bfs looped-bfs 2 4" "dualpipev dualpipev 2 6" "zbv zb-v 2 4"; do
    # shellcheck disable=SC2086 # words
    set -- $trace
    run profile "$profiles/torch/$1-2-first" --format json
    code_is 0
    same "$1 $(value schedule) $(value stages) $(value chunks) $(value microbatches) $(value steps)" "$1 $2 2 $3 $4 3"
    at_most error_each 3
done

begin "for people: ranges, bubble, what else; a page with both halves"
run profile "$profiles/torch/zb-2" --html page.html
code_is 0
out_has 'PyTorch: interleaved-zb, 2 stages x 2 chunks, 4 micro-batches'
out_has '+ jitter'
out_has 'What else would have run'
same "$(grep -c '"measured"\|measured' page.html | awk '{ print ($1 > 0) }')" 1
run profile "$profiles/primus/pp8" --memory 80Gi --format json
code_is 0
same "$(sed -n 's/^      "memory": \([0-9.e+]*\).*/\1/p' out | awk '$1 > 80 * 1073741824' | wc -l)" 4 # those that ran

begin "Megatron's timer, one file a rank"
mkdir megatron
for r in 0 1; do
    awk -v r=$r 'BEGIN {
        printf "{"
        for (m = 0; m < 4; m++) {
            f = r == 0 ? (m < 2 ? 10 * m : 30 * m) : 10 + 30 * m
            b = r == 0 ? 40 + 30 * m : f + 10
            printf "%s\"forward-%d-start\": %g, \"forward-%d-end\": %g, ", m ? ", " : "", m, f, m, f + 10
            printf "\"backward-%d-start\": %g, \"backward-%d-end\": %g", m, b, m, b + 20
        }
        print "}"
    }' > megatron/event_times_PP2_VPP1_TPxCPxDP_rank_0_pp_rank_${r}_rank_$r.json
done
run profile megatron
code_is 0
out_has "Megatron's timer: 1f1b, 2 stages, 4 micro-batches"
out_has 'simulated, each action      150.000 ms  (+0.00 %'

begin "a device's times go before its host's; clocks of two hosts are made one; replicas count once"
mkdir hosts
# rank host skew: 1f1b, 2 stages, 4 micro-batches, F 10 ms, B 20 ms, of two replicas
trace() {
    awk -v r="$1" -v host="$2" -v skew="$3" 'BEGIN {
        printf "{\"distributedInfo\": {\"rank\": %d, \"world_size\": 4}, \"host_name\": \"%s\", \"traceEvents\": [", r, host
        s = r % 2
        for (m = 0; m < 4; m++) {
            f = s == 0 ? (m < 2 ? 10 * m : 30 * m) : 10 + 30 * m
            b = s == 0 ? 40 + 30 * m : f + 10
            form = "{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"PP:%d%s%d\", \"ts\": %d, \"dur\": %d},\n"
            printf form, "user_annotation", s, "F", m, skew + 1000 * f, 7
            printf form, "user_annotation", s, "B", m, skew + 1000 * f + 100, 7
            printf form, "gpu_user_annotation", s, "F", m, skew + 1000 * f, 10000
            printf form, "gpu_user_annotation", s, "B", m, skew + 1000 * b, 20000
        }
        print "{\"ph\": \"M\"}]}"
    }' > hosts/rank"$1"_trace.json
}
trace 0 one 0
trace 1 two 4000000
trace 2 one 0
trace 3 two 4000000
run profile hosts --format json
code_is 0
same "$(value schedule) $(value stages) $(value replicas) $(value microbatches)" "1f1b 2 2 4"
same "$(printf '%.3f %.3f' "$(value step)" "$(value clock_shift)")" "0.150 4.000"
at_most error_each 0.1

begin "hosts of containers may have one name and clocks far apart"
for r in 0 1 2 3; do trace "$r" one $((r % 2 * 50000000)); done
run profile hosts --format json
code_is 0
same "$(printf '%.3f %.3f' "$(value step)" "$(value clock_shift)")" "0.150 50.000"
at_most error_each 0.1

begin "a file twice, half a file"
cp -r hosts twice
cp twice/rank1_trace.json "twice/rank1_trace (1).json"
run profile twice
code_is 65
err_has 'is of rank 1, and so is another file: put the files of one recording in a folder of their own'
for bytes in 500 900 1210; do
    head -c "$bytes" hosts/rank1_trace.json > hosts/cut
    cp -r hosts short
    mv short/cut short/rank1_trace.json
    run profile short
    code_is 65
    err_has "rank1_trace.json ends after $bytes bytes in the middle: it is not complete"
    rm -r short hosts/cut
done

begin "a table of any program"
cat > table.csv << 'END'
rank,action,start_ms,end_ms
0,0F0,0,1
0,0F1,1,2
0,0B0,4,6
0,0B1,7,9
1,1F0,1,2
1,1B0,2,4
1,1F1,4,5
1,1B1,5,7
END
run profile table.csv --format json
code_is 0
same "$(value schedule) $(value step | cut -c1-5) $(value simulated_each | cut -c1-5)" "1f1b 0.009 0.009"
printf 'rank,action,start_ms,end_ms\n0,0X0,0,1\n' > bad.csv
run profile bad.csv
code_is 65
err_has 'bad.csv:2: write rank,action,start_ms,end_ms'

begin "ppcli's own runs: the folder and the trace"
config net.ini data.dataset=synthetic data.train_samples=200 data.test_samples=40 'model.sizes=20 64 16 5' \
    pipeline.stages=2 pipeline.microbatches=4 train.batch_size=40 train.epochs=1
run train net.ini --trace trace.json --trace-steps 1-5 --set run.dir=run
code_is 0
for path in run run/timeline.json trace.json; do
    run profile $path --format json
    code_is 0
    same "$(value source) $(value schedule) $(value stages) $(value microbatches)" "ppcli 1f1b 2 4"
done

begin "bad profiles are one line"
mkdir empty half
run profile empty
code_is 66
err_has 'empty has no .json, .json.gz or .csv'
cp "$profiles"/primus/pp8/config.json "$profiles"/primus/pp8/pp_rank_[0-6].json.gz half
run profile half
code_is 65
err_has 'config.json says 8 stages (pp_size), the files are of 7'
run profile nowhere
code_is 66
printf '{"traceEvents": [{"ph": "X", "name": "PP:0F0", "ts": 1, "dur"' > cut.json
run profile cut.json
code_is 65
err_has 'cut.json ends after 61 bytes in the middle'
cp "$profiles/torch/int-2/rank0_trace.json.gz" rank0_trace.json.gz
run profile rank0_trace.json.gz
code_is 65
err_has 'the file of its rank is missing'
run profile --against "$profiles/primus/pp8"
code_is 64
err_has 'name a measured pipeline'
run profile megatron net.ini
code_is 64
run profile megatron --format svg
code_is 64
run profile "$profiles/primus/pp8" --against table.csv
code_is 64
err_has 'a profile of 8 stages predicts plans of 8 stages, not of 2'

begin "--cost-b is a whole backward"
run plan --schedule 1f1b --stages 2 --microbatches 4 --cost-f 1 --cost-b 2,3 --format json
code_is 0
whole=$(value makespan)
run plan --schedule 1f1b --stages 2 --microbatches 4 --cost-f 1 --cost-i 1,1.5 --cost-w 1,1.5 --format json
same "$whole" "$(value makespan)"
run plan --schedule 1f1b --stages 2 --microbatches 4 --cost-b 2 --cost-i 1
code_is 64
err_has '--cost-b is the sum of --cost-i and --cost-w'
run plan --schedule interleaved --chunks 2 --stages 2 --microbatches 4 --cost-b 2,2,2
code_is 64
err_has '2 (one per stage, shared by its 2 chunks) or 4 (one per chunk)'

finish
