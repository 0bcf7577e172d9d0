#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run folders as pages: whole ones, those of runs that were killed, damaged and hostile ones.
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

# page_says WORDS...: the last report is a good page and shows them
page_says() {
    said=$(python3 "$check" "$@" 2>&1) || complain "$last: $said"
}
page_lacks() { ! grep -qF -e "$2" "$1" || complain "$last: '$2' in $1"; }

run train "$config" --dir "$a"

begin "a report says what summary.json says, in a page that stands alone"
run report "$a"
code_is 0
same "$(cat "$folder/out")" "$a/report.html"
same "$(cat "$folder/err")" ''
page_says "$a/report.html" --summary "$a" 'Config' 'pipeline.stages' 'small.ini:8' 'Environment' \
    'Throughput' 'Accuracy' 'activations' 'packed copy' 'rank 1'
page_lacks "$a/report.html" 'did not finish'
page_lacks "$a/report.html" 'timeline.json'

begin "the measured step stands above the simulated one"
page_says "$a/report.html" 'One step of the pipeline' 'measured, step' 'simulated from measured times' \
    'F0' 'micro-batch 3'

begin "the page goes to standard output or to another file when asked"
run report "$a" -o -
code_is 0
page_says "$folder/out" --summary "$a"
run report "$a/" --output "$page"
code_is 0
same "$(cat "$folder/out")" "$page"
page_says "$page" --summary "$a"

begin "a run that was killed is shown as far as it got"
mkdir "$folder/killed"
cp "$a/config.resolved.ini" "$folder/killed"
head -n 6 "$a/metrics.jsonl" >"$folder/killed/metrics.jsonl"
sed -n 7p "$a/metrics.jsonl" | head -c 60 >>"$folder/killed/metrics.jsonl"
run report "$folder/killed" -o "$page"
code_is 0
page_says "$page" 'This run did not finish.' 'The last line of metrics.jsonl is not whole' 'of 30 (' \
    'There is no timeline.json' 'Loss'

begin "what killed it and what it was at is told from the rings of its ranks"
"$PPCLI" train "$config" --dir "$folder/going" --epochs 1000000 --log-every 100 >"$folder/log" 2>&1 &
child=$!
n=0
until grep -q '"type":"step"' "$folder/going/metrics.jsonl" 2>/dev/null || [ $n -ge 200 ]; do
    sleep 0.05
    n=$((n + 1))
done
run report "$folder/going" -o "$page"
code_is 0
page_says "$page" 'This run is not finished. It was at work when this page was written.'
kill -KILL $child
wait $child 2>/dev/null
run report "$folder/going" -o "$page"
code_is 0
page_says "$page" 'did not finish. Its process was killed.' 'ppcli diagnose'
run train "$config" --dir "$folder/going" --overwrite --lr 1000 --optimizer sgd
code_is 80
run report "$folder/going" -o "$page"
code_is 0
page_says "$page" 'did not finish. It ended with an error.'

begin "a folder of an older ppcli, without timeline.json and steps of epochs, is shown"
mkdir "$folder/old"
cp "$a/config.resolved.ini" "$folder/old"
grep -v '^  "bubble_predicted"' "$a/summary.json" >"$folder/old/summary.json"
sed '/"type":"epoch"/s/"step":[0-9]*,//' "$a/metrics.jsonl" >"$folder/old/metrics.jsonl"
run report "$folder/old" -o "$page"
code_is 0
page_says "$page" --summary "$folder/old" 'There is no timeline.json'
grep -q 'test [0-9.]*, step 20<' "$page" || complain "the second epoch does not end at step 20"

begin "each file alone is enough, none is not"
for file in config.resolved.ini metrics.jsonl summary.json; do
    mkdir "$folder/only-$file"
    cp "$a/$file" "$folder/only-$file"
    run report "$folder/only-$file" -o "$page"
    code_is 0
    page_says "$page"
done
mkdir "$folder/empty"
run report "$folder/empty"
code_is 66
err_has 'is no run folder'
[ ! -e "$folder/empty/report.html" ] || complain "a page of nothing"

begin "what is no folder is refused in one line"
run report "$config"
code_is 66
err_has "$config is not a folder"
run report "$folder/none"
code_is 66
err_has "$folder/none: No such file"
run report "$a" -o "$folder/none/x.html"
code_is 66
same "$(grep -c '' "$folder/err")" 1

begin "two runs without --compare, and one with it, are explained"
run report "$a" "$a"
code_is 64
err_has "ppcli report --compare"
run report --compare "$a"
code_is 64
err_has 'two run folders'
run report
code_is 64
err_has 'which run'

begin "what stands in the files is text, never markup"
evil='<script>alert(1)</script>&"'"'"'</title></style>'
odd="$folder/<b>x & \"y\""
mkdir "$odd"
sed "s|^dataset = .*|dataset = $evil|" "$a/config.resolved.ini" >"$odd/config.resolved.ini"
python3 - "$a" "$odd" "$evil" <<'EOF2'
import json, sys
a, b, evil = sys.argv[1:]
def spoil(o):
    if isinstance(o, dict):
        return {k: spoil(v) for k, v in o.items()}
    return [spoil(v) for v in o] if isinstance(o, list) else evil if isinstance(o, str) else o
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
run report "$odd" -o "$page"
code_is 0
page_says "$page" "$evil" '<b>x & "y"'
page_lacks "$page" '<script'
page_lacks "$page" '<b>x'
run report --compare "$odd" "$a" -o "$page"
code_is 0
page_says "$page" "$evil"
page_lacks "$page" '<script'

begin "numbers that are none, or beyond all bounds, leave gaps"
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
page_says "$page" 'of metrics.jsonl could not be read and are left out'
run report --compare "$folder/wild" "$a" -o "$page"
code_is 0
page_says "$page"

begin "files that are folders, pipes or damaged are left out with a sentence"
mkdir "$folder/holes" "$folder/holes/config.resolved.ini"
cp "$a/metrics.jsonl" "$folder/holes"
mkfifo "$folder/holes/timeline.json"
echo '{"test_accuracy": 0.5' >"$folder/holes/summary.json"
run report "$folder/holes" -o "$page"
code_is 0
page_says "$page" 'summary.json is damaged' 'did not finish' 'timeline.json' 'config.resolved.ini'

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
        for i in range(480):
            f.write(json.dumps({'name': f'F{i}', 'cat': 'FIW'[i % 3], 'ph': 'X', 'pid': pid, 'tid': 0,
                                'ts': i * 10.5, 'dur': 10, 'args': {'microbatch': i, 'chunk': i % 2}}) + ',\n')
EOF2
run report "$folder/long" -o "$page"
code_is 0
page_says "$page" 'rank 29'
grep -q 'class="curve s0" d="[^"]* 18\.0 ' "$page" || complain "no point at 9.5 of 10 in the loss curve"

begin "a resumed run shows what counted, not what it went back over"
mkdir "$folder/resumed"
python3 - "$folder/resumed" <<'EOF2'
import json, sys
with open(f'{sys.argv[1]}/metrics.jsonl', 'w') as f:
    for step, loss in [(1, 1.5), (2, 1.25), (3, 777), (4, 778), (3, 1.125), (4, 1.0625)]:
        f.write(json.dumps({'type': 'step', 'step': step, 'epoch': 1, 'loss': loss}) + '\n')
EOF2
run report "$folder/resumed" -o "$page"
code_is 0
page_says "$page" '1.0625' 'by step 4'
page_lacks "$page" '777'

begin "two runs with the same numbers are called equal, and their one difference is named"
run train "$config" --dir "$folder/b" --schedule gpipe
run report --compare "$a" "$folder/b"
code_is 0
same "$(cat "$folder/out")" "$folder/b/compare.html"
page_says "$folder/b/compare.html" 'equal, bit for bit' 'pipeline.schedule' 'gpipe' 'run 2, measured' \
    'run 1, simulated' '1: training' '2: test'
page_lacks "$folder/b/compare.html" 'run.dir'

begin "two runs with different numbers are called different, and so is their config"
run train "$config" --dir "$folder/c" --seed 2
run report --compare "$a" "$folder/c" -o "$page"
code_is 0
page_says "$page" 'The trained weights differ' 'train.seed' 'the configs differ in keys'

begin "an unfinished run can be compared"
run report --compare "$a" "$folder/killed" -o "$page"
code_is 0
page_says "$page" 'Run 2 did not finish' 'The weights cannot be compared'

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
