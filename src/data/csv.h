/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the user: csv.c reads text into cells, columns.c finds what the columns are, table.c makes
 * the data set. */
#ifndef PPCLI_SRC_DATA_CSV_H
#define PPCLI_SRC_DATA_CSV_H

#include "ppcli/data/preprocessing.h"
#include "ops.h"

/* ---- csv.c: cells */

struct csv {
    const char *path;
    char *text;          /* the whole file, UTF-8, NUL-terminated; owned */
    const char *at;      /* start of the next row */
    int next_line, line; /* lines from 1: of the next row, of the current one */
    char sep;
    bool decimal_comma; /* 1,5 is a number, and a point only groups digits */
    bool was_latin;     /* the file is not UTF-8 and was read as Windows-1252 */
    char odd[40];       /* the first number with a unit or groups of digits, "1,234 €"; "" */
    double odd_value;
    const char *row; /* bytes of the current row in the text */
    size_t row_bytes;
    char **cells; /* [n_cells], in `buffer`, until the next row; owned */
    int n_cells, cells_max;
    char *buffer; /* owned */
    size_t buffer_bytes;
};

/* Reads a file, plain or gzip, or "-", standard input, and finds its separator and its decimal mark. `path` must outlive *c.
 * The caller calls csv_close(), also after an error. Errors: those of pp_source_lines(). */
int csv_open(const char *path, struct csv *c);
void csv_close(struct csv *c); /* accepts a zeroed one */

/* Splits the next row that is not empty into cells, which have no quotes or blanks around them;
 * n_cells is 0 at the end. Errors: PP_EFORMAT (a quote that is not closed), PP_ERESOURCE. */
int csv_next(struct csv *c);

/* Parses a number as people and programs write it; returns whether the cell is one. csv_float()
 * rounds once, from the text. */
bool csv_number(struct csv *c, const char *cell, double *out);
float csv_float(struct csv *c, const char *cell);

/* Returns whether the cell says that its value is not known: "", NA, null, ?, ... */
bool csv_is_missing(const char *cell);

/* ---- columns.c: what the columns of a table are */

#define KINDS_MAX 64 /* of a category; a column with more is left out */

enum column_kind {
    COLUMN_NUMBER,
    COLUMN_CATEGORY,
    COLUMN_TEXT, /* words of more than KINDS_MAX kinds */
    COLUMN_DATE,
    COLUMN_EMPTY
};

struct kinds { /* different cells, sorted */
    int n;
    bool numeric; /* in the order of numbers */
    char **of;    /* [n], each owned */
};

struct table_column {
    char *name; /* owned; "": no name */
    int nth;    /* columns of this name before it */
    bool is_input, is_output;
    enum column_kind kind;
    int64_t numbers, words, dates, missing; /* cells, of all rows */
    int64_t measured;                       /* numbers of the training part; their mean, std: */
    double mean, squares;
    double least, most, begins; /* of all numbers; of the first row */
    bool whole, counts;         /* only whole numbers; each row has one more than the row before */
    bool infinite;              /* the odd cell is a number that is not finite */
    char odd[40];               /* the first word, or number that is not finite */
    int odd_line, missing_line; /* line of it, and of the first missing cell; 0: none */
    char missing_cell[8];
    struct kinds kinds; /* of the training part: categories; of all rows: labels */
};

struct table {
    struct csv csv;
    bool has_header;
    const char *first_row; /* where the rows begin, and their line */
    int first_line;
    int n, rows; /* columns; rows, known after table_measure() */
    struct table_column *of;
    int label; /* -1: numbers are predicted */
    int n_targets, *targets;
    bool plain; /* labels are their own classes, 0 to 255, and no key changes the columns */
};

/* Reads the header and finds the names. Errors: PP_EFORMAT. The caller calls table_close(), also
 * after an error. */
int table_open(const char *path, struct table *t);
void table_close(struct table *t);
int table_rewind(struct table *t); /* to the first row */

/* Reads the next row and checks its number of cells; csv.n_cells is 0 at the end. */
int table_next(struct table *t);

/* Finds which columns the config takes as label, targets and inputs. Errors: PP_ECONFIG. */
int table_choose(const struct pp_config *cfg, struct table *t);

/* Finds what every column is, and measures it. Without a config all rows are the training part.
 * Errors: PP_EFORMAT, PP_ERESOURCE. */
int table_measure(const struct pp_config *cfg, struct table *t);

/* Collects the kinds of the columns that are marked, at most n_max + 1 of each: of the training
 * part, and of all rows for the label, whose number is not limited so. */
int table_collect(const struct pp_config *cfg, struct table *t, const bool *columns, int n_max);

/* Decides about every column that is used, and refuses what cannot be one. Errors: PP_EFORMAT. */
int table_decide(const struct pp_config *cfg, struct table *t);

/* Fails with PP_EFORMAT because of a cell of column i, with its line and place. */
int table_refuse(const struct table *t, int line, int i, const char *cell, const char *why);

/* Returns the standard deviation of the training part; 1 where all are equal. */
double table_deviation(const struct table_column *c);

/* Takes the next name of a list such as `a, "b, c"` into out[PP_TEXT_MAX]; false at its end. */
bool table_next_name(const char **list, char *out);

#endif
