/* SPDX-License-Identifier: Apache-2.0 */
#include "ppcli/base/base.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int pp_utf8_length(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    int n = s[0] < 0x80                    ? 1
            : s[0] >= 0xc2 && s[0] < 0xe0  ? 2
            : (s[0] & 0xf0) == 0xe0        ? 3
            : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                           : 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if (n == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0)))
        return 0;
    if (n == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)))
        return 0;
    return n;
}

size_t pp_utf8_put(uint32_t code, char *out)
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(n == 1 ? code : lead[n] | code);
    return n;
}

uint32_t pp_text_control(const char *text)
{
    /* C0; DEL and C1; the Arabic letter mark; zero width space and marks of direction; line and
     * paragraph separators, embeddings and overrides; invisible operators and isolates; the byte
     * order mark. Joiners (200c, 200d) are part of words and allowed. */
    static const uint32_t ranges[][2] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},
                                         {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e},
                                         {0x2060, 0x206f}, {0xfeff, 0xfeff}};
    const unsigned char *s = (const unsigned char *)text;
    uint32_t c = s[0];
    if (c >= 0xf0)
        return 0;
    if (c >= 0xc0) {
        c = c < 0xe0 ? (c & 0x1fu) << 6 | (s[1] & 0x3fu)
                     : (c & 0xfu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    }
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return c;
    return 0;
}

char *pp_text_make_plain(char *text)
{
    for (char *p = text; *p;) {
        int n = pp_utf8_length(p);
        bool bad = n == 0 || pp_text_control(p) != 0;
        for (n = n ? n : 1; n > 0; n--, p++)
            *p = bad ? '?' : *p;
    }
    return text;
}

const char *pp_text_shown(const char *text, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", text);
    return pp_text_make_plain(out);
}

void pp_text_xml(const char *text, size_t bytes, FILE *f)
{
    for (; bytes > 0 && *text; text++, bytes--)
        if (strchr("&<", *text))
            fputs(*text == '&' ? "&amp;" : "&lt;", f);
        else
            fputc(*text, f);
}

bool pp_text_ends(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

void pp_text_csv(const char *before, const char *text, FILE *f)
{
    if (!strpbrk(text, ",\"\n\r")) {
        fprintf(f, "%s%s", before, text);
        return;
    }
    fprintf(f, "\"%s", before);
    for (const char *p = text; *p; p++) {
        fputs(*p == '"' ? "\"" : "", f);
        fputc(*p, f);
    }
    fputc('"', f);
}

#define SHELL_PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._,:/=+-@%"

const char *pp_text_shell(const char *word, char *out, size_t bytes)
{
    size_t n = 0, quotes = 0;
    for (const char *c = word; *c; c++)
        quotes += *c == '\'';
    bool is_plain = word[0] && word[strspn(word, SHELL_PLAIN)] == '\0';
    if (is_plain || strlen(word) + 3 * quotes + 3 > bytes) {
        snprintf(out, bytes, "%s", word);
        return out;
    }
    out[n++] = '\'';
    for (; *word; word++) {
        if (*word == '\'') { /* it's: 'it'\''s' */
            out[n++] = '\'';
            out[n++] = '\\';
            out[n++] = '\'';
        }
        out[n++] = *word;
    }
    out[n++] = '\'';
    out[n] = '\0';
    return out;
}

int pp_text_columns(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

void pp_text_add(char *out, size_t bytes, const char *fmt, ...)
{
    size_t used = strlen(out);
    va_list args;
    va_start(args, fmt);
    vsnprintf(out + used, bytes - used, fmt, args);
    va_end(args);
}

int pp_text_close(FILE *f, char **text, const char *label)
{
    bool failed = ferror(f) != 0;
    failed = fclose(f) != 0 || failed;
    if (!failed && *text)
        return 0;
    free(*text);
    *text = NULL;
    return pp_fail(PP_ERESOURCE, "%s: out of memory", label);
}

int pp_shape_text(const struct pp_shape *s, char *out, size_t bytes)
{
    int n = snprintf(out, bytes, "%d", s->dims[0]);
    for (int i = 1; i < s->n; i++) {
        size_t at = (size_t)n < bytes ? (size_t)n : bytes;
        n += snprintf(out + at, bytes - at, " x %d", s->dims[i]);
    }
    return n;
}

bool pp_has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p && *p; p += strcspn(p, " "), p += strspn(p, " "))
        if (strcspn(p, " ") == n && strncmp(p, word, n) == 0)
            return true;
    return false;
}

const char *pp_text_list(const char *words, char *out, size_t bytes)
{
    out[0] = '\0';
    for (size_t n; *words; words += n) {
        n = strcspn(words, " ");
        const char *separator = !out[0] ? "" : words[n] ? ", " : " and ";
        pp_text_add(out, bytes, "%s%.*s", separator, (int)n, words);
        n += words[n] == ' ';
    }
    return out;
}

void pp_text_hang(FILE *f, int column, const char *text)
{
    const size_t width = column < PP_TEXT_WIDTH - 20 ? (size_t)(PP_TEXT_WIDTH - column) : 20;
    for (const char *p = text; *p;) {
        size_t n = strlen(p);
        if (n > width) {
            for (n = width; n > 1 && p[n] != ' '; n--) {
            }
            n = n > 1 ? n : strcspn(p, " ");
        }
        fprintf(f, "%*s%.*s\n", p == text ? 0 : column, "", (int)n, p);
        p += n;
        p += strspn(p, " ");
    }
}

void pp_text_wrap(FILE *f, int column, const char *text)
{
    fprintf(f, "%*s", column, "");
    pp_text_hang(f, column, text);
}

const char *pp_text_commas(double x, char out[PP_COUNT_TEXT])
{
    char digits[PP_COUNT_TEXT];
    int n = snprintf(digits, sizeof(digits), x < 1000 || x >= 1e15 ? "%.4g" : "%.0f", x), k = 0;
    for (int i = 0; i < n; i++) {
        if (x >= 1000 && x < 1e15 && i > 0 && (n - i) % 3 == 0)
            out[k++] = ',';
        out[k++] = digits[i];
    }
    out[k] = '\0';
    return out;
}

const char *pp_text_count(double x, char out[PP_COUNT_TEXT])
{
    static const char *const names[] = {"million", "billion", "trillion"};
    int k = 0;
    if (!(x >= 1e6))
        return pp_text_commas(x, out);
    for (x /= 1e6; x >= 1000 && k < 2; x /= 1000)
        k++;
    snprintf(out, PP_COUNT_TEXT, "%.1f %s", x, names[k]);
    return out;
}

const char *pp_text_size(uint64_t bytes, char out[PP_COUNT_TEXT])
{
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    if (bytes < 1000) {
        snprintf(out, PP_COUNT_TEXT, "%" PRIu64 " bytes", bytes);
        return out;
    }
    int u = 0;
    double v = (double)bytes / 1000;
    /* 999.95 would be printed as 1000.0 */
    while (v >= 999.95 && u < 3) {
        v /= 1000;
        u++;
    }
    snprintf(out, PP_COUNT_TEXT, "%.1f %s", v, units[u]);
    return out;
}
