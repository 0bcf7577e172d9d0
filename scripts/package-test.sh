#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each package in bare systems, where nothing else was installed: it installs, trains the digits that come with it, and
# the digests are those of the source. Makes the packages first unless --packages names them. Prints installed sizes.
#   scripts/package-test.sh [--packages FOLDER] [--in FOLDER] [--mirror URL] [SYSTEM...]
# SYSTEM: debian-11 debian-12 debian-13, as scripts/systems-test.sh has them. Ends with 77 where none can be made.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
work='' mirror='' packages=''
while [ $# -gt 0 ]; do
    case $1 in --packages | --in | --mirror) [ $# -gt 1 ] || set -- '?' '' ;; esac
    case $1 in
    --packages) packages=$2 ;;
    --in) work=$2 ;;
    --mirror) mirror=${2%/} ;;
    -* | \?)
        echo 'usage: scripts/package-test.sh [--packages FOLDER] [--in FOLDER] [--mirror URL] [SYSTEM...]' >&2
        exit 64
        ;;
    *) break ;;
    esac
    shift 2
done
[ $# -gt 0 ] || set -- debian-11 debian-12 debian-13

say() { echo "package-test: $*"; }
# shellcheck source=scripts/bare-systems.sh
. "$root/scripts/bare-systems.sh"
if ! need_root || ! find_mirror; then
    say 'skipped: no bare system can be made here; --mirror URL names a mirror of Debian'
    exit 77
fi
if [ -z "$work" ]; then
    work=$(mktemp -d) || exit 70
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work" && work=$(cd "$work" && pwd) || exit 70
if [ -z "$packages" ]; then
    packages=$work/packages
    "$root/scripts/package.sh" --out "$packages" --in "$work" --mirror "$mirror" || exit
fi
packages=$(cd "$packages" && pwd) || exit 70
(cd "$packages" && sha256sum -c --quiet SHA256SUMS) || exit 1

failed=0
# try SYSTEM USER NAME COMMAND: it succeeds and its six runs have the same bits; keeps what it prints
try() {
    log=$work/$1-$3.txt
    code=0
    enter "$1" "$2" "/home/$2" "cd /tmp && $4" >"$log" 2>&1 || code=$?
    runs=$(grep -c '^same bits: ' "$log")
    verdict=passed
    [ "$code" -eq 0 ] && [ "$runs" -eq 6 ] || verdict=FAILED failed=1
    say "$1, $3: $verdict, exit $code, $runs of 6 runs with the same bits; installed: $(sed -n 's/^size: //p' "$log")"
}

check='sh /tmp/package/package-check.sh /tmp/package/digests.txt'
apt='DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends'
for system; do
    rm -rf "${work:?}/$system" # what an earlier test installed
    if ! describe_system "$system" >/dev/null || ! make_system "$system" "$system"; then
        say "$system: skipped: it cannot be made from $mirror; $work/$system.log says why"
        continue
    fi
    mkdir "$work/$system/tmp/package"
    cp "$packages"/ppcli* "$root/scripts/package-check.sh" "$root/tests/golden/digests.txt" "$work/$system/tmp/package/"
    chmod -R a+rX "$work/$system/tmp/package"
    try "$system" tester tarball "mkdir here && tar -xzf package/ppcli-*.tar.gz -C here && du -sh here | sed 's/^/size: /' &&
        mv here moved && $check /tmp/moved/ppcli-*/bin/ppcli"
    if [ "$system" = debian-11 ]; then
        say "$system, deb: skipped: the package is made for Debian 12 and later"
    else
        try "$system" root deb "apt-get -q update && $apt install ./package/ppcli_*.deb &&
            dpkg-query -W -f 'size: \${Installed-Size} KB\n' ppcli && $check /usr/bin/ppcli && apt-get -q -y purge ppcli"
    fi
    try "$system" root wheel "apt-get -q update && $apt install python3-venv && python3 -m venv /opt/venv &&
        /opt/venv/bin/pip -q install --no-index package/ppcli-*.whl && PATH=/opt/venv/bin:\$PATH &&
        du -shc /opt/venv/bin/ppcli /opt/venv/share | tail -n 1 | sed 's/^/size: /' && $check"
done
exit $failed
