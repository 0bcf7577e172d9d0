# shellcheck shell=sh disable=SC2034
# SPDX-License-Identifier: Apache-2.0
# For tests whose program is started by mpirun: SCRIPT PPCLI SOURCE_DIR. They run in $work; cases are
# reported by report, and `[ $bad = 0 ]` comes last.
set -u
ppcli=$(realpath "$1")
source=$2
launcher=$source/scripts/mpirun-test.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
cd "$work" || exit 1
export XDG_RUNTIME_DIR="$work" # runs of other tests are no neighbours

command -v mpirun >/dev/null 2>&1 || { echo "1..0 # SKIP no mpirun here (install openmpi-bin)"; exit 0; }

n=0
bad=0
report() { # report CODE NAME [WHY]: why not, else what the program printed into out and err
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        bad=1
        echo "not ok $n - $2"
        printf '%s\n' "${3-$(cat out err 2>/dev/null)}" | sed 's/^/# /' >why
        cat why
        { echo "$2" && cat why; } >&2 # meson shows no comments of TAP
    fi
}
