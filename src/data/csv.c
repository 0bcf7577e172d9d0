/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads tables of text into cells: separated by commas, semicolons or tabs, with quotes that may
 * hold line breaks, in UTF-8 or Windows-1252, plain or gzipped. Rows are cut in a buffer, so that
 * the text can be read several times.
 */
#include "csv.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "ppcli/base/base.h"

#define SNIFFED_ROWS 2000 /* rows that tell the decimal mark */
#define TEXT_BYTES_MAX ((uint64_t)1 << 30)
#define NUMBER_BYTES 64 /* the longest number with its unit */

/* ---- text */

static bool is_utf8(const char *text)
{
    for (int n; *text; text += n)
        if ((n = *text > 0 ? 1 : pp_utf8_length(text)) == 0)
            return false;
    return true;
}

/* Converts Windows-1252, which Excel writes and which has all characters of Latin-1, to UTF-8. */
static int convert_latin(struct csv *c)
{
    static const uint16_t high[32] = {
        0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
        0x2039, 0x152,  0x8d,   0x17d,  0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
        0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};
    size_t n = 1;
    for (const char *p = c->text; *p; p++)
        n += *p > 0 ? 1 : 3;
    char *text = pp_alloc(n, 1), *to = text;
    if (!text)
        return pp_error_context("%s", c->path);
    for (const unsigned char *p = (const unsigned char *)c->text; *p; p++)
        to += pp_utf8_put(*p < 0x80 || *p >= 0xa0 ? *p : high[*p - 0x80], to);
    *to = '\0';
    pp_free(c->text);
    c->text = text;
    c->was_latin = true;
    return 0;
}

/* Returns the separator of a line: a tab if one occurs outside of quotes, else a semicolon if one
 * does, else a comma. */
static char find_separator(const char *line, size_t n)
{
    bool quoted = false, tab = false, semicolon = false;
    for (size_t i = 0; i < n; i++) {
        if (line[i] == '"')
            quoted = !quoted && (i == 0 || strchr(",;\t", line[i - 1]));
        tab |= !quoted && line[i] == '\t';
        semicolon |= !quoted && line[i] == ';';
    }
    return tab ? '\t' : semicolon ? ';' : ',';
}

/* Reads the separator from the line "sep=;" that Excel may write first. The line is not a row. */
static int take_separator(struct csv *c)
{
    size_t n = strcspn(c->at, "\r\n"), line = strcspn(c->at, "\n");
    if (n != 5 || strncasecmp(c->at, "sep=", 4) != 0)
        return 0;
    c->sep = c->at[4];
    c->next_line++;
    c->at += line + (c->at[line] == '\n');
    return strchr(",;\t", c->sep)
               ? 0
               : pp_fail(PP_EFORMAT, "%s:%d: separator '%c'; write commas, semicolons or tabs",
                         c->path, c->next_line - 1, c->sep);
}

/* ---- rows */

/* Returns the end of the row at c->at: a line break outside of quotes. *out_open is the line of a
 * quote that is not closed, or 0. */
static const char *find_row_end(const struct csv *c, int *out_lines, int *out_open)
{
    const char *end = c->at + strcspn(c->at, "\n");
    *out_lines = *out_open = 0;
    if (!memchr(c->at, '"', (size_t)(end - c->at)))
        return end;
    bool quoted = false, begins = true;
    const char *p = c->at;
    for (; *p && (quoted || *p != '\n'); p++) {
        if (quoted && *p == '"' && p[1] == '"') {
            p++;
        } else if (*p == '"' && (quoted || begins)) {
            quoted = !quoted;
            begins = false;
            *out_open = quoted ? c->next_line + *out_lines : 0;
        } else if (!quoted) {
            begins = *p == c->sep || (begins && *p == ' ');
        }
        *out_lines += *p == '\n';
    }
    return p;
}

/* Cuts the next cell of the row [*p, end) into *to, without the blanks around it and its quotes.
 * *p moves to the next cell; NULL if there is none. */
static char *cut_cell(const struct csv *c, const char **p, const char *end, char **to)
{
    const char *at = *p;
    char *cell = *to, *out = cell;
    while (at < end && *at == ' ')
        at++;
    bool quoted = at < end && *at == '"';
    for (at += quoted; at < end && (quoted || *at != c->sep); at++) {
        if (quoted && *at == '"' && !(at + 1 < end && at[1] == '"')) {
            quoted = false; /* text after the closing quote belongs to the cell */
        } else {
            at += quoted && *at == '"';
            *out++ = *at;
        }
    }
    *p = at < end ? at + 1 : NULL;
    while (out > cell && out[-1] == ' ')
        out--;
    *out = '\0';
    *to = out + 1;
    return cell;
}

static int grow_buffer(struct csv *c, size_t bytes)
{
    if (bytes <= c->buffer_bytes)
        return 0;
    char *larger = pp_realloc(c->buffer, 2 * bytes, 1);
    if (!larger)
        return pp_error_context("%s", c->path);
    c->buffer = larger;
    c->buffer_bytes = 2 * bytes;
    return 0;
}

static int add_cell(struct csv *c, char *cell)
{
    if (c->n_cells == c->cells_max) {
        int most = 2 * c->cells_max + 16;
        char **larger = pp_realloc(c->cells, (size_t)most, sizeof(*larger));
        if (!larger)
            return pp_error_context("%s", c->path);
        c->cells = larger;
        c->cells_max = most;
    }
    c->cells[c->n_cells++] = cell;
    return 0;
}

int csv_next(struct csv *c)
{
    bool empty = true;
    for (c->n_cells = 0; *c->at && empty;) {
        int lines, open;
        const char *end = find_row_end(c, &lines, &open), *p = c->row = c->at;
        if (open > 0)
            return pp_fail(PP_EFORMAT, "%s:%d: the quote that begins here is not closed", c->path,
                           open);
        c->at = *end ? end + 1 : end;
        c->line = c->next_line;
        c->next_line += lines + 1;
        end -= end > p && end[-1] == '\r';
        c->row_bytes = (size_t)(end - p);
        c->n_cells = 0;
        PP_TRY(grow_buffer(c, c->row_bytes + 1));
        for (char *to = c->buffer; p && c->row_bytes > 0;) {
            char *cell = cut_cell(c, &p, end, &to);
            PP_TRY(add_cell(c, cell));
            empty = empty && !*cell;
        }
    }
    c->n_cells = empty ? 0 : c->n_cells; /* a line of blanks and separators is empty */
    return 0;
}

/* ---- numbers */

/* Reads a number of at most 15 digits, which most cells are, as exactly as strtod(): the digits and the
 * power of ten that divides them are exact. `point`: it may have a decimal point. */
static bool read_short(const char *cell, bool point, double *out)
{
    static const double tens[16] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *p = cell + (*cell == '-' || *cell == '+');
    int64_t v = 0;
    int n = 0, after = -1; /* digits; of them after the point */
    for (; n < 15; p++) {
        if (*p == '.' && point && after < 0) {
            after = 0;
            continue;
        }
        if (*p < '0' || *p > '9')
            break;
        v = 10 * v + (*p - '0');
        n++;
        after += after >= 0;
    }
    double x = after > 0 ? (double)v / tens[after] : (double)v;
    *out = *cell == '-' ? -x : x;
    return n > 0 && *p == '\0';
}

/* Returns the bytes of a sign of money or per cent at p, or of a space that is not a blank. */
static size_t skip_unit(const char *p)
{
    static const char *const units[] = {"$", "%", "€", "£", "\xc2\xa0", "\xe2\x80\xaf", " "};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strncmp(p, units[i], strlen(units[i])) == 0)
            return strlen(units[i]);
    return 0;
}

/* Copies digits with groups of three, such as 1,234,567.8 or 1.234,5, without what separates the
 * groups, and with a decimal point. Returns whether the text is of this form to its end. */
static bool join_groups(const struct csv *c, const char *p, char *out, bool *out_grouped)
{
    const char group = c->decimal_comma ? '.' : ',', mark = c->decimal_comma ? ',' : '.';
    size_t first = strspn(p, "0123456789"), n = first;
    char used = '\0';
    memcpy(out, p, first);
    out += first;
    for (p += first; first <= 3 && first > 0 && n < NUMBER_BYTES - 8; p += 3, n += 3, out += 3) {
        size_t space = strncmp(p, "\xc2\xa0", 2) == 0 ? 2
                       : strncmp(p, "\xe2\x80\xaf", 3) == 0
                           ? 3
                           : *p == group || *p == '\'' || *p == ' ';
        if (space == 0 || strspn(p + space, "0123456789") != 3 || (used && *p != used))
            break;
        used = *p;
        p += space;
        memcpy(out, p, 3);
    }
    *out_grouped = used != '\0';
    if (*p == mark && (used || c->decimal_comma)) {
        *out++ = '.';
        p++;
    } else if (*p == '.' && c->decimal_comma) {
        return false;
    }
    size_t rest = strlen(p);
    bool fits = n + rest + 2 < NUMBER_BYTES;
    memcpy(out, p, fits ? rest + 1 : 1);
    return fits && (!used || strspn(p, "0123456789") == rest);
}

/* Writes the number in a cell as strtod() takes it; false: it is not one. */
static bool clean_number(const struct csv *c, const char *cell, char out[NUMBER_BYTES],
                         bool *out_odd)
{
    char text[NUMBER_BYTES];
    const char *p = cell + strspn(cell, "\t ");
    size_t n = strlen(p), unit;
    *out_odd = false;
    if (n == 0 || n >= NUMBER_BYTES - 2 || strpbrk(p, "xX"))
        return false;
    char *to = out;
    while ((unit = skip_unit(p)) > 0 || *p == '-' || *p == '+') {
        *out_odd |= unit > 0;
        if (unit == 0) {
            if (to > out)
                return false;
            *to++ = *p;
        }
        p += unit > 0 ? unit : 1;
    }
    n = strlen(p);
    memcpy(text, p, n + 1);
    for (bool again = true; again && n > 1;) { /* units after the number */
        again = false;
        for (size_t k = 1; k <= 3 && k < n && !again; k++) {
            again = skip_unit(text + n - k) == k;
            n -= again ? k : 0;
            *out_odd |= again;
        }
    }
    text[n] = '\0';
    bool grouped;
    if (!join_groups(c, text, to, &grouped))
        return false;
    *out_odd |= grouped;
    return isdigit((unsigned char)*to) || *to == '.' || (!*out_odd && tolower(*to) == 'i');
}

bool csv_number(struct csv *c, const char *cell, double *out)
{
    char text[NUMBER_BYTES], *end;
    bool odd;
    if (read_short(cell, !c->decimal_comma, out))
        return true;
    if (!clean_number(c, cell, text, &odd))
        return false;
    *out = strtod(text, &end);
    if (end == text || *end)
        return false;
    if (odd && !c->odd[0]) {
        snprintf(c->odd, sizeof(c->odd), "%s", cell);
        c->odd_value = *out;
    }
    return true;
}

float csv_float(struct csv *c, const char *cell)
{
    char text[NUMBER_BYTES];
    bool odd;
    double v;
    if (read_short(cell, false, &v))
        return (float)v;
    return clean_number(c, cell, text, &odd) ? strtof(text, NULL) : NAN;
}

bool csv_is_missing(const char *cell)
{
    static const char *const words[] = {"",     "NA",  "N/A", "n/a", "#N/A", "<NA>", "null", "NULL",
                                        "Null", "NaN", "nan", "NAN", "-nan", "None", "?",    "-"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(cell, words[i]) == 0)
            return true;
    return false;
}

/* Counts what tells the decimal mark: 1,5 has a decimal comma; 1,234 may have one, or a group; 1.5
 * has a decimal point. */
struct marks {
    int64_t commas, groups, points;
};

static void count_marks(const char *cell, struct marks *m)
{
    const char *p = cell + strspn(cell, "+-");
    /* 1 234,5: with spaces, also such that do not break a line, between groups */
    const char *mark = p + strspn(p, "0123456789 '\xc2\xa0\xe2\x80\xaf");
    size_t whole = 0, part;
    while (mark - whole > p && mark[-1 - (ptrdiff_t)whole] >= '0' &&
           mark[-1 - (ptrdiff_t)whole] <= '9')
        whole++;
    if (whole == 0)
        return;
    if ((*mark != ',' && *mark != '.') || (part = strspn(mark + 1, "0123456789")) == 0)
        return;
    bool group = whole >= 1 && whole <= 3 && part == 3;
    if (*mark == '.') {
        m->points += !group && mark[1 + part] == '\0';
        m->commas += group && mark[4] == ','; /* 1.234,5 */
        return;
    }
    m->groups += group;
    m->points += group && mark[4] == '.';
    m->commas += !group && (mark[1 + part] == '\0' || skip_unit(mark + 1 + part) > 0);
}

/* Finds whether numbers have decimal commas. A semicolon or tab as the separator suggests so, because
 * programs use it where the comma is the decimal mark. */
static int find_decimal_mark(struct csv *c)
{
    struct csv at_start = *c;
    struct marks m = {0};
    if (!strchr(c->at, ','))
        return 0;
    for (int i = 0; i < SNIFFED_ROWS; i++) {
        PP_TRY(csv_next(c));
        for (int k = 0; k < c->n_cells; k++)
            count_marks(c->cells[k], &m);
    }
    c->decimal_comma = m.commas > 0 ? m.commas > m.points || (c->sep != ',' && m.commas == m.points)
                                    : c->sep != ',' && m.groups > 0 && m.points == 0;
    c->at = at_start.at;
    c->next_line = at_start.next_line;
    return 0;
}

int csv_open(const char *path, struct csv *c)
{
    size_t n = 0;
    *c = (struct csv){.path = path, .next_line = 1};
    PP_TRY(strcmp(path, "-") == 0 ? pp_fd_read(STDIN_FILENO, path, TEXT_BYTES_MAX, &c->text, &n)
                                  : pp_source_lines(path, &c->text, &n));
    if (strlen(c->text) != n)
        return pp_fail(PP_EFORMAT, "%s: not a text file, as a table (CSV) is", path);
    PP_TRY(is_utf8(c->text) ? 0 : convert_latin(c));
    c->at = c->text + pp_text_bom(c->text);
    PP_TRY(take_separator(c));
    for (size_t k;
         c->at[k = strcspn(c->at, "\n")] &&
         (strspn(c->at, " ,;\t\r\"") >= k || (*c->at == '#' && strcspn(c->at, ",;\t") >= k));
         c->at += k + 1)
        c->next_line++; /* an empty line, or a remark above the table */
    c->sep = c->sep ? c->sep : find_separator(c->at, strcspn(c->at, "\n"));
    return find_decimal_mark(c);
}

void csv_close(struct csv *c)
{
    pp_free(c->text);
    pp_free(c->cells);
    pp_free(c->buffer);
    *c = (struct csv){0};
}
