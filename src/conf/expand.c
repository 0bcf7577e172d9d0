/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expands ${VAR} and ${VAR:-default} in values. An unset variable is an error unless it has a
 * default: a training run that silently reads an empty path is worse than one that does not start.
 * The value of a variable is not expanded itself. A '$' without '{' is literal.
 */
#include "conf.h"

#include <stdlib.h>
#include <string.h>

static bool name_byte(char c, bool first)
{
    return c == '_' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (!first && c >= '0' && c <= '9');
}

/* Finds the value of one reference "${...}". `ref` points after its "${" and has `n` bytes before
 * the '}'. */
static int expand_reference(const char *ref, size_t n, const char **out, size_t *out_bytes,
                            char *why)
{
    char name[128];
    size_t len = 0;
    while (len < n && name_byte(ref[len], len == 0))
        len++;
    bool has_default = len + 2 <= n && ref[len] == ':' && ref[len + 1] == '-';
    if (len == 0 || len >= sizeof(name) || (len < n && !has_default)) {
        return conf_why(why, "'${%s}' is not understood; write ${NAME} or ${NAME:-default}",
                        conf_quote(ref, n).s);
    }
    memcpy(name, ref, len);
    name[len] = '\0';
    const char *value = getenv(name);
    if (has_default && (!value || !value[0])) {
        *out = ref + len + 2;
        *out_bytes = n - len - 2;
        return 0;
    }
    if (!value) {
        return conf_why(why, "environment variable %s is not set; set it or write ${%s:-default}",
                        name, name);
    }
    *out_bytes = strlen(value);
    char reason[CONF_WHY_MAX];
    if (conf_text_check(value, *out_bytes, reason) < 0)
        return conf_why(why, "environment variable %s: %.200s", name, reason);
    *out = value;
    return 0;
}

int conf_expand(const char *text, char *out, size_t out_bytes, char why[CONF_WHY_MAX])
{
    size_t used = 0;
    for (const char *p = text; *p;) {
        const char *piece = p;
        size_t n = 1;
        if (p[0] == '$' && p[1] == '{') {
            const char *end = strchr(p, '}');
            if (!end)
                return conf_why(why, "'%s' has no closing '}'", conf_quote(p, strlen(p)).s);
            if (expand_reference(p + 2, (size_t)(end - p) - 2, &piece, &n, why) < 0)
                return -1;
            p = end + 1;
        } else {
            p++;
        }
        if (n >= out_bytes - used)
            return conf_why(why, "the value is too long: at most %zu bytes", out_bytes - 1);
        memcpy(out + used, piece, n);
        used += n;
    }
    out[used] = '\0';
    return 0;
}
