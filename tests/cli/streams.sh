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
        err_has 'ppcli: error: '
        err_has 'No space left'
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

begin "errors go to standard error only, on one line each"
run keys nonsense
code_is 64
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
    out_has "$colour"
    out_has 'nonsense'
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

finish
