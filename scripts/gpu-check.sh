#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks and measures ppcli on a GPU in at most ten minutes, and writes what it found into OUT:
#
#   scripts/gpu-check.sh OUT [--build DIR | --bundle FILE | --program FILE] [--only PART]...
#                        [--seconds N]
#
# check.json has the result of every part, PART.log what it printed, g1.json and so on the
# measurements. A part that finds no time left is skipped: --only runs it in another call. Programs
# come from a build folder (build), from an unpacked bundle when this script lies in one, or from a
# bundle's file (scripts/gpu-bundle.sh makes one). Besides these it needs a driver and the
# cuBLASLt of the CUDA toolkit or of PyTorch; Python with torch (PEERS_PYTHON) is measured beside
# ppcli where it is.
#
# Exit code: 0 all that could run has passed; 1 something failed or ran out of time; 77 no device.
set -u
LC_ALL=C
export LC_ALL

PARTS='env ops equality nets accuracy precision sanitizer g1 g2 g5 g3 g4 gpt2 peers'
usage='usage: scripts/gpu-check.sh OUT [--build DIR | --bundle FILE | --program FILE] [--only PART]...
       [--seconds N]'

fail_usage() {
    echo "gpu-check: $1; $usage" >&2
    exit 64
}

OUT='' build='' bundle='' program='' only='' seconds=570
while [ $# -gt 0 ]; do
    case $1 in
    --build | --bundle | --program | --only | --seconds)
        [ $# -ge 2 ] || fail_usage "$1 needs a word"
        case $1 in
        --build) build=$2 ;;
        --bundle) bundle=$2 ;;
        --program) program=$2 ;;
        --only) only="$only $2" ;;
        --seconds) seconds=$2 ;;
        esac
        shift 2
        ;;
    -h | --help)
        echo "$usage"
        exit 0
        ;;
    -*) fail_usage "unknown option '$1'" ;;
    *)
        [ -z "$OUT" ] || fail_usage "unknown word '$1'"
        OUT=$1
        shift
        ;;
    esac
done
[ -n "$OUT" ] || fail_usage 'which folder shall the results go to?'
case "${build:+x}${bundle:+x}${program:+x}" in
xx*) fail_usage '--build, --bundle and --program exclude each other' ;;
esac
for name in $only; do
    case " $PARTS " in *" $name "*) ;; *) fail_usage "no part '$name' ($PARTS)" ;; esac
done
mkdir -p "$OUT" || exit 74
OUT=$(CDPATH='' cd -- "$OUT" && pwd) || exit 74
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
ROOT=$here
if [ -n "$bundle" ]; then
    [ -f "$bundle" ] || { echo "gpu-check: no file $bundle" >&2; exit 66; }
    rm -rf "$OUT/bundle"
    mkdir -p "$OUT/bundle"
    tar -xzf "$bundle" -C "$OUT/bundle" || { echo "gpu-check: $bundle cannot be unpacked" >&2; exit 65; }
    ROOT=$(echo "$OUT"/bundle/*)
fi
if [ -n "$program" ]; then
    PPCLI=$program TESTS=$OUT/none
elif [ -z "$build" ] && [ -x "$ROOT/bin/ppcli" ]; then
    PPCLI=$ROOT/bin/ppcli TESTS=$ROOT/tests
else
    PPCLI=${build:=$here/build}/ppcli TESTS=$build/tests/gpu
fi
[ -x "$PPCLI" ] || {
    echo "gpu-check: no $PPCLI: build first, or give --build, --bundle or --program" >&2
    exit 66
}
PPCLI=$(CDPATH='' cd -- "$(dirname -- "$PPCLI")" && pwd)/${PPCLI##*/}
SAMPLE=$ROOT/data/mnist-sample
export OUT PPCLI TESTS ROOT SAMPLE
parts=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)/gpu-check-parts.sh

if [ -d "$ROOT/lib" ]; then
    LD_LIBRARY_PATH=$ROOT/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi
toolkit=''
if command -v nvcc >/dev/null 2>&1; then
    toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
    PATH=$PATH:$toolkit/bin:$toolkit/compute-sanitizer # there is no other way to the sanitizer
fi

# GPU_CHECK_TIMES: how much longer a part may take, on a device that is only emulated.
limit_of() {
    case $1 in
    env) echo 30 ;;
    ops | nets) echo 150 ;;
    equality) echo 110 ;;
    accuracy | precision | g1) echo 50 ;;
    sanitizer) echo 130 ;;
    g2) echo 70 ;;
    g5) echo 110 ;;
    g3 | g4 | gpt2) echo 140 ;;
    peers) echo 230 ;;
    esac
}

# Text without what JSON would have to escape.
plain() { tr -d '"\134' | tr '\t\n' '  ' | cut -c 1-300 | sed 's/ *$//'; }

why_not() { "$PPCLI" env 2>/dev/null | sed -n 's/^  cuda  *no: //p' | plain; }

# Where else a cuBLASLt may be: in the toolkit, or beside PyTorch, whose wheels bring their own.
library_folders() {
    [ -z "$toolkit" ] || ls -d "$toolkit/lib64" "$toolkit/lib" "$toolkit"/targets/*/lib
    "${PEERS_PYTHON:-python3}" -c 'import glob, sys
for p in sys.path: print(*glob.glob(p + "/nvidia/*/lib"), sep="\n")'
}

reason=$(why_not)
case $reason in
*'cannot be loaded'*) # not where the program's own run path leads
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(library_folders 2>/dev/null | grep . | paste -sd : -)
    export LD_LIBRARY_PATH
    reason=$(why_not)
    ;;
esac
begun=$(date +%s)
failed=0
: >"$OUT/parts.json"
printf '%-10s %-8s %6s  %s\n' part result seconds figure
for PART in $PARTS; do
    case "$only" in '') ;; *" $PART"*) ;; *) continue ;; esac
    rm -f "$OUT/$PART.said"
    start=$(date +%s)
    limit=$(($(limit_of "$PART") * ${GPU_CHECK_TIMES:-1}))
    left=$((seconds - (start - begun)))
    [ "$limit" -le "$left" ] || limit=$left
    if [ -n "$reason" ]; then
        result=skipped
        echo "no device: $reason" | tee "$OUT/$PART.log" >"$OUT/$PART.said"
    elif [ "$limit" -lt 1 ]; then
        result=skipped
        echo "no time left of $seconds s" | tee "$OUT/$PART.log" >"$OUT/$PART.said"
    else
        timeout -k 5 "$limit" sh "$parts" "$PART" >"$OUT/$PART.log" 2>&1 </dev/null
        case $? in
        0) result=passed ;;
        77) result=skipped ;;
        124 | 137) result=late ;;
        *) result=failed ;;
        esac
    fi
    case $result in
    failed | late) failed=1 ;;
    esac
    took=$(($(date +%s) - start))
    said=$(plain 2>/dev/null <"$OUT/$PART.said" || :)
    [ -n "$said" ] || said=$(tail -n 1 "$OUT/$PART.log" | plain)
    [ $result != late ] || said="more than $limit s; $said"
    rm -f "$OUT/$PART.said" "$OUT/$PART.run"
    printf '%-10s %-8s %6d  %s\n' "$PART" "$result" "$took" "$said"
    printf '%s{"part": "%s", "result": "%s", "seconds": %d, "said": "%s", "log": "%s.log"}' \
        "$([ -s "$OUT/parts.json" ] && echo ', ')" "$PART" "$result" "$took" "$said" "$PART" \
        >>"$OUT/parts.json"
done
code=$failed
[ -z "$reason" ] || code=77
printf '{"schema": 1, "program": "%s", "time": "%s", "seconds": %d, "exit_code": %d, "parts": [%s]}\n' \
    "$("$PPCLI" env | head -n 1 | plain)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
    $(($(date +%s) - begun)) $code "$(cat "$OUT/parts.json")" >"$OUT/check.json"
rm -f "$OUT/parts.json"
echo "results in $OUT"
exit $code
