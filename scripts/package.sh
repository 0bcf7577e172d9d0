#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Packages of the commit that is checked out here, with their checksums: a tarball and a wheel for any Linux on x86-64
# with glibc 2.31 or later, built in a bare Debian 11, and a Debian package, built in a bare Debian 12. The program has
# the kernels of all x86-64 processors and takes those that fit when it starts.
#   scripts/package.sh [--out FOLDER] [--in FOLDER] [--mirror URL] [tarball] [wheel] [deb]
#   --out FOLDER   the packages go there; build-packages/
#   --in FOLDER    makes the systems there, and keeps them for the next time
#   --mirror URL   the folder of packages that has debian/ in it; without it, the one that this machine's apt uses
# Ends with 77 where no system can be made: only root can, with debootstrap.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
usage='usage: scripts/package.sh [--out FOLDER] [--in FOLDER] [--mirror URL] [tarball] [wheel] [deb]'
out=$root/build-packages work='' mirror='' wanted=''
while [ $# -gt 0 ]; do
    case $1 in
    --out | --in | --mirror)
        [ $# -gt 1 ] || set -- "$1" ''
        case $1 in
        --out) out=$2 ;;
        --in) work=$2 ;;
        --mirror) mirror=${2%/} ;;
        esac
        shift
        ;;
    tarball | wheel | deb) wanted="$wanted $1" ;;
    *)
        echo "$usage" >&2
        exit 64
        ;;
    esac
    shift
done
wanted=${wanted:-tarball wheel deb}

say() { echo "package: $*"; }
# shellcheck source=scripts/bare-systems.sh
. "$root/scripts/bare-systems.sh"
if ! need_root || ! find_mirror; then
    say 'skipped: no bare system can be made here; --mirror URL names a mirror of Debian'
    exit 77
fi
if [ -z "$work" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work" "$out"
work=$(cd "$work" && pwd)
out=$(cd "$out" && pwd)
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$root/meson.build")
size_of() { du -sk "$1" | awk '{ printf "%.1f MB", $1 / 1024 }'; }

# prepare FOLDER SYSTEM PACKAGE...: a system with these packages and the source in /src
prepare() {
    folder=$1
    make_system "$1" "$2" || {
        say "$2 cannot be made from $mirror; $work/$1.log says why"
        exit 1
    }
    shift 2
    enter "$folder" root /root "apt-get -q update && DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y --no-install-recommends install $*" >"$work/$folder-apt.log" 2>&1 || {
        say "packages of $folder cannot be installed; $work/$folder-apt.log says why"
        exit 1
    }
    rm -rf "$work/$folder/src" "$work/$folder/installed"
    mkdir "$work/$folder/src"
    git -c safe.directory='*' -C "$root" archive HEAD | tar -x -C "$work/$folder/src"
}

# This machine's meson in a system whose own is too old: it is Python.
copy_meson() { # copy_meson FOLDER
    python=$(sed -n '1s/^#! *//p' "$(command -v meson)")
    # shellcheck disable=SC2086 # perhaps a word after it
    module=$(${python:-python3} -c 'import mesonbuild, os; print(os.path.dirname(mesonbuild.__file__))')
    rm -rf "$work/$1/opt/meson"
    mkdir -p "$work/$1/opt/meson"
    cp -R "$module" "$work/$1/opt/meson/"
    cat >"$work/$1/usr/local/bin/meson" <<'END'
#!/usr/bin/python3
import sys
sys.path.insert(0, '/opt/meson')
from mesonbuild.mesonmain import main
sys.exit(main())
END
    chmod 755 "$work/$1/usr/local/bin/meson"
}

# The program for any Linux: nothing but the C library is linked from outside. In $work/build-debian-11/installed.
build_program() {
    prepare build-debian-11 debian-11 gcc libc6-dev ninja-build pkg-config python3 binutils libinih-dev libjansson-dev \
        zlib1g-dev libpcre2-dev libjpeg62-turbo-dev libpng-dev libhwloc-dev libopenmpi-dev
    copy_meson build-debian-11
    # curl and its libraries are better taken from the system: data can be fetched with any browser
    enter build-debian-11 root /root 'cd /src && meson setup build --prefix=/ppcli -Dprefer_static=true -Dtests=false \
        -Dcuda=disabled -Dnccl=disabled -Dcurl=disabled && ninja -C build && DESTDIR=/installed ninja -C build install &&
        strip /installed/ppcli/bin/ppcli' >"$work/build-debian-11-build.log" 2>&1 || {
        say "the build failed: $(grep -m 1 -E 'error|ERROR' "$work/build-debian-11-build.log"); $work/build-debian-11-build.log"
        exit 1
    }
    installed=$work/build-debian-11/installed/ppcli
    mkdir -p "$installed/share/doc/ppcli/licenses"
    for package in zlib1g-dev libinih-dev libjansson-dev libpcre2-dev libjpeg62-turbo-dev libpng-dev; do
        cp -L "$work/build-debian-11/usr/share/doc/$package/copyright" "$installed/share/doc/ppcli/licenses/$package"
    done
    glibc=$(enter build-debian-11 root /root 'objdump -T /installed/ppcli/bin/ppcli' | grep -o 'GLIBC_2\.[0-9]*' | sort -Vu | tail -n 1)
    glibc=2.${glibc##*.}
    say "program: $(size_of "$installed/bin/ppcli"), needs glibc $glibc; installed with configs and data: $(size_of "$installed")"
}

make_tarball() {
    name=ppcli-$version-linux-x86_64
    tar -C "$work/build-debian-11/installed" --transform "s,^ppcli,$name," --owner=0 --group=0 --numeric-owner --sort=name \
        --mtime=2026-01-01 -czf "$out/$name.tar.gz" ppcli
    say "tarball: $(size_of "$out/$name.tar.gz")"
}

make_wheel() {
    wheel=$(python3 "$root/scripts/make-wheel.py" "$installed" "$version" "manylinux_$(echo "$glibc" | tr . _)_x86_64" "$out")
    say "wheel: $(size_of "$wheel")"
}

make_deb() {
    prepare build-debian-12 debian-12 dpkg-dev fakeroot build-essential
    enter build-debian-12 root /root 'cd /src && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends build-dep ./ &&
        dpkg-buildpackage -b -us -uc' >"$work/build-debian-12-build.log" 2>&1 || {
        say "the build failed: $(grep -m 1 -iE 'error' "$work/build-debian-12-build.log"); $work/build-debian-12-build.log"
        exit 1
    }
    cp "$work/build-debian-12/ppcli_${version}_amd64.deb" "$out/"
    say "Debian package: $(size_of "$out/ppcli_${version}_amd64.deb")"
}

case $wanted in *tarball* | *wheel*) build_program ;; esac
for kind in $wanted; do
    "make_$kind"
done
(cd "$out" && sha256sum ppcli*.tar.gz ppcli*.whl ppcli*.deb 2>/dev/null >SHA256SUMS) || true
cat "$out/SHA256SUMS"
