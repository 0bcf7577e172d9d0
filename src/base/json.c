/* SPDX-License-Identifier: Apache-2.0 */
/* JSON writer: a small stack of "anything written yet?" decides about commas and escapes. */
#include "ppcli/base/files.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "ppcli/base/base.h"

static void write_newline(struct pp_json *j)
{
    if (j->indent > 0)
        fprintf(j->f, "\n%*s", j->indent * j->depth, "");
}

static void write_quoted(struct pp_json *j, const char *text)
{
    fputc('"', j->f);
    for (const char *p = text; *p;) {
        int n = pp_utf8_length(p);
        uint32_t obeyed = n > 0 ? pp_text_control(p) : 0xfffd;
        if (*p == '"' || *p == '\\')
            fprintf(j->f, "\\%c", *p);
        else if (*p == '\n' || *p == '\t')
            fputs(*p == '\n' ? "\\n" : "\\t", j->f);
        else if (obeyed)
            fprintf(j->f, "\\u%04x", obeyed);
        else
            fwrite(p, 1, (size_t)n, j->f);
        p += n > 0 ? n : 1;
    }
    fputc('"', j->f);
}

/* Writes the comma, the line break and the key that precede a value. */
static void write_key(struct pp_json *j, const char *key)
{
    if (j->depth > 0) {
        if (j->any[j->depth])
            fputc(',', j->f);
        j->any[j->depth] = true;
        write_newline(j);
    }
    if (key) {
        write_quoted(j, key);
        fputs(j->indent > 0 ? ": " : ":", j->f);
    }
}

static void open_level(struct pp_json *j, const char *key, char bracket)
{
    write_key(j, key);
    fputc(bracket, j->f);
    pp_assert(j->depth + 1 < PP_JSON_DEPTH);
    j->depth++;
    j->any[j->depth] = false;
    j->is_array[j->depth] = bracket == '[';
}

void pp_json_object(struct pp_json *j, const char *key)
{
    open_level(j, key, '{');
}

struct pp_json pp_json_begin(FILE *f, int indent)
{
    struct pp_json j = {.f = f, .indent = indent};
    pp_json_object(&j, NULL);
    return j;
}

void pp_json_array(struct pp_json *j, const char *key)
{
    open_level(j, key, '[');
}

void pp_json_end(struct pp_json *j)
{
    pp_assert(j->depth > 0);
    bool any = j->any[j->depth];
    bool array = j->is_array[j->depth];
    j->depth--;
    if (any)
        write_newline(j);
    fputc(array ? ']' : '}', j->f);
    if (j->depth == 0)
        fputc('\n', j->f);
}

void pp_json_str(struct pp_json *j, const char *key, const char *value)
{
    write_key(j, key);
    if (value)
        write_quoted(j, value);
    else
        fputs("null", j->f);
}

void pp_json_int(struct pp_json *j, const char *key, int64_t value)
{
    write_key(j, key);
    fprintf(j->f, "%" PRId64, value);
}

void pp_json_uint(struct pp_json *j, const char *key, uint64_t value)
{
    write_key(j, key);
    fprintf(j->f, "%" PRIu64, value);
}

void pp_json_dbl(struct pp_json *j, const char *key, double value)
{
    write_key(j, key);
    if (!isfinite(value)) {
        fputs("null", j->f);
        return;
    }
    /* The shortest of these forms that reads back to the same value. */
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    /* "-0" would read back as the whole number 0, which has no sign. */
    fputs(value == 0 && signbit(value) ? "-0.0" : text, j->f);
}

void pp_json_bool(struct pp_json *j, const char *key, bool value)
{
    write_key(j, key);
    fputs(value ? "true" : "false", j->f);
}

void pp_json_raw(struct pp_json *j, const char *key, const char *value)
{
    write_key(j, key);
    fputs(value, j->f);
}
