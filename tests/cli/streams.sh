#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where results and messages go, and what happens when they cannot.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

begin "a result that does not fit on the disk is 74 and says so"
if [ -c /dev/full ]; then
    for command in 'keys' 'help' 'completion bash' 'version'; do
        code=0
        # shellcheck disable=SC2086 # words
        "$PPCLI" $command >/dev/full 2>"$folder/err" || code=$?
        last="ppcli $command >/dev/full"
        code_is 74
        err_has 'ppcli: error: ' 'No space left'
    done
else
    skip "no /dev/full"
fi

begin "a closed standard output is 74"
code=0
last='ppcli keys >&-'
"$PPCLI" keys >&- 2>"$folder/err" || code=$?
code_is 74
err_has 'ppcli: error: '

begin "a reader that leaves is 74 without a message"
mkfifo "$folder/pipe"
: <"$folder/pipe" &
reader=$!
last='ppcli keys | (reader that leaves)'
code=0
# the shell opens the pipe, the reader closes it, and only then ppcli writes
(
    exec >"$folder/pipe"
    wait 2>/dev/null
    sleep 0.2
    exec "$PPCLI" keys 2>"$folder/err"
) || code=$?
wait $reader
code_is 74
same "$(cat "$folder/err")" ''

begin "a wrong word keeps its own code when standard output is full"
if [ -c /dev/full ]; then
    code=0
    last='ppcli nonsense >/dev/full'
    "$PPCLI" nonsense >/dev/full 2>"$folder/err" || code=$?
    code_is 64
else
    skip "no /dev/full"
fi

begin "closed standard input and error do no harm"
code=0
last='ppcli keys <&- 2>&-'
"$PPCLI" keys >"$folder/out" <&- 2>&- || code=$?
code_is 0
out_has 'stages'

# each TEST: TEST NAME WORD... for every command that has a result
net=$folder/net.ini
config "$net" data.dataset=synthetic data.train_samples=64 data.test_samples=16 \
    'model.sizes=12 8*3 5' pipeline.stages=2 pipeline.microbatches=2 train.epochs=1 \
    train.batch_size=32 run.dir=
"$PPCLI" train "$net" -q --dir "$folder/run" >/dev/null 2>&1
each() {
    "$1" help train
    "$1" version
    "$1" keys --json
    "$1" completion zsh
    "$1" explain "$net"
    "$1" explain "$net" --format json
    "$1" plan "$net"
    "$1" plan "$net" --format svg
    "$1" inspect "$folder/run"
    "$1" verify "$folder/run"
    "$1" diagnose "$folder/run"
    "$1" report "$folder/run" -o -
    "$1" eval "$net" --checkpoint "$folder/run"
    "$1" train "$net"
    "$1" bench "$net" --repeat 1 --warmup 1 --time 0.01 --no-ceilings
}

# shellcheck disable=SC2317 # called by each
unread() { # nobody reads the pipe any more when the command writes
    code=0
    last="ppcli $* | (reader that left)"
    # shellcheck disable=SC2094 # it is a pipe
    (
        exec 3<>"$folder/pipe" >"$folder/pipe" 3<&-
        exec timeout 60 "$PPCLI" "$@" -q 2>"$folder/err" </dev/null
    ) || code=$?
    code_is 74
    err_lacks 'error' 'ignal'
}

# Lines of a result, without those that a busy machine adds or takes.
# shellcheck disable=SC2317 # called by closed
lines() { grep -cvE '^(advice|busy machine|few cores|- !|                 )' "$1"; }

# shellcheck disable=SC2317 # called by each
closed() { # the result is the same without standard input and error
    "$PPCLI" "$@" -q >"$folder/open" 2>/dev/null </dev/null
    code=0
    last="ppcli $* <&- 2>&-"
    timeout 60 "$PPCLI" "$@" -q >"$folder/out" <&- 2>&- || code=$?
    code_is 0
    same "$(lines "$folder/out")" "$(lines "$folder/open")"
    [ -s "$folder/out" ] || complain "$last: no result"
}

# shellcheck disable=SC2317 # called by each
nothing() { # no result is lost without a word
    code=0
    last="ppcli $* <&- >&- 2>&-"
    timeout 60 "$PPCLI" "$@" -q <&- >&- 2>&- || code=$?
    code_is 74
}

begin "every command: a reader that left is 74 without a message"
each unread

begin "every command: closed standard input and error do no harm"
each closed

begin "every command: with all three closed it is 74"
each nothing

begin "errors go to standard error only, on one line each"
fails 64 '' run keys nonsense
same "$(cat "$folder/out")" ''
same "$(grep -c '^ppcli: ' "$folder/err")" "$(wc -l <"$folder/err" | tr -d ' ')"

# on_terminal VARIABLES WORD...: what a terminal shows of standard error
on_terminal() {
    script -qec "env $1 '$PPCLI' $2" /dev/null </dev/null >"$folder/out" 2>&1 || true
    last="$1 ppcli $2 (terminal)"
}
has_terminal() { command -v script >/dev/null 2>&1 && script -qec true /dev/null </dev/null >/dev/null 2>&1; }
colour=$(printf '\033[')

begin "an error is coloured on a terminal"
if has_terminal; then
    on_terminal 'TERM=xterm' nonsense
    out_has "$colour" 'nonsense'
else
    skip "no script(1) or no terminals"
fi

begin "NO_COLOR, --no-color, a dumb terminal and a file get no colour"
if has_terminal; then
    on_terminal 'TERM=xterm NO_COLOR=1' nonsense
    out_lacks "$colour"
    on_terminal 'TERM=xterm' '--no-color nonsense'
    out_lacks "$colour"
    on_terminal 'TERM=dumb' nonsense
    out_lacks "$colour"
    on_terminal 'TERM=xterm NO_COLOR=' nonsense # empty does not count
    out_has "$colour"
fi
run nonsense
err_lacks "$colour"

begin "a search shows how far it is on a terminal, in one line that goes; a file gets nothing of it"
search="estimate mlp-16x1024.ini --machine laptop --stages 2 --ranks 2"
if has_terminal; then
    on_terminal TERM=xterm "$search"
    out_has "looking at 2 stages x 1 replica x 1 thread: zb-h1"
    out_has "whole steps: 1 of "
    same "$(tail -n 1 "$folder/out" | grep -c 'looking at\|whole steps')" 0
    on_terminal TERM=dumb "$search"
    out_lacks 'looking at'
fi
# shellcheck disable=SC2086 # words
ok run $search
err_lacks 'looking at'

begin "a reader that stands still stops neither the training nor a signal"
config "$folder/long.ini" data.dataset=synthetic data.train_samples=300 data.test_samples=50 'model.sizes=20 16*3 5' \
    pipeline.stages=2 train.batch_size=32 train.epochs=1000000 run.log_every=1
for stuck in out err both; do
    code=0
    last="train, nothing reads: $stuck"
    rm -rf "$folder/stuck"
    python3 - "$PPCLI" "$folder" $stuck <<'END' || code=$?
import fcntl, os, signal, subprocess, sys, time
ppcli, folder, stuck = sys.argv[1:]
ends = os.pipe()
fcntl.fcntl(ends[1], 1031, 4096)  # F_SETPIPE_SZ
out = {'out': ends[1], 'err': subprocess.DEVNULL, 'both': ends[1]}[stuck]
err = {'out': subprocess.DEVNULL, 'err': ends[1], 'both': ends[1]}[stuck]
os.write(ends[1], bytes(4000))
run = subprocess.Popen([ppcli, 'train', folder + '/long.ini', '--dir', folder + '/stuck'], stdout=out, stderr=err)
def steps():
    try:
        with open(folder + '/stuck/metrics.jsonl') as f:
            return sum(1 for _ in f)
    except OSError:
        return 0
end = time.monotonic() + 60
while steps() < 300 and time.monotonic() < end:
    time.sleep(0.05)
trained = steps() >= 300
run.send_signal(signal.SIGTERM)
try:
    code = run.wait(60)
except subprocess.TimeoutExpired:
    run.kill()
    code = 'none'
sys.exit(0 if trained and code == 75 else f'trained: {trained}, exit code {code}')
END
    code_is 0
done

finish
