/* SPDX-License-Identifier: Apache-2.0 */
/* --trace FILE and --trace-steps A-B, which several commands have. */
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "command.h"
#include "ppcli/err.h"

/* A whole number of digits alone; NULL: there is none. */
static const char *number(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long x = isdigit((unsigned char)text[0]) ? strtoll(text, &end, 10) : 0;
    *out = x;
    return x >= 1 && x <= INT32_MAX && errno == 0 ? end : NULL;
}

int pp_cli_trace_steps(const char *file, const char *steps, int64_t *first, int64_t *last)
{
    if (!steps) {
        *first = *last = 0;
        return 0;
    }
    if (!file) {
        return pp_fail(PP_EUSAGE, "--trace-steps says nothing without --trace FILE");
    }
    int64_t a, b;
    const char *rest = number(steps, &a);
    if (rest && *rest == '-') {
        rest = number(rest + 1, &b);
    } else {
        b = a;
    }
    if (!rest || *rest || b < a) {
        return pp_fail(PP_EUSAGE,
                       "--trace-steps wants the first and the last step, as 100-150, not '%s'",
                       steps);
    }
    *first = a;
    *last = b;
    return 0;
}
