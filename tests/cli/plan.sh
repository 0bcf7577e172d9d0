#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli plan: shapes, costs and formats, and what is refused.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# json_ok EXPRESSION : the last output is JSON and the expression over it, called d, is true
json_ok() {
    command -v python3 >/dev/null 2>&1 || return 0
    python3 -c "
import json, sys
d = json.load(open(sys.argv[1]))
assert $1, d
" "$folder/out" 2>"$folder/err" || complain "$last: not so: $1: $(tail -n 1 "$folder/err" | head -c 600)"
}

begin "a shape is drawn as text, with title, makespan and bubble"
shows '1f1b: 4 stages, 8 micro-batches' run plan --schedule 1f1b --stages 4 --microbatches 8
out_has 'makespan 33, bubble 27.3 %' '   0     4  F0 F1 F2 F3 .'
same "$(cat "$folder/err")" ''

begin "the width of the picture follows COLUMNS"
COLUMNS=60
export COLUMNS
run plan --schedule gpipe --stages 4 --microbatches 8
same "$(awk 'length($0) > 60 && /F/' "$folder/out" | grep -c '^ ')" 0
unset COLUMNS

begin "json has the figures of the shape"
ok run plan --schedule zb-h1 --stages 4 --microbatches 8 --format json
json_ok "d['schema'] == 1 and d['stages'] == 4 and d['chunks'] == 1 and d['microbatches'] == 8"
json_ok "d['makespan'] == 27 and abs(d['bubble'] - 1 / 9) < 1e-12 and d['bubble_global'] == d['bubble']"
json_ok "[r['peak_chunks'] for r in d['ranks']] == [4, 4, 4, 4]"
json_ok "all(r['work'] == 24 and r['idle'] == 3 for r in d['ranks'])"

begin "costs are of a whole rank, a chunk takes its share"
run plan --schedule 1f1b --stages 8 --microbatches 64 --cost-comm 1 --format json
json_ok "d['makespan'] == 337"
run plan --schedule 1f1b-eager --eager 2 --stages 8 --microbatches 64 --cost-comm 1 --format json
json_ok "d['makespan'] == 227"
run plan --schedule interleaved --stages 4 --microbatches 8 --chunks 2 --format json
json_ok "d['makespan'] == 28.5"
run plan --schedule 1f1b --stages 8 --microbatches 24 --cost-f 18.522 --cost-i 18.086 \
    --cost-w 9.337 --cost-comm .601 --format json
json_ok "round(d['bubble_global'], 4) == .2431 and d['costs']['comm'] == .601"

begin "costs of single stages and boundaries: the slow stage sets the pace"
shows 'per stage F 2,1,1,1, I 1, W 1; transfer 0,0.5,0' \
    run plan --schedule gpipe --stages 4 --microbatches 8 --cost-f 2,1,1,1 --cost-comm 0,0.5,0
out_has 'makespan 42,'
run plan --schedule zb-v --stages 2 --microbatches 2 --cost-f 2,1 --format json
json_ok "d['costs']['f'] == [1, 0.5, 0.5, 1] and d['costs']['i'] == 1"
json_ok "[r['work'] for r in d['ranks']] == [8, 6]"

begin "a plan that is larger than the memory that is left is 69 and says what would fit"
# shellcheck disable=SC3045 # dash and bash have -v
if (ulimit -v 500000 && exec "$PPCLI" version) >/dev/null 2>&1; then
    code=0
    (ulimit -v 500000 && exec "$PPCLI" plan --schedule 1f1b --stages 256 --microbatches 65536) \
        >"$folder/out" 2>"$folder/err" || code=$?
    last='plan with 500 MB'
    code_is 69
    err_has 'takes up to 3.3 GiB' 'would fit'
else
    skip "ppcli does not start in so little address space here (a sanitizer)"
fi

begin "weight gradients together: drawn, counted, and their place is the last one's"
shows '1f1b: 2 stages, 4 micro-batches, W of 2 together' \
    run plan --schedule 1f1b --stages 2 --microbatches 4 --coalesce 2
run plan --schedule 1f1b --stages 2 --microbatches 4 --coalesce 2 --format csv
same "$(cat "$folder/out")" '0F0,0F1,0I0,0F2,0I1,0W0,0W1,0F3,0I2,0I3,0W2,0W3
1F0,1I0,1F1,1I1,1W0,1W1,1F2,1I2,1F3,1I3,1W2,1W3'
run plan --schedule 1f1b --stages 2 --microbatches 4 --coalesce 2 --format json
json_ok "d['coalesce'] == 2 and [r['peak_chunks'] for r in d['ranks']] == [3, 2]"
run plan --schedule looped-bfs --stages 2 --chunks 2 --microbatches 4 --coalesce 4 --format csv
out_has '0I3,0I2,0I1,0I0,0W0,0W1,0W2,0W3'
run plan --schedule 1f1b --stages 2 --microbatches 4 --coalesce 2 --format trace
json_ok "[(e['name'], e['dur']) for e in d if e.get('cat') == 'W'] == 2 * [('W1', 2000), ('W3', 2000)]"
json_ok "[e['args']['chunks'] for e in d if e['ph'] == 'C'][-1] == 0"
run plan synthetic.ini --set train.exact=off --coalesce 2 --format json
json_ok "d['coalesce'] == 2"
cp "$folder/out" "$folder/coalesced"
run plan synthetic.ini --coalesce 1 --format json
json_ok "d['coalesce'] == 1"
json_ok "all(a['peak_bytes'] < b['peak_bytes'] for a, b in zip(d['ranks'], json.load(open('$folder/coalesced'))['ranks']))"
fails 78 'train.exact' run plan synthetic.ini --set run.gemm=cblas --coalesce 2
fails 78 '' run plan --schedule 1f1b --stages 2 --microbatches 4 --coalesce -2

begin "pairs that overlap take the part of their sum that is asked for"
run plan --schedule dualpipev --stages 4 --microbatches 8 --cost-overlap 1 --format json
json_ok "d['makespan'] == 27 and d['chunks'] == 2"

begin "csv is torch's compute-only format"
run plan --schedule 1f1b --stages 2 --microbatches 4 --format csv
same "$(cat "$folder/out")" '0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3
1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3'

begin "-o names the file that it wrote, as report does, and nothing when that is standard output"
ok run plan --schedule 1f1b --stages 2 --microbatches 2 -o "$folder/one.csv"
same "$(cat "$folder/out")" "$folder/one.csv"
same "$(cat "$folder/one.csv")" "$("$PPCLI" plan --schedule 1f1b --stages 2 --microbatches 2 -o - --format csv)"

begin "csv-comms has torch's sends and receives, and both tables are read again"
run plan --schedule 1f1b --stages 2 --microbatches 2 --format csv-comms
same "$(cat "$folder/out")" '0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1
1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1'
cp "$folder/out" "$folder/comms.csv"
run plan --csv "$folder/comms.csv" --format csv
same "$(cat "$folder/out")" '0F0,0F1,0B0,0B1
1F0,1B0,1F1,1B1'
run plan --csv "$folder/comms.csv" --format json
json_ok "d['stages'] == 2 and d['microbatches'] == 2 and d['makespan'] == 9"

begin "csv-comms is the plan itself, csv-torch what torch makes of it"
makespan() { sed -n 's/.*"makespan": \([0-9.]*\),/\1/p' "$folder/out"; }
for shape in 'v-min 8 16' 'v-half 4 8' 'zb-v 4 8' 'zb-fit-v 4 8' 'looped-bfs 4 8 --coalesce 2'; do
    # shellcheck disable=SC2086 # words
    set -- $shape
    schedule=$1 stages=$2 microbatches=$3
    shift 3
    run plan --schedule "$schedule" --stages "$stages" --microbatches "$microbatches" "$@" --format json
    own=$(makespan)
    run plan --schedule "$schedule" --stages "$stages" --microbatches "$microbatches" "$@" --format csv-comms
    cp "$folder/out" "$folder/apart.csv"
    run plan --csv "$folder/apart.csv" --format json
    same "$(makespan)" "$own"
done
run plan --schedule v-min --stages 8 --microbatches 16 --format csv-torch
cp "$folder/out" "$folder/torch.csv"
run plan --csv "$folder/torch.csv" --format json
same "$(makespan)" 84
ok run plan --schedule chimera --stages 4 --microbatches 8 --format csv
err_has 'stages 4 to 7 are a second copy of the weights'

begin "a table that is no training step is 65 with file, row and column"
printf '0F0,0B0\n1F0,1B1\n' >"$folder/broken.csv"
fails 65 'broken.csv:2:2: ' run plan --csv "$folder/broken.csv"
fails 66 '' run plan --csv "$folder/none.csv"
fails 64 '' run plan --csv "$folder/comms.csv" --stages 2
fails 64 '' run plan synthetic.ini --csv "$folder/comms.csv"

begin "a table in two orders names row, cell and what comes first; --memory-cap limits what a row holds"
printf '0F0,0F1,0B1,0B0\n1F0,1F1,1B0,1B1\n' >"$folder/crossed.csv"
fails 65 'row 2 cell 3: 1B0 comes before 1B1, but rank 0 takes gradient 1 first; use one order in both rows' \
    run plan --csv "$folder/crossed.csv"
ok run plan --csv "$folder/comms.csv" --memory-cap 2 --format json
fails 78 '--memory-cap' \
    run plan --csv "$folder/comms.csv" --memory-cap 1

begin "exec: gets the table from a program, and its failures are one line"
program() { # NAME, its lines on standard input
    cat >"$folder/$1"
    chmod +x "$folder/$1"
}
program mine <<'PROGRAM'
#!/bin/sh
echo "$*" >>"$0.log"
[ "$1 $3" = '2 4' ] && printf '0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n'
PROGRAM
ok run plan --schedule "exec:$folder/mine" --stages 2 --microbatches 4 --cost-f 1,2 --cost-b 3 --format json
json_ok "d['stages'] == 2 and d['microbatches'] == 4"
same "$(cat "$folder/mine.log")" '2 1 4 1,2 1.5 1.5 0'
fails 65 'ended with exit code 1' run plan --schedule "exec:$folder/mine" --stages 3 --microbatches 4
program slow <<'PROGRAM'
#!/bin/sh
exec sleep 600
PROGRAM
program much <<'PROGRAM'
#!/bin/sh
exec yes 0F0,0B0
PROGRAM
program prose <<'PROGRAM'
#!/bin/sh
echo hello
PROGRAM
export PPCLI_EXEC_SECONDS=0.3
fails 65 'did not end within 0.3 s and was killed' \
    run plan --schedule "exec:$folder/slow" --stages 2 --microbatches 2
unset PPCLI_EXEC_SECONDS
fails 65 'printed more than 16 MiB and was killed' \
    run plan --schedule "exec:$folder/much" --stages 2 --microbatches 2
fails 65 "'hello'" \
    run plan --schedule "exec:$folder/prose" --stages 2 --microbatches 2
chmod -x "$folder/prose"
fails 77 'is not executable' run plan --schedule "exec:$folder/prose" --stages 2 --microbatches 2
fails 66 'No such file' run plan --schedule "exec:$folder/absent" --stages 2 --microbatches 2

begin "a run with such a table has its digest, on threads and on processes, where one rank runs the program"
config "$folder/mine.ini" data.dataset=synthetic data.train_samples=32 data.test_samples=8 'model.sizes=20 8 10' \
    pipeline.stages=2 pipeline.microbatches=4 train.batch_size=8 train.epochs=1 pipeline.schedule=exec:./mine
digest=$("$PPCLI" plan "$folder/mine.ini" --format csv | sha256sum | cut -d' ' -f1)
for launch in auto mpirun; do
    if [ $launch = mpirun ] && ! command -v mpirun >/dev/null 2>&1; then
        skip 'no mpirun here'
        continue
    fi
    : >"$folder/mine.log"
    ok run train "$folder/mine.ini" --launch $launch --set "run.dir=$folder/run-$launch"
    same "$(sed -n 's/.*"schedule_sha256": "\(.*\)".*/\1/p' "$folder/run-$launch/summary.json")" "$digest"
    same "$(wc -l <"$folder/mine.log")" 1
done

begin "what such a program has started does not keep its table, and ends with ppcli, also when that is killed"
program starter <<'PROGRAM'
#!/bin/sh
sleep 600 &
echo $! >"$0.child"
exec "${0%/*}/mine" "$@"
PROGRAM
ok run plan --schedule "exec:$folder/starter" --stages 2 --microbatches 4
kill "$(cat "$folder/starter.child")" || complain 'it is not there any more'
program waiter <<'PROGRAM'
#!/bin/sh
sleep 600 &
echo $! >"$0.child"
wait
PROGRAM
# shellcheck disable=SC2317 # called by within
alive() { # alive: the program's child, which nobody may have waited for
    case $(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$(cat "$folder/waiter.child")/status" 2>/dev/null) in
    '' | Z) return 1 ;;
    esac
}
for signal in KILL TERM USR1; do
    rm -f "$folder/waiter.child"
    last="train with exec:waiter, SIG$signal"
    "$PPCLI" train "$folder/mine.ini" --schedule "exec:$folder/waiter" --dir "$folder/run-waits" >"$folder/out" \
        2>"$folder/err" </dev/null &
    within "[ -s '$folder/waiter.child' ]" || complain 'the program never began'
    kill -$signal $!
    code=0
    wait $! || code=$?
    within '! alive' || complain 'its child lives'
    [ $signal = KILL ] && continue
    code_is 75
    err_has "ppcli: stopped: while exec:$folder/waiter ran; start the same command again"
done

begin "svg is well-formed, trace is JSON events"
shows '<svg xmlns=' run plan --schedule v-half --stages 4 --microbatches 8 --format svg
if command -v python3 >/dev/null 2>&1; then
    python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$folder/out" \
        2>"$folder/err" || complain "not well-formed: $(tail -n 1 "$folder/err")"
fi
ok run plan --schedule zb-v --stages 4 --microbatches 8 --format trace
json_ok "sum(e['ph'] == 'X' and e['tid'] == 0 for e in d) == 4 * 2 * 8 * 3"
json_ok "{e['pid'] for e in d if e['ph'] == 'X'} == {10000, 10001, 10002, 10003}"
json_ok "sum(e['ph'] == 's' for e in d) == sum(e['ph'] == 'f' for e in d) == 2 * 7 * 8"

begin "a config gives the shape and the memory, options win over it"
ok run plan synthetic.ini --format json
json_ok "d['stages'] == len(d['ranks']) and all(r['peak_bytes'] > 0 for r in d['ranks'])"
ok run plan synthetic.ini --stages 2 --schedule gpipe --format json
json_ok "d['stages'] == 2 and d['schedule'] == 'gpipe'"

begin "what a config leaves open is chosen, as explain and train do"
ok run plan synthetic.ini --stages 2 --schedule auto
err_has 'schedule auto: '
ok run plan synthetic.ini --stages 2 --schedule 1f1b-eager
err_has '1f1b-eager: k = '

begin "a schedule that is not legal is not replaced because there are fewer samples than a batch has"
config "$folder/few.ini" data.dataset=synthetic data.train_samples=6 'model.sizes=20 8*7 10' pipeline.stages=2 \
    pipeline.microbatches=8 train.batch_size=8
fails 78 'gpipe keeps 1 chunk per rank, not 2' run explain "$folder/few.ini" --schedule gpipe --set pipeline.chunks=2
shows 'schedule zb-v: 2 stages, 3 micro-batches' \
    run explain "$folder/few.ini" --schedule dualpipev --set data.train_samples=3

begin "explain has the textbook's ideal bubble, and beside it that of the plan where some is recomputed"
for schedule in 1f1b zb-h1 interleaved; do
    run explain synthetic.ini --stages 2 --schedule $schedule --set pipeline.recompute=all
    same "$(sed -n 's/.* the bubble of equal stages is \([0-9.]* %\)$/\1/p' "$folder/out")" \
        "$(sed -n 's/^makespan .*, bubble \([0-9.]* %\)$/\1/p' "$folder/out")"
    own=$(sed -n 's/.*ideal bubble \([0-9.]* %\);.*/\1/p' "$folder/out")
    run plan --schedule $schedule --stages 2 --microbatches 4
    out_has "bubble $own"
done

begin "a config's memory is what explain says"
run explain synthetic.ini --format json
if command -v python3 >/dev/null 2>&1; then
    cp "$folder/out" "$folder/explained"
    run plan synthetic.ini --format json
    json_ok "[r['peak_bytes'] for r in d['ranks']] == [r['peak_bytes'] for r in json.load(open('$folder/explained'))['ranks']][:d['stages']]"
else
    skip "no python3"
fi

begin "an unknown schedule or format is 64 with the nearest"
fails 64 "'zb-h1'" run plan --schedule zb-h3 --stages 2 --microbatches 2
fails 64 "'json'" run plan --schedule 1f1b --stages 2 --microbatches 2 --format jsno

begin "missing and wrong words are 64 and say what is wanted"
fails 64 '--schedule' run plan
fails 64 '--microbatches' run plan --schedule zb-v --stages 2
fails 64 '--csv' run plan --schedule x.csv --stages 2
fails 78 "'x.csv'" run plan synthetic.ini --schedule x.csv
for command in plan train; do
    fails 78 '--schedule' \
        run $command mnist-sample.ini --schedule chimera
done
fails 64 '--cost-i' \
    run plan --schedule 1f1b --stages 2 --microbatches 2 --cost-i 1,2,3
ok run plan --schedule 1f1b --stages 1 --microbatches 1k --format json
out_has '"microbatches": 1000'
fails 78 "--stages" run plan --schedule 1f1b --stages two --microbatches 2
fails 64 "--cost-f" run plan --schedule 1f1b --stages 2 --microbatches 2 --cost-f -1
fails 64 'must be more than 0' run plan --schedule 1f1b --stages 2 --microbatches 2 --cost-f 0 --cost-i 0 --cost-w 0
fails 64 'needs a CONFIG' run plan --schedule 1f1b --stages 2 --microbatches 2 --lr 0.1

begin "a proof is of one time of transfers"
fails 64 'zb-exact proves steps whose transfers all take as long' \
    run plan --schedule zb-exact --stages 4 --microbatches 5 --cost-comm 1,3,0
ok run plan --schedule zb-exact --stages 4 --microbatches 5 --cost-comm 1,1,1
ok run plan --schedule zb-fit --stages 4 --microbatches 5 --cost-comm 1,3,0

begin "an impossible shape is 78 in the schedule's own words"
fails 78 '1 chunk per rank, not 3' run plan --schedule gpipe --stages 4 --microbatches 8 --chunks 3
same "$(cat "$folder/out")" ''
fails 78 'dualpipev' run plan --schedule dualpipev --stages 4 --microbatches 4
fails 78 '' run plan --schedule 1f1b --stages -1 --microbatches 4
fails 78 '1 to 1024 stages' run plan --schedule 1f1b --stages 99999 --microbatches 999999
fails 78 'pipeline.stages' run plan synthetic.ini --stages 1000

begin "--html writes one page with the table, its costs and the known schedules of its shape"
ok run plan --schedule 1f1b --stages 2 --microbatches 2 --cost-comm 0.5 --html "$folder/page.html"
same "$(cat "$folder/out")" "$folder/page.html"
for word in '"table":"0F0,0F1,0B0,0B1' '"latency":0.5' '"name":"gpipe"' 'Schedule workbench' '</html>'; do
    grep -qF -- "$word" "$folder/page.html" || complain "the page has no $word"
done
same "$(grep -c 'https\{0,1\}://' "$folder/page.html")" "$(grep -c 'http://www.w3.org/2000/svg' "$folder/page.html")"
shape='--stages 4 --microbatches 8 --memory-cap 4 --cost-comm 0.5'
# shellcheck disable=SC2086 # words
ok run plan --schedule zb-auto $shape --format json
step=$(sed -n 's/^  "makespan": \([0-9.]*\).*/\1/p' "$folder/out")
# shellcheck disable=SC2086 # words
ok run plan --schedule 1f1b $shape --html "$folder/page.html"
grep -qF "\"name\":\"zb-auto\",\"makespan\":$step," "$folder/page.html" ||
    complain "zb-auto of the page is not made for its costs, as that of plan, which takes $step"
fails 64 '--html' run plan --schedule 1f1b --stages 2 --microbatches 2 --html x.html --format svg
fails 64 "--html" run plan --schedule 1f1b --stages 2 --microbatches 2 --html ''
fails 64 'two copies of the weights' run plan --schedule chimera --stages 2 --microbatches 4 --html "$folder/page.html"
fails 66 'cannot create' run plan --schedule 1f1b --stages 2 --microbatches 2 --html "$folder/absent/page.html"

begin "a picture that cannot be written is 74"
if [ -w /dev/full ]; then
    code=0
    "$PPCLI" plan --schedule 1f1b --stages 2 --microbatches 2 >/dev/full 2>"$folder/err" || code=$?
    last='plan to a full disk'
    code_is 74
else
    skip "no /dev/full"
fi

finish
