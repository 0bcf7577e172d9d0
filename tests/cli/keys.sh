#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ppcli keys, and configs found, refused and overridden.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

begin "all keys are listed, by section"
ok run keys
for section in data model pipeline train run; do
    out_has "[$section]"
done

begin "one section, one key"
shows 'microbatches' run keys pipeline
out_lacks 'batch_size'
run keys run
out_has 'HOST:RANKS,... | file:PATH | empty'
out_lacks '(null)'
shows 'lr' run keys train.lr
out_lacks 'microbatches'

begin "an unknown section or key is 64 with the nearest"
fails 64 "did you mean" run keys trian
fails 64 'train.epochs' run keys train.epoch

begin "the list is one section.key a line"
ok run keys --format list
same "$(grep -cvE '^[a-z]+\.[a-z0-9_]+$' "$folder/out")" 0
out_has 'pipeline.stages'

begin "json is json, two ways, and has every key of the list"
if command -v python3 >/dev/null 2>&1; then
    cp "$folder/out" "$folder/list"
    ok run keys --json
    cp "$folder/out" "$folder/json"
    run keys --format json
    cmp -s "$folder/out" "$folder/json" || complain "--json and --format json differ"
    python3 - "$folder/json" >"$folder/names" <<'END' || complain "not readable as JSON"
import json, sys
for key in json.load(open(sys.argv[1]))['keys']:
    print(key['name'])
    assert key['help'] and key['type'] and 'default' in key, key
END
    cmp -s "$folder/names" "$folder/list" || complain "the list and the schema name other keys"
else
    skip "no python3"
fi

begin "an unknown or contradicting format is refused"
fails 64 "'json'" run keys --format jsno
fails 64 'contradict' run keys --json --format list

begin "every short flag sets its key, the later one wins"
config "$folder/a.ini" data.dataset=synthetic pipeline.stages=2
ok run explain "$folder/a.ini" --stages 1 --microbatches 3 --schedule gpipe --epochs 2 --max-steps 5 \
    --batch-size 30 --optimizer adamw --lr 0.25 --seed 77 --backend cpu --transport threads \
    --launch threads --replicas 1 --log-every 9 --stages 3
sed 's/  */ /g' "$folder/out" >"$folder/squeezed"
for expected in 'stages = 3' 'microbatches = 3' 'schedule = gpipe' 'epochs = 2' 'max_steps = 5' \
    'batch_size = 30' 'optimizer = adamw' 'lr = 0.25' 'seed = 77' 'log_every = 9'; do
    has "$folder/squeezed" "$expected" || complain "no '$expected' in: $(head -c 1500 "$folder/squeezed")"
done
out_has '--stages'

begin "explain shows what was said, and every key with -v"
out_lacks 'rope_base'
out_has 'keys have their default; -v shows them'
shows 'rope_base' run explain "$folder/a.ini" -v
out_lacks 'have their default'

begin "--set wins over the file and is named as origin" \
    shows '--set' run explain "$folder/a.ini" --set pipeline.stages=1

begin "wrong values and keys of the command line are 78 and name the option"
fails 78 '--stages' run explain "$folder/a.ini" --stages many
fails 78 'learning_rate' run explain "$folder/a.ini" --set train.learning_rate=1

begin "all problems of a file are listed, then one summary, exit 78"
printf '[pipeline]\nstags = 2\n[train]\nlr = fast\n' >"$folder/bad.ini"
fails 78 'bad.ini:2' run explain "$folder/bad.ini"
err_has "'stages'" 'bad.ini:4'
same "$(grep -c '^ppcli: error: ' "$folder/err")" 1

begin "a config that is not there is 66"
fails 66 'nothing.ini' run explain "$folder/nothing.ini"
fails 66 'nothing.ini' run train nothing.ini
err_has 'configs'
fails 66 '' run train ''

begin "a folder is no config"
run explain "$folder"
[ "$code" -ne 0 ] || complain "exit 0"
[ "$code" -lt 128 ] || complain "exit $code"

begin "a bare name is found among the configs and said"
(cd / && exec "$PPCLI" explain mnist.ini >"$folder/out" 2>"$folder/err")
code=$?
last='ppcli explain mnist.ini'
code_is 0
err_has 'configs/mnist.ini'
fails 66 "'mnist.ini'" run explain mnits.ini

begin "a program that was moved finds its sample data beside it; nothing in it names where it was built"
here=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$folder/away/bin" "$folder/away/share/ppcli"
cp "$PPCLI" "$folder/away/bin/ppcli"
for what in configs data; do
    cp -R "$here/$what" "$folder/away/share/ppcli/"
done
config "$folder/cifar.ini" data.dataset=cifar10-sample 'model.sizes=3072 16 10'
for words in mnist-sample.ini 'gpt-char.ini --set data.dataset=shakespeare-sample' "$folder/cifar.ini"; do
    code=0
    last="moved: train $words"
    # shellcheck disable=SC2086 # words
    (cd / && "$folder/away/bin/ppcli" train $words --set train.max_steps=1 --dir= -q) >"$folder/out" 2>"$folder/err" || code=$?
    code_is 0
done
# A sanitizer keeps the names of the files for its reports.
if ! grep -qE '__(asan|tsan|ubsan)_' "$PPCLI"; then
    for path in "$here" "$(dirname "$PPCLI")"; do
        ! grep -qF -e "$path" "$PPCLI" || complain "$PPCLI has $path in it"
    done
fi

begin "a program that was moved finds the configs beside it"
mkdir -p "$folder/moved/bin" "$folder/moved/share/ppcli/configs" "$folder/tree/out" "$folder/tree/configs" "$folder/lone"
cp "$folder/a.ini" "$folder/moved/share/ppcli/configs/own.ini"
cp "$folder/a.ini" "$folder/tree/configs/own.ini"
: >"$folder/tree/meson.build"
for place in moved/bin moved tree/out lone; do
    cp "$PPCLI" "$folder/$place/ppcli"
    code=0
    last="$place/ppcli explain own.ini"
    (cd / && exec "$folder/$place/ppcli" explain own.ini) >"$folder/out" 2>"$folder/err" || code=$?
    rm "$folder/$place/ppcli"
    [ $place != lone ] || break
    code_is 0
    err_has "configs/own.ini"
done
code_is 66
has "$folder/err" 'here or in' || err_has "link configs/ of the source to $folder/lone/configs"

begin "a config comes from standard input as well"
code=0
last='ppcli explain -'
"$PPCLI" explain - <"$folder/a.ini" >"$folder/out" 2>"$folder/err" || code=$?
code_is 0
out_has 'synthetic'

begin "no line of keys is wider than 96 columns, but those of the many choices"
run keys
same "$(grep -v ' | ' "$folder/out" | awk 'length > 96')" ''

begin "what train refuses before it starts, explain and plan refuse in the same words"
config "$folder/refused.ini" data.dataset=synthetic data.train_samples=64 'model.sizes=20 16 5' \
    pipeline.stages=2 train.batch_size=32 train.max_steps=1 run.backend=cpu
for words in 'run.transport=mpi needs processes' 'run.transport=nccl NCCL' 'run.retries=2 threads of one process' \
    'checkpoint.copies=1 needs 2 hosts'; do
    # shellcheck disable=SC2086 # words
    set -- $words
    setting=$1
    shift
    fails 78 "$*" run train "$folder/refused.ini" -q --dir "$folder/refused" --set "$setting"
    cp "$folder/err" "$folder/said"
    for command in explain plan; do
        fails 78 '' run $command "$folder/refused.ini" --dir "$folder/refused" --set "$setting"
        cmp -s "$folder/err" "$folder/said" || complain "$command: $(cat "$folder/err"), train: $(cat "$folder/said")"
    done
done
fails 78 'bytes: at most 1073741824 over MPI; use more micro-batches' \
    run explain "$folder/refused.ini" --launch mpirun --set 'model.sizes=20 1048576 5' --set train.batch_size=2048 \
    --set data.train_samples=2048

begin "a key that is gone is named, unless it has the value that it had by itself, as in files of old runs"
printf '[run]\nprometheus =\n' >>"$folder/refused.ini"
ok run explain "$folder/refused.ini"
fails 78 'run.prometheus' \
    run explain "$folder/refused.ini" --set run.prometheus=x.prom

finish
