/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds what the columns of a table are: the header, the label or the targets, and of every other
 * column whether it holds numbers, a few kinds of words, many, or dates. Means, deviations and kinds
 * come from the training part alone, so that nothing of the test set is learned.
 */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ppcli/base/base.h"
#include "csv.h"

#define NUMBERED_MIN 8     /* columns of a header 0,1,2,... */
#define CLASSES_MAX 65536  /* names of classes */
#define RECURRING_ROWS 100 /* rows in which the cells of a first row of words may recur */
#define RARE 10            /* a column of numbers has fewer words than one in so many cells */

/* ---- names */

bool table_next_name(const char **list, char *out)
{
    const char *p = *list + strspn(*list, ", \t");
    size_t n = 0;
    bool quoted = *p == '"';
    if (!*p)
        return false;
    for (p += quoted; *p && (quoted ? *p != '"' : *p != ',') && n < PP_TEXT_MAX - 1; p++)
        out[n++] = *p;
    while (!quoted && n > 0 && (out[n - 1] == ' ' || out[n - 1] == '\t'))
        n--;
    out[n] = '\0';
    *list = p + (*p != '\0');
    return true;
}

static bool matches_name(const char *name, const struct table_column *c)
{
    return strcmp(name, c->name) == 0 || fnmatch(name, c->name, 0) == 0;
}

static int fail_name(const struct table *t, const char *key, const char *name)
{
    char names[200] = "";
    for (int i = 0; i < t->n && strlen(names) < 150; i++)
        pp_text_add(names, sizeof(names), "%s%.40s", i > 0 ? ", " : "", t->of[i].name);
    return pp_fail(PP_ECONFIG, "%s: %s has no column '%.60s'; its columns are %s%s", key,
                   t->csv.path, name, names, strlen(names) < 150 ? "" : ", ...");
}

/* Sets marks[n] where a column has one of the names of a list. */
static int mark_columns(const struct table *t, const char *key, const char *list, bool *marks)
{
    PP_TAKE(char, name, PP_TEXT_MAX);
    while (table_next_name(&list, name)) {
        bool found = false;
        for (int i = 0; i < t->n; i++) {
            bool fits = matches_name(name, &t->of[i]);
            marks[i] |= fits;
            found |= fits;
        }
        PP_TRY(found ? 0 : fail_name(t, key, name));
    }
    return 0;
}

/* ---- the header */

static bool is_number(struct csv *c, const char *cell)
{
    double ignored;
    return csv_number(c, cell, &ignored);
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
static int check_numbered(const struct csv *c, int columns, bool *out_header)
{
    size_t n = strcspn(c->at, "\n");
    *out_header = memchr(c->at, '.', n) || columns >= NUMBERED_MIN;
    if (*out_header || columns < 3)
        return 0;
    return pp_fail(PP_EFORMAT,
                   "%s:%d: 0 to %d: a sample, or a header as pandas writes it? Save the table "
                   "without one (header=False) or with names; a sample may stand in another line",
                   c->path, c->line, columns - 1);
}

/* Copies the cells of the current row. */
static int copy_cells(const struct csv *c, char ***out)
{
    char **cells;
    PP_ALLOC(cells, c->n_cells + 1);
    *out = cells;
    for (int i = 0; i < c->n_cells; i++) {
        cells[i] = pp_strdup(c->cells[i]);
        if (!cells[i])
            return PP_ERESOURCE;
    }
    return 0;
}

static void free_cells(char **cells, int n)
{
    for (int i = 0; cells && i < n; i++)
        pp_free(cells[i]);
    pp_free(cells);
}

/* Decides from the first row and the one after it, which is the current one, whether the first is a
 * header. Numbers stand in a header only as 0,1,2,... or as years in a row; a row may begin with words too, but then the
 * next one has words in the same columns. */
static int find_header(struct csv *c, int line, char **first, int n, bool numbered, bool *out)
{
    int numbers = 0, over = -1, same = 0, words_below = 0;
    bool years = true;
    double year = 0, v = 0;
    for (int i = 0; i < n; i++) {
        bool number = csv_number(c, first[i], &v), word = !number && first[i][0];
        years = years &&
                (!number || (v >= 1800 && v <= 2200 && (numbers == 0 || fabs(v - year - 1) < 0.5)));
        year = number ? v : year;
        bool word_below = i < c->n_cells && c->cells[i][0] && !is_number(c, c->cells[i]) &&
                          !csv_is_missing(c->cells[i]);
        numbers += number;
        words_below += word_below;
        over = word && i < c->n_cells && is_number(c, c->cells[i]) ? i : over;
        for (int k = 0; k < i && word; k++)
            same += strcmp(first[i], first[k]) == 0;
    }
    /* A table of words alone has a header unless a name would stand there twice. */
    *out = numbered || (years && numbers > 1 && numbers < n) ||
           (numbers == 0 && !(same > 0 && over < 0 && words_below > 0));
    if (*out || numbers == 0 || over < 0 || c->n_cells == 0)
        return 0;
    for (int i = 0; i < n; i++) {
        if (first[i][0] && !is_number(c, first[i]) && !csv_is_missing(first[i]))
            return pp_fail(PP_EFORMAT,
                           "%s:%d: column %d is '%.40s', expected a number, as others in this line "
                           "are; a header has names alone",
                           c->path, line, i + 1, first[i]);
    }
    return 0;
}

static int add_columns(struct table *t, char **names, int n, bool unnamed_first)
{
    PP_ALLOC(t->of, n + unnamed_first);
    t->n = n + unnamed_first;
    for (int i = 0; i < t->n; i++) {
        struct table_column *c = &t->of[i];
        char number[16];
        snprintf(number, sizeof(number), "%d", i + 1);
        const char *name = !t->has_header            ? number
                           : unnamed_first && i == 0 ? ""
                                                     : names[i - unnamed_first];
        c->name = pp_strdup(name);
        if (!c->name)
            return PP_ERESOURCE;
        for (int k = 0; k < i; k++)
            c->nth += strcmp(t->of[k].name, c->name) == 0;
    }
    return 0;
}

/* Returns whether most cells of the first row recur in their columns, as values do and names do not. */
static int find_recurring(struct csv *c, char **first, int n, bool *out)
{
    PP_TAKE(bool, found, n);
    int recurring = 0;
    for (int row = 0; row < RECURRING_ROWS; row++) {
        PP_TRY(csv_next(c));
        for (int i = 0; i < n && i < c->n_cells; i++) {
            bool same = !found[i] && first[i][0] && strcmp(first[i], c->cells[i]) == 0;
            found[i] |= same;
            recurring += same;
        }
    }
    *out = 2 * recurring > n;
    return 0;
}

/* Finds the header, and the columns with names. */
static int read_header(struct table *t)
{
    struct csv *c = &t->csv;
    const char *start = c->at;
    const int start_line = c->next_line;
    char **first = NULL;
    PP_TRY(csv_next(c));
    int n = c->n_cells, names = 0, counted = 0, all = n;
    if (n == 0)
        return pp_fail(PP_EFORMAT, "%s: no rows", c->path);
    const int header_line = c->line;
    int rc = copy_cells(c, &first);
    while (rc == 0 && n > 1 && !first[n - 1][0])
        n--; /* spreadsheets write columns that once had something */
    for (int i = 0; rc == 0 && i < n; i++) {
        bool name = !is_number(c, first[i]);
        names += name;
        counted += !name && is_count(first[i], i - names);
    }
    bool numbered = counted >= 2 && counted + names == n;
    rc = rc == 0 && numbered && names == 0 ? check_numbered(c, n, &numbered) : rc;
    const char *second = c->at;
    const int second_line = c->next_line;
    rc = rc == 0 ? csv_next(c) : rc;
    rc = rc == 0 ? find_header(c, header_line, first, n, numbered && n > 1, &t->has_header) : rc;
    int width = c->n_cells; /* of the second row */
    bool has_tail = width == all && all > 0 && c->cells[all - 1][0];
    bool has_more = width == n + 1 && c->cells[n][0], recurs = false;
    if (rc == 0 && t->has_header && names == n && width > 0)
        rc = find_recurring(c, first, n, &recurs);
    t->has_header = t->has_header && !recurs;
    /* R writes the names of rows without a name for their column. */
    bool unnamed = t->has_header && all == n && has_more;
    if (rc == 0 && n < all && has_tail)
        n = all; /* only the first row lacks its last cell */
    rc = rc == 0 ? add_columns(t, first, n, unnamed) : rc;
    free_cells(first, all);
    c->at = t->first_row = t->has_header ? second : start;
    c->next_line = t->first_line = t->has_header ? second_line : start_line;
    if (rc == 0 && t->n < 2)
        return pp_fail(PP_EFORMAT,
                       "%s:%d: one column; expected values and a label, separated by commas, "
                       "semicolons or tabs",
                       c->path, header_line);
    return rc;
}

int table_open(const char *path, struct table *t)
{
    *t = (struct table){.label = -1};
    PP_TRY(csv_open(path, &t->csv));
    return read_header(t);
}

static void free_kinds(struct kinds *k)
{
    free_cells(k->of, k->n);
    *k = (struct kinds){0};
}

void table_close(struct table *t)
{
    for (int i = 0; i < t->n; i++) {
        pp_free(t->of[i].name);
        free_kinds(&t->of[i].kinds);
    }
    pp_free(t->of);
    pp_free(t->targets);
    csv_close(&t->csv);
    *t = (struct table){.label = -1};
}

int table_rewind(struct table *t)
{
    t->csv.at = t->first_row;
    t->csv.next_line = t->first_line;
    return 0;
}

int table_next(struct table *t)
{
    struct csv *c = &t->csv;
    PP_TRY(csv_next(c));
    while (c->n_cells > t->n && !c->cells[c->n_cells - 1][0])
        c->n_cells--;
    return c->n_cells == 0 || c->n_cells == t->n
               ? 0
               : pp_fail(PP_EFORMAT, "%s:%d: %d cell%s, expected %d", c->path, c->line, c->n_cells,
                         pp_plural(c->n_cells), t->n);
}

/* ---- the label and the inputs */

/* Refuses a header that names another column as the label than data.label, which is not set. */
static int check_label(const struct table *t)
{
    static const char *const labels[] = {"label", "labels", "class", "target"};
    bool told = false;
    int other = -1;
    for (int i = 0; i < t->n; i++) {
        for (size_t k = 0; k < sizeof(labels) / sizeof(labels[0]); k++) {
            if (strcasecmp(t->of[i].name, labels[k]) == 0) {
                told |= i == t->label;
                other = i == t->label ? other : i;
            }
        }
    }
    if (told || other < 0)
        return 0;
    return pp_fail(PP_ECONFIG,
                   "data.label: column %d of %s is called '%.40s', but the label would be column "
                   "%d, '%.40s'; use data.label = %.40s, or the name of the one that it is",
                   other + 1, t->csv.path, t->of[other].name, t->label + 1, t->of[t->label].name,
                   t->of[other].name);
}

static int find_label(struct table *t, const char *label)
{
    int same = 0;
    if (strcmp(label, "last") == 0) {
        t->label = t->n - 1;
        return t->has_header ? check_label(t) : 0;
    }
    if (strcmp(label, "first") == 0) {
        t->label = 0;
        return 0;
    }
    for (int i = 0; i < t->n; i++) {
        bool is = strcmp(t->of[i].name, label) == 0;
        same += is;
        t->label = is && t->label < 0 ? i : t->label;
    }
    if (t->label < 0)
        return pp_fail(PP_ECONFIG, "data.label: the first line of %s has no column '%s'%s",
                       t->csv.path, label,
                       t->has_header ? "" : ", it is a row; use first, last or a column's number");
    return same < 2 ? 0
                    : pp_fail(PP_ECONFIG,
                              "data.label: %d columns of %s are called '%s'; rename the others",
                              same, t->csv.path, label);
}

static int find_targets(const struct pp_config *cfg, struct table *t, bool *marks)
{
    const char *list = cfg->data.target;
    if (strcmp(list, "last") == 0 || strcmp(list, "first") == 0)
        marks[list[0] == 'l' ? t->n - 1 : 0] = true;
    else
        PP_TRY(mark_columns(t, "data.target", list, marks));
    PP_ALLOC(t->targets, t->n);
    for (int i = 0; i < t->n; i++) {
        if (marks[i])
            t->targets[t->n_targets++] = i;
        if (marks[i] && t->of[i].nth > 0)
            return pp_fail(PP_ECONFIG,
                           "data.target: %d columns of %s are called '%.60s'; rename the others",
                           t->of[i].nth + 1, t->csv.path, t->of[i].name);
    }
    return 0;
}

static int check_loss(const struct pp_config *cfg, const struct table *t)
{
    bool numbers = pp_loss_takes_numbers(cfg->train.loss), named = cfg->data.target[0] != '\0';
    if (numbers && !named)
        return pp_fail(PP_ECONFIG,
                       "data.target: this train.loss takes numbers; name the columns to predict, "
                       "such as data.target = %.60s",
                       t->has_header ? t->of[t->n - 1].name : "last");
    if (named && !numbers)
        return pp_fail(PP_ECONFIG,
                       "data.target: numbers need train.loss = mse, mae, huber or bce; a column of "
                       "classes is named by data.label instead");
    return 0;
}

int table_choose(const struct pp_config *cfg, struct table *t)
{
    const char *columns = cfg->data.columns;
    PP_TAKE(bool, used, t->n);
    PP_TAKE(bool, dropped, t->n);
    PP_TAKE(bool, outputs, t->n);
    PP_TRY(check_loss(cfg, t));
    if (cfg->data.target[0])
        PP_TRY(find_targets(cfg, t, outputs));
    else
        PP_TRY(find_label(t, cfg->data.label));
    if (t->label >= 0)
        outputs[t->label] = true;
    PP_TRY(mark_columns(t, "data.columns", columns, used));
    PP_TRY(mark_columns(t, "data.drop", cfg->data.drop, dropped));
    for (int i = 0; i < t->n; i++) {
        struct table_column *c = &t->of[i];
        bool unnamed = t->has_header && (!c->name[0] || strncmp(c->name, "Unnamed: ", 9) == 0);
        c->is_output = outputs[i];
        c->is_input =
            !outputs[i] && !dropped[i] && (!columns[0] || used[i]) && !(unnamed && i == 0);
        if (c->is_output && dropped[i])
            return pp_fail(PP_ECONFIG, "data.drop: names '%.60s', which is what is predicted",
                           c->name);
    }
    return 0;
}

/* ---- measuring */

static bool is_in_training(const struct pp_config *cfg, const struct csv *c)
{
    return !cfg || !pp_split_is_test(cfg, c->row, c->row_bytes);
}

/* Returns whether the cell looks like a date or a time of day. */
static bool is_date(const char *cell)
{
    size_t a = strspn(cell, "0123456789"), b, d;
    const char mark = cell[a], *p = cell + a + 1;
    if (a < 1 || a > 4 || !mark || !strchr("-/.:", mark))
        return false;
    b = strspn(p, "0123456789");
    if (mark == ':')
        return a <= 2 && b == 2 && (p[2] == '\0' || p[2] == ':');
    if (b < 1 || b > 2 || p[b] != mark)
        return false;
    d = strspn(p + b + 1, "0123456789");
    return d >= 1 && d <= 4 && strchr(" T", p[b + 1 + d]);
}

static void note_number(struct table_column *c, const struct csv *csv, double v, bool training,
                        int row)
{
    if (!isfinite((float)v) && !c->infinite) {
        c->infinite = true;
        c->odd_line = csv->line;
    }
    c->least = c->numbers == 0 || v < c->least ? v : c->least;
    c->most = c->numbers == 0 || v > c->most ? v : c->most;
    c->begins = row == 0 ? v : c->begins;
    c->whole = (c->numbers == 0 || c->whole) && v <= floor(v);
    c->counts =
        (row == 0 || c->counts) && c->whole && c->begins >= 0 && fabs(v - c->begins - row) < 0.5;
    c->numbers++;
    if (training) {
        double d = v - c->mean;
        c->mean += d / (double)++c->measured;
        c->squares += d * (v - c->mean);
    }
}

static void note_cell(struct table *t, int i, bool training, int row)
{
    struct table_column *c = &t->of[i];
    const char *cell = t->csv.cells[i];
    double v;
    if (csv_number(&t->csv, cell, &v)) {
        bool finite = !c->infinite;
        note_number(c, &t->csv, v, training, row);
        if (finite && c->infinite)
            snprintf(c->odd, sizeof(c->odd), "%.38s", cell);
    } else if (csv_is_missing(cell)) {
        if (c->missing++ == 0) {
            c->missing_line = t->csv.line;
            snprintf(c->missing_cell, sizeof(c->missing_cell), "%.6s", cell);
        }
        c->counts = false;
    } else {
        if (c->words++ == 0 && !c->infinite) {
            snprintf(c->odd, sizeof(c->odd), "%.38s", cell);
            c->odd_line = t->csv.line;
        }
        c->dates += is_date(cell);
        c->counts = false;
    }
}

double table_deviation(const struct table_column *c)
{
    double v = c->measured > 0 ? sqrt(c->squares / (double)c->measured) : 0;
    return v > 0 && isfinite(v) ? v : 1;
}

static enum column_kind find_kind(const struct table_column *c)
{
    if (c->numbers + c->words == 0)
        return COLUMN_EMPTY;
    if (c->words == 0)
        return COLUMN_NUMBER;
    return c->dates * 10 >= c->words * 9 && c->numbers == 0 ? COLUMN_DATE : COLUMN_CATEGORY;
}

int table_measure(const struct pp_config *cfg, struct table *t)
{
    int64_t training = 0;
    PP_TRY(table_rewind(t));
    for (t->rows = 0;; t->rows++) {
        PP_TRY(table_next(t));
        if (t->csv.n_cells == 0)
            break;
        bool trains = is_in_training(cfg, &t->csv);
        training += trains;
        for (int i = 0; i < t->n; i++)
            note_cell(t, i, trains, t->rows);
    }
    if (t->rows == 0)
        return pp_fail(PP_EFORMAT, "%s: no rows", t->csv.path);
    if (cfg && cfg->data.split > 0 && (training == 0 || training == t->rows))
        return pp_fail(PP_ECONFIG,
                       "data.split: %g of the %d row%s of %s leaves no %s row; use another share, "
                       "or data.test_file",
                       cfg->data.split, t->rows, pp_plural(t->rows), t->csv.path,
                       training == 0 ? "training" : "test");
    for (int i = 0; i < t->n; i++)
        t->of[i].kind = find_kind(&t->of[i]);
    return 0;
}

/* ---- kinds */

static int compare_kinds(bool numeric, const char *a, const char *b)
{
    double x = numeric ? strtod(a, NULL) : 0, y = numeric ? strtod(b, NULL) : 0;
    return x < y ? -1 : x > y ? 1 : strcmp(a, b);
}

/* Returns the place of a kind, or, if it is not there, where it belongs. */
static int find_place(const struct kinds *k, const char *cell, bool *out_there)
{
    int from = 0, to = k->n;
    *out_there = false;
    while (from < to) {
        int middle = from + (to - from) / 2, c = compare_kinds(k->numeric, k->of[middle], cell);
        if (c == 0) {
            *out_there = true;
            return middle;
        }
        if (c < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static int add_kind(struct kinds *k, const char *cell)
{
    bool there;
    int i = find_place(k, cell, &there);
    if (there)
        return 0;
    if (k->n % 64 == 0) {
        char **larger = pp_realloc(k->of, (size_t)k->n + 64, sizeof(*larger));
        if (!larger)
            return PP_ERESOURCE;
        k->of = larger;
    }
    char *name = pp_strdup(cell);
    if (!name)
        return PP_ERESOURCE;
    memmove(k->of + i + 1, k->of + i, (size_t)(k->n - i) * sizeof(*k->of));
    k->of[i] = name;
    k->n++;
    return 0;
}

/* Adds the cell of a column to its kinds, if it has one more than the limit at most. */
static int collect_cell(struct table *t, int i, int n_max)
{
    struct kinds *k = &t->of[i].kinds;
    const char *cell = t->csv.cells[i];
    char text[64];
    double v;
    if (k->n > (i == t->label ? CLASSES_MAX : n_max) || csv_is_missing(cell))
        return 0;
    if (k->numeric && csv_number(&t->csv, cell, &v)) {
        snprintf(text, sizeof(text), "%.15g", v);
        cell = text;
    }
    return add_kind(k, cell);
}

int table_collect(const struct pp_config *cfg, struct table *t, const bool *columns, int n_max)
{
    bool any = false;
    for (int i = 0; i < t->n; i++) {
        free_kinds(&t->of[i].kinds);
        t->of[i].kinds.numeric = t->of[i].words == 0;
        any |= columns[i];
    }
    PP_TRY(table_rewind(t));
    while (any) {
        PP_TRY(table_next(t));
        if (t->csv.n_cells == 0)
            break;
        bool trains = is_in_training(cfg, &t->csv);
        for (int i = 0; i < t->n; i++)
            if (columns[i] && (trains || i == t->label))
                PP_TRY(collect_cell(t, i, n_max));
    }
    return 0;
}

/* ---- decisions */

int table_refuse(const struct table *t, int line, int i, const char *cell, const char *why)
{
    const struct table_column *c = &t->of[i];
    bool named = t->has_header && c->name[0] && i != t->label;
    return pp_fail(PP_EFORMAT, "%s:%d: column %d%s%.40s%s is %s%.40s%s%s", t->csv.path, line, i + 1,
                   i == t->label ? " (the label)"
                   : named       ? " ('"
                                 : "",
                   named ? c->name : "", named ? "')" : "", cell[0] ? "'" : "missing", cell,
                   cell[0] ? "', " : "; ", why);
}

static int check_missing(const struct pp_config *cfg, const struct table *t, int i)
{
    const struct table_column *c = &t->of[i];
    if (c->missing == 0 || cfg->data.missing != PP_MISSING_STOP)
        return 0;
    return table_refuse(t, c->missing_line, i, c->missing_cell,
                        c->missing_cell[0]
                            ? "which says that it is missing; data.missing = mean or category "
                              "reads such cells, data.drop leaves the column out"
                            : "data.missing = mean or category reads such cells, data.drop leaves "
                              "the column out");
}

/* Refuses words in a column of numbers, and dates. */
static int check_input(const struct pp_config *cfg, const struct table *t, int i)
{
    const struct table_column *c = &t->of[i];
    if (c->infinite)
        return table_refuse(t, c->odd_line, i, c->odd, "which is not finite");
    PP_TRY(check_missing(cfg, t, i));
    if (c->kind == COLUMN_DATE)
        return table_refuse(t, c->odd_line, i, c->odd,
                            "a date or time as text; leave the column out with data.drop, or write "
                            "it as a number, such as days");
    if (c->words > 0 && c->numbers > 0 && (c->words == 1 || c->words * RARE < c->numbers))
        return table_refuse(t, c->odd_line, i, c->odd,
                            "expected a number, as most cells of the column are; correct it, make "
                            "it empty (data.missing), or leave the column out with data.drop");
    return 0;
}

static int check_unnamed(const struct table *t, int i)
{
    return t->has_header && !t->of[i].name[0]
               ? pp_fail(PP_EFORMAT, "%s:%d: column %d has no name; give it one", t->csv.path,
                         t->first_line - 1, i + 1)
               : 0;
}

static bool changes_columns(const struct pp_config *cfg)
{
    return cfg->data.target[0] || cfg->data.columns[0] || cfg->data.drop[0] ||
           cfg->data.missing != PP_MISSING_STOP || cfg->data.scale != PP_SCALE_NONE ||
           cfg->data.split > 0;
}

static int decide_label(const struct pp_config *cfg, struct table *t)
{
    struct table_column *c = &t->of[t->label];
    bool is_byte = c->words == 0 && c->whole && c->least >= 0 && c->most <= 255;
    PP_TRY(check_missing(cfg, t, t->label));
    if (c->infinite || (c->words == 1 && c->numbers > 0))
        return table_refuse(t, c->odd_line, t->label, c->odd,
                            c->infinite ? "which is not finite"
                                        : "expected a whole number, as in the other rows");
    t->plain = is_byte && !changes_columns(cfg);
    if (t->plain)
        return 0;
    if (c->words == 0 && c->numbers > 0 && !c->whole)
        return pp_fail(PP_EFORMAT,
                       "%s: the label, column %d, holds numbers that are not whole (%.6g to %.6g), "
                       "so they are not classes; to predict numbers write data.target = %.60s and "
                       "train.loss = mse",
                       t->csv.path, t->label + 1, c->least, c->most,
                       t->has_header   ? c->name
                       : t->label == 0 ? "first"
                                       : "last");
    return 0;
}

static int check_classes(const struct table *t)
{
    const struct table_column *c = &t->of[t->label];
    if (c->kinds.n <= CLASSES_MAX && (c->kinds.n < t->rows || t->rows <= 20))
        return 0;
    return pp_fail(PP_EFORMAT,
                   "%s: the label, column %d%s%.40s%s, has another value in every row; name the "
                   "column of the classes with data.label",
                   t->csv.path, t->label + 1, t->has_header ? " ('" : "",
                   t->has_header ? c->name : "", t->has_header ? "')" : "");
}

static int decide_target(const struct pp_config *cfg, struct table *t, int i)
{
    struct table_column *c = &t->of[i];
    PP_TRY(check_missing(cfg, t, i));
    if (c->infinite)
        return table_refuse(t, c->odd_line, i, c->odd, "which is not finite");
    if (cfg->train.loss == PP_LOSS_BCE)
        return 0; /* words are read row by row */
    if (c->words > 0)
        return table_refuse(t, c->odd_line, i, c->odd,
                            "expected a number to predict; classes are named by data.label, with "
                            "train.loss = cross_entropy");
    return c->numbers > 0 ? 0
                          : pp_fail(PP_EFORMAT, "%s: column '%.60s' to predict is empty",
                                    t->csv.path, c->name);
}

int table_decide(const struct pp_config *cfg, struct table *t)
{
    for (int i = 0; i < t->n; i++) {
        struct table_column *c = &t->of[i];
        if (c->kind == COLUMN_EMPTY && c->is_input) {
            c->is_input = false;
            continue;
        }
        PP_TRY(c->is_input ? check_unnamed(t, i) : 0);
        PP_TRY(c->is_input ? check_input(cfg, t, i) : 0);
    }
    PP_TRY(t->label >= 0 ? decide_label(cfg, t) : 0);
    for (int i = 0; i < t->n_targets; i++)
        PP_TRY(decide_target(cfg, t, t->targets[i]));
    PP_TAKE(bool, columns, t->n);
    for (int i = 0; i < t->n; i++)
        columns[i] =
            i == t->label ? !t->plain : t->of[i].is_input && t->of[i].kind == COLUMN_CATEGORY;
    PP_TRY(table_collect(cfg, t, columns, KINDS_MAX));
    for (int i = 0; i < t->n; i++) {
        struct table_column *c = &t->of[i];
        bool too_many = c->is_input && c->kinds.n > KINDS_MAX;
        c->kind = too_many ? COLUMN_TEXT : c->kind;
        c->is_input = c->is_input && !too_many;
    }
    return t->label >= 0 && !t->plain ? check_classes(t) : 0;
}
