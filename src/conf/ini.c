/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The INI dialect. libinih splits lines into section, key and value. Our line reader feeds it,
 * because libinih alone turns an over-long line into two keys, takes an indented key for a
 * continuation of the line above, leaves the keys below a broken "[header" in the section before,
 * and silently accepts NUL bytes, '#' in values, empty sections and names with blanks.
 *
 * So the reader checks every line first: it knows the line number, reports what the dialect does
 * not allow, and passes on only lines that have one reading: blank, "[known]", or "key = value"
 * without leading blanks or comment. After an error it continues with what was most likely meant,
 * so that one slip gives one message and all slips are found in one pass.
 */
#include "conf.h"

#include <ini.h>
#include <string.h>

#include "ppcli/base/base.h"

#define NO_SECTION "?" /* passed on for a header that is not understood */

struct reader {
    const char *text;
    size_t bytes, at;
    int line;
    bool expected; /* the handler must be called for the line just passed on */
    char *value;   /* the value of a line too long for the library, which got "." instead; owned */
    struct pp_config *cfg;
    const struct pp_names *names;
};

struct span {
    const char *p;
    size_t n;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static struct span trim_blanks(const char *p, size_t n)
{
    while (n > 0 && is_blank(p[0])) {
        p++;
        n--;
    }
    while (n > 0 && is_blank(p[n - 1]))
        n--;
    return (struct span){p, n};
}

static struct conf_place current_place(const struct reader *r)
{
    return (struct conf_place){CONF_FROM_FILE, r->line, NULL};
}

int conf_text_check(const char *text, size_t bytes, char why[CONF_WHY_MAX])
{
    for (size_t i = 0; i < bytes;) {
        const unsigned char *p = (const unsigned char *)text + i;
        if (*p == '\0')
            return conf_why(why, "NUL byte at byte %zu; is this a text file?", i + 1);
        int len = pp_utf8_length(text + i);
        if (len == 0) {
            return conf_why(why, "byte %zu (0x%02x) is not UTF-8; save the text as UTF-8", i + 1,
                            *p);
        }
        uint32_t c = pp_text_control(text + i);
        if (c == 0xFEFF) {
            return conf_why(why,
                            "byte order mark at byte %zu; delete it (only the file's first bytes "
                            "may be one)",
                            i + 1);
        }
        if (c != 0 && c != '\t') {
            return c < 0x100 ? conf_why(why, "control byte 0x%02x at byte %zu; delete it", c, i + 1)
                             : conf_why(why, "invisible character U+%04X at byte %zu; delete it", c,
                                        i + 1);
        }
        i += (size_t)len;
    }
    return 0;
}

/* Returns the line without its comment. ';' begins one at the start or after a blank. '#' does
 * so only at the start: after a blank it is refused, because the library would keep it in the
 * value. */
static struct span without_comment(struct reader *r, struct span s)
{
    if (s.n > 0 && (s.p[0] == ';' || s.p[0] == '#'))
        return (struct span){s.p, 0};
    for (size_t i = 1; i < s.n; i++) {
        if (!is_blank(s.p[i - 1]))
            continue;
        if (s.p[i] == ';')
            return trim_blanks(s.p, i);
        if (s.p[i] == '#') {
            struct span rest = trim_blanks(s.p + i + 1, s.n - i - 1);
            conf_problem(r->cfg, current_place(r),
                         "'#' begins a comment only at the start of a line; write '; %s'",
                         conf_quote(rest.p, rest.n).s);
            return trim_blanks(s.p, i);
        }
    }
    return s;
}

/* Checks a header: reports what is wrong, and returns the section most likely meant. */
static struct span section_line(struct reader *r, struct span s)
{
    const char *close = memchr(s.p, ']', s.n);
    const char *sections[CONF_SECTIONS_MAX];
    char name[PP_NAME_MAX];
    struct span inside = {s.p + 1, close ? (size_t)(close - s.p) - 1 : s.n - 1};
    struct span word = trim_blanks(inside.p, inside.n);

    conf_sections(sections);
    size_t n = word.n < sizeof(name) ? word.n : sizeof(name) - 1;
    memcpy(name, word.p, n);
    name[n] = '\0';

    if (!close) {
        conf_problem(r->cfg, current_place(r), "section header '%s' has no ']'",
                     conf_quote(s.p, s.n).s);
    } else {
        struct span after = trim_blanks(close + 1, s.n - inside.n - 2);
        if (after.n > 0) {
            conf_problem(r->cfg, current_place(r),
                         "text after ']': '%s'; give it a line of its own",
                         conf_quote(after.p, after.n).s);
        }
        if (word.n != inside.n) {
            conf_problem(r->cfg, current_place(r), "blanks inside '[%s]'; write [%s]",
                         conf_quote(inside.p, inside.n).s, conf_quote(word.p, word.n).s);
        }
    }
    for (int i = 0; sections[i]; i++)
        if (strcmp(name, sections[i]) == 0)
            return (struct span){sections[i], strlen(sections[i])};
    const char *near = pp_nearest(name, sections);
    if (near) {
        conf_problem(r->cfg, current_place(r),
                     "unknown section [%s]; did you mean [%s]? (ppcli keys)",
                     conf_quote(word.p, word.n).s, near);
        return (struct span){near, strlen(near)};
    }
    char known[256] = "";
    for (int i = 0; sections[i]; i++)
        pp_text_add(known, sizeof(known), "%s[%s]", i ? " " : "", sections[i]);
    conf_problem(r->cfg, current_place(r), "unknown section [%s]; the sections are %s (ppcli keys)",
                 conf_quote(word.p, word.n).s, known);
    return (struct span){NO_SECTION, strlen(NO_SECTION)};
}

/* Returns whether the library reads this "key = value" as we do. */
static bool key_line(struct reader *r, struct span s)
{
    const char *equals = memchr(s.p, '=', s.n);
    const char *colon = memchr(s.p, ':', equals ? (size_t)(equals - s.p) : s.n);
    if (colon) {
        struct span key = trim_blanks(s.p, (size_t)(colon - s.p));
        struct span value = trim_blanks(colon + 1, s.n - (size_t)(colon - s.p) - 1);
        if (value.n > 0 && value.p[0] == '=') /* such as "lr := 3" */
            value = trim_blanks(value.p + 1, value.n - 1);
        conf_problem(r->cfg, current_place(r),
                     "':' does not separate key and value; write '%s = %s'",
                     conf_quote(key.p, key.n).s, conf_quote(value.p, value.n).s);
        return false;
    }
    if (!equals) {
        conf_problem(r->cfg, current_place(r), "'%s' has no '='; write 'key = value'",
                     conf_quote(s.p, s.n).s);
        return false;
    }
    if (equals == s.p) {
        conf_problem(r->cfg, current_place(r), "no key before '%s'", conf_quote(s.p, s.n).s);
        return false;
    }
    return true;
}

/* Passes a line on. If it is longer than the library's buffer, passes only the key and keeps the
 * value. */
static void pass_line(struct reader *r, struct span s, char *out, size_t limit)
{
    r->expected = true;
    if (s.n > limit) {
        const char *equals = memchr(s.p, '=', s.n);
        struct span key = trim_blanks(s.p, (size_t)(equals - s.p));
        struct span value = trim_blanks(equals + 1, s.n - (size_t)(equals - s.p) - 1);
        r->value = pp_alloc(value.n + 1, 1);
        if (!r->value)
            r->cfg->source->no_memory = true;
        else
            memcpy(r->value, value.p, value.n);
        size_t n = key.n < limit - 4 ? key.n : limit - 4; /* no legal key is so long */
        snprintf(out, limit + 1, "%.*s = .", (int)n, key.p);
        return;
    }
    memcpy(out, s.p, s.n);
    out[s.n] = '\0';
}

/* ini_reader: gives the library the next line; NULL at the end. */
static char *next_config_line(char *out, int out_bytes, void *stream)
{
    struct reader *r = stream;
    char why[CONF_WHY_MAX];
    size_t limit = (size_t)out_bytes - 2;

    if (r->expected) { /* cannot happen with any known libinih; must not pass silently */
        conf_problem(r->cfg, current_place(r), "the line could not be read");
        r->expected = false;
    }
    if (r->at >= r->bytes)
        return NULL;
    const char *start = r->text + r->at;
    const char *end = memchr(start, '\n', r->bytes - r->at);
    size_t n = end ? (size_t)(end - start) : r->bytes - r->at;
    r->at += n + 1;
    r->line++;
    if (n > 0 && start[n - 1] == '\r')
        n--;

    struct span s = trim_blanks(start, n);
    out[0] = '\0';
    if (conf_text_check(start, n, why) < 0) {
        conf_problem(r->cfg, current_place(r), "%s", why);
    } else if ((s = without_comment(r, s)).n > 0) {
        if (s.p[0] == '[') {
            s = section_line(r, s);
            snprintf(out, limit + 1, "[%.*s]", (int)s.n, s.p);
        } else if (key_line(r, s)) {
            pass_line(r, s, out, limit);
        }
    }
    strcat(out, "\n");
    return out;
}

static void unknown_key(struct reader *r, const char *section, const char *key)
{
    const char *keys[64];
    int n = 0;
    for (int i = 0; i < conf_option_count(); i++) {
        const struct conf_option *o = conf_option(i);
        if (strcmp(o->key, key) == 0) {
            conf_problem(r->cfg, current_place(r),
                         "'%s' does not belong in [%s] but in [%s] (ppcli keys %s)", key, section,
                         o->section, o->section);
            return;
        }
        if (strcmp(o->section, section) == 0 && n < 63)
            keys[n++] = o->key;
    }
    keys[n] = NULL;
    const char *like = pp_config_key_like(key);
    if (like) {
        const struct conf_option *o = conf_option(conf_option_index(like));
        conf_problem(r->cfg, current_place(r),
                     "unknown key '%s' in [%s]; did you mean '%s' in [%s]? (ppcli keys %s)", key,
                     section, o->key, o->section, like);
        return;
    }
    conf_problem(r->cfg, current_place(r), "unknown key '%s' in [%s]%s (ppcli keys %s)",
                 conf_quote(key, strlen(key)).s, section, pp_did_you_mean(key, keys).s, section);
}

static void key_without_section(struct reader *r, const char *key)
{
    for (int i = 0; i < conf_option_count(); i++) {
        const struct conf_option *o = conf_option(i);
        if (strcmp(o->key, key) == 0) {
            conf_problem(r->cfg, current_place(r),
                         "'%s' is before any section; it belongs under [%s]", key, o->section);
            return;
        }
    }
    conf_problem(r->cfg, current_place(r), "'%s' is before any section; every key belongs to one",
                 conf_quote(key, strlen(key)).s);
}

static void take_key(struct reader *r, const char *section, const char *key, const char *value)
{
    if (strcmp(section, NO_SECTION) == 0)
        return; /* its header was reported */
    if (section[0] == '\0') {
        key_without_section(r, key);
        return;
    }
    int option = conf_option_find(section, key);
    if (option < 0) {
        char name[PP_NAME_MAX];
        snprintf(name, sizeof(name), "%s.%s", section, key);
        if (!conf_was_key(r->cfg, current_place(r), name, value))
            unknown_key(r, section, key);
        return;
    }
    const struct conf_origin *before = &r->cfg->source->origins[option];
    if (before->from == CONF_FROM_FILE) {
        conf_problem(r->cfg, current_place(r), "duplicate key '%s' in [%s]: line %d has it already",
                     key, section, before->number);
        return;
    }
    conf_assign(r->cfg, option, value, current_place(r), r->names);
}

/* ini_handler: takes one key. Always returns "continue", because problems are in our list. */
static int on_key(void *user, const char *section, const char *key, const char *value)
{
    struct reader *r = user;
    if (key && value) { /* else the library was built to announce sections */
        r->expected = false;
        take_key(r, section, key, r->value ? r->value : value);
        pp_free(r->value);
        r->value = NULL;
    }
    return 1;
}

int conf_ini_read(struct pp_config *cfg, const char *text, size_t bytes,
                  const struct pp_names *names)
{
    struct reader r = {.text = text, .bytes = bytes, .cfg = cfg, .names = names};
    if (bytes >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0)) {
        r.line = 1;
        conf_problem(cfg, current_place(&r), "the file is UTF-16; save it as UTF-8");
        return 0;
    }
    r.at = bytes >= 3 ? pp_text_bom(text) : 0;
    int rc = ini_parse_stream(next_config_line, &r, on_key, &r);
    if (rc < 0)
        return pp_fail(PP_ERESOURCE, "out of memory in libinih");
    if (rc > 0 && cfg->source->problems.n == 0) {
        /* The library refused a line that we accepted: the two must never disagree silently. */
        return pp_fail(PP_EINTERNAL, "libinih refuses line %d of %s", rc, cfg->source->file);
    }
    return 0;
}
