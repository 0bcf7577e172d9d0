/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of elementwise steps. They run block by block: a register is a piece of a block, and a
 * step is one loop over it, which the compiler vectorizes. An input that lies in memory as the block
 * has it is read there, and a step whose result is stored so writes there. All others are copied row
 * by row; a row is the part of a block along the last axis.
 */
#include "kernels.h"

#include <string.h>

#include "../expr.h"
#include "activations.h"
#include "ppcli/conf/config.h"

#define GAP 16 /* between registers, so that they do not share sets of the cache */

struct block {
    const struct pp_expr_run *a;
    size_t sample;
    int last;                             /* axis of the rows */
    int from[PP_AXES], count[PP_AXES], n; /* its indices, and its elements */
    bool sums[PP_EXPR_OUTPUTS];           /* the output adds up over an axis */
    float *at[PP_EXPR_REGISTERS];         /* where a register is: in memory or in `own` */
    float (*own)[EXPR_BLOCK + GAP];
};

/* ---- rows */

/* The rows of a block in an array. */
struct walk {
    const struct pp_expr_array *v;
    const int32_t *tables;
    int index[PP_AXES]; /* from the start of the block */
    ptrdiff_t at;       /* element of the sample; without the last axis if that has a table */
};

static struct walk begin_walk(const struct block *k, const struct pp_expr_array *v)
{
    struct walk w = {.v = v, .tables = k->a->tables, .at = (ptrdiff_t)v->offset};
    for (int i = 0; i <= k->last; i++)
        if (i < k->last || i != v->table_axis)
            w.at += expr_offset(v, w.tables, i, k->from[i]);
    return w;
}

static void next_row(const struct block *k, struct walk *w)
{
    for (int i = k->last - 1; i >= 0; i--) {
        int from = k->from[i], here = from + w->index[i];
        bool more = ++w->index[i] < k->count[i];
        w->index[i] = more ? w->index[i] : 0;
        w->at += expr_offset(w->v, w->tables, i, more ? here + 1 : from) -
                 expr_offset(w->v, w->tables, i, here);
        if (more)
            return;
    }
}

/* Returns the table of the last axis, from the block's first index on; NULL: it has none. */
static const int32_t *row_table(const struct block *k, const struct pp_expr_array *v)
{
    return v->table_axis == k->last ? k->a->tables + v->table + k->from[k->last] : NULL;
}

/* Returns whether the block's elements are neighbours in the array, in order. */
static bool is_dense(const struct block *k, const struct pp_expr_array *v)
{
    long long run = 1;
    for (int i = k->last; i >= 0; i--) {
        if (k->count[i] > 1 && v->stride[i] != run)
            return false;
        run *= k->count[i];
    }
    return v->table_axis < 0;
}

static const float *input_of(const struct block *k, int i)
{
    return k->a->x[i] + k->sample * k->a->e->in[i].sample;
}

static float *output_of(const struct block *k, int i)
{
    return k->a->y[i] + k->sample * k->a->e->out[i].sample;
}

static void load_row(int n, const float *restrict x, ptrdiff_t stride, const int32_t *table,
                     float *restrict to)
{
    if (table)
        for (int i = 0; i < n; i++)
            to[i] = x[table[i] * stride];
    else if (stride == 1)
        memcpy(to, x, (size_t)n * sizeof(*to));
    else if (stride == 0)
        for (int i = 0; i < n; i++)
            to[i] = x[0];
    else
        for (int i = 0; i < n; i++)
            to[i] = x[i * stride];
}

static void load_rows(const struct block *k, const struct pp_expr_array *v, const float *x,
                      float *to)
{
    struct walk w = begin_walk(k, v);
    int n = k->count[k->last];
    const int32_t *table = row_table(k, v);
    for (int done = 0; done < k->n; done += n, next_row(k, &w))
        load_row(n, x + w.at, v->stride[k->last], table, to + done);
}

#define LANES 16

/* Adds up a row: in lanes, and the lanes in double, in order. */
static float sum_row(int n, const float *x)
{
    float lane[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += x[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += x[i];
    double sum = 0;
    for (int l = 0; l < LANES && l < n; l++)
        sum += (double)lane[l];
    return (float)sum;
}

static void store_row(int n, const float *restrict x, bool add, ptrdiff_t stride,
                      const int32_t *table, float *restrict y)
{
    if (table)
        for (int i = 0; i < n; i++)
            y[table[i] * stride] = add ? y[table[i] * stride] + x[i] : x[i];
    else if (stride == 1 && !add)
        memcpy(y, x, (size_t)n * sizeof(*y));
    else if (stride == 1)
        for (int i = 0; i < n; i++)
            y[i] += x[i];
    else
        for (int i = 0; i < n; i++)
            y[i * stride] = add ? y[i * stride] + x[i] : x[i];
}

/* Returns whether the row is the first one that reaches its elements of the output. */
static bool is_first(const struct block *k, const struct walk *w)
{
    bool first = true;
    for (int i = 0; i <= k->last; i++)
        first = first && (w->v->stride[i] != 0 || k->from[i] + w->index[i] == 0);
    return first;
}

static void store_rows(const struct block *k, int output, const float *x)
{
    const struct pp_expr_array *v = &k->a->e->out[output];
    struct walk w = begin_walk(k, v);
    int n = k->count[k->last];
    bool add = k->a->add[output], sums = k->sums[output];
    const int32_t *table = row_table(k, v);
    float *y = output_of(k, output);
    for (int done = 0; done < k->n; done += n, next_row(k, &w)) {
        bool adds = add || (sums && !is_first(k, &w));
        if (expr_sums(k->a->e, v, k->last)) {
            float sum = sum_row(n, x + done);
            y[w.at] = adds ? y[w.at] + sum : sum;
        } else {
            store_row(n, x + done, adds, v->stride[k->last], table, y + w.at);
        }
    }
}

/* ---- steps */

#define LOOP(operands, fast)                                                                       \
    ALONE for (int i = 0; i < n; i++)                                                              \
    {                                                                                              \
        operands;                                                                                  \
        t[i] = fast;                                                                               \
    }
#define STEP_1(fast)                                                                               \
    LOOP(const float a = x[i], fast)                                                               \
    break
#define STEP_2(fast)                                                                               \
    if (!x)                                                                                        \
        LOOP(const float a = number; const float b = y[i], fast)                                   \
    else if (!y)                                                                                   \
        LOOP(const float a = x[i]; const float b = number, fast)                                   \
    else                                                                                           \
        LOOP(const float a = x[i]; const float b = y[i], fast)                                     \
    break
#define STEP_3(fast)                                                                               \
    if (!y)                                                                                        \
        LOOP(const float a = x[i]; const float b = number; const float c = z[i], fast)             \
    else if (!z)                                                                                   \
        LOOP(const float a = x[i]; const float b = y[i]; const float c = number, fast)             \
    else                                                                                           \
        LOOP(const float a = x[i]; const float b = y[i]; const float c = z[i], fast)               \
    break

static void run_activation(int act, int n, const float *x, float *t)
{
    switch (act) {
#define PP_ACTIVATION(NAME, word, ...)                                                             \
    case PP_ACT_##NAME:                                                                            \
        LOOP(, word##_value(x[i]))                                                                 \
        break;
#include "ppcli/conf/activations.def"
    }
}

static void run_activation_back(int act, int n, const float *x, const float *y, float *t)
{
    switch (act) {
#define PP_ACTIVATION(NAME, word, ...)                                                             \
    case PP_ACT_##NAME:                                                                            \
        LOOP(, word##_back(x[i], y[i]))                                                            \
        break;
#include "ppcli/conf/activations.def"
    }
}

/* Computes t[n] of a step from its operands, one of which may be NULL: the number. */
static void run_step(const struct pp_expr_step *s, int n, const float *x, const float *y,
                     const float *z, float *t)
{
    const float number = s->number;
    switch ((enum pp_expr_code)s->code) {
#define PP_EXPR_STEP(NAME, operands, value, fast)                                                  \
    case PP_EXPR_##NAME:                                                                           \
        STEP_##operands(fast);
#include "ppcli/dev/expr.def"
    case PP_EXPR_ACT:
        run_activation(s->which, n, x, t);
        break;
    case PP_EXPR_ACT_BACK:
        run_activation_back(s->which, n, x, y, t);
        break;
    case PP_EXPR_FILL:
        LOOP(, number)
        break;
    case PP_EXPR_LOAD:
    case PP_EXPR_STORE:
        break;
    }
}

/* Returns where in memory the next step stores the result of step s, or NULL if it does not, or not
 * as it is. */
static float *find_target(const struct block *k, const struct pp_expr_step *s)
{
    const struct pp_expr *e = k->a->e;
    const struct pp_expr_step *next = s + 1;
    if (next == e->steps + e->n_steps || next->code != PP_EXPR_STORE || next->a != s->to)
        return NULL;
    const struct pp_expr_array *v = &e->out[next->to];
    if (!k->a->y[next->to] || k->a->add[next->to] || k->sums[next->to] || !is_dense(k, v))
        return NULL;
    return output_of(k, next->to) + begin_walk(k, v).at;
}

static void load_input(struct block *k, const struct pp_expr_step *s, float *target)
{
    const struct pp_expr_array *v = &k->a->e->in[s->a];
    const float *x = input_of(k, s->a);
    bool dense = is_dense(k, v);
    float *to = target ? target : k->own[s->to];
    if (dense && !target)
        to = (float *)x + begin_walk(k, v).at; /* only read */
    else if (dense)
        memcpy(to, x + begin_walk(k, v).at, (size_t)k->n * sizeof(*to));
    else
        load_rows(k, v, x, to);
    k->at[s->to] = to;
}

static const float *operand(const struct block *k, uint8_t r)
{
    return r == PP_EXPR_NUMBER ? NULL : k->at[r];
}

static void run_block(struct block *k)
{
    const struct pp_expr *e = k->a->e;
    for (const struct pp_expr_step *s = e->steps, *end = s + e->n_steps; s < end; s++) {
        if (s->code == PP_EXPR_STORE) {
            if (k->a->y[s->to])
                store_rows(k, s->to, k->at[s->a]);
            continue;
        }
        float *target = find_target(k, s);
        if (s->code == PP_EXPR_LOAD) {
            load_input(k, s, target);
        } else {
            float *t = target ? target : k->own[s->to];
            run_step(s, k->n, operand(k, s->a), operand(k, s->b), operand(k, s->c), t);
            k->at[s->to] = t;
        }
        s += target != NULL;
    }
}

/* Runs the blocks of a unit: all of a sample, or those with one of the split axis. */
static void run_unit(struct block *k, int unit)
{
    const struct pp_expr *e = k->a->e;
    int first[PP_AXES] = {0}, end[PP_AXES];
    memcpy(end, e->size, sizeof(end));
    if (e->units > 1) {
        int from = unit * e->block[e->split], to = from + e->block[e->split];
        first[e->split] = from;
        end[e->split] = to < e->size[e->split] ? to : e->size[e->split];
    }
    memcpy(k->from, first, sizeof(first));
    for (int i = k->last; i >= 0;) {
        k->n = 1;
        for (int j = 0; j <= k->last; j++) {
            int left = end[j] - k->from[j];
            k->count[j] = left < e->block[j] ? left : e->block[j];
            k->n *= k->count[j];
        }
        run_block(k);
        for (i = k->last; i >= 0 && k->from[i] + k->count[i] == end[i]; i--)
            k->from[i] = first[i];
        if (i >= 0)
            k->from[i] += k->count[i];
    }
}

void CPU_LOOP(expr)(const void *args, const struct pp_piece *w)
{
    const struct pp_expr_run *a = args;
    const struct pp_expr *e = a->e;
    float own[PP_EXPR_REGISTERS][EXPR_BLOCK + GAP];
    struct block k = {.a = a, .last = e->n_axes - 1, .own = own};
    for (int o = 0; o < e->n_out; o++)
        for (int i = 0; i < e->n_axes; i++)
            k.sums[o] = k.sums[o] || expr_sums(e, &e->out[o], i);
    for (size_t u = w->from; u < w->to; u++) {
        k.sample = u / (size_t)e->units;
        run_unit(&k, (int)(u % (size_t)e->units));
    }
}
