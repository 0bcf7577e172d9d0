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
    int n_problems;
    bool no_memory;
    const struct conf_ini *to;
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

__attribute__((format(printf, 2, 3))) static void report_line(struct reader *r, const char *fmt,
                                                              ...)
{
    char text[CONF_WHY_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    r->n_problems++;
    r->to->problem(r->to->ctx, r->line, text);
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

/* Returns the line without its comment. ';' begins a comment at the start of the line or after a
 * blank. '#' begins one only at the start of the line: after a blank it is refused, because the
 * library would keep it in the value. */
static struct span strip_comment(struct reader *r, struct span s)
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
            report_line(r, "'#' begins a comment only at the start of a line; write '; %s'",
                        conf_quote(rest.p, rest.n).s);
            return trim_blanks(s.p, i);
        }
    }
    return s;
}

/* Parses a section header, reports what is wrong with it, and returns the section that is most
 * likely meant. */
static struct span parse_section(struct reader *r, struct span s)
{
    const char *close = memchr(s.p, ']', s.n);
    const char *const *sections = r->to->sections;
    char name[PP_NAME_MAX];
    struct span inside = {s.p + 1, close ? (size_t)(close - s.p) - 1 : s.n - 1};
    struct span word = trim_blanks(inside.p, inside.n);

    size_t n = word.n < sizeof(name) ? word.n : sizeof(name) - 1;
    memcpy(name, word.p, n);
    name[n] = '\0';

    if (!close) {
        report_line(r, "section header '%s' has no ']'", conf_quote(s.p, s.n).s);
    } else {
        struct span after = trim_blanks(close + 1, s.n - inside.n - 2);
        if (after.n > 0) {
            report_line(r, "text after ']': '%s'; move it to its own line",
                        conf_quote(after.p, after.n).s);
        }
        if (word.n != inside.n) {
            report_line(r, "blanks inside '[%s]'; write [%s]", conf_quote(inside.p, inside.n).s,
                        conf_quote(word.p, word.n).s);
        }
    }
    for (int i = 0; sections[i]; i++)
        if (strcmp(name, sections[i]) == 0)
            return (struct span){sections[i], strlen(sections[i])};
    const char *near = pp_nearest(name, sections);
    if (near) {
        report_line(r, "unknown section [%s]; did you mean [%s]?%s", conf_quote(word.p, word.n).s,
                    near, r->to->help);
        return (struct span){near, strlen(near)};
    }
    char known[256] = "";
    for (int i = 0; sections[i]; i++)
        pp_text_add(known, sizeof(known), "%s[%s]", i ? " " : "", sections[i]);
    report_line(r, "unknown section [%s]; the sections are %s%s", conf_quote(word.p, word.n).s,
                known, r->to->help);
    return (struct span){NO_SECTION, strlen(NO_SECTION)};
}

/* Returns whether libinih splits this "key = value" at the same place as ppcli; reports the line if
 * it does not. */
static bool check_key_line(struct reader *r, struct span s)
{
    const char *equals = memchr(s.p, '=', s.n);
    const char *colon = memchr(s.p, ':', equals ? (size_t)(equals - s.p) : s.n);
    if (colon) {
        struct span key = trim_blanks(s.p, (size_t)(colon - s.p));
        struct span value = trim_blanks(colon + 1, s.n - (size_t)(colon - s.p) - 1);
        if (value.n > 0 && value.p[0] == '=') /* such as "lr := 3" */
            value = trim_blanks(value.p + 1, value.n - 1);
        report_line(r, "':' does not separate key and value; write '%s = %s'",
                    conf_quote(key.p, key.n).s, conf_quote(value.p, value.n).s);
        return false;
    }
    if (!equals) {
        report_line(r, "'%s' has no '='; write 'key = value'", conf_quote(s.p, s.n).s);
        return false;
    }
    if (equals == s.p) {
        report_line(r, "no key before '%s'", conf_quote(s.p, s.n).s);
        return false;
    }
    return true;
}

/* Copies a line to `out` for libinih. If the line is longer than libinih's buffer, copies only the
 * key and keeps the value in r->value. */
static void pass_line(struct reader *r, struct span s, char *out, size_t limit)
{
    r->expected = true;
    if (s.n > limit) {
        const char *equals = memchr(s.p, '=', s.n);
        struct span key = trim_blanks(s.p, (size_t)(equals - s.p));
        struct span value = trim_blanks(equals + 1, s.n - (size_t)(equals - s.p) - 1);
        r->value = pp_alloc(value.n + 1, 1);
        if (!r->value)
            r->no_memory = true;
        else
            memcpy(r->value, value.p, value.n);
        size_t n = key.n < limit - 4 ? key.n : limit - 4; /* no legal key is so long */
        snprintf(out, limit + 1, "%.*s = .", (int)n, key.p);
        return;
    }
    memcpy(out, s.p, s.n);
    out[s.n] = '\0';
}

/* Gives libinih the next line (its hook ini_reader); returns NULL at the end of the text. */
static char *feed_line(char *out, int out_bytes, void *stream)
{
    struct reader *r = stream;
    char why[CONF_WHY_MAX];
    size_t limit = (size_t)out_bytes - 2;

    if (r->expected) { /* cannot happen with any known libinih; must not pass silently */
        report_line(r, "the line could not be read");
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
        report_line(r, "%s", why);
    } else if ((s = strip_comment(r, s)).n > 0) {
        if (s.p[0] == '[') {
            s = parse_section(r, s);
            snprintf(out, limit + 1, "[%.*s]", (int)s.n, s.p);
        } else if (check_key_line(r, s)) {
            pass_line(r, s, out, limit);
        }
    }
    strcat(out, "\n");
    return out;
}

/* Takes one key from libinih (its hook ini_handler). Always returns 1, which means "continue",
 * because problems are reported elsewhere. */
static int on_key(void *user, const char *section, const char *key, const char *value)
{
    struct reader *r = user;
    if (key && value) { /* else the library was built to announce sections */
        r->expected = false;
        if (strcmp(section, NO_SECTION) != 0) /* its header was reported */
            r->to->key(r->to->ctx, r->line, section, key, r->value ? r->value : value);
        pp_free(r->value);
        r->value = NULL;
    }
    return 1;
}

int conf_ini_parse(const char *text, size_t bytes, const struct conf_ini *to)
{
    struct reader r = {.text = text, .bytes = bytes, .to = to};
    if (bytes >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0)) {
        r.line = 1;
        report_line(&r, "the file is UTF-16; save it as UTF-8");
        return 0;
    }
    r.at = bytes >= 3 ? pp_text_bom(text) : 0;
    int rc = ini_parse_stream(feed_line, &r, on_key, &r);
    if (rc < 0 || r.no_memory)
        return pp_fail(PP_ERESOURCE, "out of memory in libinih");
    /* The library refused a line that we accepted: the two must never disagree silently. */
    return rc > 0 && r.n_problems == 0 ? pp_fail(PP_EINTERNAL, "libinih refuses line %d", rc) : 0;
}

/* ---- the keys of a config */

struct config_reader {
    struct pp_config *cfg;
    const struct pp_names *names;
};

static void add_problem(void *reader, int line, const char *text)
{
    struct config_reader *r = reader;
    conf_problem(r->cfg, (struct conf_position){CONF_FROM_FILE, line, NULL}, "%s", text);
}

static void report_unknown_key(struct config_reader *r, struct conf_position place,
                               const char *section, const char *key)
{
    const char *keys[64];
    int n = 0;
    for (int i = 0; i < conf_option_count(); i++) {
        const struct conf_option *o = conf_option(i);
        if (strcmp(o->key, key) == 0) {
            conf_problem(r->cfg, place, "'%s' does not belong in [%s] but in [%s] (ppcli keys %s)",
                         key, section, o->section, o->section);
            return;
        }
        if (strcmp(o->section, section) == 0 && n < 63)
            keys[n++] = o->key;
    }
    keys[n] = NULL;
    const char *like = pp_config_key_like(key);
    if (like) {
        const struct conf_option *o = conf_option(conf_option_index(like));
        conf_problem(r->cfg, place,
                     "unknown key '%s' in [%s]; did you mean '%s' in [%s]? (ppcli keys %s)", key,
                     section, o->key, o->section, like);
        return;
    }
    conf_problem(r->cfg, place, "unknown key '%s' in [%s]%s (ppcli keys %s)",
                 conf_quote(key, strlen(key)).s, section, pp_did_you_mean(key, keys).s, section);
}

static void report_missing_section(struct config_reader *r, struct conf_position place,
                                   const char *key)
{
    for (int i = 0; i < conf_option_count(); i++) {
        const struct conf_option *o = conf_option(i);
        if (strcmp(o->key, key) == 0) {
            conf_problem(r->cfg, place, "'%s' is before any section; it belongs under [%s]", key,
                         o->section);
            return;
        }
    }
    conf_problem(r->cfg, place, "'%s' is before any section; every key belongs to one",
                 conf_quote(key, strlen(key)).s);
}

static void take_config_key(void *reader, int line, const char *section, const char *key,
                            const char *value)
{
    struct config_reader *r = reader;
    struct conf_position place = {CONF_FROM_FILE, line, NULL};
    if (section[0] == '\0') {
        report_missing_section(r, place, key);
        return;
    }
    int option = conf_option_find(section, key);
    if (option < 0) {
        char name[PP_NAME_MAX];
        snprintf(name, sizeof(name), "%s.%s", section, key);
        if (!conf_was_key(r->cfg, place, name, value))
            report_unknown_key(r, place, section, key);
        return;
    }
    const struct conf_origin *before = &r->cfg->source->origins[option];
    if (before->from == CONF_FROM_FILE) {
        conf_problem(r->cfg, place, "duplicate key '%s' in [%s]: line %d has it already", key,
                     section, before->number);
        return;
    }
    conf_assign(r->cfg, option, value, place, r->names);
}

int conf_ini_read(struct pp_config *cfg, const char *text, size_t bytes,
                  const struct pp_names *names)
{
    struct config_reader reader = {cfg, names};
    const char *sections[CONF_SECTIONS_MAX];
    conf_sections(sections);
    const struct conf_ini to = {&reader, sections, " (ppcli keys)", add_problem, take_config_key};
    return conf_ini_parse(text, bytes, &to);
}
