#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The README's two commands on bare systems, each in a new root folder made by debootstrap: as a user
# who has no sudo and no packages (one line says what root has to install), as root, then as that user
# with the packages there. Prints minutes, exit codes and sums; keeps what the commands print.
#   scripts/systems-test.sh [OPTION VALUE]... [SYSTEM...]
# SYSTEM: debian-12 debian-13 ubuntu-22.04 ubuntu-24.04; without one, all.
#   --in FOLDER      makes the systems and logs there, and keeps them for the next time
#   --mirror URL     the folder of packages that has debian/ and ubuntu/ in it; without it, the one that
#                    the apt of this machine uses
#   --data FOLDER    the four files of MNIST, for systems that cannot download it
#   --users 'NAME..' of root and tester; without it, both
#   --tests 'WORD..' words for scripts/test.sh, as '--suite unit --suite cli'; 'none' runs none
# Ends with 1 where a command failed, with 77 where no system could be made.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
usage="usage: scripts/systems-test.sh [--in FOLDER] [--mirror URL] [--data FOLDER] [--users 'NAME..'] [--tests 'WORD..'] [SYSTEM...]"
tests='' users='root tester' work='' mirror='' data=''
while [ $# -gt 0 ]; do
    case $1 in
    -*) [ $# -gt 1 ] || set -- '?' '' ;;
    *) break ;;
    esac
    case $1 in
    --in) work=$2 ;;
    --mirror) mirror=${2%/} ;;
    --data) data=$2 ;;
    --users) users=$2 ;;
    --tests) tests=$2 ;;
    *)
        echo "$usage" >&2
        exit 64
        ;;
    esac
    shift 2
done
[ $# -gt 0 ] || set -- debian-12 debian-13 ubuntu-22.04 ubuntu-24.04

say() { echo "systems-test: $*"; }
skip() {
    say "skipped: $*"
    exit 77
}
# shellcheck source=scripts/bare-systems.sh
. "$root/scripts/bare-systems.sh"
need_root || skip 'systems cannot be made here'
find_mirror || skip 'the apt of this machine names no mirror of Debian or Ubuntu; --mirror URL does'
if [ -z "$work" ]; then
    work=$(mktemp -d) || exit 70
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work" && work=$(cd "$work" && pwd) || exit 70

home_of() { [ "$1" = root ] && echo /root || echo "/home/$1"; }

# inside SYSTEM USER COMMAND: in that user's copy of ppcli, with processes and mounts of its own
inside() { enter "$1" "$2" "$(home_of "$2")" "cd \"$(home_of "$2")/ppcli\" && $3"; }

# try SYSTEM USER NAME COMMAND [CODE]: ends it with CODE (0)? Its output is kept, its last line shown.
failed=0
try() {
    log=$work/$1-$2-$3.txt
    begin=$(date +%s)
    code=0
    inside "$1" "$2" "$4" >"$log" 2>&1 || code=$?
    seconds=$(($(date +%s) - begin))
    verdict=passed
    [ "$code" -eq "${5-0}" ] || verdict=FAILED failed=1
    say "$1, $2, $3: $verdict, exit $code, $((seconds / 60)).$((seconds % 60 / 6)) minutes: $(tail -n 1 "$log")"
}

# copy SYSTEM USER: the commit that is checked out here, and nothing else
copy() {
    place=$work/$1$(home_of "$2")/ppcli
    rm -rf "$place"
    mkdir -p "$place"
    git -c safe.directory='*' -C "$root" archive HEAD | tar -x -C "$place"
    chroot "$work/$1" chown -R "$2" "$(home_of "$2")/ppcli"
}

made=0
for system; do
    if ! describe_system "$system" >/dev/null; then
        say "$system: not one of debian-11, debian-12, debian-13, ubuntu-22.04, ubuntu-24.04"
        exit 64
    fi
    if ! make_system "$system" "$system"; then
        say "$system: skipped: it cannot be made from $mirror; $work/$system.log says why"
        continue
    fi
    made=$((made + 1))
    if [ -n "$data" ]; then
        mkdir -p "$work/$system/srv/ppcli"
        chmod 1777 "$work/$system/srv/ppcli"
        mkdir -p "$work/$system/srv/ppcli/mnist" && cp "$data"/*-ubyte.gz "$work/$system/srv/ppcli/mnist/" || failed=1
        chmod -R a+rX "$work/$system/srv/ppcli/mnist"
    fi
    copy "$system" root
    copy "$system" tester
    if ! chroot "$work/$system" sh -c 'command -v meson' >/dev/null; then
        try "$system" tester without-packages ./scripts/train-mnist.sh 77
    fi
    case " $users " in *' root '*) ;; *) try "$system" root setup './scripts/setup.sh --tests' ;; esac
    for user in $users; do
        try "$system" "$user" train-mnist ./scripts/train-mnist.sh
        [ "$tests" = none ] || try "$system" "$user" tests "./scripts/test.sh $tests"
    done
done
[ "$made" -gt 0 ] || skip "none of the systems could be made from $mirror"
exit $failed
