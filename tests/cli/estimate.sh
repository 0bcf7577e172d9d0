#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli estimate and --measure: tables, pages, memory, and bad machine files.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

config "$folder/net.ini" data.dataset=synthetic data.train_samples=64 'model.sizes=20 16*6 5' \
    pipeline.stages=2 pipeline.microbatches=4 train.batch_size=32 train.max_steps=2 run.dir=

# numbers KEY: its value in every row of the last --format json
numbers() { awk -v key="\"$1\":" '$1 == key { sub(/,$/, "", $2); print $2 }' "$folder/out"; }
# fastest: the shortest step of them
fastest() { numbers step_s | sort -g | head -1; }
# below VALUE LIMIT
below() { awk -v x="$1" -v y="$2" 'BEGIN { print (x != "" && x + 0 < y + 0) }'; }

begin "the first row's lines can be trained with"
run estimate "$folder/net.ini" --machine laptop --ranks 2 --stages 2 --html "$folder/page.html"
code_is 0
sed -n '/^\[pipeline\]/,$p' "$folder/out" >"$folder/winner"
sed '/^\[pipeline\]/,/^microbatches/d' "$folder/net.ini" >"$folder/won.ini"
cat "$folder/winner" >>"$folder/won.ini"
run train "$folder/won.ini" -q
code_is 0
out_has "$(sed -n 's/^schedule = //p' "$folder/winner"), stages 2"
for word in '"machine": "laptop"' '[pipeline]' 'MFU' '</html>' 'prefers-color-scheme' 'weights + optimizer'; do
    has "$folder/page.html" "$word" || complain "the page has no $word"
done
cp "$("$PPCLI" estimate "$folder/net.ini" --machine laptop 2>&1 >/dev/null | sed -n 's/^machine: //p')" "$folder/a&b<c>.ini"
run estimate "$folder/net.ini" --machine "$folder/a&b<c>.ini" --html "$folder/named.html"
code_is 0
same "$(grep -c 'a&b<' "$folder/named.html")" 0
same "$(grep -c 'a\\u0026b\\u003cc\\u003e' "$folder/named.html")" 2

begin "the table: best first, stages times replicas are the ranks, within the memory"
run estimate "$folder/net.ini" --machine laptop --format json
code_is 0
numbers group >"$folder/groups"
sort -n "$folder/groups" | cmp -s - "$folder/groups" || complain "groups are out of order"
numbers stages >"$folder/a" && numbers replicas >"$folder/b" && numbers step_s >"$folder/c"
same "$(paste "$folder/a" "$folder/b" "$folder/c" "$folder/groups" | awk '{ rows++
    bad += $1 * $2 != 8
    if (!($4 in least) || $3 < least[$4]) least[$4] = $3
    if ($3 > most[$4]) most[$4] = $3 } END {
    for (g in least) bad += most[g] > 1.05001 * least[g]
    print (rows > 3), bad + 0 }')" '1 0'
same "$(numbers peak_bytes | awk '$1 > 4e9' | wc -l | tr -d ' ')" 0
run estimate "$folder/net.ini" --machine laptop --format svg
code_is 64
err_has "unknown format 'svg'; use text or json"

begin "fewer ranks are proposed where they are faster, and then they are"
run estimate mnist.ini --machine 8xh100-nvlink --ranks 4 --format json
code_is 0
same "$(numbers faster_with_ranks)" 1
all=$(fastest)
run estimate mnist.ini --machine 8xh100-nvlink --ranks 1
out_lacks 'Fewer ranks'
run estimate mnist.ini --machine 8xh100-nvlink --ranks 1 --format json
same "$(below "$(fastest)" "$all")" 1
run estimate mnist.ini --machine 8xh100-nvlink --ranks 4
out_has 'Fewer ranks are faster: 1 take'

# first_row CONFIG: the last plan's first row as $folder/won.ini, and its bytes as explain counts them
first_row() {
    sed '/^\[pipeline\]/,/^microbatches/d' "$1" >"$folder/won.ini"
    sed -n '/^\[pipeline\]/,$p' "$folder/out" >>"$folder/won.ini"
    run explain "$folder/won.ini" --format json
    code_is 0
    sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$folder/out" | sort -n | tail -1
}

begin "the machines that are installed"
for machine in 2xepyc 4xa40-ethernet 8xa100 8xh100-nvlink laptop; do
    run estimate "$folder/net.ini" --machine $machine
    code_is 0
    out_has " ranks of $machine: "
done

begin "many replicas that share the optimizer's state are laid out; what cannot run says why"
config "$folder/deep.ini" data.dataset=synthetic data.train_samples=256 'model.sizes=20 16*59 5' \
    pipeline.stages=2 pipeline.microbatches=4 train.batch_size=64 train.optimizer=adam train.zero=1
run estimate "$folder/deep.ini" --machine 8xh100-nvlink --ranks 64 --stages 4
code_is 0
out_has 'stages = 4'
run estimate "$folder/net.ini" --machine 8xa100 --ranks 8 --set run.precision=bf16 --set train.coalesce=2
code_is 78
err_has 'no shape can run: '
err_has 'use train.exact = off, or train.coalesce = 0'

begin "a batch that the replicas cannot share evenly: all rows can run, one micro-batch too"
run estimate "$folder/net.ini" --machine laptop --stages 1 --set train.batch_size=19 --set data.train_samples=19 --format json
code_is 0
same "$(numbers microbatches | sort -n | uniq | tr '\n' ' ')" '1 2 '
run estimate "$folder/net.ini" --machine laptop --stages 1 --set train.batch_size=19 --set data.train_samples=19
first_row "$folder/net.ini" >/dev/null

begin "the first row is what simulating all shapes whole, and all cuts, finds"
run estimate resnet18-cifar10.ini --machine 4xa40-ethernet --ranks 12 --set train.batch_size=1000 \
    --set run.precision=bf16 --format json
code_is 0
same "$(below "$(fastest)" "$(awk 'BEGIN { print 0.02801 * 1.02 }')")" 1
run estimate resnet18-cifar10.ini --machine 4xa40-ethernet --ranks 12 --set train.batch_size=1000 \
    --set run.precision=bf16 --stages 2
out_has '; batch norm: '
config "$folder/uneven.ini" data.dataset=synthetic data.train_samples=200 train.batch_size=30 \
    'model.sizes=64 512 32 256 256 32 5' pipeline.stages=2 run.dir=
run estimate "$folder/uneven.ini" --machine laptop --ranks 4 --format json
code_is 0
same "$(below "$(fastest)" 0.000404894)" 1

begin "rows of a micro-batch between powers of two"
run estimate gpt-char.ini --machine 4xa40-ethernet --ranks 8 --set train.batch_size=24 --memory 8500k \
    --zero 0 --format json
code_is 0
same "$(below "$(fastest)" 0.0023103)" 1
same "$(numbers rows | grep -c '^3$' | awk '{ print ($1 > 0) }')" 1

# machine NAME F32 BANDWIDTH RANKS LATENCY BANDWIDTH LATENCY BANDWIDTH: $folder/NAME.ini, links within
# and between hosts
machine() {
    printf '[device]\nf32 = %s\nbandwidth = %s\nmemory = 4G\nproduct = 0.4\nattention = 0.5\nconv = 0.4
passes = 0.9\nlaunch = 1e-7\n[host]\nranks = %s\n[within]\nlatency = %s\nbandwidth = %s
[between]\nlatency = %s\nbandwidth = %s\n' "$2" "$3" "$4" "$5" "$6" "$7" "$8" >"$folder/$1.ini"
}
config "$folder/thin.ini" data.dataset=synthetic data.train_samples=95 train.batch_size=95 \
    'model.sizes=2 512 3 128 2 7 16' pipeline.stages=3 pipeline.microbatches=2 train.optimizer=adam \
    train.coalesce=1 run.dir=
machine slow 2.84e10 9.579e9 3 1e-7 1.064e7 1e-4 2.315e9
config "$folder/many.ini" data.dataset=synthetic data.train_samples=173 train.batch_size=7 \
    'model.sizes=512 1 33 7 3 256 64 128 7 33 7 128 1 15' pipeline.stages=2 pipeline.microbatches=2 \
    run.packed=false run.dir=
machine fast 1.059e11 3.481e8 1 1e-5 9.345e9 1e-6 8.316e9

begin "a limit that whole steps break: they compute again, and the search goes on"
run estimate "$folder/thin.ini" --machine "$folder/slow.ini" --ranks 8 --memory 99000 --format json
code_is 0
same "$(below "$(fastest)" 0.0038)" 1
run estimate "$folder/many.ini" --machine "$folder/fast.ini" --ranks 4 --format json
code_is 0
numbers microbatches >"$folder/m" && numbers step_s >"$folder/s"
same "$(paste "$folder/s" "$folder/m" | sort -g | head -1 | cut -f 2)" 1 # 2 and 3 are slower

begin "fewer samples than a batch: memory is that of the batch"
config "$folder/few.ini" data.dataset=synthetic data.train_samples=24 data.test_samples=64 \
    'model.sizes=64 128*2 10' pipeline.stages=2 pipeline.microbatches=4 train.batch_size=64 run.dir=
run estimate "$folder/few.ini" --machine laptop --ranks 2 --stages 2 --memory 400k
code_is 0
bytes=$(first_row "$folder/few.ini")
[ "$bytes" -le 400000 ] || complain "$bytes bytes, not 400000"

begin "the section of every number of stages trains two steps, in the memory that was told"
config "$folder/small.ini" data.dataset=synthetic-tokens data.train_samples=64 model.type=gpt model.n_layer=6 \
    model.n_head=2 model.n_embd=32 model.block_size=16 model.vocab_size=64 pipeline.stages=2 \
    pipeline.microbatches=4 train.batch_size=32 train.optimizer=adamw train.max_steps=2 run.dir=
# section_trains WORDS: the section of the first row
section_trains() {
    run estimate "$folder/small.ini" --machine laptop "$@" --format json
    code_is 0
    told=$(numbers peak_bytes | head -1)
    run estimate "$folder/small.ini" --machine laptop "$@" --emit ppcli
    code_is 0
    same "$(first_row "$folder/small.ini")" "$told"
    run train "$folder/won.ini" -q --max-steps 2
    code_is 0
}
for stages in 1 2 4 8; do
    section_trains --stages $stages
done

begin "so does that of every schedule that is asked for"
for schedule in naive gpipe 1f1b 1f1b-eager interleaved looped-bfs zb-h1 zb-h2 interleaved-zb zb-auto zb-fit zb-v \
    v-half v-min zb-fit-v 1f1b-v dualpipev hanayo; do
    section_trains --ranks 4 --stages 4 --schedule $schedule
    has "$folder/won.ini" "schedule = $schedule" || complain "not $schedule"
done

begin "a limit is kept to the byte, the test set's evaluation included"
limit=40000
while run estimate "$folder/net.ini" --machine laptop --ranks 2 --memory $limit && [ "$code" -eq 0 ]; do
    bytes=$(first_row "$folder/net.ini")
    [ "$bytes" -le $limit ] || complain "$bytes bytes, not $limit"
    [ "$bytes" -le $limit ] || break
    limit=$((bytes - 1))
done
err_has 'nothing fits into'

begin "what fits nowhere: the nearest, in one line"
run estimate llama-70b.ini --machine laptop --set run.precision=f32
code_is 78
err_has 'nothing fits into 4 GB a rank of laptop: the smallest found is '
same "$(grep -c '^config: ' "$folder/err")" 1 # where it was found is told once
err_has 'does not cut within layers'
run estimate "$folder/net.ini" --machine laptop --memory 1k
code_is 78
err_has 'nothing fits into 1e-06 GB'
run estimate "$folder/net.ini" --machine laptop --memory "$(sed -n 's/.*(try --memory \([0-9]*k\)).*/\1/p' "$folder/err")"
code_is 0

begin "what the keys do not allow is not proposed"
run estimate "$folder/net.ini" --machine 4xa40-ethernet --ranks 2048 --stages 1 --set train.batch_size=4096 --set data.train_samples=4096
code_is 78
err_has 'each of at most 1024 replicas has a sample of the 4096'
run estimate "$folder/net.ini" --machine laptop --ranks 1 --set train.batch_size=1Gi --set data.train_samples=1Gi
code_is 78
err_has 'nothing fits into 4 GB'
run estimate "$folder/net.ini" --machine laptop --set 'pipeline.slower=1 1.5'
code_is 78
err_has 'the ranks of a machine file are equally fast'

begin "a machine that cannot be is refused"
run estimate llama-70b.ini --machine laptop
code_is 78
err_has 'laptop has no device.bf16'
run estimate "$folder/net.ini" --machine laptop --ranks 16
code_is 78
err_has 'is one host of 8 ranks: --ranks 16 needs its [between]'
run estimate "$folder/net.ini" --machine laptops
code_is 66
err_has "laptops: no such machine"
err_has "machines: 2xepyc, 4xa40-ethernet, 8xa100, 8xh100-nvlink, laptop; did you mean 'laptop'?"
run estimate "$folder/net.ini" --machine foo
code_is 66
err_has "foo: no such machine"
err_has "machines: 2xepyc, 4xa40-ethernet, 8xa100, 8xh100-nvlink, laptop"
err_lacks 'did you mean'
sed 's/^f32.*/f32 = 12/' "$("$PPCLI" estimate "$folder/net.ini" --machine laptop 2>&1 >/dev/null |
    sed -n 's/^machine: //p')" >"$folder/bad.ini"
run estimate "$folder/net.ini" --machine "$folder/bad.ini"
code_is 78
err_has "device.f32: '12' is not possible"
laptop=$("$PPCLI" estimate "$folder/net.ini" --machine laptop 2>&1 >/dev/null | sed -n 's/^machine: //p')
awk 'BEGIN { printf "; "; for (i = 0; i < 197; i++) printf "x"; print "memory = 1" } { print "  " $0 }' \
    "$laptop" >"$folder/indented.ini"
run estimate "$folder/net.ini" --machine "$folder/indented.ini"
code_is 0
out_has ' ranks of indented: 8 a host, 4 GB each'
{ cat "$laptop" && printf 'a\000b\n'; } >"$folder/bad.ini"
run estimate "$folder/net.ini" --machine "$folder/bad.ini"
code_is 78
err_has "bad.ini:$(wc -l <"$folder/bad.ini" | tr -d ' '): NUL byte"
{ cat "$laptop" && printf 'x = %0300d\n' 1; } >"$folder/bad.ini"
run estimate "$folder/net.ini" --machine "$folder/bad.ini"
code_is 78
err_has 'unknown key'
run estimate "$folder/net.ini" --machine laptop --html ''
code_is 64
err_has "--html needs the name of a file, not ''"
run estimate "$folder/net.ini" --ranks 2
code_is 64
err_has '--machine laptop'
run estimate --machine laptop
code_is 64
for ranks in 0 -1; do
    run estimate "$folder/net.ini" --machine laptop --ranks $ranks
    code_is 64
    err_has "--ranks needs a number from 1, not $ranks"
done
for words in '--cost-f 2' '--csv table.csv' '--group 2' '--set pipeline.eager=2'; do
    # shellcheck disable=SC2086 # words
    run estimate "$folder/net.ini" --machine laptop $words
    code_is 64
done
err_has '--set: estimate chooses pipeline.eager itself'

begin "what --measure writes, --machine reads"
run estimate "$folder/net.ini" --measure -o "$folder/here.ini"
if grep -q 'core' "$folder/err"; then
    skip "one core"
else
    code_is 0
    has "$folder/here.ini" 'layers.0 = ' || complain "no layers in the file"
    run estimate "$folder/net.ini" --machine "$folder/here.ini" --ranks 2
    code_is 0
    out_has '2 ranks of here'
fi
{
    cat "$laptop" && echo '[layers]'
    for layer in 0 1 2 3 4 5 6; do
        printf 'layers.%d = 4 1e-5 1e-5 1e-5\nlayers.%d = 8 1.1e-5 1.1e-5 1.1e-5\n' $layer $layer
    done
} >"$folder/layers.ini" # 1 row takes nearly as long as 4: 32 times 7 layers of 2.8e-5 s
run estimate "$folder/net.ini" --machine "$folder/layers.ini" --ranks 1 --microbatches 32 --format json
code_is 0
same "$(fastest | awk '{ print ($1 > 0.004) }')" 1
for words in '--ranks 2' '--html page.html' '--cost-f 2'; do
    # shellcheck disable=SC2086 # words
    run estimate "$folder/net.ini" --measure $words
    code_is 64
done

begin "what estimate chooses cannot be asked for, and the file's own values of it do not matter"
for words in '--eager 2' '--group 2' '--memory-cap 2'; do
    # shellcheck disable=SC2086 # words
    run estimate "$folder/net.ini" --machine laptop $words
    code_is 64
    err_has "has no effect on 'ppcli estimate'"
done
for words in '--set pipeline.eager=2' '--set pipeline.costs=1,1,1' '--set run.rank_order=replicas' \
    '--hosts a:8'; do
    # shellcheck disable=SC2086 # words
    run estimate "$folder/net.ini" --machine laptop $words
    code_is 64
    err_has 'estimate chooses '
done
config "$folder/many.ini" data.dataset=synthetic data.train_samples=64 'model.sizes=20 16*6 5' \
    pipeline.stages=2 pipeline.microbatches=256 pipeline.replicas=1 train.batch_size=32 train.max_steps=2
run estimate "$folder/many.ini" --machine laptop
code_is 0
out_has 'microbatches = '

begin "sums over replicas and the meeting for clip_norm wait for slow links, and replicas may share a host"
config "$folder/wide.ini" data.dataset=synthetic data.train_samples=512 'model.sizes=512 1024*7 10' \
    pipeline.stages=2 pipeline.microbatches=4 train.batch_size=128 train.optimizer=adam train.max_steps=2
file=$("$PPCLI" estimate "$folder/net.ini" --machine 8xh100-nvlink 2>&1 >/dev/null | sed -n 's/^machine: //p')
sed '/between/,$s/latency = .*/latency = 1/' "$file" >"$folder/slow.ini"
sed '/between/,$s/bandwidth = .*/bandwidth = 1G/' "$file" >"$folder/thin.ini"
run estimate "$folder/wide.ini" --machine "$folder/slow.ini" --ranks 32 --stages 8 --format json
code_is 0
same "$(fastest | awk '{ print ($1 >= 2) }')" 1
run estimate "$folder/wide.ini" --machine "$folder/slow.ini" --ranks 32 --stages 8 --set train.clip_norm=1 --format json
same "$(fastest | awk '{ print ($1 >= 4) }')" 1
run estimate "$folder/wide.ini" --machine "$folder/thin.ini" --ranks 32
out_has 'rank_order = replicas'

begin "a machine file that was measured while others used the machine says so, and so does the plan"
sed 's/^\[within\]/busy = 3.5\n[within]/' "$laptop" >"$folder/used.ini"
run estimate "$folder/net.ini" --machine "$folder/used.ini"
code_is 0
out_has 'busy machine: used was measured while other programs used it (load 3.5)'
run estimate "$folder/net.ini" --machine laptop
out_lacks 'busy machine'

finish
