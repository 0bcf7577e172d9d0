#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make one file with everything that scripts/gpu-check.sh needs on a machine that has a GPU, its
# driver and the CUDA toolkit, but neither meson nor the libraries that ppcli is built with:
#
#   scripts/gpu-bundle.sh [FILE [BUILD]]        ppcli-gpu.tar.gz, build-bundle
#
# There: tar xzf ppcli-gpu.tar.gz && ppcli-gpu/scripts/gpu-check.sh OUT
# The programs are linked statically against all but the C library; cuBLASLt, NCCL if they were built
# with it, and a CBLAS are looked for when they run. They have no MPI. BUILD is the folder to build in; it
# stays.
set -eu
file=${1:-ppcli-gpu.tar.gz}
build=${2:-build-bundle}
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
most=$((64 * 1024 * 1024))

say() { echo "gpu-bundle: $*" >&2; }

command -v nvcc >/dev/null 2>&1 || {
    say 'no nvcc: a bundle without the CUDA backend has nothing to check'
    exit 69
}
options='-Dprefer_static=true -Dcuda=enabled -Dmpi=disabled -Dcurl=disabled'
if [ -f "$build/build.ninja" ]; then
    # shellcheck disable=SC2086 # words
    meson configure "$build" $options >/dev/null
else
    # shellcheck disable=SC2086
    meson setup "$build" "$root" $options >/dev/null
fi
ninja -C "$build" ppcli >/dev/null
# The programs of the gpu suite, by the names that gpu-check.sh knows.
targets=$(ninja -C "$build" -t targets all | sed -n 's/^\(tests\/gpu\/\(test_\)*gpu_[a-z0-9_]*\): .*LINKER.*/\1/p')
# shellcheck disable=SC2086
[ -z "$targets" ] || ninja -C "$build" $targets >/dev/null

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/ppcli-gpu
mkdir -p "$to/bin" "$to/tests" "$to/configs" "$to/data" "$to/scripts"
cp "$build/ppcli" "$to/bin/"
for target in $targets; do
    cp "$build/$target" "$to/tests/"
done
cp "$root"/configs/*.ini "$to/configs/"
cp -R "$root/data/mnist-sample" "$root/data/cifar10-sample" "$root/data/shakespeare-sample" "$to/data/"
cp "$root/scripts/gpu-check.sh" "$root/scripts/gpu-check-parts.sh" "$to/scripts/"
cp -R "$root/scripts/peers" "$to/scripts/"
rm -rf "$to/scripts/peers/__pycache__"
cp "$root/LICENSE" "$root/NOTICE" "$to/"
cp "$root/data/README.md" "$to/data/"
# The licences of what is linked in, as the packages have them.
mkdir -p "$to/licenses"
for package in zlib1g-dev libinih-dev libjansson-dev; do
    cp "/usr/share/doc/$package/copyright" "$to/licenses/$package" || {
        say "no /usr/share/doc/$package/copyright: a bundle goes with the licences of what is in it"
        exit 69
    }
done

# What it would need there that a bare machine does not have: the tests' library comes along.
for program in "$to"/bin/* "$to"/tests/*; do
    [ -f "$program" ] || continue
    strip "$program"
    cmocka=$(ldd "$program" | sed -n 's/.*=> \(.*libcmocka[^ ]*\).*/\1/p')
    if [ -n "$cmocka" ]; then
        mkdir -p "$to/lib"
        cp "$cmocka" "$to/lib/"
    fi
    needs=$(ldd "$program" | sed -n 's/^[[:space:]]*\([^ ]*\.so[^ ]*\).*/\1/p' |
        grep -v -E '^(linux-vdso|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libcmocka|/lib.*/ld-linux|ld-linux)' || :)
    [ -z "$needs" ] || {
        say "${program##*/} is not self-contained, it needs" "$needs"
        exit 70
    }
done

tar -C "$work" -czf "$file" ppcli-gpu
bytes=$(wc -c <"$file")
say "wrote $file, $((bytes / 1024)) KiB, needs glibc $(objdump -T "$to/bin/ppcli" |
    sed -n 's/.*(GLIBC_\([0-9.]*\)).*/\1/p' | sort -V | tail -n 1) or later"
[ "$bytes" -le $most ] || {
    say "that is more than $((most / 1024 / 1024)) MiB"
    exit 70
}
