# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Bare systems: root folders made by debootstrap, below the folder $work. Sourced by scripts that have say().
#   need_root                  0: this user can make and enter them; else says what is missing
#   find_mirror                sets $mirror, unless it is set, to the folder of packages that this machine's apt uses
#   make_system FOLDER SYSTEM  $work/FOLDER is a new debian-11, debian-12, ..., with a user 'tester', unless it is there
#   enter FOLDER USER HOME COMMAND   in it, with processes and mounts of its own

: "${work=}" "${mirror=}" # the script's

need_root() {
    [ "$(id -u)" -eq 0 ] || {
        say 'only root can make a root folder'
        return 1
    }
    for program in debootstrap unshare chroot git; do
        command -v $program >/dev/null 2>&1 || {
            say "no $program here (install debootstrap, util-linux, git)"
            return 1
        }
    done
}

find_mirror() {
    if [ -z "$mirror" ] && command -v apt-get >/dev/null 2>&1; then
        # shellcheck disable=SC2016 # apt's own word
        mirror=$(apt-get indextargets --format '$(REPO_URI)' | sed -nE 's,/(debian|ubuntu)/?$,,p' | head -n 1)
    fi
    [ -n "$mirror" ]
}

# what debootstrap calls a system: suite, kind, components, script
describe_system() {
    case $1 in
    debian-11) echo 'bullseye debian main sid' ;;
    debian-12) echo 'bookworm debian main sid' ;;
    debian-13) echo 'trixie debian main sid' ;;
    ubuntu-22.04) echo 'jammy ubuntu main,universe gutsy' ;;
    ubuntu-24.04) echo 'noble ubuntu main,universe gutsy' ;;
    *) return 1 ;;
    esac
}

make_system() {
    home=$work/$1
    log=$work/$1.log
    [ ! -f "$home/made" ] || return 0
    # shellcheck disable=SC2046 # four words
    set -- $(describe_system "$2")
    rm -rf "${home:?}"
    # Where this machine has no keys of that system, apt inside it checks all that comes after.
    check=--no-check-gpg
    [ ! -f "/usr/share/keyrings/$2-archive-keyring.gpg" ] || check=--keyring=/usr/share/keyrings/$2-archive-keyring.gpg
    debootstrap --variant=minbase "$check" --components="$3" "$1" "$home" "$mirror/$2" \
        "/usr/share/debootstrap/scripts/$4" >"$log" 2>&1 || return 1
    components=$(echo "$3" | tr , ' ')
    printf 'deb %s %s %s\n' "$mirror/$2" "$1" "$components" "$mirror/$2" "$1-updates" "$components" >"$home/etc/apt/sources.list"
    # how apt gets through here: proxies, dates of a mirror
    apt-config dump 2>/dev/null | grep -E '^Acquire::(Check-|http|https).* "' >"$home/etc/apt/apt.conf.d/90-of-the-machine"
    cp -L /etc/resolv.conf /etc/hosts "$home/etc/"
    printf '#!/bin/sh\nexit 101\n' >"$home/usr/sbin/policy-rc.d" # installing starts no services
    chmod 755 "$home/usr/sbin/policy-rc.d"
    chroot "$home" useradd -m -s /bin/bash tester && touch "$home/made"
}

enter() {
    # shellcheck disable=SC2016 # for the inner shell
    env -i LANG=C.UTF-8 TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        unshare --mount --pid --fork --kill-child sh -c '
        mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --rbind /sys "$1/sys" || exit 70
        exec chroot --userspec="$2:$2" "$1" env USER="$2" HOME="$3" PPCLI_DATA_DIR=/srv/ppcli sh -c "$4"' \
        sh "$work/$1" "$2" "$3" "$4" </dev/null
}
