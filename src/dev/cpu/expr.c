/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of elementwise steps. They run block by block: a register is a piece of a block, and a
 * step is one loop over it, which the compiler vectorizes. An input that lies in memory as the block
 * has it is read there, and a step whose result is stored so writes there. All others are copied
 * band by band: a band is the part of a block along its last two axes of more than one index, whose
 * rows are along the last axis.
 */
#include "kernels.h"

#include <string.h>

#include "../expr.h"
#include "activations.h"
#include "lanes.h"
#include "ppcli/conf/config.h"

#define PITCH (EXPR_BLOCK + 16) /* of registers: not all in the same sets of the cache */

struct block {
    const struct pp_expr_run *a;
    size_t sample;
    int last, mid;                        /* axes of a band: of its columns and of its rows */
    int from[PP_AXES], count[PP_AXES], n; /* its indices, and its elements */
    bool dense_in[PP_EXPR_INPUTS], dense_out[PP_EXPR_OUTPUTS]; /* elements lie in order */
    bool sums[PP_EXPR_OUTPUTS];                                /* the output adds up over an axis */
    int target[PP_EXPR_STEPS];          /* output that takes a step's result as it is; -1: none */
    const float *at[PP_EXPR_REGISTERS]; /* where a register is: in memory or in `own` */
    const float *held[PP_EXPR_INPUTS];  /* what was copied to `copies`; NULL: nothing */
    float (*own)[PITCH], (*copies)[PITCH];
};

/* ---- bands */

/* The band of a block in an array: element (r, c) is at r * row + c * column from `at` on, with
 * rows[r] or columns[c] in place of an index that has a table. */
struct band {
    const struct pp_expr_array *v;
    int index[PP_AXES]; /* of the other axes, from the start of the block */
    ptrdiff_t at, row, column;
    const int32_t *rows, *columns;
};

/* Returns the table of an axis of the band, from the block's first index on; NULL: none. */
static const int32_t *band_table(const struct block *k, const struct pp_expr_array *v, int axis)
{
    return v->table_axis == axis ? k->a->tables + v->table + k->from[axis] : NULL;
}

static struct band first_band(const struct block *k, const struct pp_expr_array *v)
{
    struct band b = {.v = v,
                     .at = (ptrdiff_t)v->offset,
                     .row = k->mid < 0 ? 0 : v->stride[k->mid],
                     .column = v->stride[k->last]};
    if (v->table_axis < 0) {
        for (int i = 0; i <= k->last; i++)
            b.at += (ptrdiff_t)k->from[i] * v->stride[i];
        return b;
    }
    for (int i = 0; i <= k->last; i++)
        if (i != v->table_axis || (i != k->last && i != k->mid))
            b.at += expr_offset(v, k->a->tables, i, k->from[i]);
    b.rows = k->mid < 0 ? NULL : band_table(k, v, k->mid);
    b.columns = band_table(k, v, k->last);
    return b;
}

/* Moves to the next band; returns false after the last one. */
static bool next_band(const struct block *k, struct band *b)
{
    for (int i = k->mid - 1; i >= 0; i--) {
        int from = k->from[i], here = from + b->index[i];
        bool more = ++b->index[i] < k->count[i];
        b->index[i] = more ? b->index[i] : 0;
        b->at += expr_offset(b->v, k->a->tables, i, more ? here + 1 : from) -
                 expr_offset(b->v, k->a->tables, i, here);
        if (more)
            return true;
    }
    return false;
}

static int band_rows(const struct block *k)
{
    return k->mid < 0 ? 1 : k->count[k->mid];
}

static ptrdiff_t row_at(const struct band *b, int r)
{
    return (b->rows ? b->rows[r] : r) * b->row;
}

/* Copies n floats; a call of memcpy() takes longer than a short row. */
static inline void copy_floats(int n, const float *restrict x, float *restrict to)
{
    int i = 0;
    for (; i + 16 <= n; i += 16)
        memcpy(to + i, x + i, 16 * sizeof(*to));
    for (; i < n; i++)
        to[i] = x[i];
}

typedef float four __attribute__((vector_size(16)));
#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int places __attribute__((vector_size(16)));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif

static inline four four_at(const float *x)
{
    four v;
    memcpy(&v, x, sizeof(v));
    return v;
}

/* Copies 4 x 4 floats and swaps rows and columns. */
static inline void transpose_four(const float *x, ptrdiff_t column, float *to, ptrdiff_t pitch)
{
    four a = four_at(x), b = four_at(x + column);
    four c = four_at(x + 2 * column), d = four_at(x + 3 * column);
    four ab = PICK(a, b, 0, 4, 1, 5), cd = PICK(c, d, 0, 4, 1, 5);
    four AB = PICK(a, b, 2, 6, 3, 7), CD = PICK(c, d, 2, 6, 3, 7);
    four rows[] = {PICK(ab, cd, 0, 1, 4, 5), PICK(ab, cd, 2, 3, 6, 7), PICK(AB, CD, 0, 1, 4, 5),
                   PICK(AB, CD, 2, 3, 6, 7)};
    for (int r = 0; r < 4; r++)
        memcpy(to + r * pitch, &rows[r], sizeof(rows[r]));
}

/* Copies n columns of `rows` rows that lie along the columns in memory. */
static void load_transposed(int rows, int n, const float *x, ptrdiff_t column, ptrdiff_t pitch,
                            float *to)
{
    int r = 0;
    for (; r + 4 <= rows; r += 4) {
        int i = 0;
        for (; i + 4 <= n; i += 4)
            transpose_four(x + r + i * column, column, to + r * pitch + i, pitch);
        for (; i < n; i++)
            for (int j = r; j < r + 4; j++)
                to[j * pitch + i] = x[j + i * column];
    }
    for (; r < rows; r++)
        for (int i = 0; i < n; i++)
            to[r * pitch + i] = x[r + i * column];
}

static void load_band(const struct block *k, const struct band *b, const float *restrict x,
                      ptrdiff_t pitch, float *restrict to)
{
    int n = k->count[k->last], rows = band_rows(k);
    ptrdiff_t column = b->column;
    if (b->row == 1 && column != 0 && b->v->table_axis < 0) {
        load_transposed(rows, n, x + b->at, column, pitch, to);
        return;
    }
    for (int r = 0; r < rows && column == 1 && !b->columns; r++)
        copy_floats(n, x + b->at + row_at(b, r), to + r * pitch);
    for (int r = 0; r < rows && (column != 1 || b->columns); r++) {
        const float *from = x + b->at + row_at(b, r);
        float *t = to + r * pitch;
        if (b->columns)
            for (int i = 0; i < n; i++)
                t[i] = from[b->columns[i] * column];
        else if (column == 0)
            for (int i = 0; i < n; i++)
                t[i] = from[0];
        else
            for (int i = 0; i < n; i++)
                t[i] = from[i * column];
    }
}

/* Adds `rows` rows to y, one after the other; `fresh`: the first one replaces y. */
static void add_rows(int n, int rows, const float *restrict x, bool fresh, float *restrict y)
{
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        float sum[LANES];
        memcpy(sum, fresh ? x + i : y + i, sizeof(sum));
        for (int r = fresh; r < rows; r++)
            for (int l = 0; l < LANES; l++)
                sum[l] += x[r * n + i + l];
        memcpy(y + i, sum, sizeof(sum));
    }
    for (; i < n; i++) {
        float sum = fresh ? x[i] : y[i];
        for (int r = fresh; r < rows; r++)
            sum += x[r * n + i];
        y[i] = sum;
    }
}

static void store_row(int n, const float *restrict x, bool add, ptrdiff_t column,
                      const int32_t *columns, float *restrict y)
{
    if (columns)
        for (int i = 0; i < n; i++)
            y[columns[i] * column] = add ? y[columns[i] * column] + x[i] : x[i];
    else if (column == 1 && !add)
        copy_floats(n, x, y);
    else if (column == 1)
        for (int i = 0; i < n; i++)
            y[i] += x[i];
    else if (!add)
        for (int i = 0; i < n; i++)
            y[i * column] = x[i];
    else
        for (int i = 0; i < n; i++)
            y[i * column] += x[i];
}

static bool sums_over(const struct block *k, const struct band *b, int axis)
{
    return axis >= 0 && expr_sums(k->a->e, b->v, axis);
}

/* Returns whether no earlier band has reached the elements of this one. */
static bool is_first(const struct block *k, const struct band *b)
{
    bool first = true;
    for (int i = 0; i <= k->last; i++)
        first = first && (!sums_over(k, b, i) || k->from[i] + b->index[i] == 0);
    return first;
}

/* Stores a band; `fresh`: replaces what is there. */
static void store_band(const struct block *k, const struct band *b, const float *x, bool fresh,
                       float *y)
{
    int n = k->count[k->last], rows = band_rows(k);
    bool over_rows = sums_over(k, b, k->mid);
    float *to = y + b->at;
    if (sums_over(k, b, k->last)) {
        for (int r = 0; r < rows; r++) {
            float sum = sum_row((size_t)n, x + (ptrdiff_t)r * n), *t = to + row_at(b, r);
            *t = fresh && (r == 0 || !over_rows) ? sum : *t + sum;
        }
    } else if (over_rows && b->column == 1 && !b->columns) {
        add_rows(n, rows, x, fresh, to);
    } else {
        for (int r = 0; r < rows; r++)
            store_row(n, x + (ptrdiff_t)r * n, !fresh || (r > 0 && over_rows), b->column,
                      b->columns, to + row_at(b, r));
    }
}

static const float *input_of(const struct block *k, int i)
{
    return k->a->x[i] + k->sample * k->a->e->in[i].sample;
}

static float *output_of(const struct block *k, int i)
{
    return k->a->y[i] + k->sample * k->a->e->out[i].sample;
}

static void store_output(const struct block *k, int output, const float *x)
{
    struct band b = first_band(k, &k->a->e->out[output]);
    float *y = output_of(k, output);
    int each = band_rows(k) * k->count[k->last];
    bool add = k->a->add[output];
    do {
        store_band(k, &b, x, !add && (!k->sums[output] || is_first(k, &b)), y);
        x += each;
    } while (next_band(k, &b));
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

/* Copies an input to an output, row by row, if each row of the output lies in order. Returns whether
 * it does. */
static bool copy_rows(const struct block *k, int input, int output, const float *x)
{
    struct band from = first_band(k, &k->a->e->in[input]);
    struct band to = first_band(k, &k->a->e->out[output]);
    float *y = output_of(k, output);
    if (to.column != 1 || to.v->table_axis >= 0)
        return false;
    do
        load_band(k, &from, x, to.row, y + to.at);
    while (next_band(k, &from) && next_band(k, &to));
    return true;
}

/* Finds an input's part of the block in memory or copies it. Returns whether it was copied to the
 * output `target`. */
static bool load_input(struct block *k, const struct pp_expr_step *s, int target)
{
    const struct pp_expr_array *v = &k->a->e->in[s->a];
    const float *x = input_of(k, s->a);
    if (target >= 0 && copy_rows(k, s->a, target, x)) {
        k->at[s->to] = output_of(k, target) + first_band(k, &k->a->e->out[target]).at;
        return true;
    }
    struct band b = first_band(k, v);
    k->at[s->to] = k->copies[s->a];
    if (k->dense_in[s->a]) {
        k->at[s->to] = x + b.at;
    } else if (k->held[s->a] != x + b.at) {
        float *to = k->copies[s->a];
        int each = band_rows(k) * k->count[k->last];
        k->held[s->a] = v->table_axis < 0 ? x + b.at : NULL;
        do {
            load_band(k, &b, x, k->count[k->last], to);
            to += each;
        } while (next_band(k, &b));
    }
    return false;
}

static const float *operand(const struct block *k, uint8_t r)
{
    return r == PP_EXPR_NUMBER ? NULL : k->at[r];
}

static void run_block(struct block *k)
{
    const struct pp_expr *e = k->a->e;
    for (int i = 0; i < e->n_steps; i++) {
        const struct pp_expr_step *s = &e->steps[i];
        int target = k->target[i];
        if (s->code == PP_EXPR_STORE) {
            if (k->a->y[s->to])
                store_output(k, s->to, k->at[s->a]);
        } else if (s->code == PP_EXPR_LOAD) {
            i += load_input(k, s, target);
        } else {
            bool dense = target >= 0 && k->dense_out[target];
            float *t = k->own[s->to];
            if (dense)
                t = output_of(k, target) + first_band(k, &e->out[target]).at;
            run_step(s, k->n, operand(k, s->a), operand(k, s->b), operand(k, s->c), t);
            k->at[s->to] = t;
            i += dense;
        }
    }
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

/* Sets what follows from the counts of a block. */
static void shape_block(struct block *k)
{
    const struct pp_expr *e = k->a->e;
    k->n = 1;
    for (int i = 0; i <= k->last; i++)
        k->n *= k->count[i];
    pp_assert(k->n <= EXPR_BLOCK);
    for (k->mid = k->last - 1; k->mid > 0 && k->count[k->mid] == 1;)
        k->mid--;
    for (int i = 0; i < e->n_in; i++) {
        k->dense_in[i] = is_dense(k, &e->in[i]);
        k->held[i] = NULL;
    }
    for (int i = 0; i < e->n_out; i++)
        k->dense_out[i] = is_dense(k, &e->out[i]);
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
        bool same = true;
        for (int j = 0; j <= k->last; j++) {
            int left = end[j] - k->from[j], count = left < e->block[j] ? left : e->block[j];
            same = same && count == k->count[j];
            k->count[j] = count;
        }
        if (!same)
            shape_block(k);
        run_block(k);
        for (i = k->last; i >= 0 && k->from[i] + k->count[i] == end[i]; i--)
            k->from[i] = first[i];
        if (i >= 0)
            k->from[i] += k->count[i];
    }
}

/* Returns the output that takes the result of a step as it is, if the next step stores it so. */
static int find_target(const struct block *k, int step)
{
    const struct pp_expr_step *s = &k->a->e->steps[step], *next = s + 1;
    bool stored = step + 1 < k->a->e->n_steps && next->code == PP_EXPR_STORE && next->a == s->to;
    return stored && k->a->y[next->to] && !k->a->add[next->to] && !k->sums[next->to] ? next->to
                                                                                     : -1;
}

void CPU_LOOP(expr)(const void *args, const struct pp_piece *w)
{
    const struct pp_expr_run *a = args;
    const struct pp_expr *e = a->e;
    _Alignas(64) float own[PP_EXPR_REGISTERS][PITCH], copies[PP_EXPR_INPUTS][PITCH];
    struct block k = {.a = a, .last = e->n_axes - 1, .own = own, .copies = copies};
    for (int o = 0; o < e->n_out; o++)
        for (int i = 0; i < e->n_axes; i++)
            k.sums[o] = k.sums[o] || expr_sums(e, &e->out[o], i);
    for (int i = 0; i < e->n_steps; i++)
        k.target[i] = find_target(&k, i);
    for (size_t u = w->from; u < w->to; u++) {
        k.sample = u / (size_t)e->units;
        run_unit(&k, (int)(u % (size_t)e->units));
    }
}
