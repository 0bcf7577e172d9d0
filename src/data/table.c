/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data set of tables. A training table is described once, as a JSON text; samples are made by
 * that text alone, of the training rows, the test rows and new tables alike. A table of numbers and
 * classes 0 to 255 without keys for its columns is used as it is.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <zlib.h>

#include "ppcli/base/base.h"
#include "csv.h"
#include "new_table.h"

#define COUNTED_MIN 10 /* rows of a table whose first column may be an index */
#define WIDE_MIN 100   /* columns that make a table of pictures */

/* ---- description */

static void write_names(struct pp_json *j, const char *key, const struct kinds *k)
{
    pp_json_array(j, key);
    for (int i = 0; i < k->n; i++)
        pp_json_str(j, NULL, k->of[i]);
    pp_json_end(j);
}

static void write_column(const struct pp_config *cfg, struct pp_json *j, const struct table *t,
                         int i)
{
    const struct table_column *c = &t->of[i];
    bool marks = cfg->data.missing == PP_MISSING_CATEGORY && c->missing > 0;
    pp_json_object(j, NULL);
    pp_json_str(j, "name", c->name);
    pp_json_int(j, "at", i);
    if (c->nth > 0)
        pp_json_int(j, "nth", c->nth);
    if (c->kind == COLUMN_CATEGORY)
        write_names(j, "kinds", &c->kinds);
    else if (cfg->data.scale == PP_SCALE_STANDARD || cfg->data.missing != PP_MISSING_STOP)
        pp_json_dbl(j, "mean", c->mean);
    if (c->kind != COLUMN_CATEGORY && cfg->data.scale == PP_SCALE_STANDARD)
        pp_json_dbl(j, "std", table_deviation(c));
    if (marks)
        pp_json_bool(j, "marks_missing", true);
    pp_json_end(j);
}

static void write_targets(const struct pp_config *cfg, struct pp_json *j, const struct table *t)
{
    bool yes_no = cfg->train.loss == PP_LOSS_BCE;
    pp_json_bool(j, "yes_no", yes_no);
    pp_json_array(j, "targets");
    for (int i = 0; i < t->n_targets; i++) {
        const struct table_column *c = &t->of[t->targets[i]];
        pp_json_object(j, NULL);
        pp_json_str(j, "name", c->name);
        pp_json_int(j, "at", t->targets[i]);
        pp_json_dbl(j, "mean", yes_no ? 0 : c->mean);
        pp_json_dbl(j, "std", yes_no ? 1 : table_deviation(c));
        pp_json_end(j);
    }
    pp_json_end(j);
}

static int write_description(const struct pp_config *cfg, const struct table *t, char **out)
{
    static const char *const missing[] = {"stop", "mean", "category"};
    size_t bytes = 0;
    FILE *f = open_memstream(out, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, "%s: out of memory", t->csv.path);
    struct pp_json j = pp_json_begin(f, 0);
    pp_json_str(&j, "kind", "table");
    pp_json_int(&j, "width", t->n);
    pp_json_bool(&j, "header", t->has_header);
    pp_json_str(&j, "missing", missing[cfg->data.missing]);
    if (t->label >= 0) {
        pp_json_str(&j, "label", t->of[t->label].name);
        pp_json_int(&j, "label_at", t->label);
        if (!t->plain)
            write_names(&j, "classes", &t->of[t->label].kinds);
    } else {
        write_targets(cfg, &j, t);
    }
    pp_json_array(&j, "columns");
    for (int i = 0; i < t->n; i++)
        if (t->of[i].is_input)
            write_column(cfg, &j, t, i);
    pp_json_end(&j);
    pp_json_end(&j);
    return pp_text_close(f, out, t->csv.path);
}

/* ---- samples of a table by its description */

struct pp_new_table {
    const struct pp_preprocessing *p;
    struct csv csv;
    int width;    /* columns of this table */
    int *at;      /* [p->n_columns] place of each column */
    int label;    /* -1: it has none */
    int *targets; /* [p->n_targets] */
    int *lines;   /* lines of the rows of the last call; [lines_max] */
    int lines_max;
    int64_t unknown, filled; /* words that the training part did not have; missing cells */
    char word[40];           /* the first such word, and its column */
    int word_column;
};

static int fail_column(const struct pp_new_table *t, const char *name)
{
    return pp_fail(
        PP_EFORMAT,
        "%s: no column '%.60s', which the training table has; give both the same columns",
        t->csv.path, name);
}

/* Finds the columns by the names in the first line. */
static int map_by_name(struct pp_new_table *t, const struct table *h)
{
    const struct pp_preprocessing *p = t->p;
    for (int i = 0; i < p->n_columns; i++) {
        t->at[i] = -1;
        for (int k = 0; k < h->n && t->at[i] < 0; k++)
            if (strcmp(h->of[k].name, p->columns[i].name) == 0 && h->of[k].nth == p->columns[i].nth)
                t->at[i] = k;
        PP_TRY(t->at[i] < 0 ? fail_column(t, p->columns[i].name) : 0);
    }
    for (int k = h->n - 1; p->label && k >= 0; k--)
        t->label = strcmp(h->of[k].name, p->label) == 0 ? k : t->label;
    for (int i = 0; i < p->n_targets; i++) {
        t->targets[i] = -1;
        for (int k = h->n - 1; k >= 0; k--)
            t->targets[i] = strcmp(h->of[k].name, p->targets[i].name) == 0 ? k : t->targets[i];
    }
    return 0;
}

/* Finds the columns by their places: the table has no header, or the training table had none. Without
 * its label's column, a table has one column less. */
static int map_by_place(struct pp_new_table *t, const struct table *h)
{
    const struct pp_preprocessing *p = t->p;
    const int outputs = p->label_at >= 0 ? 1 : p->n_targets;
    bool lacks = h->n == p->width - outputs;
    if (h->n != p->width && !lacks)
        return pp_fail(PP_EFORMAT, "%s: %d columns, expected %d as in the training table",
                       t->csv.path, h->n, p->width);
    for (int i = 0; i < p->n_columns; i++) {
        int at = p->columns[i].at, before = p->label_at >= 0 && p->label_at < at;
        for (int k = 0; k < p->n_targets; k++)
            before += p->targets[k].at < at;
        t->at[i] = at - (lacks ? before : 0);
    }
    t->label = lacks ? -1 : p->label_at;
    for (int k = 0; k < p->n_targets; k++)
        t->targets[k] = lacks ? -1 : p->targets[k].at;
    return 0;
}

/* Makes the reader of a table whose header was read, and takes its text. */
static int begin_rows(const struct pp_preprocessing *p, struct table *h, struct pp_new_table **out)
{
    PP_OWN(pp_new_table_close) struct pp_new_table *t = NULL;
    PP_ALLOC(t, 1);
    t->p = p;
    t->label = -1;
    t->width = h->n;
    PP_ALLOC(t->at, (size_t)p->n_columns + 1);
    PP_ALLOC(t->targets, (size_t)p->n_targets + 1);
    PP_TRY(table_rewind(h));
    t->csv = h->csv;
    h->csv = (struct csv){.path = t->csv.path};
    PP_TRY(p->has_header && h->has_header ? map_by_name(t, h) : map_by_place(t, h));
    *out = t;
    t = NULL;
    return 0;
}

int pp_new_table_open(const struct pp_preprocessing *p, const char *path, struct pp_new_table **out)
{
    PP_OWN(table_close) struct table h = {0};
    PP_TRY(table_open(path, &h));
    return begin_rows(p, &h, out);
}

void pp_new_table_close(struct pp_new_table **t)
{
    if (!*t)
        return;
    csv_close(&(*t)->csv);
    pp_free((*t)->at);
    pp_free((*t)->targets);
    pp_free((*t)->lines);
    pp_free(*t);
    *t = NULL;
}

static int fail_cell(const struct pp_new_table *t, int at, const char *name, const char *why)
{
    const char *cell = t->csv.cells[at];
    return pp_fail(PP_EFORMAT, "%s:%d: column %d%s%.40s%s is %s%.40s%s%s", t->csv.path, t->csv.line,
                   at + 1, name ? " ('" : "", name ? name : "", name ? "')" : "",
                   cell[0] ? "'" : "missing", cell, cell[0] ? "', " : "; ", why);
}

static int next_row(struct pp_new_table *t)
{
    struct csv *c = &t->csv;
    PP_TRY(csv_next(c));
    while (c->n_cells > t->width && !c->cells[c->n_cells - 1][0])
        c->n_cells--;
    return c->n_cells == 0 || c->n_cells == t->width
               ? 0
               : pp_fail(PP_EFORMAT, "%s:%d: %d cell%s, expected %d", c->path, c->line, c->n_cells,
                         pp_plural(c->n_cells), t->width);
}

/* Sets the inputs of a word: 1 at its kind. */
static void encode_word(struct pp_new_table *t, const struct pp_table_column *k, const char *cell,
                        float *x)
{
    int from = 0, to = k->n_kinds, c = 1;
    while (from < to && c != 0) {
        int middle = from + (to - from) / 2;
        c = strcmp(k->kinds[middle], cell);
        if (c == 0)
            x[middle] = 1;
        from = c < 0 ? middle + 1 : from;
        to = c > 0 ? middle : to;
    }
    if (c != 0 && t->unknown++ == 0) {
        snprintf(t->word, sizeof(t->word), "%.38s", cell);
        t->word_column = (int)(k - t->p->columns);
    }
}

static int encode_number(struct pp_new_table *t, int i, const char *cell, float *x)
{
    const struct pp_table_column *k = &t->p->columns[i];
    const char *name = t->p->has_header ? k->name : NULL;
    double v;
    if (!csv_number(&t->csv, cell, &v))
        return fail_cell(t, t->at[i], name, "expected a number");
    *x = k->is_scaled ? (float)((v - k->mean) / k->std) : csv_float(&t->csv, cell);
    return isfinite(*x) ? 0 : fail_cell(t, t->at[i], name, "which is not finite");
}

static int encode_row(struct pp_new_table *t, float *x)
{
    const struct pp_preprocessing *p = t->p;
    memset(x, 0, (size_t)p->n_inputs * sizeof(*x));
    for (int i = 0; i < p->n_columns; i++) {
        const struct pp_table_column *k = &p->columns[i];
        const char *cell = t->csv.cells[t->at[i]];
        float *to = x + k->first;
        if (csv_is_missing(cell)) {
            if (p->missing == PP_MISSING_STOP)
                return fail_cell(t, t->at[i], p->has_header ? k->name : NULL,
                                 "a missing value, which the training part does not have; "
                                 "data.missing = mean or category reads such cells");
            if (k->marks_missing)
                to[k->n_inputs - 1] = 1;
            if (!k->is_category)
                *to = k->is_scaled ? 0 : (float)k->mean;
            t->filled++;
        } else if (k->is_category) {
            encode_word(t, k, cell, to);
        } else {
            PP_TRY(encode_number(t, i, cell, to));
        }
    }
    return 0;
}

int pp_new_table_next(struct pp_new_table *t, int rows, float *x, int *out_rows)
{
    int n = 0;
    if (rows > t->lines_max) {
        int *lines = pp_realloc(t->lines, (size_t)rows, sizeof(*lines));
        if (!lines)
            return PP_ERESOURCE;
        t->lines = lines;
        t->lines_max = rows;
    }
    for (; n < rows; n++) {
        PP_TRY(next_row(t));
        if (t->csv.n_cells == 0)
            break;
        t->lines[n] = t->csv.line;
        PP_TRY(encode_row(t, x + (size_t)n * (size_t)t->p->n_inputs));
    }
    *out_rows = n;
    return 0;
}

int pp_new_table_line(const struct pp_new_table *t, int r)
{
    return t->lines[r];
}

int64_t pp_new_table_unknown(const struct pp_new_table *t)
{
    return t->unknown;
}

/* ---- labels and targets */

static int compare_names(bool numeric, const char *a, const char *b)
{
    double x = numeric ? strtod(a, NULL) : 0, y = numeric ? strtod(b, NULL) : 0;
    return x < y ? -1 : x > y ? 1 : strcmp(a, b);
}

static int encode_label(struct pp_new_table *t, bool numeric, uint32_t *out)
{
    const struct pp_preprocessing *p = t->p;
    const char *cell = t->csv.cells[t->label];
    char text[64];
    double v = -1;
    bool number = csv_number(&t->csv, cell, &v);
    if (p->n_classes == 0) {
        if (!number || !(v >= 0 && v <= 255 && v <= floor(v)))
            return fail_cell(
                t, t->label, p->has_header ? p->label : NULL,
                "expected a whole number from 0 to 255, as the labels of training are");
        *out = (uint32_t)v;
        return 0;
    }
    if (numeric && number) {
        snprintf(text, sizeof(text), "%.15g", v);
        cell = text;
    }
    int from = 0, to = p->n_classes;
    while (from < to) {
        int middle = from + (to - from) / 2, c = compare_names(numeric, p->classes[middle], cell);
        if (c == 0) {
            *out = (uint32_t)middle;
            return 0;
        }
        from = c < 0 ? middle + 1 : from;
        to = c > 0 ? middle : to;
    }
    return fail_cell(t, t->label, p->has_header ? p->label : NULL,
                     "a class that the training table does not have");
}

/* Reads yes or no, as numbers or as words; returns whether the cell is one. */
static bool read_yes_no(const char *cell, bool number, double v, float *out)
{
    static const char *const words[2][4] = {{"no", "false", "n", "f"}, {"yes", "true", "y", "t"}};
    for (int yes = 0; yes < 2; yes++) {
        bool is = number && (yes ? v >= 1 && v <= 1 : v >= 0 && v <= 0);
        for (int i = 0; i < 4; i++)
            is |= strcasecmp(cell, words[yes][i]) == 0;
        if (is) {
            *out = (float)yes;
            return true;
        }
    }
    return false;
}

static int encode_targets(struct pp_new_table *t, float *y)
{
    for (int i = 0; y && i < t->p->n_targets; i++) {
        const struct pp_target *k = &t->p->targets[i];
        const char *cell = t->csv.cells[t->targets[i]];
        double v = 0;
        bool number = csv_number(&t->csv, cell, &v);
        if (t->p->yes_no) {
            if (!read_yes_no(cell, number, v, &y[i]))
                return fail_cell(t, t->targets[i], k->name,
                                 "expected yes or no, true or false, 1 or 0");
            continue;
        }
        y[i] = (float)((v - k->mean) / k->std);
        if (!number || !isfinite(y[i]))
            return fail_cell(t, t->targets[i], k->name, "expected a number to predict");
    }
    return 0;
}

/* Returns whether what is to be predicted is missing in the current row. */
static bool lacks_output(const struct pp_new_table *t)
{
    bool lacks = t->label >= 0 && csv_is_missing(t->csv.cells[t->label]);
    for (int i = 0; i < t->p->n_targets; i++)
        lacks |= csv_is_missing(t->csv.cells[t->targets[i]]);
    return lacks;
}

/* ---- remarks */

static void remark_reading(const struct csv *c, struct pp_dataset *ds)
{
    char how[200] = "";
    if (c->was_latin)
        pp_text_add(how, sizeof(how), "; it is not UTF-8 and is read as Windows-1252 (Latin-1)");
    if (c->decimal_comma)
        pp_text_add(how, sizeof(how), "; numbers have decimal commas");
    if (c->odd[0])
        pp_text_add(how, sizeof(how), "; '%s' is the number %.10g", c->odd, c->odd_value);
    if (how[0])
        pp_dataset_remark(ds, "%s: %s", c->path, how + 2);
}

static void remark_left_out(const struct table *t, struct pp_dataset *ds)
{
    char names[240] = "";
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        const struct table_column *c = &t->of[i];
        bool unnamed = t->has_header && i == 0 && !c->is_input &&
                       (!c->name[0] || strncmp(c->name, "Unnamed: ", 9) == 0);
        const char *why = c->kind == COLUMN_TEXT                  ? "more than 64 kinds of words"
                          : unnamed                               ? "an index without a name"
                          : c->kind == COLUMN_EMPTY && c->name[0] ? "empty"
                                                                  : NULL;
        if (!why || c->is_output)
            continue;
        if (strlen(names) < 160)
            pp_text_add(names, sizeof(names), "%s%s%.30s%s(%s)", n > 0 ? ", " : "",
                        c->name[0] && !unnamed ? "'" : "", unnamed ? "the first" : c->name,
                        c->name[0] && !unnamed ? "' " : " ", why);
        n++;
    }
    if (n > 0)
        pp_dataset_remark(ds, "%s: %d column%s left out: %s%s", t->csv.path, n,
                          n == 1 ? " is" : "s are", names, strlen(names) < 160 ? "" : ", ...");
}

static void remark_missing(const struct pp_config *cfg, const struct table *t,
                           struct pp_dataset *ds)
{
    char names[200] = "";
    int64_t cells = 0;
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        const struct table_column *c = &t->of[i];
        if (!c->is_input || c->missing == 0)
            continue;
        if (strlen(names) < 130)
            pp_text_add(names, sizeof(names), "%s%.30s %lld", n > 0 ? ", " : "", c->name,
                        (long long)c->missing);
        cells += c->missing;
        n++;
    }
    if (n > 0)
        pp_dataset_remark(
            ds, "%s: %lld missing cell%s in %d column%s (%s%s): %s", t->csv.path, (long long)cells,
            pp_plural((int)cells), n, pp_plural(n), names, strlen(names) < 130 ? "" : ", ...",
            cfg->data.missing == PP_MISSING_MEAN ? "numbers become the mean of their column"
                                                 : "marked by an input of their own");
}

/* Warns, or fails, if the first column may not be an input: it may be an index, or the labels as in
 * Kaggle's MNIST. */
static int check_first_column(const struct table *t, int most, struct pp_dataset *ds)
{
    const struct table_column *c = &t->of[0];
    const char *path = t->csv.path;
    bool number = c->kind == COLUMN_NUMBER && c->missing == 0 && c->least >= 0;
    bool like_labels = t->label >= 0 && t->n >= WIDE_MIN && t->label == t->n - 1 && number &&
                       c->whole && c->most >= 1 && c->most < 100;
    if (c->is_input && number && c->counts && t->rows >= COUNTED_MIN) {
        pp_dataset_remark(ds,
                          "%s: column 1 counts the rows from %.0f, as an index does, and is an "
                          "input here; if it is an index, leave it out with data.drop = %.60s",
                          path, c->begins, c->name);
    }
    if (like_labels && most == 0)
        return pp_fail(PP_EFORMAT,
                       "%s: every label, in the last column, is 0; column 1 has whole numbers to "
                       "%.0f: if they are the labels, use data.label = first",
                       path, c->most);
    if (like_labels && most > 2 * c->most)
        pp_dataset_remark(ds,
                          "%s: the last column, taken as the label, goes to %d, and column 1 has "
                          "whole numbers to %.0f: if they are the labels, use data.label = first",
                          path, most, c->most);
    return 0;
}

/* ---- the data set */

/* The rows of a split as they are read. */
struct rows {
    struct pp_new_table *t;
    bool numeric;         /* the names of classes are numbers */
    float *x;             /* samples, or one sample again and again */
    bool keeps_x, checks; /* checks: the cells were not measured yet */
    uint32_t *labels;
    float *y;
    int n, without; /* rows; rows that were left out, because they have no label */
};

static void rows_fini(struct rows *r)
{
    pp_new_table_close(&r->t);
    pp_free(r->x);
    pp_free(r->labels);
    pp_free(r->y);
}

static int take_row(struct rows *r)
{
    const struct pp_preprocessing *p = r->t->p;
    const size_t n = (size_t)r->n;
    if (p->missing != PP_MISSING_STOP && lacks_output(r->t)) {
        r->without++;
        return 0;
    }
    PP_TRY(p->n_targets > 0 ? encode_targets(r->t, r->y + n * (size_t)p->n_targets)
                            : encode_label(r->t, r->numeric, &r->labels[n]));
    if (r->keeps_x || r->checks)
        PP_TRY(encode_row(r->t, r->x + (r->keeps_x ? n * (size_t)p->n_inputs : 0)));
    r->n++;
    return 0;
}

static int make_room(struct rows *r, bool keeps_x)
{
    const struct pp_preprocessing *p = r->t->p;
    size_t rows = 1;
    for (const char *at = r->t->csv.at; *at; at++)
        rows += *at == '\n'; /* an upper bound: lines may be empty */
    r->keeps_x = keeps_x;
    r->x = pp_alloc((keeps_x ? rows : 1) * (size_t)p->n_inputs, sizeof(*r->x));
    r->y = p->n_targets > 0 ? pp_alloc(rows * (size_t)p->n_targets, sizeof(*r->y)) : NULL;
    r->labels = p->n_targets > 0 ? NULL : pp_alloc(rows, sizeof(*r->labels));
    return r->x && (r->y || r->labels) ? 0 : pp_failed(pp_error_context("%s", r->t->csv.path));
}

static int read_rows(const struct pp_config *cfg, enum pp_split split, struct rows *r)
{
    for (;;) {
        PP_TRY(next_row(r->t));
        if (r->t->csv.n_cells == 0)
            break;
        if (cfg->data.split > 0 &&
            pp_split_is_test(cfg, r->t->csv.row, r->t->csv.row_bytes) != (split == PP_SPLIT_TEST))
            continue;
        PP_TRY(take_row(r));
    }
    return r->n > 0 ? 0 : pp_fail(PP_EFORMAT, "%s: no rows", r->t->csv.path);
}

/* Checks that a table that is read for training or testing has what is to be predicted. */
static int check_outputs(const struct pp_config *cfg, struct pp_new_table *t)
{
    const struct pp_preprocessing *p = t->p;
    bool last = strcmp(cfg->data.label, "last") == 0, first = strcmp(cfg->data.label, "first") == 0;
    if (p->label_at >= 0 && t->label < 0 && (last || first) && t->width == p->width)
        t->label = first ? 0 : t->width - 1; /* it may have another name in the test table */
    if (p->label_at >= 0 && t->label < 0)
        return fail_column(t, p->label);
    for (int i = 0; i < p->n_targets; i++)
        PP_TRY(t->targets[i] < 0 ? fail_column(t, p->targets[i].name) : 0);
    return 0;
}

/* Moves the labels of plain tables to bytes, as they always were. */
static int keep_labels(struct rows *r, enum pp_split split, struct pp_dataset *ds)
{
    const struct pp_preprocessing *p = r->t->p;
    PP_TRY(pp_dataset_set_labels(ds, r->labels));
    if (p->n_classes == 0)
        return pp_classes_of_labels(ds, split, r->t->csv.path);
    ds->classes = p->n_classes;
    bool alike = split == PP_SPLIT_TRAIN;
    for (int i = 1; i < ds->n; i++)
        alike = alike && r->labels[i] == r->labels[0];
    return alike ? pp_fail(PP_EFORMAT,
                           "%s: every label is '%.40s': with one class there is nothing to learn",
                           r->t->csv.path, p->classes[r->labels[0]])
                 : 0;
}

static void keep_targets(struct rows *r, struct pp_dataset *ds)
{
    ds->targets = r->y;
    r->y = NULL;
    ds->target_element = PP_F32;
    ds->targets_each = ds->classes = r->t->p->n_targets;
    ds->labels_crc =
        (uint32_t)crc32_z(0, ds->targets, (size_t)ds->n * (size_t)ds->targets_each * sizeof(float));
}

/* Names the inputs: a column of words has one for each kind. */
static int name_inputs(const struct pp_preprocessing *p, struct pp_dataset *ds)
{
    size_t bytes = 1;
    for (int i = 0; i < p->n_columns; i++) {
        const struct pp_table_column *c = &p->columns[i];
        bytes += (strlen(c->name) + 12) * (size_t)c->n_inputs;
        for (int k = 0; k < c->n_kinds; k++)
            bytes += strlen(c->kinds[k]);
    }
    if (!p->has_header)
        return 0;
    char *at = ds->columns = pp_alloc(bytes, 1);
    if (!at)
        return PP_ERESOURCE;
    for (int i = 0; i < p->n_columns; i++) {
        const struct pp_table_column *c = &p->columns[i];
        for (int k = 0; k < c->n_inputs; k++) {
            bool mark = c->marks_missing && k == c->n_inputs - 1;
            at += sprintf(at, "%s%s%s", c->name, mark || c->is_category ? "=" : "",
                          mark             ? "missing"
                          : c->is_category ? c->kinds[k]
                                           : "");
            *at++ = '\n';
        }
    }
    return 0;
}

/* Describes the training table. */
static int describe(const struct pp_config *cfg, struct table *t, struct pp_dataset *ds)
{
    int inputs = 0;
    PP_TRY(table_open(cfg->data.train_file, t));
    PP_TRY(table_choose(cfg, t));
    PP_TRY(table_measure(cfg, t));
    PP_TRY(table_decide(cfg, t));
    for (int i = 0; i < t->n; i++)
        inputs += t->of[i].is_input;
    if (inputs == 0)
        return pp_fail(PP_EFORMAT, "%s: no column is left as an input; see data.columns, data.drop",
                       t->csv.path);
    return write_description(cfg, t, &ds->preprocessing);
}

static void remark_table(const struct pp_config *cfg, const struct table *t, const struct rows *r,
                         enum pp_split split, struct pp_dataset *ds)
{
    bool own = split == PP_SPLIT_TRAIN;
    if (own || !cfg->data.split)
        remark_reading(&r->t->csv, ds);
    if (own) {
        remark_left_out(t, ds);
        remark_missing(cfg, t, ds);
    }
    if (r->without > 0)
        pp_dataset_remark(ds, "%s: %d row%s left out, which lack%s the label or target",
                          r->t->csv.path, r->without, r->without == 1 ? " is" : "s are",
                          r->without == 1 ? "s" : "");
    if (!own && r->t->filled > 0 && !cfg->data.split)
        pp_dataset_remark(ds, "%s: %lld missing cells", r->t->csv.path, (long long)r->t->filled);
    if (r->t->unknown > 0)
        pp_dataset_remark(ds,
                          "%s: %lld cell%s hold%s a word that no training row has, such as '%s' in "
                          "'%.40s': none of the kinds",
                          r->t->csv.path, (long long)r->t->unknown, pp_plural((int)r->t->unknown),
                          r->t->unknown == 1 ? "s" : "", r->t->word,
                          r->t->p->columns[r->t->word_column].name);
}

static int open_rows(const struct pp_config *cfg, enum pp_split split, int parts, struct table *t,
                     struct pp_preprocessing *p, struct rows *r, struct pp_dataset *ds)
{
    bool one_file = split == PP_SPLIT_TRAIN || cfg->data.split > 0;
    const char *path = one_file ? cfg->data.train_file : cfg->data.test_file;
    bool keeps_x = parts & PP_DATA_IMAGES;
    PP_TRY(describe(cfg, t, ds));
    PP_TRY(pp_preprocessing_parse(path, ds->preprocessing, p));
    PP_TRY(one_file ? begin_rows(p, t, &r->t) : pp_new_table_open(p, path, &r->t));
    r->checks = !one_file;
    PP_TRY(check_outputs(cfg, r->t));
    PP_TRY(make_room(r, keeps_x));
    r->numeric = t->label >= 0 && t->of[t->label].words == 0;
    PP_TRY(read_rows(cfg, split, r));
    ds->n = r->n;
    ds->shape = pp_shape_flat(p->n_inputs);
    ds->element = PP_F32;
    ds->scale = 1.0f;
    if (keeps_x) {
        ds->images = (uint8_t *)r->x;
        r->x = NULL;
        ds->images_crc =
            (uint32_t)crc32_z(0, ds->images, (size_t)ds->n * (size_t)p->n_inputs * sizeof(float));
    }
    PP_TRY(name_inputs(p, ds));
    uint32_t most_label = 0;
    for (int i = 0; r->labels && i < r->n; i++)
        most_label = r->labels[i] > most_label ? r->labels[i] : most_label;
    if (split == PP_SPLIT_TRAIN)
        PP_TRY(check_first_column(t, (int)most_label, ds));
    if (p->n_targets > 0)
        keep_targets(r, ds);
    else
        PP_TRY(keep_labels(r, split, ds));
    remark_table(cfg, t, r, split, ds);
    return pp_path_format(ds->origin, "%s", path);
}

static int open_csv(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                    enum pp_split split, int parts, const struct pp_shape *model_input,
                    int model_classes, struct pp_dataset *ds)
{
    PP_OWN(table_close) struct table t = {0};
    PP_OWN(pp_preprocessing_fini) struct pp_preprocessing p = {0};
    PP_OWN(rows_fini) struct rows r = {0};
    int most = pp_samples_max(cfg, split);
    PP_TRY(open_rows(cfg, split, parts, &t, &p, &r, ds));
    ds->n = most > 0 && most < ds->n ? most : ds->n;
    return 0;
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

extern const struct pp_dataset_ops dataset_csv;

const struct pp_dataset_ops dataset_csv = {
    .info = {.name = "csv",
             .help = "your own tables, as data.train_file and data.test_file name "
                     "them; data.label is the column of the label",
             .element = PP_F32},
    .keys = PP_KEYS_TABLES,
    .describes = true,
    .open = open_csv,
};
