#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz targets with clang, AddressSanitizer and UndefinedBehaviorSanitizer and runs each
# for SECONDS, from the corpus in tests/fuzz. Prints TAP with executions per second. What it finds
# stays in BUILD/findings; once mended, the file belongs into tests/fuzz/corpus/TARGET.
#   scripts/fuzz.sh [SECONDS [BUILD [TARGET...]]]     60 seconds, build-fuzz/, all targets
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
seconds=${1:-60}
build=${2:-$root/build-fuzz}
[ $# -lt 2 ] || shift
[ $# -eq 0 ] || shift

CC=
for name in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
    if command -v "$name" >/dev/null 2>&1 && echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' |
        "$name" -fsanitize=fuzzer,address -x c - -o /dev/null >/dev/null 2>&1; then
        CC=$name
        break
    fi
done
if [ -z "$CC" ]; then
    echo "1..0 # SKIP no clang with libFuzzer (Debian: clang, libclang-rt-dev)"
    exit 0
fi
export CC

if [ ! -f "$build/build.ninja" ]; then
    meson setup "$build" "$root" -Dfuzz=true -Dmpi=disabled -Dcurl=disabled -Db_lundef=false \
        -Db_sanitize=address,undefined -Dbuildtype=debugoptimized >/dev/null
fi
ninja -C "$build" >"$build/fuzz-build.log" 2>&1 || {
    tail -n 30 "$build/fuzz-build.log" >&2
    exit 1
}
mkdir -p "$build/findings"

# All keys, sections and names of the option table, as libFuzzer's dictionary.
"$build/ppcli" keys --format list | awk -F. '
    { printf "\"%s\"\n\"%s\"\n", $0, $2; if (!seen[$1]++) printf "\"[%s]\"\n", $1 }
    END { print "\"${\"\n\":-\"\n\" ;\"\n\" #\"" }' >"$build/keys.dict"

# corpus TARGET: the folders that it starts from
corpus() {
    echo "$root/tests/fuzz/corpus/$1"
    case $1 in
    ini) printf '%s\n' "$root/tests/golden/ini" "$root/configs" ;;
    pt2) echo "$root/tests/golden/pt2" ;;
    safetensors | manifest | state) echo "$root/tests/golden/checkpoint-v1/step-00000007" ;;
    esac
}

[ $# -gt 0 ] || set -- "$root"/tests/fuzz/fuzz_*.c
echo "1..$#"
n=0
failed=0
for target in "$@"; do
    n=$((n + 1))
    name=${target##*/}
    name=${name#fuzz_}
    name=${name%.c}
    mkdir -p "$build/corpus/$name"
    options=
    case $name in ini | set | argv) options="-dict=$build/keys.dict" ;; esac
    log=$build/fuzz-$name.log
    code=0
    # shellcheck disable=SC2046,SC2086 # words
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "$build/tests/fuzz/fuzz_$name" \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 \
        -artifact_prefix="$build/findings/$name-" $options "$build/corpus/$name" \
        $(corpus "$name") >"$log" 2>&1 || code=$?
    rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    if [ "$code" -eq 0 ]; then
        echo "ok $n - $name: ${runs:-0} executions in $seconds s, ${rate:-0} a second, nothing found"
    else
        failed=1
        echo "not ok $n - $name: exit $code"
        grep -E 'ERROR|runtime error|internal error|SUMMARY|Test unit written' "$log" | sed 's/^/# /'
        tail -n 40 "$log" | sed 's/^/# /'
    fi
done
exit "$failed"
