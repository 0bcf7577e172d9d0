/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of text and numbers: for people as Markdown, for programs as CSV and JSON. */
#ifndef PPCLI_BENCH_TABLE_H
#define PPCLI_BENCH_TABLE_H

#include "ppcli/base/files.h"

#define TABLE_COLUMNS_MAX 48
#define TABLE_CELL 512

struct table_column {
    const char *title; /* in Markdown; NULL: not there */
    const char *key;   /* in CSV and JSON; NULL: not there */
    const char *fmt;   /* of a number in Markdown, TABLE_DIGITS: about four digits; NULL: text */
    double scale;      /* a number times this is shown in Markdown */
    bool left;         /* text that is aligned to the left */
    bool csv;          /* the key is for CSV only */
};
#define TABLE_DIGITS "~"
/* Rows of struct table_column. */
#define TABLE_NUMBER(t, k, f, s)                                                                   \
    {                                                                                              \
        .title = (t), .key = (k), .fmt = (f), .scale = (s)                                         \
    }
#define TABLE_TEXT(t, k)                                                                           \
    {                                                                                              \
        .title = (t), .key = (k)                                                                   \
    }
#define TABLE_LEFT(t, k)                                                                           \
    {                                                                                              \
        .title = (t), .key = (k), .left = true                                                     \
    }
#define TABLE_CSV(k)                                                                               \
    {                                                                                              \
        .key = (k), .csv = true                                                                    \
    }

struct table {
    int columns, rows, row, column; /* row, column: of the next cell */
    struct table_column head[TABLE_COLUMNS_MAX];
    struct table_cell *cells; /* [rows][TABLE_COLUMNS_MAX] owned; empty at first */
};

/* Errors: PP_ERESOURCE. The strings of the columns stay the caller's. */
int table_create(struct table *t, int rows, const struct table_column *columns, int n);
void table_fini(struct table *t); /* accepts a zeroed one */
void table_add(struct table *t, const struct table_column *columns, int n);

/* Cells are filled from left to right. */
void table_row(struct table *t, int row);
void table_text(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_number(struct table *t, double x);
void table_skip(struct table *t, int n); /* they stay empty */

void table_markdown(const struct table *t, FILE *f);
void table_csv(const struct table *t, FILE *f);
/* The cells of a row that have a key and are not empty, into the open object. */
void table_json(const struct table *t, int row, struct pp_json *j);
/* All rows as an array of objects. */
void table_json_rows(const struct table *t, const char *key, struct pp_json *j);

#endif
