#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What can follow a word: the command that the completion scripts ask, and what a real bash, zsh and
# fish then offer.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
PATH="$(cd "$(dirname "$PPCLI")" && pwd):$PATH" # the scripts ask the ppcli that is called

for shell in bash zsh fish; do
    begin "$shell can read its script"
    shows 'completion words' run completion $shell
    cp "$folder/out" "$folder/script.$shell"
    if command -v $shell >/dev/null 2>&1; then
        $shell -n "$folder/script.$shell" 2>"$folder/err" ||
            complain "$shell -n: $(head -c 600 "$folder/err")"
    fi
done

begin "every option of every command is offered, with its help"
run help
commands=$(sed -n 's/^  \([a-z-]*\)  .*/\1/p' "$folder/out")
run completion words ''
for command in $commands; do
    has "$folder/out" "$command	" || complain "no $command"
done
for command in $commands; do
    run "$command" --help
    options=$(sed -n 's/^ *\(-.,\)* *--\([a-z0-9-]*\).*/\2/p' "$folder/out")
    [ -n "$options" ] || complain "no options found in the help of $command"
    run completion words "$command" -
    for option in $options; do
        has "$folder/out" "--$option	" || complain "$command: no --$option"
    done
done

begin "words that lead nowhere have no answers"
for words in 'unknown x' 'train --stages x' 'train a.ini --set train.lr=' 'train a.ini --set no.key=' 'version x'; do
    # shellcheck disable=SC2086 # words
    ok run completion words $words
    same "$(cat "$folder/out")" ''
done
shows 'train	' run completion words

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
    offers ppcli tr
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
    same "$(cat "$folder/out")" "$("$PPCLI" keys train.optimizer --format json | sed -n '/"values"/,/]/p' |
        sed '1d;$d' | tr -d '", ')"
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
    offers ppcli estimate a.ini --machine 8xh
    same "$(cat "$folder/out")" '8xh100-nvlink'
    offers ppcli estimate a.ini --machine = lap
    same "$(cat "$folder/out")" 'laptop'
    offers ppcli download shake
    same "$(cat "$folder/out")" 'shakespeare'
    offers ppcli download mnist fas
    same "$(cat "$folder/out")" 'fashion-mnist'

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

# each SHELL: ask() prints what that shell makes of a line when Tab is pressed behind it
each() {
    while IFS='|' read -r line wanted; do
        last="$1: '$line' and Tab"
        ask "$line" >"$folder/out" 2>"$folder/err"
        same "$(cat "$folder/err")" ''
        case $wanted in
        */) out_has "$wanted" ;;
        *) same "$(cut -f 1 "$folder/out")" "$wanted" ;;
        esac
    done <<'END'
ppcli tr|train
ppcli help expl|explain
ppcli train --stag|--stages
ppcli -q train --microb|--microbatches
ppcli train a.ini --set pipeline.sta|pipeline.stages=
ppcli train a.ini --set=pipeline.sta|--set=pipeline.stages=
ppcli train a.ini --set train.optimizer=s|train.optimizer=sgd
ppcli train a.ini --set=train.optimizer=s|--set=train.optimizer=sgd
ppcli train --schedule gp|gpipe
ppcli train --schedule=gp|--schedule=gpipe
ppcli keys --format js|json
ppcli completion z|zsh
ppcli train mnist-s|mnist-sample.ini
ppcli estimate a.ini --machine 8xh|8xh100-nvlink
ppcli download mnist fas|fashion-mnist
ppcli train net.ini --dir ne|nets/
ppcli train net.ini --dir=ne|--dir=nets/
ppcli inspect oth|other.txt
END
}
mkdir -p "$folder/nets"
: >"$folder/other.txt"

if command -v fish >/dev/null 2>&1; then
    begin "fish offers the same"
    ask() {
        (cd "$folder" && fish -c "source script.fish; complete -C '$1'")
    }
    each fish
fi

if command -v zsh >/dev/null 2>&1 && zsh -fc 'zmodload zsh/zpty && autoload -Uz compinit && whence -w compinit' \
    >/dev/null 2>&1; then
    begin "zsh completes the same at its prompt"
    cat >"$folder/tab.zsh" <<'END'
zmodload zsh/zpty
zpty z "TERM=dumb zsh -f -i"
zpty -w z "PS1=; autoload -Uz compinit; compinit -u -D; source script.zsh
keep() { print -r -- \${\${=BUFFER}[-1]} >line.new; mv line.new line; }; zle -N keep; bindkey '^X' keep; print re''ady"
zpty -r z out '*ready*'
zpty -w -n z "$1"$'\t\x18'
for i in {1..600}; do [[ -e line ]] && break; sleep 0.05; done
cat line
zpty -d z
END
    ask() {
        (cd "$folder" && rm -f line && zsh -f tab.zsh "$1")
    }
    each zsh
fi

finish
