/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of text cells, printed as Markdown that is aligned for a terminal too, or as CSV. */
#include "table.h"

#include <stdarg.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "ppcli/text.h"

int table_create(struct table *t, int rows)
{
    *t = (struct table){.rows = rows};
    t->cells = pp_alloc((size_t)rows, sizeof(*t->cells));
    return t->cells ? 0 : PP_ERESOURCE;
}

void table_fini(struct table *t)
{
    pp_free(t->cells);
    t->cells = NULL;
}

int table_column(struct table *t, const char *name, bool left)
{
    pp_assert(t->columns < TABLE_COLUMNS_MAX);
    t->names[t->columns] = name;
    t->left[t->columns] = left;
    return t->columns++;
}

void table_cell(struct table *t, int row, int column, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->cells[row][column], TABLE_CELL, fmt, args);
    pp_text_plain(t->cells[row][column]);
    va_end(args);
}

/* Characters, not bytes, of UTF-8. */
static int width(const char *s)
{
    int n = 0;
    for (; *s; s++) {
        n += ((unsigned char)*s & 0xC0) != 0x80;
    }
    return n;
}

static void put_padded(FILE *f, const char *text, int to, bool left)
{
    int pad = to - width(text);
    if (left) {
        fprintf(f, " %s%*s |", text, pad, "");
    } else {
        fprintf(f, " %*s%s |", pad, "", text);
    }
}

void table_markdown(const struct table *t, FILE *f)
{
    int widths[TABLE_COLUMNS_MAX];
    for (int c = 0; c < t->columns; c++) {
        widths[c] = width(t->names[c]) > 3 ? width(t->names[c]) : 3;
        for (int r = 0; r < t->rows; r++) {
            widths[c] = width(t->cells[r][c]) > widths[c] ? width(t->cells[r][c]) : widths[c];
        }
    }
    for (int r = -1; r < t->rows; r++) {
        fputc('|', f);
        for (int c = 0; c < t->columns; c++) {
            put_padded(f, r < 0 ? t->names[c] : t->cells[r][c], widths[c], t->left[c]);
        }
        fputc('\n', f);
        for (int c = 0; r < 0 && c < t->columns; c++) {
            fputs(c == 0 ? "|" : "", f);
            for (int k = 0; k < widths[c] + 1; k++) {
                fputc('-', f);
            }
            fputs(t->left[c] ? "-|" : ":|", f);
        }
        fputs(r < 0 ? "\n" : "", f);
    }
}

/* In quotes where a comma, a quote or a line end asks for it. */
static void put_field(FILE *f, const char *text)
{
    if (!strpbrk(text, ",\"\n\r")) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (const char *p = text; *p; p++) {
        fputs(*p == '"' ? "\"" : "", f);
        fputc(*p, f);
    }
    fputc('"', f);
}

void table_csv(const struct table *t, FILE *f)
{
    for (int r = -1; r < t->rows; r++) {
        for (int c = 0; c < t->columns; c++) {
            fputs(c > 0 ? "," : "", f);
            put_field(f, r < 0 ? t->names[c] : t->cells[r][c]);
        }
        fputc('\n', f);
    }
}
