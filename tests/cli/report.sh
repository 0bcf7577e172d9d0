#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run folders as pages: whole ones, those of runs that were killed, damaged and hostile ones. What
# the page makes of its data is for report_page.py to see.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

check=$(dirname "$0")/check_report.py
cat >"$folder/small.ini" <<'EOF2'
[data]
dataset = synthetic
train_samples = 320
test_samples = 50
[model]
sizes = 20 16*3 5
[pipeline]
stages = 2
[train]
epochs = 3
batch_size = 32
[run]
log_every = 2
EOF2
config=$folder/small.ini
a=$folder/a
page=$folder/page.html

# page_has PAGE EXPRESSION...: the last report is a good page and its data is so
page_has() {
    said=$(python3 "$check" "$@" 2>&1) || complain "$last: $said"
}

run train "$config" --dir "$a"

begin "a page holds the whole run"
run report "$a"
code_is 0
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
run report "$a" -o -
code_is 0
page_has "$folder/out"
run report "$a/" --output "$page"
code_is 0
same "$(cat "$folder/out")" "$page"
page_has "$page"

begin "a run that was killed is shown as far as it got"
mkdir "$folder/killed"
cp "$a/config.resolved.ini" "$folder/killed"
head -n 6 "$a/metrics.jsonl" >"$folder/killed/metrics.jsonl"
sed -n 7p "$a/metrics.jsonl" | head -c 60 >>"$folder/killed/metrics.jsonl"
run report "$folder/killed" -o "$page"
code_is 0
page_has "$page" "run['lost'][1] == {'absent': False, 'why': None, 'lines': 1, 'last': True, 'beyond': 0}" \
    "run['summary'] is None" "[lost['absent'] for lost in run['lost']] == [True, False, False, True]" \
    "run['steps']['step'] == [2, 4, 6, 8, 10]"

begin "how it ended comes from the rings of its ranks"
"$PPCLI" train "$config" --dir "$folder/going" --epochs 1000000 --log-every 100 >"$folder/log" 2>&1 &
child=$!
n=0
until grep -q '"type":"step"' "$folder/going/metrics.jsonl" 2>/dev/null || [ $n -ge 600 ]; do
    sleep 0.05
    n=$((n + 1))
done
run report "$folder/going" -o "$page"
code_is 0
page_has "$page" "run['end'] == 'running'"
kill -KILL $child
wait $child 2>/dev/null
run report "$folder/going" -o "$page"
code_is 0
page_has "$page" "run['end'] == 'killed'"
run train "$config" --dir "$folder/going" --overwrite --lr 1000 --optimizer sgd
code_is 80
run report "$folder/going" -o "$page"
code_is 0
page_has "$page" "run['end'] == 'failed'"

begin "each file alone is enough, none is not"
for file in config.resolved.ini metrics.jsonl summary.json; do
    mkdir "$folder/only-$file"
    cp "$a/$file" "$folder/only-$file"
    run report "$folder/only-$file" -o "$page"
    code_is 0
    page_has "$page" "sum(lost['absent'] for lost in run['lost']) == 3"
done
mkdir "$folder/empty"
run report "$folder/empty"
code_is 66
err_has 'is no run folder'
[ ! -e "$folder/empty/report.html" ] || complain "a page of nothing"

begin "a trace is shown too, one step of it; what is neither is refused in one line"
run train "$config" --dir "$folder/t" --trace "$folder/trace.json"
run report "$folder/trace.json"
code_is 0
same "$(cat "$folder/out")" "$folder/trace.json.html"
page_has "$folder/trace.json.html" "run['measured']['step'] >= 10" \
    "run['measured']['ranks'][1]['actions'].count('F') == 4"
run report "$config"
code_is 65
err_has "$config is neither a run folder nor a trace"
run report "$folder/none"
code_is 66
err_has "$folder/none: No such file"
run report "$a" -o "$folder/none/x.html"
code_is 66
same "$(grep -c '' "$folder/err")" 1
run report --compare "$a"
code_is 64
err_has 'at least two run folders'
run report
code_is 64
err_has 'which run'

begin "a plan of 64 ranks is a page with all of its actions"
"$PPCLI" plan --schedule zb-v --stages 64 --microbatches 128 --format page >"$page"
page_has "$page" "run['name'] == 'zb-v'" "len(run['simulated']['ranks']) == 64" "run['simulated']['detail'] == 0" \
    "run['simulated']['ranks'][63]['actions'].count('W') == 256"

begin "what stands in the files is text, never markup"
evil='<script>alert(1)</script>&"'"'"'</title></style><!--'
odd="$folder/<b>x & \"y\""
mkdir "$odd"
sed "s|^dataset = .*|dataset = $evil|" "$a/config.resolved.ini" >"$odd/config.resolved.ini"
python3 - "$a" "$odd" "$evil" <<'EOF2'
import json, sys
a, b, evil = sys.argv[1:]
def spoil(o):
    if isinstance(o, dict):
        return {k: spoil(v) for k, v in o.items()}
    return [spoil(v) for v in o] if isinstance(o, list) else evil + '\u2028' if isinstance(o, str) else o
keep = ('type', 'ph', 'cat')
for name in ('metrics.jsonl', 'timeline.json'):
    with open(f'{a}/{name}') as f, open(f'{b}/{name}', 'w') as out:
        for line in f:
            text = line.strip().strip(',')
            if text.startswith('{'):
                o = json.loads(text)
                line = json.dumps({k: v if k in keep else spoil(v) for k, v in o.items()}) + ',\n'
                line = line if name == 'timeline.json' else line.rstrip(',\n') + '\n'
            out.write(line)
with open(f'{a}/summary.json') as f, open(f'{b}/summary.json', 'w') as out:
    json.dump(spoil(json.load(f)), out)
EOF2
run report "$odd" "$a" -o "$page"
code_is 0
page_has "$page" "run['name'] == '<b>x & \"y\"'" "run['header']['host'].startswith('<script>alert(1)</script>&\"')" \
    "'<!--' in run['config']" "run['summary']['schedule'][-1] == chr(0x2028)"
! LC_ALL=C grep -q "$(printf '\342\200\250')" "$page" || complain "U+2028 as it is"

begin "numbers that are none, or beyond all bounds, are left out"
python3 - "$a" "$folder/wild" <<'EOF2'
import json, os, random, sys
a, b = sys.argv[1:]
os.mkdir(b)
random.seed(5)
wild = [None, 1e308, -1e308, 5e-324, 1e15, -7, 0, "text", [], {}, True, 2**63, 1e-300, 123456789.123]
def spoil(o, top=True):
    if isinstance(o, dict):
        return {k: spoil(v, False) if random.random() < 0.6 or k in ('type', 'ph', 'cat') else
                random.choice(wild) for k, v in o.items()}
    return [spoil(v, False) for v in o] if isinstance(o, list) else o
for name in ('metrics.jsonl', 'timeline.json'):
    with open(f'{a}/{name}') as f, open(f'{b}/{name}', 'w') as out:
        for line in f:
            text = line.strip().strip(',')
            for _ in range(20):
                out.write((json.dumps(spoil(json.loads(text))) if text[0] == '{' else text) + '\n')
with open(f'{a}/summary.json') as f, open(f'{b}/summary.json', 'w') as out:
    json.dump(spoil(json.load(f)), out)
with open(f'{b}/metrics.jsonl', 'ab') as out:
    out.write(b'\xff\xfe\x00{"type":"step"}\n[1]\n1e999\n{"type":"step","step":1e999}\n' + b'[' * 5000 +
              b'\n' + b'x' * 2000000 + b'\n{"type":"step","step":1,"loss":NaN}\n')
EOF2
run report "$folder/wild" -o "$page"
code_is 0
page_has "$page" "run['lost'][1]['lines'] > 5"

begin "files that are folders, pipes or damaged are left out with a reason"
mkdir "$folder/holes" "$folder/holes/config.resolved.ini"
cp "$a/metrics.jsonl" "$folder/holes"
mkfifo "$folder/holes/timeline.json"
echo '{"test_accuracy": 0.5' >"$folder/holes/summary.json"
run report "$folder/holes" -o "$page"
code_is 0
page_has "$page" "'summary.json is damaged' in run['lost'][0]['why']" "'config.resolved.ini' in run['lost'][2]['why']" \
    "'timeline.json' in run['lost'][3]['why']"

begin "a long run makes a small page that keeps its spikes"
mkdir "$folder/long"
python3 - "$folder/long" <<'EOF2'
import json, sys
dir = sys.argv[1]
with open(f'{dir}/metrics.jsonl', 'w') as f:
    for i in range(30000):
        loss = 9.5 if i == 22222 else 2 - i / 30000
        f.write(json.dumps({'type': 'step', 'step': i + 1, 'epoch': 1, 'loss': loss, 'accuracy': 0.5,
                            'samples_per_second': 1000 + i % 7, 'bubble_measured': 0.2}) + '\n')
with open(f'{dir}/timeline.json', 'w') as f:
    f.write('[\n')
    for pid in [*range(30), *range(10000, 10030)]:
        for i in range(1480):
            f.write(json.dumps({'name': f'F{i}', 'cat': 'FIW'[i % 3], 'ph': 'X', 'pid': pid, 'tid': 0, 'ts': i * 10.5,
                                'dur': 10 + 0.01 * (i * i % 7), 'args': {'microbatch': i, 'chunk': i % 2}}) + ',\n')
EOF2
run report "$folder/long" -o "$page"
code_is 0
page_has "$page" "run['steps']['loss'].count(9.5) == 1" "run['steps']['step'][-1] == 30000" \
    "run['measured']['all_ranks'] == 30 > len(run['measured']['ranks']) > 0" "run['measured']['detail'] == 3"

begin "a resumed run shows what counted, not what it went back over"
mkdir "$folder/resumed"
python3 - "$folder/resumed" <<'EOF2'
import json, sys
with open(f'{sys.argv[1]}/metrics.jsonl', 'w') as f:
    for step, loss in [(1, 1.5), (2, 1.25), (3, 777), (4, 778)]:
        f.write(json.dumps({'type': 'step', 'step': step, 'epoch': 1, 'loss': loss}) + '\n')
    f.write('{"type":"resume","step":2,"stages":4}\n{"type":"step","step":4,"epoch":1,"loss":1.0625}\n')
EOF2
run report "$folder/resumed" -o "$page"
code_is 0
page_has "$page" "run['steps']['loss'] == [1.5, 1.25, 1.0625]" "run['events'][0]['stages'] == 4"

begin "several runs share a page in the folder of the last"
run report --compare "$a" "$folder/killed" "$folder/trace.json" "$folder/long/"
code_is 0
same "$(cat "$folder/out")" "$folder/long/compare.html"
page_has "$folder/long/compare.html" "[run['name'] for run in runs] == ['a', 'killed', 'trace.json', 'long']"

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
