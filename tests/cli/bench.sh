#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli bench: rows, formats, verdicts and exit codes; not how fast anything is.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

config "$folder/net.ini" data.dataset=synthetic data.train_samples=200 data.test_samples=50 \
    'model.sizes=20 16*6 5' pipeline.stages=2 pipeline.microbatches=4 train.epochs=1 \
    train.batch_size=32
quick="--time 0.01 --repeat 2 --no-ceilings"

# shellcheck disable=SC2086 # the options are words
bench() { run bench "$folder/net.ini" $quick "$@"; }

python() {
    if command -v python3 >/dev/null 2>&1; then
        same "$(python3 -c "$1" "$folder" 2>&1)" "$2"
    fi
}

begin "a table of rows that all pass the check"
ok bench --stages 1,2 --schedule gpipe,1f1b
for word in 'samples/s' 'ms/step p50' 'bubble ideal' measured '= schedule' '+ imbalance' '+ waiting' 'GF/s' 'GB/s' 'of peak' 'peak MiB' x1 \
    relative limit check 'machine: ' 'BLAS: ' 'MPI: ' 'commit ' '20-16x6-5'; do
    out_has "$word"
done
same "$(grep -c '| ok  *|$' "$folder/out")" 4
err_lacks 'round'

begin "all formats say the same"
shows '| ok ' bench --stages 1,2 -o "$folder/bench.json"
for format in json csv; do
    ok bench --stages 1,2 --format $format
    cp "$folder/out" "$folder/out.$format"
done
python "
import csv, json, sys
f = sys.argv[1]
file, whole = json.load(open(f + '/bench.json')), json.load(open(f + '/out.json'))
table = list(csv.DictReader(open(f + '/out.csv')))
for rows in file['rows'], whole['rows'], table:
    assert [int(r['stages']) for r in rows] == [1, 2]
    assert [r['check'] for r in rows] == ['ok', 'ok']
    assert all(float(r['samples_per_second']) > 0 for r in rows)
    assert [r['schedule'] for r in rows] == ['1f1b', '1f1b']
for r in whole['rows']:
    s = r['samples']
    assert len(s) == 2 and all(x['valid'] for x in s)
    assert len({x['weights_sha256'] for x in s}) == 1
    assert abs(r['bubble_measured'] - r['bubble_schedule'] - r['bubble_imbalance'] - r['bubble_waiting']) < 1e-9
    assert r['bound'] > 0 and r['steps'] >= 4 and r['peak_bytes'] > 0
    for what in 'flops', 'bytes':
        rate = sorted(x['samples_per_second'] for x in s)
        assert abs(r[what + '_per_second'] / r[what + '_per_sample'] - sum(rate) / 2) < 1e-6 * rate[0]
    assert 'limit' not in r # without ceilings
    mean = sum(x['samples_per_second'] for x in s) / 2
    assert abs(mean - r['samples_per_second']) < 1e-9 * mean
    assert all(x['step_seconds_min'] <= x['step_seconds_p50'] <= x['step_seconds_p99'] <= x['step_seconds_max'] for x in s)
assert whole['schema'] == 1 and whole['rounds'] == 2 and whole['cores'] >= 1
print('good')" good

begin "the bytes of a step are those of the man page"
ok bench --stages 2 --optimizer momentum --set train.exact=off --set train.coalesce=3 --set pipeline.recompute=all \
    --format json
python "
import json, sys
r = json.load(open(sys.argv[1] + '/out'))['rows'][1]
wide, rows, m, sums, bytes = [20] + [16] * 6 + [5], 32, 4, 2, 0
for i, (x, y) in enumerate(zip(wide, wide[1:])):
    w = x * y + y
    bytes += 2 * (rows * (x + y) + m * w) # F and R
    bytes += rows * (y + (x if i else 0)) + (m * w if i else 0) # I
    bytes += rows * (x + y) + sums * 2 * w # W
    bytes += (1 + 2 + 2) * w # optimizer
assert abs(r['bytes_per_sample'] * rows - 4 * bytes) < 1, (r['bytes_per_sample'] * rows, 4 * bytes)
print('good')" good

begin "a row trains what ppcli train trains in as many steps"
if command -v python3 >/dev/null 2>&1; then
    steps=$(python3 -c "import json,sys; r=json.load(open(sys.argv[1]))['rows'][1]; print(r['steps']+r['warmup_steps'])" "$folder/out.json")
    sha=$(python3 -c "import json,sys; print(json.load(open(sys.argv[1]))['rows'][1]['weights_sha256'])" "$folder/out.json")
    # whole batches only, as the benchmark
    shows "$sha" \
        run train "$folder/net.ini" -q --dir "" --epochs 100000 --max-steps "$steps" --set data.train_samples=192
else
    skip "no python3"
fi

begin "without a config there is a built-in one"
# shellcheck disable=SC2086
shows 'config built in: model 20-16x3-5, data synthetic, sgd' \
    run bench $quick --set 'model.sizes=20 16*3 5' --batch-size 16 --microbatches 2

begin "every combination of the lists is a row, and what varies is a column"
ok bench --batch-size 16,32 --microbatches 2,4 --set pipeline.chunks=1,2 --schedule interleaved
same "$(grep -c '| ok  *|$' "$folder/out")" 9
out_has '| chunks ' '| batch_size ' 'batch 16: '

# Without words a run has all free cores in one stage: what stages and replicas are measured against.
begin "the first row is one stage with all cores, unless the first that is asked for is one stage"
cores=$("$PPCLI" env | sed -n 's/^ *cores  *\([0-9]*\) of.*/\1/p')
rows() { sed -n 's/^| *\([0-9]*\) | *\([0-9]*\) | *\([0-9]*\) | \([a-z0-9-]*\).*/\1 \2 \3 \4/p' "$folder/out" | tr '\n' ','; }
ok bench --stages 2 --replicas 1,2 --schedule gpipe --set run.threads=1
same "$(rows)" '1 1 1 1f1b,2 1 1 gpipe,2 2 1 gpipe,'
bench --stages 1,2 --set run.threads=1
same "$(rows)" '1 1 1 1f1b,2 1 1 1f1b,'
grep -Eq '^- (stages x replicas x threads: [12] x 1 x 1 pays, |which row is fastest is not judged: )' "$folder/out" ||
    complain "$(cat "$folder/out")"
bench --stages 2
case $(rows) in
    "1 1 $cores 1f1b,2 1 "*) ;;
    *) complain "$(rows)" ;;
esac
ok bench --stages 2 --trace "$folder/alone.json" --min-sps 1
[ -s "$folder/alone.json" ] || complain "no alone.json"

begin "an impossible shape is skipped in the schedule's own words, the others run"
ok bench --stages 2,9
same "$(grep -c '| ok  *|$' "$folder/out")" 2
same "$(grep -c '| skipped |$' "$folder/out")" 1
out_has 'skipped: row 3 (stages 9, 1f1b, micro-batches 4): '
shows 'skipped: row 3 (stages 2, 1f1b, micro-batches 64): ' bench --microbatches 4,64
out_has 'pipeline.microbatches'
ok bench --schedule 1f1b,nonsense
same "$(grep -c '| skipped |$' "$folder/out")" 1
out_lacks '| epochs'
ok run bench "$folder/net.ini" --time 0.01 --repeat 1 --no-ceilings --schedule auto
same "$(grep -c '| ok  *|$' "$folder/out")" 2

begin "nothing that can run is 78"
fails 78 'each needs a layer' bench --stages 9,10
fails 78 'no row can run: ' bench --stages 5,6 --schedule interleaved
fails 78 'pipeline.microbatches' bench --microbatches 64
fails 78 'train.nonsense' bench --set train.nonsense=1 --stages 1,2

begin "train.exact = off is compared by its loss and says so"
shows '| ~ ' bench --set train.exact=true,false
out_has 'the last loss is within 1e-4'

# Both ranks on one core.
begin "a row whose ranks waited for a core carries a mark, in every format and in --compare"
core=$(taskset -pc $$ 2>/dev/null | sed 's/.*: *\([0-9]*\).*/\1/')
if [ -z "$core" ] || ! [ -r /proc/self/schedstat ]; then
    skip 'no taskset or no schedstat here'
else
    taskset -c "$core" "$PPCLI" bench mnist-sample.ini --stages 2 --repeat 1 --set data.train_samples=512 --time 0.2 \
        --no-ceilings -o "$folder/spoiled.json" >"$folder/out" 2>"$folder/err" || complain "$(cat "$folder/err")"
    grep -qE '"waited_for_core": 0\.[0-9]*[1-9]' "$folder/spoiled.json" || complain 'no waited_for_core in the result'
    grep -qE '\| +! [0-9]' "$folder/out" || complain "no mark in $(cat "$folder/out")"
    out_has '- !: few cores: row 2 (stages 2, 1f1b, micro-batches 4): ranks waited ' 'which row is fastest is not judged'
    ok run bench --compare "$folder/spoiled.json" "$folder/spoiled.json"
    grep -qE '\| +! [0-9]' "$folder/out" || complain "no mark in $(cat "$folder/out")"
    out_has '- !: ranks waited for a core when it was measured: do not trust its speed'
fi

begin "--min-sps is a gate"
ok bench --min-sps 1
fails 1 'slower than 1e+12 samples/s' bench --min-sps 1e12
out_has '| ok '

begin "ceilings come first"
ok run bench "$folder/net.ini" --time 0.01 --repeat 1 -o "$folder/limit.json"
python "
import json, sys
r = json.load(open(sys.argv[1] + '/limit.json'))['rows'][0]
assert r['limit'] in ('memory', 'arithmetic') and r['of_limit'] >= r['of_peak'] > 0
print('good')" good
for word in 'multiply-add in registers' 'matrix product' 'triad' 'core to core' 'GPU'; do
    out_has "$word"
done
out_has 'of peak: ' '- limit: '

begin "a trace of every row"
ok bench --stages 1,2 --trace "$folder/trace.json"
python "
import json, sys
for row, ranks in (1, 1), (2, 2):
    events = json.load(open('%s/trace-%d.json' % (sys.argv[1], row)))
    assert {e['pid'] for e in events if e['ph'] == 'X'} == set(range(ranks)), row
    steps = {e['args']['step'] for e in events if e.get('cat') == 'F' and not e['args']['eval']}
    assert steps == set(range(1, 21)), steps
print('good')" good
bench --trace "$folder/no/such.json"
[ "$code" -ne 0 ] || complain "exit 0"

begin "--handover: what a message costs, at every size, without a copy"
shows 'copies: 0' run bench --handover
for size in '64 B' '4 KiB' '8 MiB'; do
    out_has "$size |"
done
ok run bench --handover --format json
python "
import json, sys
d = json.load(open(sys.argv[1] + '/out'))
assert [x['bytes'] for x in d['threads']] == [64 * 4 ** k for k in range(9)] + [8388608]
assert all(0 < x['fastest_seconds'] <= x['one_way_seconds'] for x in d['threads'])
assert all(0 <= x['hidden'] <= 1 for x in d['threads'])
assert d['copies'] == 0 and 'processes' not in d
print('good')" good

begin "--ops: each op of the model by itself"
shows '| name ' run bench "$folder/net.ini" --ops --time 0.01
out_has '% of ceiling' '- ceilings: '
ok run bench "$folder/net.ini" --ops --time 0.01 --no-ceilings --format json
mv "$folder/out" "$folder/bare.json"
ok run bench "$folder/net.ini" --ops --time 0.01 -o "$folder/ops.json"
python "
import json, sys
for name in 'ops.json', 'bare.json':
    d = json.load(open(sys.argv[1] + '/' + name))
    ops = d['ops']
    assert d['rows'] == 8 and [x['name'] for x in ops[-2:]] == ['products', 'all'], d['rows']
    assert [x['name'] for x in ops[:-2]] == ['layers.%d' % i for i in range(len(ops) - 2)]
    assert all(x['op'].split()[0] == 'linear' and x['unit'] == 'GF/s' for x in ops[:-2])
    assert ops[1]['w_bytes_per_second'] > 0
    assert (ops[1].get('limit') in ('memory', 'arithmetic')) == (name == 'ops.json')
    assert 'i_seconds' in ops[1] and ('w_of_ceiling' in ops[1]) == (name == 'ops.json')
    assert all(x['f_per_second'] * x['f_seconds'] > 0 for x in ops[:-1])
    assert 'i_per_second' not in ops[0] # nobody asks for the gradient of the pixels
    assert abs(sum(x['of_step'] for x in ops[:-2]) - 1) < 1e-9
print('good')" good
fails 78 '' run bench "$folder/net.ini" --ops --set model.sizes=5

begin "bench writes no pictures, and says what does"
fails 64 'ppcli report RESULT.json --figure speed' bench -o "$folder/rows.pdf"
[ ! -e "$folder/rows.pdf" ] || complain 'an empty picture'

begin "bad lists and numbers are 64 and one line"
for list in '1,,2' ',' '1,x' '1,'; do
    fails 64 "--stages" bench --stages "$list"
    same "$(grep -c 'error:' "$folder/err")" 1
done
fails 64 '--schedule' bench --schedule 'gpipe,'
for bad in 0 -1 x 1e99; do
    fails 64 '' bench --min-sps "$bad"
    fails 64 '' run bench "$folder/net.ini" --time "$bad"
done
fails 64 '' bench --repeat 0
fails 64 '' bench --warmup -5
fails 64 "use md, json or csv" bench --format xml
fails 64 "'json'" bench --format jsn
fails 64 'give a file' run bench -

begin "a file that cannot be written is noticed before anything is measured"
fails 66 '' run bench -o "$folder/no/such/dir.json" --time 3000
same "$(wc -c <"$folder/out")" 0
shows 'samples_per_second_sd' bench -o - --format csv

begin "a verdict does not keep the result from being written"
fails 1 '' bench -o "$folder/slow.json" --min-sps 1e12
[ -s "$folder/slow.json" ] || complain "no slow.json"

# --- compare ---------------------------------------------------------------------------------
result() { # result FILE SPS...: a stored result of two rounds and one row
    printf '{"schema":1,"type":"bench","ppcli":"0","commit":"c","date":"d","cpu":"x","cores":2,
"backend":"b","model":"m","dataset":"s","optimizer":"sgd","rows":[{"stages":2,"replicas":1,"schedule":"%s",
"microbatches":4,"batch_size":32,"axes":{},"check":"ok","samples":[' "${schedule:-1f1b}" >"$1"
    file=$1
    shift
    comma=
    for sps; do
        printf '%s{"valid":true,"samples_per_second":%s}' "$comma" "$sps" >>"$file"
        comma=,
    done
    echo ']}]}' >>"$file"
}

begin "--compare says how much and how sure"
result "$folder/old.json" 100 101 99 100
result "$folder/new.json" 110 111 109 110
shows '+10.0 % (95 % confidence: +8.5 .. +11.5 %)' run bench --compare "$folder/old.json" "$folder/new.json"

begin "--compare shows no difference where the rounds show none"
result "$folder/new.json" 90 120 80 115
shows 'no difference shown (95 % confidence: ' run bench --compare "$folder/old.json" "$folder/new.json"
result "$folder/new.json" 103
run bench --compare "$folder/old.json" "$folder/new.json"
out_has '(a single round: no confidence)'

begin "a signal ends a sweep with the rows that it has, and leaves no temporary file"
mkdir "$folder/stop"
(exec "$PPCLI" bench --no-ceilings --stages 1,2 --time 0.1 --repeat 1000 -o "$folder/stop/rows.json") >"$folder/out" 2>"$folder/err" &
child=$!
sleep 4 # a round or more, on most machines
kill -TERM $child
last='bench, TERM'
code=0
wait $child || code=$?
code_is 75
rows=$(sed -n 's/.*stopped: by a signal after [0-9]* of 1000 rounds; \([0-9]*\) of [0-9]* rows were measured.*/\1/p' "$folder/err")
if [ "${rows:-0}" -gt 0 ]; then
    same "$(ls "$folder/stop")" rows.json
    same "$(grep -c '"skipped"' "$folder/stop/rows.json")" "$((2 - rows))"
    out_has 'samples/s'
    ok run bench --compare "$folder/stop/rows.json" "$folder/stop/rows.json"
else
    same "$(ls "$folder/stop")" ''
fi

begin "--compare matches rows by their axes"
schedule=gpipe result "$folder/new.json" 100 100
shows 'not in the old file' run bench --compare "$folder/old.json" "$folder/new.json"
out_has '1 row of the old file is not in the new one'

begin "--compare reads what bench wrote, and refuses anything else"
shows '95 % confidence' run bench --compare "$folder/bench.json" "$folder/out.json"
printf '{"rows": 3' >"$folder/cut.json"
fails 65 'cut.json: its JSON is damaged at byte ' run bench --compare "$folder/cut.json" "$folder/out.json"
echo '{"type":"bench","schema":99,"rows":[]}' >"$folder/other.json"
fails 65 'schema 99' run bench --compare "$folder/out.json" "$folder/other.json"
for text in '[]' '{}' '3' '{"type":"bench","schema":1,"rows":3}'; do
    echo "$text" >"$folder/other.json"
    fails 65 '' run bench --compare "$folder/out.json" "$folder/other.json"
done
echo '{"type":"bench","schema":1,"rows":[3,{},{"samples":[{"samples_per_second":"x"}]}]}' >"$folder/other.json"
shows 'not in the old file' run bench --compare "$folder/other.json" "$folder/out.json"
fails 66 '' run bench --compare "$folder/none.json" "$folder/out.json"
fails 64 'needs two files' run bench --compare "$folder/out.json"

finish
