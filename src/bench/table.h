/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of text cells. */
#ifndef PPCLI_BENCH_TABLE_H
#define PPCLI_BENCH_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 32
#define TABLE_CELL 512

struct table {
    int columns, rows;
    const char *names[TABLE_COLUMNS_MAX]; /* the caller's */
    bool left[TABLE_COLUMNS_MAX];
    char (*cells)[TABLE_COLUMNS_MAX][TABLE_CELL]; /* [rows] owned; empty at first */
};

/* No columns yet. Errors: PP_ERESOURCE. */
int table_create(struct table *t, int rows);
void table_fini(struct table *t); /* accepts a zeroed one */

/* The number of the new column. left: text, not numbers. */
int table_column(struct table *t, const char *name, bool left);
void table_cell(struct table *t, int row, int column, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

void table_markdown(const struct table *t, FILE *f);
void table_csv(const struct table *t, FILE *f);

#endif
