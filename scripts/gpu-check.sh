#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks and measures ppcli on a GPU, in three calls of at most ten minutes each, and writes what it
# found into OUT:
#
#   scripts/gpu-check.sh OUT [--build DIR | --bundle FILE | --program FILE] [--call 1|2|3]
#                        [--only PART]... [--seconds N] [--again] [--dry-run]
#
# Call 1 checks bits and ops, also under compute-sanitizer; call 2 measures kernels and nets; call 3
# pipelines, small nets and PyTorch. check.json has the result of every part, results.tar what each
# printed (PART.log) and measured (g1.json and so on). Both are written after every part, and a later
# call with the same OUT continues: what has passed is not run again, unless --only or --again asks for
# it. --dry-run prints the plan. Programs come from a build folder (build), from an unpacked bundle when
# this script lies in one, or from a bundle's file (scripts/gpu-bundle.sh makes one). Besides these it
# needs a driver and the cuBLASLt of the CUDA toolkit or of PyTorch; Python with torch (PEERS_PYTHON) is
# measured beside ppcli where it is.
#
# Exit code: 0 all that could run has passed; 1 something failed or ran out of time; 77 no device.
set -u
LC_ALL=C
export LC_ALL

# In the order of what matters; the sums of limit_of() fit the calls.
CALL_1='env equality ops nets sanitizer'
CALL_2='kernels gpt2 g4 g3 conv'
CALL_3='devices g5 g1 g2 accuracy precision peers'
PARTS="$CALL_1 $CALL_2 $CALL_3"
usage='usage: scripts/gpu-check.sh OUT [--build DIR | --bundle FILE | --program FILE] [--call 1|2|3]
       [--only PART]... [--seconds N] [--again] [--dry-run]'

fail_usage() {
    echo "gpu-check: $1; $usage" >&2
    exit 64
}

OUT='' build='' bundle='' program='' only='' seconds=570 again='' dry=''
while [ $# -gt 0 ]; do
    case $1 in
    --build | --bundle | --program | --only | --seconds | --call)
        [ $# -ge 2 ] || fail_usage "$1 needs a word"
        case $1 in
        --build) build=$2 ;;
        --bundle) bundle=$2 ;;
        --program) program=$2 ;;
        --only) only="$only $2" ;;
        --seconds) seconds=$2 ;;
        --call)
            case $2 in
            1) PARTS=$CALL_1 ;;
            2) PARTS=$CALL_2 ;;
            3) PARTS=$CALL_3 ;;
            *) fail_usage "--call takes 1, 2 or 3" ;;
            esac
            ;;
        esac
        shift 2
        ;;
    --again | --dry-run)
        case $1 in --again) again=yes ;; *) dry=yes ;; esac
        shift
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

# GPU_CHECK_TIMES: how much longer a part may take, on a device that is only emulated.
limit_of() {
    case $1 in
    env) echo 20 ;;
    ops) echo 100 ;;
    nets | kernels) echo 120 ;;
    equality) echo 110 ;;
    g5) echo 90 ;;
    accuracy | precision | g1) echo 40 ;;
    conv) echo 30 ;;
    devices) echo 60 ;;
    sanitizer) echo 210 ;;
    g2) echo 70 ;;
    g3 | g4 | gpt2) echo 140 ;;
    peers) echo 225 ;;
    esac
}

if [ -n "$dry" ]; then
    for PART in $PARTS; do
        call=1
        case " $CALL_2 " in *" $PART "*) call=2 ;; esac
        case " $CALL_3 " in *" $PART "*) call=3 ;; esac
        printf 'call %s  %-10s at most %3d s\n' $call "$PART" "$(limit_of "$PART")"
    done
    exit 0
fi

mkdir -p "$OUT" || exit 74
RESULTS=$(CDPATH='' cd -- "$OUT" && pwd) || exit 74
OUT=$(mktemp -d) || exit 74
trap 'rm -rf "$OUT" "${unpacked:-}"' EXIT
[ ! -f "$RESULTS/results.tar" ] || tar -xf "$RESULTS/results.tar" -C "$OUT"
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
ROOT=$here
if [ -n "$bundle" ]; then
    [ -f "$bundle" ] || { echo "gpu-check: no file $bundle" >&2; exit 66; }
    unpacked=$(mktemp -d) || exit 74
    tar -xzf "$bundle" -C "$unpacked" || { echo "gpu-check: $bundle cannot be unpacked" >&2; exit 65; }
    ROOT=$(echo "$unpacked"/*)
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

# Text without what JSON would have to escape.
plain() { tr -d '"\134' | tr '\t\n' '  ' | cut -c 1-300 | sed 's/ *$//'; }

why_not() { "$PPCLI" env 2>/dev/null | sed -n 's/^  cuda  *no: //p' | plain; }

# Libraries (cuBLASLt, NCCL, cuDNN) beside PyTorch, whose wheels bring their own, then the toolkit's: both
# programs shall use the same ones.
library_folders() {
    "${PEERS_PYTHON:-python3}" -c 'import glob, sys
for p in sys.path: print(*glob.glob(p + "/nvidia/*/lib"), sep="\n")'
    [ -z "$toolkit" ] || ls -d "$toolkit/lib64" "$toolkit/lib" "$toolkit"/targets/*/lib
}

folders=$(library_folders 2>/dev/null | grep . | paste -sd : -)
if [ -n "$folders" ]; then
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folders
    export LD_LIBRARY_PATH
fi
reason=$(why_not)
printf '%-10s %-8s %6s  %s\n' part result seconds figure

# What is known of all parts, into check.json and results.tar, which replace the ones before.
write_results() {
    parts_json=''
    for name in $CALL_1 $CALL_2 $CALL_3; do
        [ ! -f "$OUT/$name.result" ] || parts_json="$parts_json${parts_json:+, }$(cat "$OUT/$name.result")"
    done
    printf '{"schema": 1, "program": "%s", "time": "%s", "seconds": %d, "exit_code": %d, "parts": [%s]}\n' \
        "$version" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" $(($(date +%s) - begun)) $code "$parts_json" >"$OUT/check.json"
    tar -cf "$RESULTS/results.tmp" -C "$OUT" . && mv "$RESULTS/results.tmp" "$RESULTS/results.tar" &&
        cp "$OUT/check.json" "$RESULTS/check.json"
}

version=$("$PPCLI" env | head -n 1 | plain)
begun=$(date +%s)
code=0
[ -z "$reason" ] || code=77
for PART in $PARTS; do
    case "$only" in '') ;; *" $PART"*) ;; *) continue ;; esac
    if [ -z "$only$again" ] && grep -qs '"result": "passed"' "$OUT/$PART.result"; then
        printf '%-10s %-8s %6s  %s\n' "$PART" passed '' 'in a call before'
        continue
    fi
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
    failed | late) [ $code -ne 0 ] || code=1 ;;
    esac
    took=$(($(date +%s) - start))
    said=$(plain 2>/dev/null <"$OUT/$PART.said" || :)
    [ -n "$said" ] || said=$(tail -n 1 "$OUT/$PART.log" | plain)
    [ $result != late ] || said="more than $limit s; $said"
    rm -f "$OUT/$PART.said" "$OUT/$PART.run"
    printf '%-10s %-8s %6d  %s\n' "$PART" "$result" "$took" "$said"
    printf '{"part": "%s", "result": "%s", "seconds": %d, "said": "%s", "log": "%s.log"}' \
        "$PART" "$result" "$took" "$said" "$PART" >"$OUT/$PART.result"
    write_results
done
echo "results in $RESULTS: check.json, results.tar"
exit $code
