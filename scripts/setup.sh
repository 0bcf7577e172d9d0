#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what building ppcli needs and this machine lacks: Debian and its relatives, with apt-get.
# Does nothing, and asks for nothing, when nothing is missing.
#   scripts/setup.sh [--tests] [--clang]
# --tests: also what the test programs need. --clang: also clang with its sanitizers.
set -eu

usage='usage: scripts/setup.sh [--tests] [--clang]'
with_tests=no
with_clang=no
for word in "$@"; do
    case $word in
    --tests) with_tests=yes ;;
    --clang) with_clang=yes ;;
    -h | --help)
        echo "$usage"
        exit 0
        ;;
    *)
        echo "setup: unknown word '$word'; $usage" >&2
        exit 64
        ;;
    esac
done

# Is it here already, from wherever? The thing itself decides, not the package.
has_command() { command -v "$1" >/dev/null 2>&1; }
has_library() { has_command pkg-config && pkg-config --exists "$*"; } # NAME ['>=' VERSION]
# OpenBLAS's serial build keeps one scratch area for all threads: ranks are threads, so it will not do.
has_openblas() { has_library openblas && case $(pkg-config --variable=libdir openblas) in *serial*) false ;; esac }
has_meson() {
    has_command meson && case $(meson --version) in 0.[0-9] | 0.[0-9].* | 0.[1-5][0-9]* | 0.60*) false ;; esac
}
has_certificates() { [ -s /etc/ssl/certs/ca-certificates.crt ] || [ -s /etc/pki/tls/certs/ca-bundle.crt ]; }
has_clang_runtime() { echo 'int main(void) { return 0; }' | clang -x c -fsanitize=integer -o /dev/null - 2>/dev/null; }

# As in meson.build.
meson_least=0.61
jansson_least=2.11
curl_least=7.80

missing=
# need PACKAGE "WHAT FOR" TEST...
need() {
    package=$1
    reason=$2
    shift 2
    if ! "$@"; then
        missing="$missing $package"
        printf 'setup: %-24s %s\n' "$package" "$reason" >&2
    fi
}

need gcc 'the C compiler' has_command cc
need libc6-dev 'headers of the C library' [ -e /usr/include/stdio.h ]
need meson 'the build system' has_meson
need ninja-build 'runs the build' has_command ninja
need pkg-config 'finds libraries' has_command pkg-config
need libinih-dev 'reads INI files' has_library inih
need libjansson-dev 'reads checkpoints' has_library jansson '>=' $jansson_least
need zlib1g-dev 'reads gzipped data' has_library zlib
need libopenblas-pthread-dev 'matrix products' has_openblas
need libopenmpi-dev 'ranks as MPI processes' has_command mpicc
need openmpi-bin 'starts MPI processes (mpirun)' has_command mpirun
need libhwloc-dev 'which cores share caches and memory' has_library hwloc '>=' 2.4
need libpcre2-dev 'patterns of tokenizers' has_library libpcre2-8
need libjpeg62-turbo-dev 'JPEG pictures as data' has_library libjpeg
need libpng-dev 'PNG pictures as data' has_library libpng '>=' 1.6.32
need libcurl4-openssl-dev 'ppcli download' has_library libcurl '>=' $curl_least
need ca-certificates 'downloads over https' has_certificates
if [ "$with_tests" = yes ]; then
    need libcmocka-dev 'unit tests' has_library cmocka
    need python3 'checks of sources and documents' has_command python3
    need procps 'tests that look for processes (pgrep)' has_command pgrep
    need mandoc 'checks of the manual pages' has_command mandoc
fi
if [ "$with_clang" = yes ]; then
    need clang 'a second compiler, for sanitizers' has_command clang
    need libclang-rt-dev 'run time of its sanitizers' has_clang_runtime
fi

[ -n "$missing" ] || exit 0

if ! has_command apt-get; then
    echo "setup: this is not a Debian-like system, so the packages above (named as in Debian) have" >&2
    echo "setup: to be installed by hand" >&2
    exit 69
fi
as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! has_command sudo; then
        echo "setup: no sudo here; as root, run: apt-get install --no-install-recommends$missing" >&2
        exit 77
    fi
    as_root=sudo
    echo "setup: installing the packages above with sudo apt-get" >&2
else
    echo "setup: installing the packages above with apt-get" >&2
fi
# Old package lists name files that mirrors no longer have; stale ones are still better than none.
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update >&2 ||
    echo "setup: package lists could not be refreshed; trying with those that are here" >&2

# wanted PACKAGE VERSION: whether PACKAGE is missing and this system's is older; its version is $found
wanted() {
    case " $missing " in *" $1 "*) ;; *) return 1 ;; esac
    found=$(apt-cache policy "$1" | sed -n 's/^  Candidate: *\([0-9]*:\)*//p')
    case $found in '' | '(none)') return 1 ;; esac # apt-get says that better
    dpkg --compare-versions "$found" lt "$2"
}

# All versions are known before anything is installed.
if wanted meson $meson_least; then
    echo "setup: this system's meson is $found, and ppcli needs $meson_least. Nothing was installed. Get a newer one:" >&2
    echo "setup:   python3 -m venv ~/meson && ~/meson/bin/pip install 'meson>=$meson_least'" >&2
    echo "setup:   PATH=~/meson/bin:\$PATH    (python3-venv has venv); then run this again" >&2
    exit 69
fi
if wanted libjansson-dev $jansson_least; then
    echo "setup: this system's libjansson-dev is $found, and ppcli needs $jansson_least. Nothing was installed. Build a newer one" >&2
    echo "setup: from its source and name its folder in PKG_CONFIG_PATH, then run this again" >&2
    exit 69
fi
if wanted libcurl4-openssl-dev $curl_least; then
    echo "setup: this system's libcurl is $found; ppcli download needs $curl_least, and is left out" >&2
    missing=$(echo "$missing" | sed 's/ libcurl4-openssl-dev//')
fi

# shellcheck disable=SC2086 # a list of words
[ -z "$missing" ] || $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $missing >&2
