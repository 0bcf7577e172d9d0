/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Durations: a decimal number and a unit, 500ms, 90s, 1.5m, 2h; seconds without a unit. They are
 * stored, compared and printed in seconds. 0 means "never" in every key of this type, even below
 * its minimum. This file also parses sizes that are not keys, such as --memory.
 */
#include "conf.h"

#include <string.h>

static const struct unit {
    const char *name;
    double seconds;
} units[] = {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}}; /* "ms" is tried before "s" */

int conf_duration_parse(const struct conf_option *o, const char *text, double *out,
                        char why[CONF_WHY_MAX])
{
    static const struct conf_option number = {.type = CONF_FLOAT, .max = 1e12};
    char range[512], digits[64];
    size_t n = strlen(text);
    double factor = 1, value;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t u = strlen(units[i].name);
        if (n > u && strcmp(text + n - u, units[i].name) == 0) {
            factor = units[i].seconds;
            n -= u;
            break;
        }
    }
    while (n > 0 && text[n - 1] == ' ')
        n--;
    conf_range_text(o, NULL, range, sizeof(range));
    snprintf(digits, sizeof(digits), "%.*s", (int)(n < sizeof(digits) ? n : sizeof(digits)), text);
    if (n >= sizeof(digits) || conf_float_parse(&number, digits, &value, why) < 0) {
        return conf_why(
            why, "'%s' is not a duration; write a number and ms, s, m or h, such as 90s (%s)",
            conf_quote(text, strlen(text)).s, range);
    }
    value *= factor;
    if (value != 0 && (value < o->min || value > o->max)) {
        return conf_why(why, "%s is out of range; write %s", conf_quote(text, strlen(text)).s,
                        range);
    }
    *out = value;
    return 0;
}

bool pp_bytes_parse(const char *text, size_t *out)
{
    double x;
    if (!conf_scaled_parse(&text, &x) || *text || !(x >= 1 && x < (double)(SIZE_MAX / 2)))
        return false;
    *out = (size_t)x;
    return true;
}
