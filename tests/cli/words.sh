#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Commands, options and words: what is found, what is refused and with which hint.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

begin "alone it says what it is and what to try"
run
code_is 0
out_has 'ppcli trains neural networks'
out_has 'ppcli train mnist.ini'
out_has 'ppcli help'
lines=$(wc -l <"$folder/out")
[ "$lines" -le 14 ] || complain "$lines lines, expected about 12"
same "$(cat "$folder/err")" ''

begin "help lists every command, three ways"
run help
code_is 0
out_has 'download '
cp "$folder/out" "$folder/help"
for word in --help -h; do
    run $word
    code_is 0
    cmp -s "$folder/out" "$folder/help" || complain "$word prints something else than help"
done

begin "every listed command has help, by word and by option"
commands=$(sed -n 's/^  \([a-z-]*\)  .*/\1/p' "$folder/help")
[ -n "$commands" ] || complain 'no commands found in the help'
for command in $commands; do
    run "$command" --help
    code_is 0
    out_has "usage: ppcli $command"
    out_has '--help'
    cp "$folder/out" "$folder/one"
    run help "$command"
    code_is 0
    cmp -s "$folder/out" "$folder/one" || complain "help $command differs from $command --help"
done

begin "version names what was built in, two ways"
run --version
code_is 0
out_has 'ppcli '
for word in CBLAS MPI libcurl zlib inih jansson; do
    out_has "$word: "
done
cp "$folder/out" "$folder/version"
run version
cmp -s "$folder/out" "$folder/version" || complain "version and --version differ"

begin "an unknown command is 64 with the nearest one"
run kyes
code_is 64
err_has "unknown command 'kyes'; did you mean 'keys'?"
err_has "see 'ppcli help'"
same "$(cat "$folder/out")" ''
run help explian
code_is 64
err_has "did you mean 'explain'?"

begin "a command with nothing near it gets no guess"
run frobnicate
code_is 64
err_has "unknown command 'frobnicate'"
err_lacks 'did you mean'

begin "commands are not abbreviated"
run tra
code_is 64

begin "a config in the place of a command is understood"
run mnist.ini
code_is 64
err_has "ppcli train mnist.ini"

begin "an unknown option is 64 with the nearest one"
run train --stagse 2
code_is 64
err_has "unknown option '--stagse'; did you mean '--stages'?"
err_has "see 'ppcli help train'"
run keys -z
code_is 64
err_has "unknown option '-z'"

begin "options are not abbreviated"
run train --stage 2 x.ini
code_is 64
err_has "did you mean '--stages'?"
run train --stage=2 x.ini
code_is 64
run train --micro
code_is 64
err_has "did you mean '--microbatches'?"
run keys --js
code_is 64
err_has "did you mean '--json'?"

begin "a missing or surplus value is named"
run train x.ini --stages
code_is 64
err_has '--stages wants P after it'
run keys --json=yes
code_is 64
err_has '--json takes no value'

begin "surplus words are refused"
run keys train model
code_is 64
err_has "unexpected word 'model'"
run version now
code_is 64

begin "an option in the place of a command is explained"
run --stages 2
code_is 64
err_has 'where a command is expected'
run --hepl
code_is 64
err_has "did you mean '--help'?"

begin "quiet, verbose and no-color work before and after the command"
for flag in -q -v --quiet --verbose --no-color; do
    run $flag version
    code_is 0
    run version $flag
    code_is 0
done

begin "a config key as an option is sent to --set"
run train x.ini --train.lr 0.1
code_is 64
err_has '--set train.lr=VALUE'

begin "--set without a key is refused"
for word in lr=1 =1 train.lr train.=1 .lr=1 ''; do
    run explain x.ini --set "$word"
    code_is 64
    err_has 'SECTION.KEY=VALUE'
done

begin "train without a config says so"
run train
code_is 64
err_has 'name a config'

begin "words after -- are words"
run keys -- --json
code_is 64
err_lacks 'unknown option'

begin "the names that other programs have for a key lead to it"
printf '[train]\nlearning_rate = 0.1\n' >"$folder/other.ini"
run explain "$folder/other.ini"
code_is 78
err_has "other.ini:2: error: unknown key 'learning_rate' in [train]; did you mean 'lr' in [train]? (ppcli keys train.lr)"
run explain mnist-sample.ini --set train.grad_clip=1
code_is 78
err_has "unknown key 'train.grad_clip'; did you mean 'train.clip_norm'?"
run explain mnist-sample.ini --num-epochs 3
code_is 64
err_has "did you mean '--set train.epochs=VALUE'?"
run keys learning_rate
code_is 64
err_has "did you mean 'train.lr'?"

begin "no line of a help or of keys is wider than 100 columns"
for command in train eval generate explain plan bench slurm report inspect verify export diagnose env keys init download; do
    "$PPCLI" "$command" --help
done >"$folder/out"
"$PPCLI" keys >>"$folder/out"
"$PPCLI" keys pipeline.schedule >>"$folder/out"
same "$(awk 'length > 100' "$folder/out")" ''
"$PPCLI" explain mnist-sample.ini >"$folder/out" 2>/dev/null
same "$(grep -v ' = ' "$folder/out" | awk 'length > 100')" ''

begin "--backend gpu means cuda"
run explain mnist-sample.ini --backend gpu
code_is 0
grep -q 'backend .*= cuda' "$folder/out" || complain "$(cat "$folder/out")"

begin "one is not several"
run explain "$(dirname "$0")/../../configs/synthetic.ini" --stages 1 --microbatches 1 --batch-size 2000 \
    --set data.test_samples=1
code_is 0
out_has ' training samples in 1 step an epoch ('
out_has ', 1 test sample'
out_lacks '1 test samples'
out_has 'schedule 1f1b: 1 stage, 1 micro-batch of at most'
if ! "$PPCLI" env | grep -q '^ *MPI  *no'; then # else it says that there is no MPI
    run train "$(dirname "$0")/../../configs/synthetic.ini" --stages 2 --hosts localhost:1
    code_is 78
    err_has 'run.hosts has 1 host with places for 1 rank, but'
fi

begin "an unknown shell is refused"
run completion tcsh
code_is 64
err_has 'bash, zsh or fish'
run completion
code_is 64

begin "an unknown data set is refused before any network"
run download fashion-mnits
code_is 64
err_has "did you mean 'fashion-mnist'?"
run download-mnist --dataset synthetic
code_is 64
err_has 'needs no download'
run download all --dir here
code_is 64
err_has 'one data set'

begin "download without words lists what there is, where, and what is there"
mkdir -p "$folder/data/mnist"
: > "$folder/data/mnist/train-labels-idx1-ubyte.gz"
PPCLI_DATA_DIR=$folder/data
export PPCLI_DATA_DIR
run download
code_is 0
out_has "$folder/data/mnist: 1 of 4 files there"
out_has 'shakespeare'
unset PPCLI_DATA_DIR

begin "a one-rank command runs on rank 0 of an MPI launch and is silent elsewhere"
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1
export OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK
run version
code_is 0
same "$(cat "$folder/out")" ''
OMPI_COMM_WORLD_RANK=0
run version
code_is 0
out_has 'ppcli '
unset OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK

finish
