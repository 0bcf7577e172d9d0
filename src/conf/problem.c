/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The problem list and the origins: one line for each problem, which begins with its position,
 * sorted by file and then command line.
 */
#include "conf.h"

#include <string.h>

#include "ppcli/base/base.h"

#define SHOWN 60 /* most bytes of a quoted text */

static int is_before(struct conf_position a, struct conf_position b)
{
    return a.from != b.from ? a.from < b.from : a.number < b.number;
}

/* Inserts a problem into the list, which is sorted by place; the list owns `text` from then on. */
static int insert_problem(struct conf_problems *list, struct conf_position place, char *text)
{
    PP_RESERVE(list->items, list->n, list->capacity);
    int at = list->n;
    while (at > 0 && is_before(place, list->items[at - 1].place)) {
        list->items[at] = list->items[at - 1];
        at--;
    }
    list->items[at].place = place;
    list->items[at].place.said = NULL; /* the caller owns it, and it is not needed any more */
    list->items[at].text = text;
    list->n++;
    return 0;
}

/* Formats the place of a problem: "mnist.ini:14: " in the file, "--set: " on the command line,
 * "mnist.ini: " for a default, or "" for a default without a file. */
static void format_place(const struct pp_config_source *src, struct conf_position p, char *out,
                         size_t bytes)
{
    out[0] = '\0';
    if (p.from == CONF_FROM_SETTING)
        snprintf(out, bytes, "%s: ", p.said ? p.said : "--set");
    else if (p.from == CONF_FROM_FILE && p.number > 0)
        snprintf(out, bytes, "%s:%d: ", src->file, p.number);
    else if (src->file)
        snprintf(out, bytes, "%s: ", src->file);
}

static void add_problem(struct pp_config *cfg, struct conf_problems *list,
                        struct conf_position place, const char *kind, const char *fmt, va_list args)
{
    char where[PP_PATH_MAX + 32];
    char what[CONF_WHY_MAX + 512];
    char line[sizeof(where) + sizeof(what) + 16];

    if (list->n >= CONF_PROBLEMS_MAX) {
        list->more++;
        return;
    }
    format_place(cfg->source, place, where, sizeof(where));
    vsnprintf(what, sizeof(what), fmt, args);
    snprintf(line, sizeof(line), "%s%s: %s", where, kind, what);
    char *text = pp_strdup(line);
    if (!text || insert_problem(list, place, text) < 0) {
        pp_free(text);
        list->more++;
        cfg->source->no_memory = true;
    }
}

void conf_problem(struct pp_config *cfg, struct conf_position place, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_problem(cfg, &cfg->source->problems, place, "error", fmt, args);
    va_end(args);
}

struct conf_position conf_position_of(const struct pp_config *cfg, int option)
{
    const struct conf_origin *o = &cfg->source->origins[option];
    return (struct conf_position){o->from, o->number, o->text};
}

void conf_note(struct pp_config *cfg, int option, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add_problem(cfg, &cfg->source->notes, conf_position_of(cfg, option), "note", fmt, args);
    va_end(args);
}

void conf_problems_fini(struct conf_problems *list)
{
    for (int i = 0; i < list->n; i++)
        pp_free(list->items[i].text);
    pp_free(list->items);
    memset(list, 0, sizeof(*list));
}

struct conf_quoted conf_quote(const char *text, size_t bytes)
{
    struct conf_quoted q;
    size_t n = bytes;
    if (n > SHOWN) {
        n = SHOWN;
        while (n > SHOWN - 3 && ((unsigned char)text[n] & 0xC0) == 0x80)
            n--; /* do not cut inside a character */
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        q.s[i] = c < 0x20 || c == 0x7F ? '?' : (char)c; /* keep escape codes off the terminal */
    }
    snprintf(q.s + n, sizeof(q.s) - n, "%s", bytes > SHOWN ? "..." : "");
    return q;
}

int conf_why(char why[CONF_WHY_MAX], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, CONF_WHY_MAX, fmt, args);
    va_end(args);
    return -1;
}

void conf_put(struct conf_text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    size_t left = t->used < t->bytes ? t->bytes - t->used : 0;
    t->used += (size_t)vsnprintf(t->out + t->bytes - left, left, fmt, args);
    va_end(args);
}

int conf_put_end(const struct conf_text *t)
{
    return t->used < t->bytes ? 0 : -1;
}

int pp_config_problem(struct pp_config *cfg, const char *key, const char *fmt, ...)
{
    int option = conf_option_index(key);
    pp_assert(option >= 0);
    va_list args;
    va_start(args, fmt);
    if (cfg->source) {
        add_problem(cfg, &cfg->source->problems, conf_position_of(cfg, option), "error", fmt, args);
        va_end(args);
        return PP_ECONFIG;
    }
    char text[CONF_WHY_MAX];
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return pp_fail(PP_ECONFIG, "%s", text);
}

int pp_config_problem_count(const struct pp_config *cfg)
{
    return cfg->source->problems.n;
}

const char *pp_config_problem_text(const struct pp_config *cfg, int i)
{
    pp_assert(i >= 0 && i < cfg->source->problems.n);
    return cfg->source->problems.items[i].text;
}

int pp_config_note_count(const struct pp_config *cfg)
{
    return cfg->source->notes.n;
}

const char *pp_config_note_text(const struct pp_config *cfg, int i)
{
    pp_assert(i >= 0 && i < cfg->source->notes.n);
    return cfg->source->notes.items[i].text;
}

int pp_config_verdict(const struct pp_config *cfg)
{
    const struct pp_config_source *src = cfg->source;
    if (src->no_memory)
        return pp_fail(PP_ERESOURCE, "out of memory while reading the configuration");
    int n = src->problems.n + src->problems.more;
    if (n == 0)
        return 0;
    return pp_fail(PP_ECONFIG, "%s: %d problem%s", src->file ? src->file : "configuration", n,
                   pp_plural(n));
}

const char *pp_config_origin(const struct pp_config *cfg, const char *key)
{
    int option = conf_option_index(key);
    pp_assert(option >= 0);
    const struct conf_origin *o = &cfg->source->origins[option];
    return o->text ? o->text : "default";
}

bool pp_config_was_set(const struct pp_config *cfg, const char *key)
{
    return cfg->source->origins[conf_option_index(key)].from != CONF_FROM_DEFAULT;
}

const char *pp_config_name(const struct pp_config *cfg)
{
    return cfg->source->name;
}
