/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

struct table_cell {
    bool is_number;
    double x;
    char text[TABLE_CELL];
};

int table_create(struct table *t, int rows, const struct table_column *columns, int n)
{
    *t = (struct table){.rows = rows};
    table_add(t, columns, n);
    t->cells = pp_alloc((size_t)rows * TABLE_COLUMNS_MAX, sizeof(*t->cells));
    return t->cells ? 0 : PP_ERESOURCE;
}

void table_fini(struct table *t)
{
    pp_free(t->cells);
    t->cells = NULL;
}

void table_add(struct table *t, const struct table_column *columns, int n)
{
    pp_assert(t->columns + n <= TABLE_COLUMNS_MAX);
    memcpy(t->head + t->columns, columns, (size_t)n * sizeof(*columns));
    t->columns += n;
}

static struct table_cell *cell(const struct table *t, int row, int column)
{
    return &t->cells[(size_t)row * TABLE_COLUMNS_MAX + (size_t)column];
}

void table_row(struct table *t, int row)
{
    t->row = row;
    t->column = 0;
}

void table_text(struct table *t, const char *fmt, ...)
{
    struct table_cell *c = cell(t, t->row, t->column++);
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->text, TABLE_CELL, fmt, args);
    pp_text_plain(c->text);
    va_end(args);
}

void table_number(struct table *t, double x)
{
    const struct table_column *h = &t->head[t->column];
    struct table_cell *c = cell(t, t->row, t->column++);
    double shown = x * h->scale;
    const char *fmt = strcmp(h->fmt, TABLE_DIGITS) != 0 ? h->fmt
                      : shown < 10                      ? "%.3f"
                      : shown < 100                     ? "%.2f"
                      : shown < 1000                    ? "%.1f"
                                                        : "%.0f";
    c->is_number = true;
    c->x = x;
    shown = shown > -0.05 && shown < 0 ? 0.0 : shown;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(c->text, TABLE_CELL, fmt, shown); /* of a table in the source */
#pragma GCC diagnostic pop
}

void table_skip(struct table *t, int n)
{
    t->column += n;
}

/* ---- Markdown */

/* Characters, not bytes, of UTF-8. */
static int width(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static int width_of(const struct table *t, int column)
{
    int most = width(t->head[column].title) > 3 ? width(t->head[column].title) : 3;
    for (int r = 0; r < t->rows; r++) {
        int n = width(cell(t, r, column)->text);
        most = n > most ? n : most;
    }
    return most;
}

void table_markdown(const struct table *t, FILE *f)
{
    for (int r = -2; r < t->rows; r++) { /* titles, ruler, rows */
        fputc('|', f);
        for (int c = 0; c < t->columns; c++) {
            const struct table_column *h = &t->head[c];
            if (!h->title)
                continue;
            const char *text = r == -2 ? h->title : r == -1 ? "" : cell(t, r, c)->text;
            int pad = width_of(t, c) - width(text);
            if (r == -1) {
                for (int k = 0; k < pad + 1; k++)
                    fputc('-', f);
                fputs(h->left ? "-|" : ":|", f);
            } else {
                fprintf(f, h->left ? " %2$s%3$*1$s |" : " %3$*1$s%2$s |", pad, text, "");
            }
        }
        fputc('\n', f);
    }
}

/* ---- CSV and JSON */

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
        const char *comma = "";
        for (int c = 0; c < t->columns; c++) {
            if (!t->head[c].key)
                continue;
            fputs(comma, f);
            comma = ",";
            if (r >= 0 && cell(t, r, c)->is_number)
                fprintf(f, "%.17g", cell(t, r, c)->x);
            else
                put_field(f, r < 0 ? t->head[c].key : cell(t, r, c)->text);
        }
        fputc('\n', f);
    }
}

void table_json(const struct table *t, int row, struct pp_json *j)
{
    for (int c = 0; c < t->columns; c++) {
        const struct table_column *h = &t->head[c];
        const struct table_cell *x = cell(t, row, c);
        if (!h->key || h->csv)
            continue;
        if (x->is_number && x->x == floor(x->x) && fabs(x->x) < 9e15)
            pp_json_int(j, h->key, (int64_t)x->x);
        else if (x->is_number)
            pp_json_dbl(j, h->key, x->x);
        else if (x->text[0])
            pp_json_str(j, h->key, x->text);
    }
}

void table_json_rows(const struct table *t, const char *key, struct pp_json *j)
{
    pp_json_array(j, key);
    for (int r = 0; r < t->rows; r++) {
        pp_json_object(j, NULL);
        table_json(t, r, j);
        pp_json_end(j);
    }
    pp_json_end(j);
}
