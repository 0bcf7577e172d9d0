#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The completion scripts: readable for their shells, and what bash offers.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

for shell in bash zsh fish; do
    begin "$shell can read its script, which has commands, options and keys"
    run completion $shell
    code_is 0
    for word in download stages log-every pipeline.stages train.lr 1f1b ini; do
        out_has "$word"
    done
    cp "$folder/out" "$folder/script.$shell"
    if command -v $shell >/dev/null 2>&1; then
        $shell -n "$folder/script.$shell" 2>"$folder/err" ||
            complain "$shell -n: $(head -c 600 "$folder/err")"
    fi
done

begin "every option of every command is in every script"
run help
commands=$(sed -n 's/^  \([a-z-]*\)  .*/\1/p' "$folder/out")
for command in $commands; do
    run "$command" --help
    options=$(sed -n 's/^ *\(-.,\)* *--\([a-z-]*\).*/\2/p' "$folder/out")
    [ -n "$options" ] || complain "no options found in the help of $command"
    for option in $options; do
        has "$folder/script.bash" " --$option" || complain "bash: no --$option"
        has "$folder/script.zsh" "--$option" || complain "zsh: no --$option"
        has "$folder/script.fish" "-l $option" || complain "fish: no $option"
    done
done

# offers WORD... : what bash offers for the last word, one a line
cat >"$folder/offers.bash" <<'END'
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_ppcli
printf '%s\n' "${COMPREPLY[@]}"
END
offers() {
    last="completion of '$*'"
    (cd "$folder" && bash offers.bash script.bash "$@") >"$folder/out" 2>"$folder/err"
    same "$(cat "$folder/err")" ''
}

if command -v bash >/dev/null 2>&1; then
    begin "bash completes commands"
    offers ppcli t
    same "$(cat "$folder/out")" 'train'
    offers ppcli help expl
    same "$(cat "$folder/out")" 'explain'

    begin "bash completes options of the command"
    offers ppcli train --sta
    same "$(cat "$folder/out")" '--stages'
    offers ppcli keys --sta
    same "$(cat "$folder/out")" ''
    offers ppcli -q train --microb
    same "$(cat "$folder/out")" '--microbatches'

    begin "bash completes --set with keys, apart and after ="
    offers ppcli train a.ini --set pipeline.sta
    same "$(cat "$folder/out")" 'pipeline.stages='
    offers ppcli train a.ini --set = pipeline.sta
    same "$(cat "$folder/out")" 'pipeline.stages='

    begin "bash completes values of the modules"
    offers ppcli train --schedule gp
    same "$(cat "$folder/out")" 'gpipe'
    offers ppcli train --optimizer adamw
    same "$(cat "$folder/out")" 'adamw'
    offers ppcli keys --format js
    same "$(cat "$folder/out")" 'json'
    offers ppcli completion z
    same "$(cat "$folder/out")" 'zsh'

    begin "bash completes configs and folders, nothing else"
    : >"$folder/net.ini"
    : >"$folder/net.txt"
    mkdir "$folder/nets"
    offers ppcli train ne
    same "$(sort "$folder/out" | tr '\n' ' ')" 'net.ini nets '

    begin "bash completes the files that an option wants"
    offers ppcli eval net.ini --checkpoint ne
    same "$(sort "$folder/out" | tr '\n' ' ')" 'net.ini net.txt nets '
    offers ppcli train net.ini --resume nets
    same "$(cat "$folder/out")" 'nets'

    begin "bash offers nothing where a number is due"
    offers ppcli train --stages ''
    same "$(cat "$folder/out")" ''
fi

finish
