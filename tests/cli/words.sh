#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Commands, options and words: what is found, what is refused and with which hint.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

begin "alone it says what it is and what to try"
shows 'ppcli trains neural networks' run
out_has 'ppcli train mnist.ini' 'ppcli help'
lines=$(wc -l <"$folder/out")
[ "$lines" -le 14 ] || complain "$lines lines, expected about 12"
same "$(cat "$folder/err")" ''
same "$(awk 'length > 80' "$folder/out")" ''
page=$(sed -n 's/^ *man \.\/build\/\([^ ]*\) .*/\1/p' "$folder/out")
[ -f "$(dirname "$PPCLI")/$page" ] || complain "it names no manual page of the build folder: '$page'"

begin "help lists every command, three ways"
shows 'download ' run help
cp "$folder/out" "$folder/help"
for word in --help -h; do
    ok run $word
    cmp -s "$folder/out" "$folder/help" || complain "$word prints something else than help"
done

begin "every listed command has help, by word and by option"
commands=$(sed -n 's/^  \([a-z-]*\)  .*/\1/p' "$folder/help")
[ -n "$commands" ] || complain 'no commands found in the help'
for command in $commands; do
    shows "usage: ppcli $command" run "$command" --help
    out_has '--help'
    cp "$folder/out" "$folder/one"
    ok run help "$command"
    cmp -s "$folder/out" "$folder/one" || complain "help $command differs from $command --help"
done

begin "version names what was built in, two ways"
shows 'ppcli ' run --version
for word in CBLAS MPI libcurl zlib inih jansson; do
    out_has "$word: "
done
cp "$folder/out" "$folder/version"
run version
cmp -s "$folder/out" "$folder/version" || complain "version and --version differ"

begin "an unknown command is 64 with the nearest one"
fails 64 "'keys'" run kyes
err_has "see 'ppcli help'"
same "$(cat "$folder/out")" ''
fails 64 "'explain'" run help explian

begin "a command with nothing near it gets no guess"
fails 64 "'frobnicate'" run frobnicate
err_lacks 'did you mean'

begin "commands are not abbreviated" fails 64 '' run tra
begin "a config in the place of a command is understood, and quoted where a shell needs it"
fails 64 "ppcli train mnist.ini" run mnist.ini
fails 64 "'my net.ini'" run "my net.ini"

begin "an unknown option is 64 with the nearest one"
fails 64 "'--stages'" run train --stagse 2
err_has "see 'ppcli help train'"
fails 64 "'-z'" run keys -z

begin "options are not abbreviated"
fails 64 "'--stages'" run train --stage 2 x.ini
fails 64 '' run train --stage=2 x.ini
fails 64 "'--microbatches'" run train --micro
fails 64 "'--json'" run keys --js

begin "an option of other commands is known by their names"
fails 64 "'--ranks', which is one of 'ppcli estimate'" run plan x.ini --ranks 2
fails 64 "'ppcli tune'" run plan x.ini --memory 1Gi
fails 64 "did you mean '--values'" run verify x --value

begin "a missing or surplus value is named"
fails 64 '--stages' run train x.ini --stages
fails 64 '--json' run keys --json=yes

begin "surplus words are refused"
fails 64 "'model'" run keys train model
fails 64 '' run version now

begin "an option in the place of a command is explained"
fails 64 'where a command is expected' run --stages 2
fails 64 "'--help'" run --hepl

begin "quiet, verbose and no-color work before and after the command"
for flag in -q -v --quiet --verbose --no-color; do
    ok run $flag version
    ok run version $flag
done

begin "a config key as an option is sent to --set" fails 64 '--set train.lr=VALUE' run train x.ini --train.lr 0.1

begin "--set without a key is refused"
for word in lr=1 =1 train.lr train.=1 .lr=1 ''; do
    fails 64 'SECTION.KEY=VALUE' run explain x.ini --set "$word"
done

begin "train without a config says so" fails 64 'name a config' run train

begin "words after -- are words"
fails 64 '' run keys -- --json
err_lacks 'unknown option'

begin "the names that other programs have for a key lead to it"
printf '[train]\nlearning_rate = 0.1\n' >"$folder/other.ini"
fails 78 '' run explain "$folder/other.ini"
err_has "other.ini:2: error: unknown key 'learning_rate' in [train]; did you mean 'lr' in [train]? (ppcli keys train.lr)"
fails 78 "'train.clip_norm'" \
    run explain mnist-sample.ini --set train.grad_clip=1
fails 64 "'--epochs'" run explain mnist-sample.ini --num-epochs 3
fails 64 "'--stages'" run train mnist-sample.ini --gpus 2
fails 64 "'--set train.clip_norm=VALUE'" run explain mnist-sample.ini --grad-clip 1
fails 64 "'train.lr'" run keys learning_rate

begin "the help of every command fits a screen of 80 columns and 50 lines"
for command in $commands; do
    "$PPCLI" "$command" --help >"$folder/out"
    last="help $command"
    same "$(awk 'length > 80' "$folder/out")" ''
    same "$(awk 'END { print (NR <= 50 ? "fits" : NR " lines") }' "$folder/out")" fits
done

begin "no line of keys is wider than 100 columns"
"$PPCLI" keys >"$folder/out"
"$PPCLI" keys pipeline.schedule >>"$folder/out"
same "$(awk 'length > 100' "$folder/out")" ''
"$PPCLI" explain mnist-sample.ini >"$folder/out" 2>/dev/null
same "$(grep -v ' = ' "$folder/out" | awk 'length > 100')" ''

begin "--backend gpu means cuda"
ok run explain mnist-sample.ini --backend gpu
grep -q 'backend .*= cuda' "$folder/out" || complain "$(cat "$folder/out")"

begin "one is not several"
shows ' training samples in 1 step an epoch (' \
    run explain "$(dirname "$0")/../../configs/synthetic.ini" --stages 1 --microbatches 1 --batch-size 2000 \
    --set data.test_samples=1
out_has ', 1 test sample'
out_lacks '1 test samples'
out_has 'schedule 1f1b: 1 stage, 1 micro-batch of at most'
if ! "$PPCLI" env | grep -q '^ *MPI  *no'; then # else it says that there is no MPI
    fails 78 'run.hosts' \
        run train "$(dirname "$0")/../../configs/synthetic.ini" --stages 2 --hosts localhost:1
fi

begin "an unknown shell is refused"
fails 64 'bash, zsh or fish' run completion tcsh
fails 64 '' run completion

begin "an unknown data set is refused before any network"
fails 64 "'fashion-mnist'" run download fashion-mnits
fails 64 'needs no download' run download-mnist --dataset synthetic
fails 64 'one data set' run download all --dir here

begin "download without words lists what there is, where, and what is there"
mkdir -p "$folder/data/mnist"
: > "$folder/data/mnist/train-labels-idx1-ubyte.gz"
PPCLI_DATA_DIR=$folder/data
export PPCLI_DATA_DIR
shows "$folder/data/mnist: 1 of 4 files there" run download
out_has 'shakespeare'
unset PPCLI_DATA_DIR

begin "a one-rank command runs on rank 0 of an MPI launch and is silent elsewhere"
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1
export OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK
ok run version
same "$(cat "$folder/out")" ''
OMPI_COMM_WORLD_RANK=0
shows 'ppcli ' run version
unset OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK
for left in OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK SLURM_PROCID; do # in a shell, without the rest
    export $left=1
    shows 'ppcli ' run version
    unset $left
done

finish
