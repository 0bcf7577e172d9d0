#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds ppcli for another processor and compares its digests under qemu with tests/golden/digests.txt,
# then runs the tests of the kernels. arm64-test.sh [arm64|ppc64el]; without MPI. Needs Debian 12 and,
# once, as root:
#
#   dpkg --add-architecture arm64 && apt-get update
#   apt-get install gcc-aarch64-linux-gnu qemu-user-static zlib1g-dev:arm64 libinih-dev:arm64 libjansson-dev:arm64 libcurl4-openssl-dev:arm64 libhwloc-dev:arm64 libopenblas-dev:arm64 libcmocka-dev:arm64
#
# For ppc64el, which has plain C only, gcc-powerpc64le-linux-gnu, and the same libraries of ppc64el
# unpacked (dpkg-deb -x) in the folder that SYSROOT names; BUILD names the folder to build in.
set -eu
case ${1:-arm64} in
arm64) cpu=aarch64 family=aarch64 emulator=qemu-aarch64-static kernels=neon ;;
ppc64el) cpu=powerpc64le family=ppc64 emulator=qemu-ppc64le-static kernels=base ;;
*) echo "usage: arm64-test.sh [arm64|ppc64el]" >&2 && exit 64 ;;
esac
source=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$source/build-$cpu}
root=${SYSROOT:-}
for program in "$cpu-linux-gnu-gcc" "$emulator" meson ninja pkg-config; do
    command -v "$program" >/dev/null || { echo "arm64-test.sh: $program is missing; see the head of $0" >&2 && exit 77; }
done
# Where the libraries are in a folder of their own, the C library is the compiler's.
start=${root:+-L /usr/$cpu-linux-gnu -E LD_LIBRARY_PATH=$root/lib/$cpu-linux-gnu:$root/usr/lib/$cpu-linux-gnu}
compile='' link=''
if [ -n "$root" ]; then
    compile="'-I$root/usr/include', '-mcpu=power8'"
    link="'-L$root/usr/lib/$cpu-linux-gnu', '-Wl,-rpath-link,$root/lib/$cpu-linux-gnu'"
fi
mkdir -p "$build"
cat >"$build/pkg-config" <<END
#!/bin/sh
PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/$cpu-linux-gnu/pkgconfig:$root/usr/share/pkgconfig exec pkg-config "\$@"
END
cat >"$build/cross.txt" <<END
[binaries]
c = '$cpu-linux-gnu-gcc'
ar = '$cpu-linux-gnu-ar'
strip = '$cpu-linux-gnu-strip'
pkgconfig = '$build/pkg-config'
pkg-config = '$build/pkg-config'
exe_wrapper = '$emulator'
[built-in options]
c_args = [$compile]
c_link_args = [$link]
[host_machine]
system = 'linux'
cpu_family = '$family'
cpu = '$cpu'
endian = 'little'
END
cat >"$build/emulated" <<END
#!/bin/sh
exec $emulator $start $build/ppcli "\$@"
END
chmod +x "$build/pkg-config" "$build/emulated"
[ -f "$build/build.ninja" ] || meson setup "$build" "$source" --cross-file "$build/cross.txt" -Dcuda=disabled -Dmpi=disabled ${root:+-Dtests=false -Dcurl=disabled -Dhwloc=disabled -Dblas=none}
tests="dev_gemm dev_conv dev_attention dev_bf16 dev_math dev_promises"
[ -z "$root" ] || tests=
# shellcheck disable=SC2046
ninja -C "$build" ppcli $(for name in $tests; do echo "tests/unit/test_$name"; done)
failed=0
PPCLI=$build/emulated KERNELS=$kernels "$source/tests/cli/digests.sh" || failed=1
for name in $tests; do
    # shellcheck disable=SC2086
    "$emulator" $start "$build/tests/unit/test_$name" || failed=1
done
exit $failed
