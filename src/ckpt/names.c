/* SPDX-License-Identifier: Apache-2.0 */
#include "impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void name_step(char out[NAME_BYTES], int64_t step)
{
    snprintf(out, NAME_BYTES, "step-%08" PRId64, step);
}

void name_part(char out[NAME_BYTES], int index, int count)
{
    snprintf(out, NAME_BYTES, "stage-%04d-of-%04d.safetensors", index, count);
}

/* Parses the step at the start of `name`; *rest is what follows it. Returns false if `name` does
 * not begin with a step. */
static bool parse_step(const char *name, int64_t *out_step, const char **rest)
{
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    char *end;
    errno = 0;
    long long step = strtoll(name + 5, &end, 10);
    char made[NAME_BYTES];
    name_step(made, step);
    size_t n = (size_t)(end - name);
    if (errno != 0 || strlen(made) != n || memcmp(made, name, n) != 0)
        return false;
    *out_step = step;
    *rest = end;
    return true;
}

bool name_is_step(const char *name, int64_t *out_step)
{
    int64_t step;
    const char *rest;
    if (!parse_step(name, &step, &rest) || *rest != '\0')
        return false;
    *out_step = step;
    return true;
}

int pp_ckpt_path_order(const char *a, const char *b)
{
    char text[2][PP_PATH_MAX];
    snprintf(text[0], sizeof(text[0]), "%s", a);
    snprintf(text[1], sizeof(text[1]), "%s", b);
    for (int i = 0; i < 2; i++)
        for (char *slash = text[i]; (slash = strchr(slash, '/'));)
            *slash = '\001';             /* sorts the end of a name before all names within it */
    return strverscmp(text[0], text[1]); /* step-99999999 is before step-100000000 */
}

static bool is_number(const char *text)
{
    size_t n = strspn(text, "0123456789");
    return n > 0 && n < 20 && text[n] == '\0';
}

bool name_is_leftover(const char *name)
{
    int64_t step;
    const char *rest;
    if (strncmp(name, ".trash-", 7) == 0)
        return parse_step(name + 7, &step, &rest) && rest[0] == '-' && is_number(rest + 1);
    return parse_step(name, &step, &rest) && strncmp(rest, ".tmp-", 5) == 0 && is_number(rest + 5);
}
