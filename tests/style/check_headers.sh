#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, twice included, without a warning.
#   check_headers.sh ROOT CC...
set -eu
root=$1
shift
code=0
for header in "$root"/include/ppcli/*/*.h; do
    name=${header#"$root"/include/}
    # -fno-common and the like do not matter to a parse; warnings do.
    if ! printf '#include "%s"\n#include "%s"\ntypedef int nothing;\n' "$name" "$name" |
        "$@" -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wstrict-prototypes -Wundef -Werror \
            -I"$root/include" -fsyntax-only -x c -; then
        echo "$name does not compile alone"
        code=1
    fi
done
exit $code
