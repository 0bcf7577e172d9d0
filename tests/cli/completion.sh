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

    begin "bash completes the values of a key after --set KEY="
    offers ppcli train a.ini --set train.optimizer = ''
    same "$(tr '\n' ' ' <"$folder/out")" 'sgd momentum adam adamw '
    offers ppcli train a.ini --set = train.optimizer = adamw
    same "$(cat "$folder/out")" 'adamw'
    offers ppcli train a.ini --set data.dataset = cifar10-
    same "$(cat "$folder/out")" 'cifar10-sample'
    offers ppcli train a.ini --set pipeline.recompute = al
    same "$(cat "$folder/out")" 'all'
    offers ppcli train a.ini --set run.packed = ''
    same "$(tr '\n' ' ' <"$folder/out")" 'on off '
    offers ppcli train a.ini --set train.lr = ''
    same "$(cat "$folder/out")" ''

    begin "bash completes installed configs, machines and data sets to download"
    offers ppcli train mnist-s
    same "$(cat "$folder/out")" 'mnist-sample.ini'
    offers ppcli plan a.ini --machine 8xh
    same "$(cat "$folder/out")" '8xh100-nvlink'
    offers ppcli plan a.ini --machine = lap
    same "$(cat "$folder/out")" 'laptop'
    offers ppcli download shake
    same "$(cat "$folder/out")" 'shakespeare'
    offers ppcli download mnist cif
    same "$(cat "$folder/out")" 'cifar10'

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

if command -v fish >/dev/null 2>&1; then
    begin "fish completes values of keys, installed configs, machines and data sets"
    for case in 'train a.ini --set train.optimizer=adamw|train.optimizer=adamw' 'train mnist-s|mnist-sample.ini' \
        'plan a.ini --machine 8xh|8xh100-nvlink' 'download shake|shakespeare'; do
        fish -c "source $folder/script.fish; complete -C 'ppcli ${case%%|*}'" >"$folder/out" 2>"$folder/err"
        out_has "${case#*|}"
    done
fi

if command -v zsh >/dev/null 2>&1; then
    begin "zsh completes values of keys, installed configs and machines"
    zsh -fc "compdef() { :; }; compset() { :; }; compadd() { print -r -- \"\$@\"; }; _files() { :; }
        source $folder/script.zsh; PREFIX=train.optimizer=; _ppcli_settings; _ppcli_config; _ppcli_machine" \
        >"$folder/out" 2>"$folder/err"
    same "$(cat "$folder/err")" ''
    for word in 'sgd momentum adam adamw' 'mnist-sample.ini' '8xh100-nvlink'; do
        out_has "$word"
    done
fi

finish
