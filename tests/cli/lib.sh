# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# A few words for tests of the command line, printing TAP.
#
#   begin "what is expected" [COMMAND...]   starts a case and ends the one before; runs the command
#   run WORD...                   runs ppcli; keeps code, standard output and standard error
#   ok COMMAND...                 runs a command, such as run; its code is 0
#   shows TEXT COMMAND...         and TEXT is in its standard output
#   fails CODE TEXT COMMAND...    its code is CODE, and TEXT, unless empty, is in its standard error
#   code_is N; out_has TEXT...; err_has TEXT...; out_lacks TEXT...; err_lacks TEXT...; same A B
#   skip REASON                   the current case cannot be judged here
#   config FILE SECTION.KEY=VALUE...   writes a config
#   within TEST                   whether it holds within half a minute
#   finish                        ends the last case and prints the plan
set -u

: "${PPCLI:?path of the program under test}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# What a user's or a launcher's environment holds must not change what is tested.
unset NO_COLOR PPCLI_DATA_DIR OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK RANK WORLD_SIZE
export HOME="$folder" TERM=dumb
unset XDG_DATA_HOME
export XDG_RUNTIME_DIR="$folder" # runs of other tests are no neighbours

cases=0
failures=0
name=
wrong=
skipped=

end_case() {
    [ -n "$name" ] || return 0
    cases=$((cases + 1))
    if [ -n "$skipped" ]; then
        echo "ok $cases - $name # SKIP $skipped"
    elif [ -z "$wrong" ]; then
        echo "ok $cases - $name"
    else
        failures=$((failures + 1))
        echo "not ok $cases - $name"
        printf '%s' "$wrong" | sed 's/^/# /'
        printf '%s:\n%s' "$name" "$wrong" >&2 # meson shows no comments of TAP
    fi
}

begin() {
    end_case
    name=$1
    wrong=
    skipped=
    shift
    "$@"
}

finish() {
    end_case
    echo "1..$cases"
    [ "$failures" -eq 0 ]
    exit $?
}

skip() { skipped=$1; }

config() {
    config_file=$1
    config_section=
    shift
    for word; do
        [ "${word%%.*}" = "$config_section" ] || echo "[${word%%.*}]"
        config_section=${word%%.*}
        echo "${word#*.}"
    done >"$config_file"
}

complain() {
    wrong="$wrong$1
"
}

run() {
    code=0
    "$PPCLI" "$@" >"$folder/out" 2>"$folder/err" </dev/null || code=$?
    last="ppcli $*"
}

code_is() {
    [ "$code" -eq "$1" ] || complain "$last: exit $code, expected $1; said: $(head -c 600 "$folder/err")"
}

has() { grep -qF -e "$2" "$1"; }
all_in() { # all_in FILE yes|no TEXT...: which must be, or must not be, in the file
    file_=$folder/$1
    wanted_=$2
    shift 2
    for text_; do
        found_=no
        ! has "$file_" "$text_" || found_=yes
        [ $found_ = "$wanted_" ] || complain "$last: '$text_' found: $found_, in: $(head -c 900 "$file_")"
    done
}
out_has() { all_in out yes "$@"; }
err_has() { all_in err yes "$@"; }
out_lacks() { all_in out no "$@"; }
err_lacks() { all_in err no "$@"; }

ok() {
    "$@"
    code_is 0
}
shows() {
    said_=$1
    shift
    "$@"
    code_is 0
    out_has "$said_"
}
fails() {
    code_=$1
    said_=$2
    shift 2
    "$@"
    code_is "$code_"
    [ -z "$said_" ] || err_has "$said_"
}
same() { [ "$1" = "$2" ] || complain "$last: '$1', expected '$2'"; }

# The digest of a run's weights, in its summary.json.
sha() { sed -n 's/.*"weights_sha256": "\([0-9a-f]*\)".*/\1/p' "$1"; }

# trains CONFIG [OPTION...]: into ./run; the digest is that of the first run of the case
trains() {
    run train "$@" --dir run --overwrite -q
    code_is 0
    now=$(sha run/summary.json)
    digest=${digest:-$now}
    same "$now" "${digest:-one}"
}

within() {
    for _ in $(seq 1 1500); do
        if eval "$1"; then return 0; fi
        sleep 0.02
    done
    return 1
}

# times_table: 600 lines of text to train a language model with, in ./text.txt
times_table() {
    awk 'BEGIN { for (i = 0; i < 600; i++) printf "%d times %d is %d\n", i % 13, i % 17, (i % 13) * (i % 17) }' >text.txt
}

# killed CONFIG OPTION...: a training into ./killed, killed when it has saved twice; $step is what it saved last
killed() {
    "$PPCLI" train "$@" --dir killed --set train.epochs=1000000 --set train.max_steps=0 >out 2>err </dev/null &
    pid=$!
    # shellcheck disable=SC2016 # for eval
    within '[ "$(find killed/checkpoints -name "step-*" 2>/dev/null | grep -vc tmp)" -ge 2 ]'
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    # shellcheck disable=SC2034 # the test's
    step=$("$PPCLI" inspect killed | sed -n 's/^step *//p')
}
