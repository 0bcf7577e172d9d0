/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.resolved.ini back into keys, values and origins. Not conf's reader: that one needs the
 * names, files and environment of the machine that trained, and knows only today's keys.
 */
#include <ctype.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "report.h"

#define KEYS_MAX 10000

struct reader {
    struct pp_report *r;
    char section[128];
    char origin[PP_PATH_MAX]; /* of the key in the next line */
};

/* The part of a line between blanks. */
static char *trim(char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1])) {
        text[--n] = '\0';
    }
    return text;
}

static int add_key(struct reader *rd, const char *key, const char *value)
{
    struct pp_report *r = rd->r;
    char name[sizeof(rd->section) + 128];
    snprintf(name, sizeof(name), "%s.%.120s", rd->section, key);
    void *grown = report_grow(r->keys, r->n_keys, &r->keys_capacity, sizeof(*r->keys));
    if (!grown) {
        return PP_ERESOURCE;
    }
    r->keys = grown;
    struct report_key *k = &r->keys[r->n_keys++];
    *k = (struct report_key){pp_strdup(name), pp_strdup(value), pp_strdup(rd->origin)};
    rd->origin[0] = '\0';
    return k->name && k->value && k->origin ? 0 : PP_ERESOURCE;
}

static int config_line(void *ctx, char *text, size_t bytes)
{
    struct reader *rd = ctx;
    (void)bytes;
    if (!text || rd->r->n_keys >= KEYS_MAX) {
        return 0;
    }
    text = trim(text);
    char *end = strchr(text, ']');
    char *equals = strchr(text, '=');
    if (*text == ';') {
        const char *said = trim(text + 1);
        snprintf(rd->origin, sizeof(rd->origin), "%s",
                 strncmp(said, "from ", 5) == 0 ? said + 5 : said);
    } else if (*text == '[' && end) {
        *end = '\0';
        snprintf(rd->section, sizeof(rd->section), "%s", text + 1);
    } else if (equals) {
        *equals = '\0';
        return add_key(rd, trim(text), trim(equals + 1));
    }
    return 0;
}

int report_read_config(struct pp_report *r)
{
    char path[PP_PATH_MAX];
    PP_TRY(pp_path_format(path, "%s/config.resolved.ini", r->dir));
    struct reader *rd = pp_alloc(1, sizeof(*rd));
    if (!rd) {
        return PP_ERESOURCE;
    }
    rd->r = r;
    int rc = report_lines(path, config_line, rd);
    pp_free(rd);
    return rc;
}

const char *report_key_value(const struct pp_report *r, const char *name)
{
    for (int i = r->n_keys - 1; i >= 0; i--) {
        if (strcmp(r->keys[i].name, name) == 0) {
            return r->keys[i].value;
        }
    }
    return "";
}
