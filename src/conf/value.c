/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts text to value and back, by type. The whole text must be used, must be in range, and the
 * printed value reads back to the same value. Numbers are read and printed as in the C locale
 * whatever the process has set: 0,5 is an error everywhere, never 0.
 */
#include "conf.h"

#include "ppcli/conf/cluster.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *place_of_value(const struct conf_reading *r, struct pp_config *cfg)
{
    return (char *)cfg + r->o->offset;
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

bool pp_whole_parse(const char *text, int64_t *out)
{
    bool negative;
    uint64_t n;
    if (conf_number_parse(text, &negative, &n) != CONF_NUMBER_OK || n > INT64_MAX)
        return false;
    *out = negative ? -(int64_t)n : (int64_t)n;
    return true;
}

static int parse_whole(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    const struct conf_option *o = r->o;
    char range[512];
    bool negative = false;
    uint64_t n = 0;
    if (o->word && strcmp(text, o->word) == 0) {
        *(int *)place_of_value(r, cfg) = 0;
        return 0;
    }
    enum conf_number rc = conf_number_parse(text, &negative, &n);
    if (rc == CONF_NUMBER_BAD) {
        return conf_why(
            r->why,
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
        return conf_why(r->why, "%s is out of range; write %s", conf_quote(text, strlen(text)).s,
                        conf_range_text(o, NULL, range, sizeof(range)));
    }
    int64_t value = negative ? -(int64_t)n : (int64_t)n;
    if (o->type == CONF_INT)
        *(int *)place_of_value(r, cfg) = (int)value;
    else if (o->type == CONF_INT64)
        *(int64_t *)place_of_value(r, cfg) = value;
    else
        *(uint64_t *)place_of_value(r, cfg) = n;
    return 0;
}

/* ---- floating point */

/* Returns the length of the number at the start of `text`, written as [sign] digits [. digits] [e
 * [sign] digits]; 0 if there is none. Hexadecimal numbers, nan, inf and leading blanks, which
 * strtod() accepts, are not accepted here. */
static size_t measure_decimal(const char *text)
{
    const char *p = text + (*text == '-' || *text == '+');
    size_t whole = strspn(p, "0123456789"), part = p[whole] == '.';
    if (part)
        part += strspn(p + whole + 1, "0123456789");
    if (whole + part == (size_t)(p[whole] == '.'))
        return 0;
    p += whole + part;
    if (*p == 'e' || *p == 'E') {
        size_t sign = p[1] == '-' || p[1] == '+', digits = strspn(p + 1 + sign, "0123456789");
        p += digits > 0 ? 1 + sign + digits : 0;
    }
    return (size_t)(p - text);
}

static bool looks_decimal(const char *text)
{
    size_t n = measure_decimal(text);
    return n > 0 && text[n] == '\0';
}

/* Converts a number in the C locale, whatever the locale of the process is. Sets errno as strtod()
 * does. */
static double parse_double(const char *text)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* the "C" locale needs no memory */
    errno = 0;
    double value = strtod_l(text, NULL, c);
    freelocale(c);
    return value;
}

bool conf_scaled_parse(const char **text, double *out)
{
    static const char units[] = "KMGTP";
    size_t n = measure_decimal(*text);
    const char *p = *text + n, *unit = *p ? strchr(units, toupper((unsigned char)*p)) : NULL;
    if (n == 0)
        return false;
    *out = parse_double(*text);
    if (unit) {
        bool binary = p[1] == 'i';
        *out *= pow(binary ? 1024 : 1000, (double)(unit - units + 1));
        p += 1 + binary;
    }
    *text = p + (*p == 'B');
    return true;
}

static int parse_bytes(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    struct conf_quoted q = conf_quote(text, strlen(text));
    char range[512];
    double x;
    if (!conf_scaled_parse(&text, &x) || *text)
        return conf_why(r->why, "'%s' is not a size; write " PP_BYTES_FORMS, q.s);
    if (!(x >= r->o->min && x <= r->o->max))
        return conf_why(r->why, "%s is out of range; write %s", q.s,
                        conf_range_text(r->o, NULL, range, sizeof(range)));
    *(int64_t *)place_of_value(r, cfg) = (int64_t)x;
    return 0;
}

/* Copies a number to `out` with its decimal comma replaced by a point. Returns whether the result
 * is a number. */
static bool replace_comma(const char *text, char out[64])
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
        if (replace_comma(text, fixed)) {
            snprintf(why, CONF_WHY_MAX, "'%s' is not a number; write %s", q.s, fixed);
        } else {
            snprintf(why, CONF_WHY_MAX,
                     "'%s' is not a number; write one such as 0.001 or 1e-3 (%s)", q.s, range);
        }
        return -1;
    }
    double value = parse_double(text);
    float used = (float)value; /* computations use no more precision */
    if ((errno == ERANGE && !isinf(value)) || (value != 0 && fabs(value) < (double)FLT_MIN)) {
        return conf_why(why,
                        "%s is too small for a float, which would make it 0; write %s1.18e-38 "
                        "or more",
                        q.s, o->above || o->min > 0 ? "" : "0, or ");
    }
    if (isinf(value) || value < o->min || value > o->max || (o->above && used <= (float)o->min) ||
        (o->below && used >= (float)o->max))
        return conf_why(why, "%s is out of range; write %s%s", q.s,
                        o->type == CONF_FLOAT ? "a number " : "", range);
    *out = value == 0 ? 0 : value; /* -0 is printed and compared as 0 */
    return 0;
}

/* Prints the number with the fewest digits, 15 to 17, that give the same value when they are read
 * again; writes 1e-8, not 1e-08. */
void conf_float_print(double value, struct conf_text *t)
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
    conf_put(t, "%s", text);
}

/* ---- words and paths */

static int not_one_of(const struct conf_reading *r, const char *text, const char *const *words)
{
    char range[512];
    const char *near = pp_nearest(text, words);
    return conf_why(r->why, "unknown '%s'; %s%s%swrite %s", conf_quote(text, strlen(text)).s,
                    near ? "did you mean '" : "", near ? near : "", near ? "'? " : "",
                    conf_range_text(r->o, r->names, range, sizeof(range)));
}

static int parse_enum(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    const struct conf_option *o = r->o;
    const char *words[16];
    int n = 0;
    for (; o->choices[n].name; n++) {
        if (strcmp(text, o->choices[n].name) == 0) {
            /* every enum of struct pp_config has the size of an int */
            memcpy(place_of_value(r, cfg), &o->choices[n].value, sizeof(int));
            return 0;
        }
        pp_assert(n < 15);
        words[n] = o->choices[n].name;
    }
    words[n] = NULL;
    return not_one_of(r, text, words);
}

static int parse_bool(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off", "1", "0", NULL};
    for (int i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *(bool *)place_of_value(r, cfg) = i % 2 == 0;
            return 0;
        }
    }
    return not_one_of(r, text, words);
}

/* Checks that the text can be written to an INI file, which has no quoting: it must not begin with
 * a comment sign, contain "${" or a comment sign after a blank, or end with a blank. */
static int check_writable(const char *what, const char *text, char *why)
{
    const char *bad = text[0] == ';' || text[0] == '#' ? text : strstr(text, "${");
    for (const char *p = text; *p && !bad; p++)
        if ((p[0] == ' ' || p[0] == '\t') && (p[1] == ';' || p[1] == '#' || p[1] == '\0'))
            bad = p;
    if (bad) {
        return conf_why(
            why, "the %s '%s' cannot be written in an INI file because of '%.2s'; use another name",
            what, conf_quote(text, strlen(text)).s, bad);
    }
    return conf_text_check(text, strlen(text), why);
}

/* Makes the path `text` absolute: a relative one begins at the folder `dir`. */
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
    return check_writable("path", path, why);
}

static int parse_path(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    const struct conf_option *o = r->o;
    char path[PP_PATH_MAX] = "";
    if (pp_has_word(o->word, text))
        strcpy(path, text);
    else if (resolve_path(text, r->dir, path, r->why) < 0)
        return -1;
    memcpy(place_of_value(r, cfg), path, sizeof(path));
    return 0;
}

/* Makes the path in "file:table.csv" or "exec:program" absolute, relative to the folder of the INI
 * file. */
static int parse_file_name(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    static const size_t prefix = sizeof(PP_SCHEDULE_FILE) - 1;
    char path[PP_PATH_MAX] = "";
    if (text[prefix] == '\0')
        return conf_why(r->why, "no file; write %sTABLE.csv", PP_SCHEDULE_FILE);
    if (resolve_path(text + prefix, r->dir, path, r->why) < 0)
        return -1;
    if (strlen(path) + prefix >= PP_PATH_MAX)
        return conf_why(r->why, "the path is too long");
    char *to = place_of_value(r, cfg);
    memset(to, 0, PP_PATH_MAX);
    memcpy(to, text, prefix);
    memcpy(to + prefix, path, strlen(path) + 1);
    return 0;
}

static int parse_name(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    const struct conf_option *o = r->o;
    if (o->file && (strncmp(text, PP_SCHEDULE_FILE, sizeof(PP_SCHEDULE_FILE) - 1) == 0 ||
                    strncmp(text, PP_SCHEDULE_EXEC, sizeof(PP_SCHEDULE_EXEC) - 1) == 0))
        return parse_file_name(r, text, cfg);
    if (o->alias && strcmp(text, o->alias) == 0)
        text = o->means;
    const char *const *list = conf_names_of(o, r->names);
    bool known = !list || (o->word && strcmp(text, o->word) == 0);
    for (int i = 0; list && list[i] && !known; i++)
        known = strcmp(list[i], text) == 0;
    size_t n = strlen(text);
    if (!known && o->file && (strchr(text, '/') || (n > 4 && strcmp(text + n - 4, ".csv") == 0))) {
        return conf_why(r->why, "unknown '%s'; a table is %s%s", conf_quote(text, n).s,
                        PP_SCHEDULE_FILE, conf_quote(text, n).s);
    }
    for (const char *const *l = known ? NULL : conf_lines_of(o, r->names); l && *l; l += 2)
        if (strcmp(*l, text) == 0)
            return conf_why(r->why,
                            "%s can be planned, but not trained with: ppcli plan --schedule %s "
                            "--stages P --microbatches M",
                            text, text);
    if (!known && conf_was_word(o->name, text))
        return conf_why(r->why, "'%s' is gone: %s", text, conf_was_word(o->name, text));
    if (!known)
        return not_one_of(r, text, list);
    if (n >= PP_NAME_MAX) {
        return conf_why(r->why, "'%s' is %zu bytes; a name has at most %d", conf_quote(text, n).s,
                        n, PP_NAME_MAX - 1);
    }
    if (o->free && check_writable("name", text, r->why) < 0)
        return -1;
    char *to = place_of_value(r, cfg);
    memset(to, 0, PP_NAME_MAX);
    memcpy(to, text, n + 1);
    return 0;
}

static int parse_text(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    if (strlen(text) >= PP_TEXT_MAX)
        return conf_why(r->why, "%zu bytes; at most %d", strlen(text), PP_TEXT_MAX - 1);
    memset(place_of_value(r, cfg), 0, PP_TEXT_MAX);
    memcpy(place_of_value(r, cfg), text, strlen(text));
    return 0;
}

static int parse_float(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    return conf_float_parse(r->o, text, place_of_value(r, cfg), r->why);
}

static int parse_duration(const struct conf_reading *r, const char *text, struct pp_config *cfg)
{
    return conf_duration_parse(r->o, text, place_of_value(r, cfg), r->why);
}

/* ---- by type */

const char *conf_choice_name(const struct conf_choice *choices, int value)
{
    for (; choices->name; choices++)
        if (choices->value == value)
            return choices->name;
    return "none";
}

static void print_scalar(const struct conf_option *o, const struct pp_config *cfg,
                         struct conf_text *t)
{
    const void *at = (const char *)cfg + o->offset;
    int value;
    switch (o->type) {
    case CONF_INT:
        memcpy(&value, at, sizeof(value));
        if (value == 0 && o->word)
            conf_put(t, "%s", o->word);
        else
            conf_put(t, "%d", value);
        break;
    case CONF_INT64:
    case CONF_BYTES:
        conf_put(t, "%lld", (long long)*(const int64_t *)at);
        break;
    case CONF_UINT64:
        conf_put(t, "%llu", (unsigned long long)*(const uint64_t *)at);
        break;
    case CONF_FLOAT:
    case CONF_DURATION:
        conf_float_print(*(const double *)at, t);
        conf_put(t, "%s", o->type == CONF_DURATION ? "s" : "");
        break;
    case CONF_BOOL:
        conf_put(t, "%s", *(const bool *)at ? "true" : "false");
        break;
    case CONF_ENUM:
        memcpy(&value, at, sizeof(value));
        conf_put(t, "%s", conf_choice_name(o->choices, value));
        break;
    default:
        conf_put(t, "%s", o->type == CONF_LAYERS && !*(const char *)at ? o->def : (const char *)at);
    }
}

const struct conf_type_ops *conf_type(const struct conf_option *o)
{
    static const struct conf_type_ops types[] = {
        [CONF_INT] = {"int", parse_whole, print_scalar},
        [CONF_INT64] = {"int", parse_whole, print_scalar},
        [CONF_BYTES] = {"bytes", parse_bytes, print_scalar},
        [CONF_UINT64] = {"int", parse_whole, print_scalar},
        [CONF_FLOAT] = {"float", parse_float, print_scalar},
        [CONF_DURATION] = {"duration", parse_duration, print_scalar},
        [CONF_BOOL] = {"bool", parse_bool, print_scalar},
        [CONF_ENUM] = {"choice", parse_enum, print_scalar},
        [CONF_NAME] = {"name", parse_name, print_scalar},
        [CONF_PATH] = {"path", parse_path, print_scalar},
        [CONF_TEXT] = {"text", parse_text, print_scalar},
        [CONF_SIZES] = {"sizes", conf_sizes_parse, conf_sizes_print},
        [CONF_ASSIGNMENT] = {"assignment", conf_assignment_parse, conf_assignment_print},
        [CONF_LAYERS] = {"layers", conf_layers_parse, print_scalar},
        [CONF_DEVICES] = {"devices", conf_devices_parse, conf_devices_print},
        [CONF_NUMBERS] = {"numbers", conf_list_parse, conf_list_print},
        [CONF_FLOATS] = {"floats", conf_list_parse, conf_list_print},
        [CONF_CHOICES] = {"choices", conf_list_parse, conf_list_print}};
    return &types[o->type];
}

int conf_value_parse(const struct conf_option *o, const char *text, const char *dir,
                     const struct pp_names *names, struct pp_config *cfg, char why[CONF_WHY_MAX])
{
    const struct conf_reading r = {o, dir, names, why};
    char range[512];
    if (text[0] == '\0' && o->type != CONF_PATH && o->type != CONF_TEXT)
        return conf_why(why, "no value; write %s", conf_range_text(o, names, range, sizeof(range)));
    return conf_type(o)->parse(&r, text, cfg);
}

size_t conf_value_print(const struct conf_option *o, const struct pp_config *cfg, char *out,
                        size_t bytes)
{
    struct conf_text t = {.out = out, .bytes = bytes};
    conf_put(&t, "%s", "");
    conf_type(o)->print(o, cfg, &t);
    return t.used;
}
