#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run folders as pages: whole ones, those of runs that were killed, damaged and hostile ones. What
# the page makes of its data is for report_page.py to see.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

check=$(dirname "$0")/check_report.py
folders=$(dirname "$0")/report_folders.py
config "$folder/small.ini" data.dataset=synthetic data.train_samples=320 data.test_samples=50 \
    'model.sizes=20 16*3 5' pipeline.stages=2 train.epochs=3 train.batch_size=32 \
    run.log_every=2
config=$folder/small.ini
a=$folder/a
page=$folder/page.html

# page_has PAGE EXPRESSION...: the last report is a good page and its data is so
page_has() {
    said=$(python3 "$check" "$@" 2>&1) || complain "$last: $said"
}

run train "$config" --dir "$a"

begin "a page holds the whole run"
ok run report "$a"
same "$(cat "$folder/out")" "$a/report.html"
same "$(cat "$folder/err")" ''
page_has "$a/report.html" "run['name'] == 'a'" "run['summary']['steps'] == 30" "run['end'] is None" \
    "run['summary'] == __import__('json').load(open('$a/summary.json'))" \
    "run['header']['stages'] == 2" "len(run['steps']['loss']) == 15" "run['epochs']['step'] == [10, 20, 30]" \
    "'stages = 2' in run['config']" "not any(lost['absent'] or lost['why'] or lost['lines'] for lost in run['lost'])"

begin "the measured step and the simulated one are there, action by action"
page_has "$a/report.html" "[rank['stages'] for rank in run['measured']['ranks']] == [[0], [1]]" \
    "run['measured']['detail'] == 0" "run['measured']['ranks'][0]['actions'].count('F') == 4" \
    "run['simulated']['ranks'][1]['spent']['W'] > 0" "run['timeline']['bubble_measured'] >= 0"

begin "the page goes to standard output or to another file when asked"
ok run report "$a" -o -
page_has "$folder/out"
ok run report "$a/" --output "$page"
same "$(cat "$folder/out")" "$page"
page_has "$page"

begin "a run that was killed is shown as far as it got"
mkdir "$folder/killed"
cp "$a/config.resolved.ini" "$folder/killed"
head -n 6 "$a/metrics.jsonl" >"$folder/killed/metrics.jsonl"
sed -n 7p "$a/metrics.jsonl" | head -c 60 >>"$folder/killed/metrics.jsonl"
ok run report "$folder/killed" -o "$page"
page_has "$page" "run['lost'][1] == {'absent': False, 'why': None, 'lines': 1, 'last': True, 'beyond': 0}" \
    "run['summary'] is None" "[lost['absent'] for lost in run['lost']] == [True, False, False, True]" \
    "run['steps']['step'] == [2, 4, 6, 8, 10]"

# start DIR: a run that has begun to record and would take for ever
start() {
    "$PPCLI" train "$config" --dir "$1" --epochs 1000000 --log-every 100 >"$folder/log" 2>&1 &
    child=$!
    n=0
    until grep -q '"type":"step"' "$1/metrics.jsonl" 2>/dev/null || [ $n -ge 600 ]; do
        sleep 0.05
        n=$((n + 1))
    done
}

begin "a run that was stopped says so in metrics.jsonl, diagnose and report"
start "$folder/stopped"
kill -TERM $child
wait $child
ok run diagnose "$folder/stopped"
same "$(head -n 1 "$folder/out")" 'this run did not finish: it has no summary.json'
run report "$folder/stopped" -o "$page"
page_has "$page" "run['end'] == 'stopped'" "run['events'][-1]['type'] == 'end'" \
    "run['events'][-1]['how'] == 'stopped' and not run['events'][-1]['finished']" \
    "run['events'][-1]['why'].startswith('after step %d of ' % run['events'][-1]['step'])"

begin "what is no run folder is refused in one line"
mkdir "$folder/other"
fails 66 '' run diagnose "$folder/other"
same "$(wc -l <"$folder/err")" 1

begin "a short run without log_every has 50 records, and prints none of them"
ok run train "$config" --dir "$folder/short" --epochs 11 --log-every 0
same "$(grep -c '^epoch=[0-9]* step=' "$folder/out")" 0
run report "$folder/short" -o "$page"
page_has "$page" "len(run['steps']['step']) >= 50" "run['epochs']['step'][-1] == 110"

begin "how it ended comes from the rings of its ranks"
start "$folder/going"
ok run report "$folder/going" -o "$page"
page_has "$page" "run['end'] == 'running'"
kill -KILL $child
wait $child 2>/dev/null
ok run report "$folder/going" -o "$page"
page_has "$page" "run['end'] == 'killed'"
fails 80 '' run train "$config" --dir "$folder/going" --overwrite --lr 1000 --optimizer sgd
ok run report "$folder/going" -o "$page"
page_has "$page" "run['end'] == 'failed'"

begin "each file alone is enough, none is not"
for file in config.resolved.ini metrics.jsonl summary.json; do
    mkdir "$folder/only-$file"
    cp "$a/$file" "$folder/only-$file"
    ok run report "$folder/only-$file" -o "$page"
    page_has "$page" "sum(lost['absent'] for lost in run['lost']) == 3"
done
mkdir "$folder/empty"
fails 66 'is not a run folder' run report "$folder/empty"
[ ! -e "$folder/empty/report.html" ] || complain "a page of nothing"

begin "a trace is shown too, one step of it; what is neither is refused in one line"
run train "$config" --dir "$folder/t" --trace "$folder/trace.json"
ok run report "$folder/trace.json"
same "$(cat "$folder/out")" "$folder/trace.json.html"
page_has "$folder/trace.json.html" "run['measured']['step'] >= 10" \
    "run['measured']['ranks'][1]['actions'].count('F') == 4"
fails 65 "$config is neither a run folder nor a trace" run report "$config"
fails 66 "$folder/none: No such file" run report "$folder/none"
fails 66 '' run report "$a" -o "$folder/none/x.html"
same "$(grep -c '' "$folder/err")" 1
fails 64 'at least two run folders' run report --compare "$a"
fails 64 'name the folder of a run' run report

begin "a plan of 64 ranks is a page with all of its actions"
"$PPCLI" plan --schedule zb-v --stages 64 --microbatches 128 --format page >"$page"
page_has "$page" "run['name'] == 'zb-v'" "len(run['simulated']['ranks']) == 64" "run['simulated']['detail'] == 0" \
    "run['simulated']['ranks'][63]['actions'].count('W') == 256"

begin "what stands in the files is text, never markup"
odd="$folder/<b>x & \"y\""
python3 "$folders" hostile "$a" "$odd"
ok run report "$odd" "$a" -o "$page"
page_has "$page" "run['name'] == '<b>x & \"y\"'" "run['header']['host'].startswith('<script>alert(1)</script>&\"')" \
    "'<!--' in run['config']" "run['summary']['schedule'][-1] == chr(0x2028)"
! LC_ALL=C grep -q "$(printf '\342\200\250')" "$page" || complain "U+2028 as it is"

begin "numbers that are none, or beyond all bounds, are left out"
python3 "$folders" wild "$a" "$folder/wild"
ok run report "$folder/wild" -o "$page"
page_has "$page" "run['lost'][1]['lines'] > 5"

begin "files that are folders, pipes or damaged are left out with a reason"
mkdir "$folder/holes" "$folder/holes/config.resolved.ini"
cp "$a/metrics.jsonl" "$folder/holes"
mkfifo "$folder/holes/timeline.json"
echo '{"test_accuracy": 0.5' >"$folder/holes/summary.json"
ok run report "$folder/holes" -o "$page"
page_has "$page" "'summary.json is damaged' in run['lost'][0]['why']" "'config.resolved.ini' in run['lost'][2]['why']" \
    "'timeline.json' in run['lost'][3]['why']"

begin "a long run makes a small page that keeps its spikes"
python3 "$folders" long "$folder/long"
ok run report "$folder/long" -o "$page"
page_has "$page" "run['steps']['loss'].count(9.5) == 1" "run['steps']['step'][-1] == 30000" \
    "13000 < run['steps']['step'][len(run['steps']['step']) // 2] < 17000" \
    "run['measured']['all_ranks'] == 30 > len(run['measured']['ranks']) > 0" "run['measured']['detail'] == 3"

begin "a resumed run shows what counted, not what it went back over"
python3 "$folders" resumed "$folder/resumed"
ok run report "$folder/resumed" -o "$page"
page_has "$page" "run['steps']['step'] == [26, 30, 34]" "run['events'][0]['stages'] == 4"

begin "several runs share a page in the folder of the last"
ok run report --compare "$a" "$folder/killed" "$folder/trace.json" "$folder/long/"
same "$(cat "$folder/out")" "$folder/long/compare.html"
page_has "$folder/long/compare.html" "[run['name'] for run in runs] == ['a', 'killed', 'trace.json', 'long']"

# table_has EXPRESSION...: the CSV on standard output is so; rows is a list of dicts
table_has() {
    said=$(python3 - "$folder/out" "$@" 2>&1 <<'END'
import csv, statistics, sys
rows = list(csv.DictReader(open(sys.argv[1])))
runs = [r for r in rows if r['kind'] == 'run']
for expression in sys.argv[2:]:
    if not eval(expression):
        sys.exit(f'not so: {expression}')
END
    ) || complain "$last: $said"
}

for s in 1 2 3; do
    run train "$config" --dir "$folder/seed $s" --seed "$s"
done
run train "$config" --dir "$folder/lr" --lr 0.05

begin "a table has the keys in which runs differ, and what summary.json has"
ok run report "$folder"/seed* "$folder/lr" "$folder/killed" --table csv
table_has "[r['train.lr'] for r in runs] == ['0.001'] * 3 + ['0.05', '0.001']" \
    "[r['train.seed'] for r in runs] == ['1', '2', '3', '1', '1']" "runs[0]['run'] == '$folder/seed 1'" \
    "{k for k in rows[0] if '.' in k} == {'train.lr', 'train.seed'}" \
    "all(float(runs[3][k]) == v for k, v in __import__('json').load(open('$folder/lr/summary.json')).items()
         if k in ('test_loss', 'test_accuracy', 'train_loss', 'samples_per_second', 'train_seconds'))" \
    "runs[3]['weights_sha256'] == __import__('json').load(open('$folder/lr/summary.json'))['weights_sha256']"

begin "runs that differ in the seed only have a mean and a deviation"
table_has "[(r['kind'], r['group']) for r in rows[5:]] == [('mean', '1'), ('sd', '1')]" \
    "abs(float(rows[5]['test_loss']) - statistics.mean(float(r['test_loss']) for r in runs[:3])) < 1e-12" \
    "abs(float(rows[6]['test_loss']) - statistics.stdev(float(r['test_loss']) for r in runs[:3])) < 1e-12" \
    "rows[5]['train.lr'] == '0.001' and rows[5]['train.seed'] == ''"

begin "a run without a summary has a row, but no part in the mean"
table_has "runs[4]['state'] in ('unfinished', 'killed')" "runs[4]['group'] == '1'" "rows[5]['run'] == 'mean of 3'"

begin "a table has the best epoch of a run that keeps it"
ok run train "$config" --dir "$folder/best" --set checkpoint.best=test_loss
ok run report "$folder/best" --table csv
table_has "float(runs[0]['best_test_loss']) == __import__('json').load(open('$folder/best/summary.json'))['best']['value']" \
    "int(runs[0]['best_step']) in (10, 20, 30)" "'test_seconds' in runs[0] and 'train_seconds_before' not in runs[0]"

begin "a table lists more runs than a page compares"
ok run report "$folder"/seed* "$folder"/seed* "$folder"/seed* --table csv
table_has "len(runs) == 9" "not any('.' in k for k in rows[0] if k != 'train.seed')"
fails 64 "at most 8 runs, not 9; --table csv" run report "$folder"/seed* "$folder"/seed* "$folder"/seed*
shows "| mean of 3 " run report "$folder"/seed* --table markdown
shows "sd of 3" run report "$folder"/seed* --table text

begin "equal runs have no deviation, and a damaged summary is named"
ok run report "$a" "$a" "$a" --table csv
table_has "rows[3]['test_loss'] == runs[0]['test_loss'] and float(rows[4]['test_loss']) == 0"
cp -r "$a" "$folder/broken"
echo '{' >"$folder/broken/summary.json"
ok run report "$a" "$folder/broken" --table csv
err_has 'broken/summary.json is damaged: the row of this run is incomplete'
table_has "runs[1]['state'] != 'finished' and runs[1]['test_loss'] == runs[0]['test_loss']"

begin "a trace is not a row of a table"
fails 64 "not a run folder" run report "$a/timeline.json" --table csv
fails 64 "cannot be combined" run report "$a" --table csv --figure loss

begin "a full disk is 74 and leaves nothing"
if [ -c /dev/full ]; then
    code=0
    last='ppcli report -o - >/dev/full'
    "$PPCLI" report "$a" -o - >/dev/full 2>"$folder/err" || code=$?
    code_is 74
else
    skip "no /dev/full"
fi

finish
