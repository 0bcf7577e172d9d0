#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds ppcli with Open MPI for another processor and tests it under qemu-user: the digests of
# tests/golden/digests.txt, unit tests, tests of the command line, two ranks under mpirun.
#
#   arm64-test.sh [arm64|ppc64el] [TEST...]    TEST: NAME of tests/cli/NAME.sh, unit, mpirun;
#                                              without: all of them, for hours under qemu
#
# ppc64el has no own kernels: it tests plain C. Needs Debian 12 and, once:
#
#   apt-get install mmdebstrap qemu-user-static gcc-aarch64-linux-gnu gcc-powerpc64le-linux-gnu
#
# The other processor's libraries go into the folder SYSROOT (unpacked once, 700 MB; from MIRROR, if it
# is set), the build into BUILD.
set -eu
case ${1:-arm64} in
arm64) cpu=aarch64 family=aarch64 emulator=qemu-aarch64-static kernels=neon flags= ;;
ppc64el) cpu=powerpc64le family=ppc64 emulator=qemu-ppc64le-static kernels=base flags="'-mcpu=power8'" ;;
*) echo "usage: arm64-test.sh [arm64|ppc64el] [TEST...]" >&2 && exit 64 ;;
esac
arch=${1:-arm64}
[ $# -eq 0 ] || shift
source=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$source/build-$cpu}
mkdir -p "$build"
build=$(cd "$build" && pwd)
root=${SYSROOT:-$build/root}
for program in "$cpu-linux-gnu-gcc" "$emulator" mmdebstrap meson ninja pkg-config; do
    command -v "$program" >/dev/null || { echo "arm64-test.sh: $program is missing; see the head of $0" >&2 && exit 77; }
done
[ -d "$root/usr" ] || mmdebstrap --variant=extract --architectures="$arch" \
    --include=zlib1g-dev,libinih-dev,libjansson-dev,libcurl4-openssl-dev,libpcre2-dev,libjpeg62-turbo-dev,libpng-dev,libhwloc-dev,libcmocka-dev,libopenmpi-dev,openmpi-bin,libgomp1 \
    bookworm "$root" ${MIRROR:+"$MIRROR"}
libraries=$root/usr/lib/$cpu-linux-gnu
# Not every linker takes absolute paths for those of the folder, and qemu follows a link to the host.
sed -i '/^GROUP/s: /[^ ]*/: :g' "$libraries/libc.so"
[ ! -L "$root/lib64/ld64.so.2" ] || ln -sfn "../lib/$cpu-linux-gnu/ld64.so.2" "$root/lib64/ld64.so.2"
cat >"$build/pkg-config" <<END
#!/bin/sh
PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$root/usr/share/pkgconfig exec pkg-config "\$@"
END
cat >"$build/emulator" <<END
#!/bin/sh
exec $emulator -L $root "\$@"
END
cat >"$build/emulated" <<END
#!/bin/sh
exec $emulator -L $root $build/ppcli "\$@"
END
chmod +x "$build/pkg-config" "$build/emulator" "$build/emulated"
cat >"$build/cross.txt" <<END
[binaries]
c = '$cpu-linux-gnu-gcc'
ar = '$cpu-linux-gnu-ar'
strip = '$cpu-linux-gnu-strip'
pkgconfig = '$build/pkg-config'
pkg-config = '$build/pkg-config'
exe_wrapper = '$build/emulator'
[built-in options]
c_args = ['--sysroot=$root', $flags]
c_link_args = ['--sysroot=$root']
[host_machine]
system = 'linux'
cpu_family = '$family'
cpu = '$cpu'
endian = 'little'
END
[ -f "$build/build.ninja" ] || meson setup "$build" "$source" --cross-file "$build/cross.txt" -Dcuda=disabled -Dblas=none
tests=${*:-unit digests bf16 mpirun}
case " $tests " in
*' unit '*) ninja -C "$build" ;;
*) ninja -C "$build" ppcli ;;
esac
failed=0
for name in $tests; do
    echo "arm64-test.sh: $name"
    case $name in
    unit)
        # trace stops a child that has threads, which never ends under qemu 7.2
        units=$(meson test -C "$build" --list --suite unit 2>/dev/null | sed -n 's/.* \/ //p' | grep -vx trace)
        # shellcheck disable=SC2086
        meson test -C "$build" --no-rebuild --timeout-multiplier 10 --suite unit $units || failed=1
        ;;
    mpirun)
        # A process of qemu cannot read another one's memory at once: messages are copied twice.
        for ranks in 1 2; do
            "$emulator" -L "$root" "$root/usr/bin/orterun" --allow-run-as-root --oversubscribe \
                --mca btl_vader_single_copy_mechanism none -n $ranks "$build/emulated" \
                train "$source/configs/mnist-sample.ini" -q --dir '' --max-steps 5 --stages $ranks \
                --set run.backend=cpu | sed -n 's/^weights_sha256 *//p' >"$build/digest.$ranks"
        done
        [ -s "$build/digest.1" ] && cmp "$build/digest.1" "$build/digest.2" || failed=1
        ;;
    *) PPCLI=$build/emulated KERNELS=$kernels "$source/tests/cli/$name.sh" || failed=1 ;;
    esac
done
exit $failed
