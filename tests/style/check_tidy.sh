#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything in src/ is clean under clang-tidy with the rules of .clang-tidy; skipped (77) without
# run-clang-tidy or where the build left no compile_commands.json. A minute of two cores, hence suite "long".
#   check_tidy.sh BUILD [FILE...]
# FILE: only these, named from the root of the source.
set -eu
build=$(CDPATH='' cd -- "$1" && pwd)
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)

runner=
for name in run-clang-tidy-14 run-clang-tidy; do
    if command -v "$name" >/dev/null 2>&1; then
        runner=$name
        break
    fi
done
if [ -z "$runner" ]; then
    echo "skipped: no run-clang-tidy"
    exit 77
fi
if [ ! -f "$build/compile_commands.json" ]; then
    echo "skipped: no compile_commands.json in $build"
    exit 77
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
escape=$(printf '\033')
# The words choose files by a pattern; the root's own characters stand for themselves.
pattern() { # pattern < PATHS
    sed 's/[^A-Za-z0-9_/-]/\\&/g; s/^/^/; s/$/$/'
}
if [ $# -gt 1 ]; then
    shift
    for file; do
        if ! grep -q "\"file\": \".*$file\"" "$build/compile_commands.json"; then
            echo "$file: this build does not compile it"
            exit 1
        fi
    done
    files=$(for file; do echo "$root/$file"; done | pattern)
else
    files="$(printf '%s' "$root/src/" | pattern)"
    files="${files%$}.*\\.c\$"
fi
code=0
IFS='
'
# The analyzer gives up on a function after so many states. Its default is four times that, and takes
# minutes for some kernels.
# shellcheck disable=SC2086 # a pattern a line
"$runner" -quiet -extra-arg=-Xclang -extra-arg=-analyzer-config -extra-arg=-Xclang \
    -extra-arg=max-nodes=50000 -p "$build" $files >"$log" 2>&1 || code=$?
sed -i "s/$escape\[[0-9;]*m//g" "$log"
checked=$(grep -c 'clang-tidy.* -quiet ' "$log" || true)
if [ "$checked" -eq 0 ]; then
    cat "$log"
    echo "nothing was checked"
    exit 1
fi
grep -vE 'clang-tidy.* -quiet |^[0-9]+ warnings? generated|^Suppressed |^Use -header-filter' "$log" || true
echo "$checked files checked"
exit "$code"
