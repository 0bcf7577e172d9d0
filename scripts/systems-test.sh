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
[ "$(id -u)" -eq 0 ] || skip 'only root can make a root folder'
for program in debootstrap unshare chroot git; do
    command -v $program >/dev/null 2>&1 || skip "no $program here (install debootstrap, util-linux, git)"
done
if [ -z "$mirror" ] && command -v apt-get >/dev/null 2>&1; then
    # shellcheck disable=SC2016 # apt's own word
    mirror=$(apt-get indextargets --format '$(REPO_URI)' | sed -nE 's,/(debian|ubuntu)/?$,,p' | head -n 1)
fi
[ -n "$mirror" ] || skip 'the apt of this machine names no mirror of Debian or Ubuntu; --mirror URL does'
if [ -z "$work" ]; then
    work=$(mktemp -d) || exit 70
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work" && work=$(cd "$work" && pwd) || exit 70

# make SYSTEM SUITE KIND COMPONENTS SCRIPT: the folder $work/SYSTEM
make() {
    home=$work/$1
    [ ! -f "$home/made" ] || return 0
    rm -rf "${home:?}"
    # Where this machine has no keys of that system, apt inside it checks all that comes after.
    check=--no-check-gpg
    [ ! -f "/usr/share/keyrings/$3-archive-keyring.gpg" ] || check=--keyring=/usr/share/keyrings/$3-archive-keyring.gpg
    debootstrap --variant=minbase "$check" --components="$(echo "$4" | tr ' ' ,)" "$2" "$home" "$mirror/$3" \
        "/usr/share/debootstrap/scripts/$5" >"$work/$1.log" 2>&1 || return 1
    printf 'deb %s %s %s\n' "$mirror/$3" "$2" "$4" "$mirror/$3" "$2-updates" "$4" >"$home/etc/apt/sources.list"
    # how apt gets through here: proxies, dates of a mirror
    apt-config dump 2>/dev/null | grep -E '^Acquire::(Check-|http|https).* "' >"$home/etc/apt/apt.conf.d/90-of-the-machine"
    cp -L /etc/resolv.conf /etc/hosts "$home/etc/"
    printf '#!/bin/sh\nexit 101\n' >"$home/usr/sbin/policy-rc.d" # installing starts no services
    chmod 755 "$home/usr/sbin/policy-rc.d"
    chroot "$home" useradd -m -s /bin/bash tester && touch "$home/made"
}

home_of() { [ "$1" = root ] && echo /root || echo "/home/$1"; }

# inside SYSTEM USER COMMAND: in that user's copy of ppcli, with processes and mounts of its own
inside() {
    # shellcheck disable=SC2016 # for the inner shell
    env -i LANG=C.UTF-8 TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        unshare --mount --pid --fork --kill-child sh -c '
        mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --rbind /sys "$1/sys" || exit 70
        exec chroot --userspec="$2:$2" "$1" env USER="$2" HOME="$3" PPCLI_DATA_DIR=/srv/ppcli sh -c "cd \"$3/ppcli\" && $4"' \
        sh "$work/$1" "$2" "$(home_of "$2")" "$3" </dev/null
}

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
    case $system in
    debian-12) set -- bookworm debian main sid ;;
    debian-13) set -- trixie debian main sid ;;
    ubuntu-22.04) set -- jammy ubuntu 'main universe' gutsy ;;
    ubuntu-24.04) set -- noble ubuntu 'main universe' gutsy ;;
    *)
        say "$system: not one of debian-12, debian-13, ubuntu-22.04, ubuntu-24.04"
        exit 64
        ;;
    esac
    if ! make "$system" "$@"; then
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
