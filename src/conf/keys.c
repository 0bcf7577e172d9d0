/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the option table: for people (`ppcli keys`), as the published schema (JSON), as the body
 * of ppcli.ini(5) (mdoc), and as a bare list for completions.
 */
#include "conf.h"

#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

#define SCHEMA 1
#define RANGE_MAX 512
#define MDOC_WIDTH 56 /* escapes and the rest of a word come on top */

static const char *format_default(const struct conf_option *o)
{
    return o->def[0] ? o->def : "(empty)";
}

/* Prints one key. If `alone`, it is the only key, so everything known about its values is
 * printed. */
static void print_key_text(FILE *f, const struct conf_option *o, const struct pp_names *names,
                           bool new_section, bool first, int name_width, bool alone)
{
    char range[RANGE_MAX];
    if (new_section)
        fprintf(f, "%s[%s]\n", first ? "" : "\n", o->section);
    conf_range_text(o, names, range, sizeof(range));
    int left =
        fprintf(f, "  %-*s  %-10s  %s", name_width, o->key, conf_type(o)->name, format_default(o));
    int column = left > name_width + 31 ? left : name_width + 31;
    if (column + 2 + (int)strlen(range) <= PP_TEXT_WIDTH) {
        fprintf(f, "%*s  %s\n", column - left, "", range);
    } else {
        fputc('\n', f);
        pp_text_wrap(f, name_width + 4, range);
    }
    pp_text_wrap(f, name_width + 4, o->help);
    const char *const *lines = alone ? conf_lines_of(o, names) : NULL;
    for (int i = 0; lines && lines[i]; i += 2)
        pp_text_hang(f, fprintf(f, "%s    %-14s  ", i == 0 ? "\n" : "", lines[i]) - (i == 0),
                     lines[i + 1]);
    if (lines) {
        fputc('\n', f);
        pp_text_wrap(f, 4, o->note);
    }
}

static void print_json_limits(struct pp_json *j, const struct conf_option *o)
{
    switch (o->type) {
    case CONF_INT:
    case CONF_INT64:
    case CONF_BYTES:
    case CONF_SIZES:
    case CONF_NUMBERS:
        pp_json_int(j, "min", (int64_t)o->min);
        pp_json_int(j, "max", (int64_t)o->max);
        break;
    case CONF_UINT64:
        pp_json_int(j, "min", 0);
        pp_json_uint(j, "max", UINT64_MAX);
        break;
    case CONF_FLOAT:
    case CONF_FLOATS:
        pp_json_dbl(j, "min", o->min);
        pp_json_dbl(j, "max", o->max);
        pp_json_bool(j, "min_is_legal", !o->above);
        pp_json_bool(j, "max_is_legal", !o->below);
        break;
    case CONF_DURATION:
        pp_json_dbl(j, "min", o->min);
        pp_json_dbl(j, "max", o->max);
        pp_json_bool(j, "zero_is_legal", true);
        break;
    default:
        break;
    }
}

static void print_json_values(struct pp_json *j, const struct conf_option *o,
                              const struct pp_names *names)
{
    const char *const *list = conf_names_of(o, names);
    if (o->type == CONF_ENUM || o->type == CONF_CHOICES || list) {
        pp_json_array(j, "values");
        if (o->word)
            pp_json_str(j, NULL, o->word);
        for (int i = 0; list ? list[i] != NULL : o->choices[i].name != NULL; i++)
            pp_json_str(j, NULL, list ? list[i] : o->choices[i].name);
        pp_json_end(j);
    }
    const char *const *lines = conf_lines_of(o, names);
    if (lines) {
        pp_json_object(j, "value_help");
        for (int i = 0; lines[i]; i += 2)
            pp_json_str(j, lines[i], lines[i + 1]);
        pp_json_end(j);
    }
}

static void print_key_json(struct pp_json *j, const struct conf_option *o,
                           const struct pp_names *names)
{
    pp_json_object(j, NULL);
    pp_json_str(j, "name", o->name);
    pp_json_str(j, "section", o->section);
    pp_json_str(j, "key", o->key);
    pp_json_str(j, "type", conf_type(o)->name);
    pp_json_str(j, "default", o->def);
    print_json_limits(j, o);
    print_json_values(j, o, names);
    pp_json_str(j, "unit", o->unit ? o->unit : "");
    pp_json_bool(j, "in_hash", o->numbers);
    pp_json_str(j, "help", o->help);
    pp_json_end(j);
}

/* Prints one byte of a manual page in mdoc so that it is neither an escape nor a typographic
 * sign. */
static void print_mdoc_byte(FILE *f, char c)
{
    static const struct {
        char c;
        const char *escape;
    } escapes[] = {{'\\', "\\e"}, {'-', "\\-"}, {'`', "\\(ga"}, {'~', "\\(ti"}, {'^', "\\(ha"}};
    for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++) {
        if (escapes[i].c == c) {
            fputs(escapes[i].escape, f);
            return;
        }
    }
    fputc(c, f);
}

/* Prints text of a manual page in lines that mandoc -Tlint accepts: not too long, and no line
 * begins like a macro. */
static void print_mdoc_text(FILE *f, const char *text)
{
    int column = 0;
    for (const char *p = text; *p; p++) {
        if (*p == ' ' && column >= MDOC_WIDTH) {
            fputc('\n', f);
            column = 0;
            continue;
        }
        if (column == 0 && (*p == '.' || *p == '\''))
            fputs("\\&", f);
        print_mdoc_byte(f, *p);
        column++;
    }
    fputc('\n', f);
}

static void print_mdoc(FILE *f, const struct conf_option *o, const struct pp_names *names,
                       bool new_section, bool first)
{
    char range[RANGE_MAX], line[RANGE_MAX + 128];
    if (new_section)
        fprintf(f, "%s.Ss [%s]\\&\n.Bl -tag -width Ds\n", first ? "" : ".El\n", o->section);
    fprintf(f, ".It Cm %s\n", o->key);
    print_mdoc_text(f, o->help);
    fputs(".br\n", f);
    conf_range_text(o, names, range, sizeof(range));
    snprintf(line, sizeof(line), "%s%s%s; default %s", conf_type(o)->name, range[0] ? ": " : "",
             range, format_default(o));
    print_mdoc_text(f, line);
    const char *const *lines = conf_lines_of(o, names);
    for (int i = 0; lines && lines[i]; i += 2) {
        fprintf(f, "%s.It Cm %s\n", i == 0 ? ".Bl -tag -width Ds -compact\n" : "", lines[i]);
        print_mdoc_text(f, lines[i + 1]);
    }
    if (lines) {
        fputs(".El\n", f);
        print_mdoc_text(f, o->note);
    }
}

static bool is_selected(const struct conf_option *o, const char *section)
{
    return !section || strcmp(section, o->section) == 0 || strcmp(section, o->name) == 0;
}

static int fail_unknown_section(const char *section)
{
    const char *words[192 + CONF_SECTIONS_MAX];
    conf_sections(words);
    int n = 0;
    while (words[n])
        n++;
    for (int i = 0; i < conf_option_count() && n < 191 + CONF_SECTIONS_MAX; i++) {
        if (strcmp(conf_option(i)->key, section) == 0) {
            return pp_fail(PP_EUSAGE, "no section '%s'; did you mean '%s'?", section,
                           conf_option(i)->name);
        }
        words[n++] = conf_option(i)->name;
    }
    words[n] = NULL;
    if (pp_config_key_like(section)) {
        return pp_fail(PP_EUSAGE, "no section or key '%s'; did you mean '%s'?", section,
                       pp_config_key_like(section));
    }
    return pp_fail(PP_EUSAGE, "no section or key '%s'%s", conf_quote(section, strlen(section)).s,
                   pp_did_you_mean(section, words).s);
}

bool conf_sweeps(const char *key, bool *out_numbers)
{
    int i = conf_option_index(key);
    *out_numbers =
        i >= 0 && (conf_option(i)->type == CONF_INT || conf_option(i)->type == CONF_FLOAT);
    return i >= 0 && conf_option(i)->sweeps;
}

void pp_config_key_words(int i, const struct pp_names *names, char *out, size_t bytes)
{
    const struct conf_option *o = conf_option(i);
    const char *const *list = conf_names_of(o, names);
    bool chosen = o->type == CONF_ENUM || o->type == CONF_CHOICES;
    out[0] = '\0';
    if (o->type == CONF_BOOL)
        pp_text_add(out, bytes, "on off ");
    if (o->type == CONF_ASSIGNMENT)
        pp_text_add(out, bytes, "auto equal flops params time ");
    if (o->type == CONF_LAYERS)
        pp_text_add(out, bytes, "%s %s", o->def, o->word ? "all auto " : "");
    else if (o->word)
        for (const char *w = o->word; *w; w++) /* "first | last" */
            pp_text_add(out, bytes, "%.*s", w[0] != '|' && strncmp(w, " |", 2) != 0, w);
    pp_text_add(out, bytes, "%s", o->word && o->type != CONF_LAYERS ? " " : "");
    for (int k = 0; chosen && o->choices[k].name; k++)
        pp_text_add(out, bytes, "%s ", o->choices[k].name);
    for (int k = 0; list && list[k]; k++)
        pp_text_add(out, bytes, "%s ", list[k]);
    size_t n = strlen(out);
    out[n > 0 ? n - 1 : 0] = '\0';
}

int pp_config_print_keys(FILE *f, const char *section, const struct pp_names *names,
                         enum pp_keys_format format)
{
    struct pp_json j = {.f = f};
    int n = 0, width = 0;
    for (int i = 0; i < conf_option_count(); i++) {
        if (is_selected(conf_option(i), section)) {
            int len = (int)strlen(conf_option(i)->key);
            width = len > width ? len : width;
            n++;
        }
    }
    if (n == 0)
        return fail_unknown_section(section);

    if (format == PP_KEYS_JSON) {
        j = pp_json_begin(f, 2);
        pp_json_int(&j, "schema", SCHEMA);
        pp_json_array(&j, "keys");
    }
    const char *last = "";
    for (int i = 0; i < conf_option_count(); i++) {
        const struct conf_option *o = conf_option(i);
        if (!is_selected(o, section))
            continue;
        bool new_section = strcmp(last, o->section) != 0;
        bool first = last[0] == '\0';
        last = o->section;
        switch (format) {
        case PP_KEYS_TEXT:
            print_key_text(f, o, names, new_section, first, width, n == 1);
            break;
        case PP_KEYS_JSON:
            print_key_json(&j, o, names);
            break;
        case PP_KEYS_MDOC:
            print_mdoc(f, o, names, new_section, first);
            break;
        case PP_KEYS_LIST:
            fprintf(f, "%s\n", o->name);
            break;
        }
    }
    if (format == PP_KEYS_JSON) {
        pp_json_end(&j);
        pp_json_end(&j);
    } else if (format == PP_KEYS_MDOC) {
        fputs(".El\n", f);
    }
    return ferror(f) ? pp_fail_errno(PP_EIO, "cannot write the keys") : 0;
}
