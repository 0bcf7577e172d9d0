/* SPDX-License-Identifier: Apache-2.0 */
/* One printer for each form of a table. */
#include "ppcli/show/columns.h"
#include "ppcli/runlog/outcome.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

#define CELL_MAX 1024

static bool is_last(const struct pp_column *c)
{
    return !c->key && !c->title && !c->inner;
}

static const char *text_at(const struct pp_column *c, const void *at)
{
    return c->kind == PP_CELL_CHARS ? at : *(const char *const *)at;
}

static double number_at(const struct pp_column *c, const void *at)
{
    return c->kind == PP_CELL_INT     ? *(const int *)at
           : c->kind == PP_CELL_INT64 ? (double)*(const int64_t *)at
           : c->kind == PP_CELL_SIZE  ? (double)*(const size_t *)at
                                      : *(const double *)at;
}

static bool is_text(const struct pp_column *c)
{
    return c->kind == PP_CELL_TEXT || c->kind == PP_CELL_CHARS;
}

static bool is_number(const struct pp_column *c)
{
    return c->kind >= PP_CELL_INT && c->kind <= PP_CELL_REAL;
}

/* Returns whether the row has a value in this column. */
static bool has_value(const struct pp_column *c, const void *row)
{
    const char *at = (const char *)row + c->offset;
    if (c->has && !c->has(row))
        return false;
    if (c->optional && is_text(c))
        return text_at(c, at) && text_at(c, at)[0];
    return !c->optional || c->kind != PP_CELL_REAL || !isnan(*(const double *)at);
}

/* ---- JSON */

static void put_columns(const struct pp_column *columns, const void *row, struct pp_json *j);

static const void *row_at(const struct pp_listing *rows, int i)
{
    return (const char *)rows->items + (size_t)i * rows->size;
}

static void put_rows(const struct pp_column *columns, const struct pp_listing *rows,
                     const char *key, struct pp_json *j)
{
    pp_json_array(j, key);
    for (int i = 0; i < rows->n; i++) {
        pp_json_object(j, NULL);
        put_columns(columns, row_at(rows, i), j);
        pp_json_end(j);
    }
    pp_json_end(j);
}

static void put_cell(const struct pp_column *c, const void *row, struct pp_json *j)
{
    const void *at = (const char *)row + c->offset;
    if (c->put) {
        c->put(row, c->key, j);
    } else if (is_text(c)) {
        const char *text = text_at(c, at);
        pp_json_str(j, c->key, c->nullable && text && !text[0] ? NULL : text);
    } else if (c->kind == PP_CELL_FLAG) {
        pp_json_bool(j, c->key, *(const bool *)at);
    } else if (c->kind == PP_CELL_REAL) {
        pp_json_dbl(j, c->key, *(const double *)at);
    } else if (c->kind == PP_CELL_SIZE) {
        pp_json_uint(j, c->key, *(const size_t *)at);
    } else if (c->kind == PP_CELL_SCHEMA) {
        pp_json_uint(j, c->key, c->offset);
    } else if (c->kind == PP_CELL_ROWS) {
        put_rows(c->inner, at, c->key, j);
    } else if (c->kind == PP_CELL_OBJECT) {
        pp_json_object(j, c->key);
        put_columns(c->inner, at, j);
        pp_json_end(j);
    } else {
        pp_json_int(j, c->key, c->kind == PP_CELL_INT ? *(const int *)at : *(const int64_t *)at);
    }
}

static void put_columns(const struct pp_column *columns, const void *row, struct pp_json *j)
{
    for (const struct pp_column *c = columns; !is_last(c); c++) {
        if (c->csv || !has_value(c, row))
            continue;
        if (c->key)
            put_cell(c, row, j);
        else if (c->inner)
            put_columns(c->inner, (const char *)row + c->offset, j);
    }
}

void pp_document_json(const struct pp_column *columns, const void *row, FILE *f)
{
    struct pp_json j = pp_json_begin(f, 2);
    put_columns(columns, row, &j);
    pp_json_end(&j);
}

/* ---- CSV */

static void put_csv_cell(const struct pp_column *c, const void *row, FILE *f)
{
    const void *at = (const char *)row + c->offset;
    if (!has_value(c, row))
        return;
    if (is_number(c))
        fprintf(f, "%.17g", number_at(c, at));
    else if (is_text(c) && text_at(c, at))
        pp_text_csv("", text_at(c, at), f);
}

static void print_csv(const struct pp_column *columns, const struct pp_listing *rows, FILE *f)
{
    for (int r = -1; r < rows->n; r++) {
        const char *comma = "";
        for (const struct pp_column *c = columns; !is_last(c); c++) {
            if (!c->key || c->json)
                continue;
            fputs(comma, f);
            comma = ",";
            if (r < 0)
                pp_text_csv("", c->key, f);
            else
                put_csv_cell(c, row_at(rows, r), f);
        }
        fputc('\n', f);
    }
}

/* ---- tables for people */

static void print_number(const struct pp_column *c, double x, char out[CELL_MAX])
{
    double shown = c->scale != 0 ? x * c->scale : x; /* -0.0 is shown as 0 */
    const char *format = c->format ? c->format : c->kind == PP_CELL_REAL ? PP_DIGITS : "%.0f";
    if (!strchr(format, 'g')) /* which keeps small numbers */
        shown = shown > -0.05 && shown < 0 ? 0.0 : shown;
    if (strcmp(format, PP_COMMAS) == 0) {
        pp_text_commas(shown, out);
        return;
    }
    if (strcmp(format, PP_DIGITS) == 0)
        format = shown < 10 ? "%.3f" : shown < 100 ? "%.2f" : shown < 1000 ? "%.1f" : "%.0f";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(out, CELL_MAX, format, shown); /* of a table in the source */
#pragma GCC diagnostic pop
}

/* Returns the text of a row's cell or, if row is NULL, the title of the column. */
static const char *cell_text(const struct pp_column *c, const void *row, char out[CELL_MAX])
{
    const void *at = (const char *)row + c->offset;
    out[0] = '\0';
    if (!row)
        return c->title;
    if (!has_value(c, row))
        return out;
    if (is_text(c)) {
        snprintf(out, CELL_MAX, "%s", text_at(c, at) ? text_at(c, at) : "");
        pp_text_make_plain(out);
    } else if (c->kind == PP_CELL_FLAG) {
        snprintf(out, CELL_MAX, "%s", *(const bool *)at ? "yes" : "no");
    } else if (!isnan(number_at(c, at))) {
        print_number(c, number_at(c, at), out);
    }
    return out;
}

static int width_of(const struct pp_column *c, const struct pp_listing *rows, int least)
{
    char text[CELL_MAX];
    int width = pp_text_columns(c->title) > least ? pp_text_columns(c->title) : least;
    for (int r = 0; r < rows->n; r++) {
        int n = pp_text_columns(cell_text(c, row_at(rows, r), text));
        width = n > width ? n : width;
    }
    return width;
}

static bool is_left(const struct pp_column *c)
{
    return !c->right && (is_text(c) || c->kind == PP_CELL_FLAG);
}

static void print_markdown(const struct pp_column *columns, const struct pp_listing *rows, FILE *f)
{
    char text[CELL_MAX];
    for (int r = -2; r < rows->n; r++) { /* titles, ruler, rows */
        fputc('|', f);
        for (const struct pp_column *c = columns; !is_last(c); c++) {
            if (!c->title)
                continue;
            const char *cell = r == -1 ? "" : cell_text(c, r < 0 ? NULL : row_at(rows, r), text);
            int pad = width_of(c, rows, 3) - pp_text_columns(cell);
            if (r == -1) {
                for (int k = 0; k < pad + 1; k++)
                    fputc('-', f);
                fputs(is_left(c) ? "-|" : ":|", f);
            } else {
                fprintf(f, is_left(c) ? " %2$s%3$*1$s |" : " %3$*1$s%2$s |", pad, cell, "");
            }
        }
        fputc('\n', f);
    }
}

/* Returns how many blanks are between columns: two, or one if only then the table fits into the
 * width of text. */
static int choose_gap(const struct pp_column *columns, const struct pp_listing *rows, int indent)
{
    int width = indent, n = 0;
    for (const struct pp_column *c = columns; !is_last(c); c++) {
        width += c->title ? width_of(c, rows, 1) + 1 : 0;
        n += c->title != NULL;
    }
    return width <= PP_TEXT_WIDTH && width + n > PP_TEXT_WIDTH ? 1 : 2;
}

static void print_text(const struct pp_column *columns, const struct pp_listing *rows, int indent,
                       FILE *f)
{
    char text[CELL_MAX];
    int gap = choose_gap(columns, rows, indent);
    for (int r = -1; r < rows->n; r++) {
        int blanks = indent; /* before the next cell that is not empty */
        for (const struct pp_column *c = columns; !is_last(c); c++) {
            if (!c->title)
                continue;
            const char *cell = cell_text(c, r < 0 ? NULL : row_at(rows, r), text);
            int pad = width_of(c, rows, 1) - pp_text_columns(cell);
            if (cell[0])
                fprintf(f, "%*s%s", blanks + (is_left(c) ? 0 : pad), "", cell);
            blanks = cell[0] ? gap + (is_left(c) ? pad : 0) : blanks + pad + gap;
        }
        fputc('\n', f);
    }
}

void pp_listing_print(const struct pp_column *columns, const struct pp_listing *rows,
                      enum pp_listing_form form, int indent, FILE *f)
{
    if (form == PP_LISTING_CSV)
        print_csv(columns, rows, f);
    else if (form == PP_LISTING_MARKDOWN)
        print_markdown(columns, rows, f);
    else
        print_text(columns, rows, indent, f);
}
