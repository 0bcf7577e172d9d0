/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of rows that every search fills. Here, and only here, it is decided which of two rows is
 * better, when two rows are the same, and what becomes of a row that holds too much.
 */
#include "search.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

/* ---- which row is better */

/* Returns the logarithm of a time, rounded to thousandths: times with the same result count as
 * equal. */
static long long round_step(double step)
{
    return step > 0 ? llround(log(step) * 1000) : LLONG_MIN;
}

static int compare_columns(const long long (*columns)[2], size_t n)
{
    size_t k = 0;
    while (k + 1 < n && columns[k][0] == columns[k][1])
        k++;
    return (columns[k][0] > columns[k][1]) - (columns[k][0] < columns[k][1]);
}

static int count_threads(const struct pp_row *c)
{
    return c->d.tensor * c->d.context * c->d.stages * c->d.replicas * c->d.threads;
}

/* Compares what two rows cost a user. Returns a negative number if x costs less, a positive one if
 * y does. */
static int compare_prices(const struct pp_row *x, const struct pp_row *y)
{
    const long long columns[][2] = {
        {x->over, y->over},
        {round_step(x->time.step), round_step(y->time.step)},
        {count_threads(x), count_threads(y)},
        {x->d.zero, y->d.zero}, /* less of it needs fewer messages */
        {(long long)x->peak_bytes, (long long)y->peak_bytes},
    };
    return compare_columns(columns, sizeof(columns) / sizeof(columns[0]));
}

int rows_compare(const void *a, const void *b)
{
    const struct pp_row *x = a, *y = b;
    int price = compare_prices(x, y);
    const long long columns[][2] = {
        {price, 0},
        {x->d.stages, y->d.stages},
        {x->d.replicas, y->d.replicas},
        {x->d.threads, y->d.threads},
        {x->d.chunks, y->d.chunks},
        {x->d.microbatches, y->d.microbatches},
        {x->order, y->order},
        {x->timed, y->timed},
    };
    return compare_columns(columns, sizeof(columns) / sizeof(columns[0]));
}

void rows_sort(struct pp_rows *rows)
{
    if (rows->n > 1)
        qsort(rows->items, (size_t)rows->n, sizeof(*rows->items), rows_compare);
}

/* ---- which rows are the same */

bool pp_best_is(const struct pp_row *c, int stages, int replicas, int threads)
{
    return c->d.stages == stages && c->d.replicas == replicas && c->d.threads == threads;
}

bool rows_are_one_plan(const struct pp_row *x, const struct pp_row *y)
{
    return x->identity == y->identity && pp_best_is(x, y->d.stages, y->d.replicas, y->d.threads);
}

bool rows_take_as_long(const struct pp_row *x, const struct pp_row *y)
{
    return x->d.stages == y->d.stages && x->d.microbatches == y->d.microbatches &&
           round_step(x->time.step) == round_step(y->time.step);
}

bool rows_are_one_kind(const struct pp_row *x, const struct pp_row *y)
{
    const struct pp_division *a = &x->d, *b = &y->d;
    return a->tensor == b->tensor && a->stages == b->stages && a->context == b->context &&
           a->expert == b->expert && (a->chunks > 1) == (b->chunks > 1) && a->redo == b->redo &&
           a->zero == b->zero && a->schedule == b->schedule;
}

bool rows_are_priced_alike(const struct pp_row *x, const struct pp_row *y)
{
    return x->d.stages == y->d.stages && x->d.chunks == y->d.chunks &&
           x->d.microbatches == y->d.microbatches && x->timed == y->timed &&
           x->time.step == y->time.step && x->peak_bytes == y->peak_bytes;
}

/* Returns whether `name` is in a list such as "gpipe, naive". */
static bool has_name(const char *list, const char *name)
{
    size_t n = strlen(name);
    while (strncmp(list, name, n) != 0 || (list[n] != ',' && list[n] != '\0')) {
        list = strchr(list, ' ');
        if (!list++)
            return false;
    }
    return true;
}

static void note_name(struct pp_row *row, const struct pp_division *d)
{
    const char *name = pp_division_schedule(d);
    if (row->d.schedule != d->schedule && !has_name(row->also, name))
        pp_text_add(row->also, sizeof(row->also), "%s%s", row->also[0] ? ", " : "", name);
}

/* ---- the list */

int rows_add(struct pp_rows *rows, const struct pp_row *row, rows_same *are_same)
{
    if (row->over && !rows->keeps_large) {
        if (rows->smallest.d.stages == 0 || row->peak_bytes < rows->smallest.peak_bytes)
            rows->smallest = *row;
        rows->too_large++;
        return 0;
    }
    for (int i = 0; are_same && i < rows->n; i++) {
        struct pp_row *known = &rows->items[i];
        if (!are_same(known, row))
            continue;
        rows->same++;
        if (compare_prices(row, known) < 0)
            *known = *row;
        else
            note_name(known, &row->d);
        return 0;
    }
    PP_RESERVE(rows->items, rows->n, rows->room);
    rows->items[rows->n++] = *row;
    return 0;
}

void pp_rows_fini(struct pp_rows *best)
{
    pp_free(best->items);
    *best = (struct pp_rows){0};
}
