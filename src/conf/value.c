/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to value and back, by type. The whole text must be consumed, must be in range, and what is
 * printed reads back to the same value. Numbers are read and printed as in the C locale whatever
 * the process has set: 0,5 is an error everywhere, never 0.
 */
#include "conf.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/err.h"

static void *place(const struct conf_option *o, struct pp_config *cfg)
{
    return (char *)cfg + o->offset;
}

/* ---- whole numbers */

enum conf_number conf_number_parse(const char *text, bool *out_negative, uint64_t *out)
{
    static const struct {
        const char *suffix;
        uint64_t factor;
    } units[] = {{"", 1},           {"k", 1000},        {"M", 1000000},
                 {"G", 1000000000}, {"Ki", 1ull << 10}, {"Mi", 1ull << 20},
                 {"Gi", 1ull << 30}};
    const char *p = text;
    uint64_t n = 0;
    bool big = false;
    bool negative = *p == '-';
    if (*p == '-' || *p == '+')
        p++;
    if (!isdigit((unsigned char)*p))
        return CONF_NUMBER_BAD;
    for (; isdigit((unsigned char)*p); p++) {
        big |= __builtin_mul_overflow(n, 10u, &n);
        big |= __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n);
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(p, units[i].suffix) == 0) {
            big |= __builtin_mul_overflow(n, units[i].factor, &n);
            if (big)
                return CONF_NUMBER_BIG;
            *out_negative = negative && n > 0;
            *out = n;
            return CONF_NUMBER_OK;
        }
    }
    return CONF_NUMBER_BAD;
}

bool pp_bytes_parse(const char *text, size_t *out)
{
    char number[64];
    bool negative = false;
    uint64_t n = 0;
    snprintf(number, sizeof(number), "%s", text);
    size_t len = strlen(number);
    if (len > 1 && number[len - 1] == 'B')
        number[len - 1] = '\0';
    if (conf_number_parse(number, &negative, &n) != CONF_NUMBER_OK || negative || n == 0 ||
        n > SIZE_MAX / 2)
        return false;
    *out = (size_t)n;
    return true;
}

static int parse_whole(const struct conf_option *o, const char *text, struct pp_config *cfg,
                       char *why)
{
    char range[512];
    bool negative = false;
    uint64_t n = 0;
    enum conf_number rc = conf_number_parse(text, &negative, &n);
    if (rc == CONF_NUMBER_BAD) {
        return conf_why(
            why,
            "'%s' is not a whole number; write digits, perhaps with k, M, G, Ki, Mi or Gi "
            "(%s)",
            conf_quote(text, strlen(text)).s, conf_range_text(o, NULL, range, sizeof(range)));
    }
    bool legal = rc == CONF_NUMBER_OK;
    if (legal && o->type == CONF_UINT64) {
        legal = !negative;
    } else if (legal) {
        legal = negative ? -(double)n >= o->min
                         : n <= (uint64_t)o->max && (o->min <= 0 || n >= (uint64_t)o->min);
    }
    if (!legal) {
        return conf_why(why, "%s is out of range; write %s", conf_quote(text, strlen(text)).s,
                        conf_range_text(o, NULL, range, sizeof(range)));
    }
    int64_t value = negative ? -(int64_t)n : (int64_t)n;
    if (o->type == CONF_INT)
        *(int *)place(o, cfg) = (int)value;
    else if (o->type == CONF_INT64)
        *(int64_t *)place(o, cfg) = value;
    else
        *(uint64_t *)place(o, cfg) = n;
    return 0;
}

/* ---- floating point */

/* [sign] digits [. digits] [e [sign] digits]: no hexadecimal, nan, inf or blanks, which strtod
 * would take. */
static bool looks_decimal(const char *p)
{
    int digits = 0;
    p += *p == '-' || *p == '+';
    for (; isdigit((unsigned char)*p); p++)
        digits++;
    if (*p == '.')
        for (p++; isdigit((unsigned char)*p); p++)
            digits++;
    if (digits == 0)
        return false;
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '-' || *p == '+';
        if (!isdigit((unsigned char)*p))
            return false;
        while (isdigit((unsigned char)*p))
            p++;
    }
    return *p == '\0';
}

/* What a user of a comma locale wrote, with a point; false when that does not help. */
static bool with_point(const char *text, char out[64])
{
    const char *comma = strchr(text, ',');
    if (!comma || strlen(text) >= 64)
        return false;
    strcpy(out, text);
    out[comma - text] = '.';
    return looks_decimal(out);
}

int conf_float_parse(const struct conf_option *o, const char *text, double *out,
                     char why[CONF_WHY_MAX])
{
    char range[512], fixed[64];
    struct conf_quoted q = conf_quote(text, strlen(text));
    conf_range_text(o, NULL, range, sizeof(range));
    if (!looks_decimal(text)) {
        if (with_point(text, fixed)) {
            snprintf(why, CONF_WHY_MAX, "'%s' is not a number; write %s", q.s, fixed);
        } else {
            snprintf(why, CONF_WHY_MAX,
                     "'%s' is not a number; write one such as 0.001 or 1e-3 (%s)", q.s, range);
        }
        return -1;
    }
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* no memory is taken for "C" */
    errno = 0;
    double value = strtod_l(text, NULL, c);
    bool tiny = (errno == ERANGE && !isinf(value)) || (value != 0 && fabs(value) < DBL_MIN);
    freelocale(c);
    if (tiny)
        return conf_why(why, "%s is too small for a float; write a number %s", q.s, range);
    if (isinf(value) || value < o->min || value > o->max || (o->above && value == o->min) ||
        (o->below && value == o->max))
        return conf_why(why, "%s is out of range; write a number %s", q.s, range);
    *out = value == 0 ? 0 : value; /* -0 is printed and compared as 0 */
    return 0;
}

/* The shortest of 15 to 17 digits that reads back to the same value; 1e-8, not 1e-08. */
int conf_float_print(double value, char *out, size_t bytes)
{
    char text[32];
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = uselocale(c);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    uselocale(before);
    freelocale(c);
    char *e = strchr(text, 'e');
    if (e && e[2] == '0')
        memmove(e + 2, e + 3, strlen(e + 3) + 1);
    return snprintf(out, bytes, "%s", text);
}

/* ---- words and paths */

static int not_one_of(const struct conf_option *o, const char *text, const char *const *words,
                      const struct pp_names *names, char *why)
{
    char range[512];
    const char *near = pp_nearest(text, words);
    return conf_why(why, "unknown '%s'; %s%s%swrite %s", conf_quote(text, strlen(text)).s,
                    near ? "did you mean '" : "", near ? near : "", near ? "'? " : "",
                    conf_range_text(o, names, range, sizeof(range)));
}

static int parse_enum(const struct conf_option *o, const char *text, struct pp_config *cfg,
                      char *why)
{
    const char *words[16];
    int n = 0;
    for (; o->choices[n].name; n++) {
        if (strcmp(text, o->choices[n].name) == 0) {
            /* every enum of struct pp_config is as wide as an int */
            memcpy(place(o, cfg), &o->choices[n].value, sizeof(int));
            return 0;
        }
        pp_assert(n < 15);
        words[n] = o->choices[n].name;
    }
    words[n] = NULL;
    return not_one_of(o, text, words, NULL, why);
}

static int parse_bool(const struct conf_option *o, const char *text, struct pp_config *cfg,
                      char *why)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "1", "0", NULL};
    for (int i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *(bool *)place(o, cfg) = i % 2 == 0;
            return 0;
        }
    }
    return not_one_of(o, text, words, NULL, why);
}

/* A resolved path goes into an INI file, which has no quoting. */
static int path_writable(const char *path, char *why)
{
    const char *bad = strstr(path, "${");
    for (const char *p = path; *p && !bad; p++)
        if ((p[0] == ' ' || p[0] == '\t') && (p[1] == ';' || p[1] == '#' || p[1] == '\0'))
            bad = p;
    if (bad) {
        return conf_why(
            why,
            "the path '%s' cannot stand in an INI file because of '%.2s'; use another folder "
            "name",
            conf_quote(path, strlen(path)).s, bad);
    }
    return conf_text_check(path, strlen(path), why);
}

/* Absolute, from the folder that relative paths are relative to. */
static int resolve_path(const char *text, const char *dir, char path[PP_PATH_MAX], char *why)
{
    int n = 0;
    if (text[0] == '~' && (text[1] == '/' || text[1] == '\0')) {
        return conf_why(why, "'~' is not expanded; write ${HOME}%s",
                        conf_quote(text + 1, strlen(text + 1)).s);
    }
    if (text[0] == '/' || text[0] == '\0') {
        n = snprintf(path, PP_PATH_MAX, "%s", text);
    } else {
        if (!dir[0]) {
            return conf_why(why,
                            "'%s' is relative and the current folder is not known; "
                            "write a path from /",
                            conf_quote(text, strlen(text)).s);
        }
        while (text[0] == '.' && text[1] == '/') {
            text += 2;
            text += strspn(text, "/");
        }
        bool self = text[0] == '\0' || strcmp(text, ".") == 0;
        bool root = strcmp(dir, "/") == 0;
        n = snprintf(path, PP_PATH_MAX, "%s%s%s", dir, self || root ? "" : "/", self ? "" : text);
    }
    if (n < 0 || n >= PP_PATH_MAX)
        return conf_why(why, "the path is %d bytes, at most %d", n, PP_PATH_MAX - 1);
    return path_writable(path, why);
}

static int parse_path(const struct conf_option *o, const char *text, const char *dir,
                      struct pp_config *cfg, char *why)
{
    char path[PP_PATH_MAX] = "";
    if (o->word && strcmp(text, o->word) == 0)
        strcpy(path, text);
    else if (resolve_path(text, dir, path, why) < 0)
        return -1;
    memcpy(place(o, cfg), path, sizeof(path));
    return 0;
}

/* "file:table.csv" -> "file:/folder/of/the/ini/table.csv" */
static int parse_file_name(const struct conf_option *o, const char *text, const char *dir,
                           struct pp_config *cfg, char *why)
{
    static const size_t prefix = sizeof(PP_SCHEDULE_FILE) - 1;
    char path[PP_PATH_MAX] = "";
    if (text[prefix] == '\0')
        return conf_why(why, "no file; write %sTABLE.csv", PP_SCHEDULE_FILE);
    if (resolve_path(text + prefix, dir, path, why) < 0)
        return -1;
    if (strlen(path) + prefix >= PP_PATH_MAX)
        return conf_why(why, "the path is too long");
    char *to = place(o, cfg);
    memset(to, 0, PP_PATH_MAX);
    memcpy(to, PP_SCHEDULE_FILE, prefix);
    memcpy(to + prefix, path, strlen(path) + 1);
    return 0;
}

static int parse_name(const struct conf_option *o, const char *text, const char *dir,
                      const struct pp_names *names, struct pp_config *cfg, char *why)
{
    if (o->file && strncmp(text, PP_SCHEDULE_FILE, sizeof(PP_SCHEDULE_FILE) - 1) == 0)
        return parse_file_name(o, text, dir, cfg, why);
    const char *const *list = conf_names_of(o, names);
    bool known = !list || (o->word && strcmp(text, o->word) == 0);
    for (int i = 0; list && list[i] && !known; i++)
        known = strcmp(list[i], text) == 0;
    size_t n = strlen(text);
    if (!known && o->file && (strchr(text, '/') || (n > 4 && strcmp(text + n - 4, ".csv") == 0))) {
        return conf_why(why, "unknown '%s'; a table is %s%s", conf_quote(text, n).s,
                        PP_SCHEDULE_FILE, conf_quote(text, n).s);
    }
    if (!known)
        return not_one_of(o, text, list, names, why);
    if (n >= PP_NAME_MAX) {
        return conf_why(why, "'%s' is %zu bytes; a name has at most %d", conf_quote(text, n).s, n,
                        PP_NAME_MAX - 1);
    }
    char *to = place(o, cfg);
    memset(to, 0, PP_NAME_MAX);
    memcpy(to, text, n + 1);
    return 0;
}

/* ---- by type */

int conf_value_parse(const struct conf_option *o, const char *text, const char *dir,
                     const struct pp_names *names, struct pp_config *cfg, char why[CONF_WHY_MAX])
{
    char range[512];
    if (text[0] == '\0' && o->type != CONF_PATH && o->type != CONF_TEXT)
        return conf_why(why, "no value; write %s", conf_range_text(o, names, range, sizeof(range)));
    switch (o->type) {
    case CONF_INT:
    case CONF_INT64:
    case CONF_UINT64:
        return parse_whole(o, text, cfg, why);
    case CONF_FLOAT:
        return conf_float_parse(o, text, place(o, cfg), why);
    case CONF_DURATION:
        return conf_duration_parse(o, text, place(o, cfg), why);
    case CONF_BOOL:
        return parse_bool(o, text, cfg, why);
    case CONF_ENUM:
        return parse_enum(o, text, cfg, why);
    case CONF_NAME:
        return parse_name(o, text, dir, names, cfg, why);
    case CONF_PATH:
        return parse_path(o, text, dir, cfg, why);
    case CONF_TEXT:
        if (strlen(text) >= PP_TEXT_MAX)
            return conf_why(why, "%zu bytes; at most %d", strlen(text), PP_TEXT_MAX - 1);
        memset(place(o, cfg), 0, PP_TEXT_MAX);
        memcpy(place(o, cfg), text, strlen(text));
        return 0;
    case CONF_SIZES:
        return conf_sizes_parse(o, text, cfg, why);
    case CONF_ASSIGNMENT:
        return conf_assignment_parse(text, cfg, why);
    case CONF_LAYERS:
        return conf_split_parse(text, cfg, why);
    case CONF_DEVICES:
        return conf_devices_parse(text, cfg, why);
    case CONF_NUMBERS:
        return conf_numbers_parse(o, text, cfg, why);
    case CONF_FLOATS:
        return conf_floats_parse(o, text, cfg, why);
    case CONF_CHOICES:
        return conf_choices_parse(o, text, cfg, why);
    }
    return -1;
}

static const char *choice_name(const struct conf_choice *choices, int value)
{
    for (; choices->name; choices++)
        if (choices->value == value)
            return choices->name;
    return "none";
}

static int print_scalar(const struct conf_option *o, const void *at, char *out, size_t bytes)
{
    int value;
    switch (o->type) {
    case CONF_INT:
        return snprintf(out, bytes, "%d", *(const int *)at);
    case CONF_INT64:
        return snprintf(out, bytes, "%lld", (long long)*(const int64_t *)at);
    case CONF_UINT64:
        return snprintf(out, bytes, "%llu", (unsigned long long)*(const uint64_t *)at);
    case CONF_FLOAT:
        return conf_float_print(*(const double *)at, out, bytes);
    case CONF_DURATION:
        return conf_duration_print(*(const double *)at, out, bytes);
    case CONF_BOOL:
        return snprintf(out, bytes, "%s", *(const bool *)at ? "true" : "false");
    case CONF_ENUM:
        memcpy(&value, at, sizeof(value));
        return snprintf(out, bytes, "%s", choice_name(o->choices, value));
    case CONF_LAYERS:
        return snprintf(out, bytes, "%s", *(const char *)at ? (const char *)at : "none");
    default:
        return snprintf(out, bytes, "%s", (const char *)at);
    }
}

int conf_value_print(const struct conf_option *o, const struct pp_config *cfg, char *out,
                     size_t bytes)
{
    if (o->type == CONF_SIZES)
        return conf_sizes_print(cfg, out, bytes);
    if (o->type == CONF_ASSIGNMENT)
        return conf_assignment_print(cfg, out, bytes);
    if (o->type == CONF_DEVICES)
        return conf_devices_print(cfg, out, bytes);
    if (o->type == CONF_NUMBERS)
        return conf_numbers_print(o, cfg, out, bytes);
    if (o->type == CONF_FLOATS)
        return conf_floats_print(o, cfg, out, bytes);
    if (o->type == CONF_CHOICES)
        return conf_choices_print(o, cfg, out, bytes);
    int n = print_scalar(o, (const char *)cfg + o->offset, out, bytes);
    return n >= 0 && (size_t)n < bytes ? 0 : -1;
}

static const char *name_in(const char *key, int value)
{
    return choice_name(conf_option(conf_option_index(key))->choices, value);
}

const char *pp_activation_name(enum pp_activation a)
{
    return name_in("model.activation", (int)a);
}

const char *pp_optimizer_name(enum pp_optimizer_kind k)
{
    return name_in("train.optimizer", (int)k);
}

int pp_optimizer_moments(enum pp_optimizer_kind k)
{
    return k == PP_OPT_SGD ? 0 : k == PP_OPT_MOMENTUM ? 1 : 2;
}

const char *pp_precision_name(enum pp_precision p)
{
    return name_in("run.precision", (int)p);
}
