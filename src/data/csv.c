/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of the user: one row per sample, one column per value, one column the label. Separated by
 * commas, semicolons or tabs, with or without a header, gzipped or plain. An incomplete row is
 * refused with its line number; nothing is guessed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <zlib.h>

#include "ppcli/base/base.h"
#include "ops.h"

#define NUMBERED_MIN 8 /* columns of a header 0,1,2,... */
#define COUNTED_MIN 10 /* rows of a table whose first column may be an index */
#define WIDE_MIN 100   /* columns that make a table of pictures */

struct table {
    const char *path;
    char *text, *at; /* text: whole file, NUL-terminated; at: start of the next line */
    int line;        /* line of the cells, from 1 */
    char sep;
    char **cells;
    int n_cells, columns, label;
    char *names; /* names of the header */
    struct {
        double least, most, begins;
        /* whole: only whole numbers; counts: each row has one more than the row before */
        bool whole, counts;
    } first; /* first column */
};

static int load_table(struct table *t)
{
    size_t n = 0;
    PP_TRY(pp_source_lines(t->path, &t->text, &n));
    t->at = t->text;
    return strlen(t->text) == n
               ? 0
               : pp_fail(PP_EFORMAT, "%s: not a text file, as a table (CSV) is", t->path);
}

/* Returns the cell at *p, which is cut out in place, without the blanks around it and its quotes.
 * *p moves to the next cell; NULL if there is none. */
static char *next_cell(char **p, char sep)
{
    char *from = *p + strspn(*p, " "), *to = from, *out = from;
    bool quoted = *from == '"';
    for (to += quoted; *to && (quoted || *to != sep); to++) {
        if (quoted && *to == '"' && to[1] != '"') {
            quoted = false; /* text after the closing quote belongs to the cell */
        } else {
            to += quoted && *to == '"';
            *out++ = *to;
        }
    }
    *p = *to ? to + 1 : NULL;
    while (out > from && out[-1] == ' ')
        out--;
    *out = '\0';
    return from;
}

/* Splits the next line that is not empty into cells; n_cells is 0 at the end of the table. */
static void next_line(struct table *t)
{
    t->n_cells = 0;
    while (*t->at && t->n_cells == 0) {
        char *line = t->at, *end = line + strcspn(line, "\n");
        t->at = *end ? end + 1 : end;
        bool empty = true;
        t->line++;
        *end = '\0';
        end[end > line && end[-1] == '\r' ? -1 : 0] = '\0';
        for (char *p = *line ? line : NULL; p; t->n_cells++) {
            char *cell = next_cell(&p, t->sep);
            if (t->n_cells <= t->columns)
                t->cells[t->n_cells] = cell;
            empty = empty && !*cell;
        }
        t->n_cells = empty ? 0 : t->n_cells; /* a line of blanks and separators is empty */
    }
}

/* Parses a decimal number; returns whether the cell is one. strtof() alone would also accept
 * 0x10. */
static bool parse_number(const char *cell, float *out)
{
    char *end;
    *out = strtof(cell, &end);
    return end > cell && *end == '\0' && !strpbrk(cell, "xX");
}

/* Returns whether all cells from i on are empty. Spreadsheets write such lines if columns further
 * right were once used. */
static bool has_empty_tail(const struct table *t, int i)
{
    bool empty = i > 0;
    for (int k = i; k < t->n_cells && k <= t->columns; k++)
        empty = empty && !t->cells[k][0];
    return empty;
}

static int refuse_empty_columns(const struct table *t, int i)
{
    char columns[48];
    snprintf(columns, sizeof(columns), i + 1 < t->n_cells ? "columns %d to %d are" : "column %d is",
             i + 1, t->n_cells);
    return pp_fail(PP_EFORMAT,
                   "%s:%d: %s empty: the line ends with '%c', as spreadsheets write columns "
                   "that once had something; delete them there and save again",
                   t->path, t->line, columns, t->sep);
}

static int fail_cell(const struct table *t, int i, const char *why)
{
    return pp_fail(PP_EFORMAT, "%s:%d: column %d%s is %s%.40s%s%s", t->path, t->line, i + 1,
                   i == t->label ? " (the label)" : "", t->cells[i][0] ? "'" : "",
                   t->cells[i][0] ? t->cells[i] : "missing", t->cells[i][0] ? "', " : "",
                   t->cells[i][0] ? why : "");
}

/* Stores the names of the header, except the label's, each ended by a newline as in struct
 * pp_dataset. */
static int keep_names(struct table *t)
{
    size_t n = 1;
    for (int i = 0; i < t->columns; i++)
        n += strlen(t->cells[i]) + 1;
    t->names = pp_alloc(n, 1);
    char *at = t->names;
    for (int i = 0; at && i < t->columns; i++) {
        if (i != t->label) {
            at = stpcpy(at, t->cells[i]);
            *at++ = '\n';
        }
    }
    return t->names ? 0 : PP_ERESOURCE;
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

/* Returns whether the cell is the number i: pandas names columns without a name 0, 1, 2, ... */
static bool is_count(const char *cell, int i)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", i);
    return strcmp(cell, text) == 0;
}

/* Decides whether a first line 0,1,2,... is a header. It is a header if the next line has numbers
 * with a point, because a row would have some too, or if the line is long. A small table of whole
 * numbers is refused, because it could be either. */
static int check_numbered(const struct table *t, bool *out_header)
{
    size_t n = strcspn(t->at, "\n");
    *out_header = memchr(t->at, '.', n) || t->columns >= NUMBERED_MIN;
    if (*out_header || t->columns < 3)
        return 0;
    return pp_fail(PP_EFORMAT,
                   "%s:%d: 0 to %d: a sample, or a header as pandas writes it? Save the table "
                   "without one (header=False) or with names; a sample may stand in another line",
                   t->path, t->line, t->columns - 1);
}

/* Refuses headers that suggest a mistake. `by_default`: data.label is "last", which is its
 * default. */
static int check_names(const struct table *t, bool by_default)
{
    static const char *const labels[] = {"label", "labels", "class", "target"};
    bool told = false;
    int other = -1;
    for (int i = 0; i < t->columns; i++) {
        if (!t->cells[i][0] && has_empty_tail(t, i))
            return refuse_empty_columns(t, i);
        if (!t->cells[i][0] && i > 0)
            return pp_fail(PP_EFORMAT, "%s:%d: column %d has no name; give it one", t->path,
                           t->line, i + 1);
        if (!t->cells[i][0] || strncmp(t->cells[i], "Unnamed: ", 9) == 0) {
            return pp_fail(PP_EFORMAT,
                           "%s:%d: column %d has no name, as the index that pandas writes; save "
                           "the table without it (index=False)",
                           t->path, t->line, i + 1);
        }
        for (size_t k = 0; k < sizeof(labels) / sizeof(labels[0]); k++) {
            if (strcasecmp(t->cells[i], labels[k]) == 0) {
                told |= i == t->label;
                other = i == t->label ? other : i;
            }
        }
    }
    if (!by_default || told || other < 0)
        return 0;
    return pp_fail(PP_ECONFIG,
                   "data.label: column %d of %s is called '%.40s', but the label would be column "
                   "%d, '%.40s'; use data.label = %.40s, or the name of the one that it is",
                   other + 1, t->path, t->cells[other], t->label + 1, t->cells[t->label],
                   t->cells[other]);
}

/* Reads the separator from the line "sep=;" that Excel may write first. The line is not a row. */
static int take_separator(struct table *t)
{
    size_t n = strcspn(t->at, "\r\n"), line = strcspn(t->at, "\n");
    if (n != 5 || strncasecmp(t->at, "sep=", 4) != 0)
        return 0;
    t->sep = t->at[4];
    t->line++;
    t->at += line + (t->at[line] == '\n');
    return strchr(",;\t", t->sep)
               ? 0
               : pp_fail(PP_EFORMAT, "%s:%d: separator '%c'; write commas, semicolons or tabs",
                         t->path, t->line, t->sep);
}

/* Finds the separator, the number of columns, whether the first line is a header, and the column of
 * the label. */
static int inspect_first_line(struct table *t, const char *label)
{
    PP_TRY(take_separator(t));
    for (size_t n; t->at[n = strcspn(t->at, "\n")] && strspn(t->at, " ,;\t\r\"") >= n;
         t->at += n + 1)
        t->line++; /* an empty line */
    char *first = t->at;
    size_t n = strcspn(first, "\n");
    t->sep = t->sep ? t->sep : find_separator(first, n);
    for (size_t i = 0; i < n; i++)
        t->columns += first[i] == t->sep; /* an upper bound: a separator may be quoted */
    t->columns++;
    t->cells = pp_alloc((size_t)t->columns + 1, sizeof(*t->cells));
    PP_TRY(t->cells ? 0 : PP_ERESOURCE);
    PP_TAKE(char, copy, n + 1);
    memcpy(copy, first, n);
    next_line(t);
    t->columns = t->n_cells;
    int names = 0, odd = -1, same = 0, counted = 0;
    bool named = strcmp(label, "last") != 0 && strcmp(label, "first") != 0;
    t->label = strcmp(label, "last") == 0 ? t->columns - 1 : strcmp(label, "first") == 0 ? 0 : -1;
    for (int i = 0; i < t->columns; i++) {
        float ignored;
        bool name = !parse_number(t->cells[i], &ignored);
        names += name;
        odd = name ? i : odd;
        counted += !name && is_count(t->cells[i], i - names);
        same += strcmp(t->cells[i], label) == 0;
        t->label = t->label < 0 && strcmp(t->cells[i], label) == 0 ? i : t->label;
    }
    if (t->columns == 0)
        return pp_fail(PP_EFORMAT, "%s: no rows", t->path);
    if (t->columns < 2) {
        return pp_fail(PP_EFORMAT,
                       "%s:%d: one column; expected values and a label, separated by "
                       "commas, semicolons or tabs",
                       t->path, t->line);
    }
    bool numbered = counted >= 2 && counted + names == t->columns;
    PP_TRY(numbered && names == 0 ? check_numbered(t, &numbered) : 0);
    if (t->label < 0 ||
        (named && names == 0 && !numbered)) /* a first row of numbers is not a header */
        return pp_fail(PP_ECONFIG, "data.label: the first line of %s has no column '%s'%s", t->path,
                       label, names == 0 ? ", only numbers; use first or last" : "");
    if (same > 1 && strcmp(t->cells[t->label], label) == 0)
        return pp_fail(PP_ECONFIG,
                       "data.label: %d columns of %s are called '%s'; rename the others", same,
                       t->path, label);
    int filled = t->columns;
    while (filled > 0 && !t->cells[filled - 1][0])
        filled--;
    if (names == t->columns - filled && names > 0)
        return refuse_empty_columns(t, filled);
    if (names > 0 && names < t->columns && !numbered) /* a header only has names */
        return fail_cell(t, odd, "expected a number, as others in this line are");
    if (names > 0 || numbered) {
        PP_TRY(check_names(t, strcmp(label, "last") == 0));
        return keep_names(t);
    }
    memcpy(first, copy, n + 1); /* the first line is the first row */
    first[n] = t->at > first + n ? '\n' : '\0';
    t->at = first;
    t->line--;
    return 0;
}

/* Stores the current cells as a row: its values in `images`, unless that is NULL, and its label. */
static int take_row(const struct table *t, float *images, uint8_t *label)
{
    float v;
    if (t->n_cells > t->columns && has_empty_tail(t, t->columns))
        return refuse_empty_columns(t, t->columns);
    if (t->n_cells != t->columns) {
        return pp_fail(PP_EFORMAT, "%s:%d: %d cells, expected %d", t->path, t->line, t->n_cells,
                       t->columns);
    }
    if (!parse_number(t->cells[t->label], &v) || !(v >= 0 && v <= 255 && v == floorf(v)))
        return fail_cell(t, t->label, "expected a whole number from 0 to 255");
    *label = (uint8_t)v;
    for (int i = 0; images && i < t->columns; i++) {
        if (i == t->label)
            continue;
        if (!parse_number(t->cells[i], images))
            return fail_cell(t, i, "expected a number");
        if (!isfinite(*images))
            return fail_cell(t, i, "which is not finite");
        images++;
    }
    return 0;
}

static void inspect_first_cell(struct table *t, int row)
{
    float cell = 0;
    double v = parse_number(t->cells[0], &cell) ? (double)cell : -1;
    t->first.begins = row == 0 ? v : t->first.begins;
    t->first.least = row == 0 || v < t->first.least ? v : t->first.least;
    t->first.most = row == 0 || v > t->first.most ? v : t->first.most;
    t->first.whole = (row == 0 || t->first.whole) && v >= 0 && v <= floor(v);
    t->first.counts =
        (row == 0 || t->first.counts) && fabs(v - t->first.begins - row) < 0.5 && t->first.whole;
}

/* Warns, or fails, if the first column may not be an input: it may be an index, or the labels as in
 * Kaggle's MNIST. */
static int check_first_column(const struct table *t, struct pp_dataset *ds)
{
    bool like_labels = t->columns >= WIDE_MIN && t->label == t->columns - 1 && t->first.whole &&
                       t->first.most >= 1 && t->first.most < 100;
    int most = ds->classes - 1;
    if (t->label != 0 && t->first.counts && ds->n >= COUNTED_MIN) {
        pp_dataset_remark(ds,
                          "%s: column 1 counts the rows from %.0f, as an index does, and is an "
                          "input here; if it is an index, save the table without it (pandas: "
                          "index=False)",
                          t->path, t->first.begins);
    }
    if (like_labels && most == 0)
        return pp_fail(PP_EFORMAT,
                       "%s: every label, in the last column, is 0; column 1 has whole numbers to "
                       "%.0f: if they are the labels, use data.label = first",
                       t->path, t->first.most);
    if (like_labels && most > 2 * t->first.most)
        pp_dataset_remark(ds,
                          "%s: the last column, taken as the label, goes to %d, and column 1 has "
                          "whole numbers to %.0f: if they are the labels, use data.label = first",
                          t->path, most, t->first.most);
    return 0;
}

static int read_rows(struct table *t, enum pp_split split, int parts, struct pp_dataset *ds)
{
    size_t rows = 1;
    for (const char *p = t->at; *p; p++)
        rows += *p == '\n'; /* an upper bound: lines may be empty */
    size_t features = pp_shape_floats(&ds->shape);
    float *values = parts & PP_DATA_IMAGES ? pp_alloc(rows * features, sizeof(*values)) : NULL;
    ds->images = (uint8_t *)values;
    uint8_t *labels = pp_alloc(rows, 1);
    ds->targets = labels;
    if (!labels || (parts & PP_DATA_IMAGES && !values))
        return pp_failed(pp_error_context("%s", t->path));
    for (next_line(t); t->n_cells > 0; next_line(t)) {
        size_t r = (size_t)ds->n++;
        PP_TRY(take_row(t, values ? values + r * features : NULL, &labels[r]));
        inspect_first_cell(t, (int)r);
        ds->classes = labels[r] >= ds->classes ? labels[r] + 1 : ds->classes;
    }
    if (ds->n == 0)
        return pp_fail(PP_EFORMAT, "%s: no rows", t->path);
    ds->labels_crc = (uint32_t)crc32_z(0, ds->targets, (size_t)ds->n);
    ds->images_crc = values ? (uint32_t)crc32_z(0, ds->images, (size_t)ds->n * features * 4) : 0;
    PP_TRY(split == PP_SPLIT_TRAIN ? check_first_column(t, ds) : 0);
    return pp_classes_of_labels(ds, split, t->path);
}

int pp_table_same_columns(const struct pp_dataset *a, const struct pp_dataset *b)
{
    const char *x = a->columns, *y = b->columns;
    for (size_t i = 1; x && y && *x && *y; i++) {
        size_t nx = strcspn(x, "\n"), ny = strcspn(y, "\n");
        if (nx != ny || memcmp(x, y, nx) != 0)
            return pp_fail(PP_EFORMAT,
                           "value %zu of a row is '%.*s' in %s, and '%.*s' in %s: give both the "
                           "same columns in the same order",
                           i, (int)(nx < 40 ? nx : 40), x, a->origin, (int)(ny < 40 ? ny : 40), y,
                           b->origin);
        x += nx + 1;
        y += ny + 1;
    }
    return 0;
}

static int open_csv(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                    enum pp_split split, int parts, const struct pp_shape *model_input,
                    int model_classes, struct pp_dataset *ds)
{
    struct table t = {.path = split == PP_SPLIT_TRAIN ? cfg->data.train_file : cfg->data.test_file};
    int rc = load_table(&t), most = pp_samples_max(cfg, split);
    rc = rc == 0 ? inspect_first_line(&t, cfg->data.label) : rc;
    ds->columns = t.names;
    if (rc == 0) {
        ds->shape = pp_shape_flat(t.columns - 1);
        ds->element = PP_F32;
        ds->scale = 1.0f;
        rc = read_rows(&t, split, parts, ds);
    }
    pp_free(t.cells);
    pp_free(t.text);
    PP_TRY(rc);
    ds->n = most > 0 && most < ds->n ? most : ds->n;
    return pp_path_format(ds->origin, "%s", t.path);
}

extern const struct pp_dataset_ops dataset_csv;

const struct pp_dataset_ops dataset_csv = {
    .info = {.name = "csv",
             .help = "your own tables, as data.train_file and data.test_file name "
                     "them; data.label is the column of the label",
             .element = PP_F32},
    .keys = PP_KEYS_TABLES,
    .open = open_csv,
};
