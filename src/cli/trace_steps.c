/* SPDX-License-Identifier: Apache-2.0 */
/* The options --trace FILE and --trace-steps A-B of several commands. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "command.h"

/* Reads a whole number of at least 1 and returns the text after it; NULL if there is none. */
static const char *read_number(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long x = isdigit((unsigned char)text[0]) ? strtoll(text, &end, 10) : 0;
    *out = x;
    return x >= 1 && x <= INT32_MAX && errno == 0 ? end : NULL;
}

/* Refuses an existing file that is not a trace: a config or a result must not be replaced. */
static int check_file(const char *file)
{
    static const char head[] = "[\n{\"name\":\"ppcli\"";
    const char *base = strrchr(file, '/');
    base = base ? base + 1 : file;
    if (pp_has_word("summary.json timeline.json metrics.jsonl config.resolved.ini", base))
        return pp_fail(PP_EUSAGE, "--trace %s: a run writes a file of that name itself", file);
    FILE *f = NULL;
    uint64_t bytes = 0;
    char found[sizeof(head)] = "";
    if (pp_file_open(file, &f, &bytes) < 0) {
        pp_error_clear(); /* missing, or no regular file: opening it for writing reports that */
        return 0;
    }
    size_t n = fread(found, 1, sizeof(head) - 1, f);
    fclose(f);
    return n == 0 || strcmp(found, head) == 0
               ? 0
               : pp_fail(PP_EUSAGE, "--trace %s: a file of that name exists and is not a trace",
                         file);
}

int pp_cli_trace_steps(const char *file, const char *steps, int64_t *first, int64_t *last)
{
    if (file)
        PP_TRY(check_file(file));
    if (!steps) {
        *first = *last = 0;
        return 0;
    }
    if (!file)
        return pp_fail(PP_EUSAGE, "--trace-steps needs --trace FILE");
    int64_t a, b;
    const char *rest = read_number(steps, &a);
    if (rest && *rest == '-')
        rest = read_number(rest + 1, &b);
    else
        b = a;
    if (!rest || *rest || b < a) {
        return pp_fail(PP_EUSAGE,
                       "--trace-steps needs the first and the last step, as 100-150, not '%s'",
                       steps);
    }
    *first = a;
    *last = b;
    return 0;
}
