/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs of elementwise steps over arrays of random axes, and samples of softmax. Every
 * step keeps its result small, and takes no root or logarithm of what may be near 0, so that
 * bound_expr() can say how far off the result may be.
 */
#include <math.h>
#include <string.h>

#include "checkops.h"
#include "ppcli/base/base.h"
#include "ppcli/conf/config.h"

#define TABLE_MAX 8192 /* numbers of all tables of a program */

struct tables {
    size_t n;
    int32_t of[TABLE_MAX];
};

/* The axes in any order. */
static void shuffle(struct sample *s, int n, int *order)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)draw(s, (uint32_t)i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

/* n different numbers below n + more, or any. */
static void fill_table(struct sample *s, struct tables *t, int n, int more, bool differ)
{
    int32_t *out = t->of + t->n;
    for (int i = 0; i < n; i++)
        out[i] = differ ? i + (int)((double)i * more / n) : (int32_t)draw(s, (uint32_t)(n + more));
    for (int i = n - 1; i > 0 && differ; i--) {
        int j = (int)draw(s, (uint32_t)i + 1), v = out[i];
        out[i] = out[j];
        out[j] = v;
    }
    t->n += (size_t)n;
}

/* Chooses how an array is seen: the order of its axes, those that it does not have, gaps, an offset,
 * a table, a direction. Returns the floats from one sample to the next. */
static size_t lay_out(struct sample *s, const struct pp_expr *e, bool is_out, struct tables *t,
                      struct pp_expr_array *v)
{
    int order[PP_AXES], extent = 1;
    shuffle(s, e->n_axes, order);
    bool as_they_are = flip(s);
    int table = draw(s, 4) == 0 ? (int)draw(s, (uint32_t)e->n_axes) : -1;
    v->table_axis = -1;
    v->offset = draw(s, 3) == 0 ? draw(s, 9) : 0;
    for (int i = e->n_axes - 1; i >= 0; i--) {
        int axis = as_they_are ? i : order[i], n = e->size[axis];
        if (draw(s, 4) == 0)
            continue;
        if (draw(s, 8) == 0)
            extent += 1 + (int)draw(s, 3);
        v->stride[axis] = extent;
        if (axis == table && t->n + (size_t)n < TABLE_MAX) {
            int more = (int)draw(s, 4);
            v->repeats = is_out && flip(s);
            v->table_axis = axis;
            v->table = t->n;
            fill_table(s, t, n, more, is_out && !v->repeats);
            n += more;
        } else if (draw(s, 8) == 0) {
            v->stride[axis] = -extent;
            v->offset += (size_t)extent * (size_t)(n - 1);
        }
        extent *= n;
    }
    size_t all = v->offset + (size_t)extent;
    v->sample = is_out || draw(s, 4) > 0 ? all + draw(s, 3) : 0;
    return all;
}

/* ---- steps */

static int add_step(struct pp_expr *e, int code, int a, int b, int c, float number)
{
    int to = e->n_steps; /* a register each */
    pp_assert(e->n_steps < PP_EXPR_REGISTERS);
    e->steps[e->n_steps++] = (struct pp_expr_step){
        (uint8_t)code, 0, (uint8_t)to, (uint8_t)a, (uint8_t)b, (uint8_t)c, number};
    return to;
}

/* |a| + 0.75: what has a root and a logarithm. */
static int make_positive(struct pp_expr *e, int a)
{
    return add_step(e, PP_EXPR_ADD, add_step(e, PP_EXPR_ABS, a, 0, 0, 0), PP_EXPR_NUMBER, 0, 0.75f);
}

/* Adds a step on registers of the program, and some that keep it small; returns its register. */
static int add_random_step(struct sample *s, struct pp_expr *e)
{
    static const enum pp_expr_code of_any[] = {PP_EXPR_NEG,    PP_EXPR_ABS,  PP_EXPR_SIN,
                                               PP_EXPR_COS,    PP_EXPR_TANH, PP_EXPR_ERF,
                                               PP_EXPR_SIGMOID};
    static const enum pp_expr_code of_two[] = {PP_EXPR_ADD, PP_EXPR_SUB, PP_EXPR_MUL, PP_EXPR_MAX,
                                               PP_EXPR_MIN};
    static const enum pp_expr_code of_inputs[] = {PP_EXPR_LT, PP_EXPR_LE, PP_EXPR_EQ};
    static const enum pp_expr_code of_positive[] = {PP_EXPR_SQRT, PP_EXPR_RSQRT, PP_EXPR_LOG,
                                                    PP_EXPR_LOG1P, PP_EXPR_POW};
    int a = (int)draw(s, (uint32_t)e->n_steps), b = (int)draw(s, (uint32_t)e->n_steps);
    int in = (int)draw(s, (uint32_t)e->n_in), in2 = (int)draw(s, (uint32_t)e->n_in);
    float number = (float)draw(s, 5) / 4 - 0.5f;
    int kind = (int)draw(s, 10), number_at = draw(s, 3) == 0 ? 1 + flip(s) : 0;
    int left = number_at == 1 ? PP_EXPR_NUMBER : a, right = number_at == 2 ? PP_EXPR_NUMBER : b;
    int to = 0;
    if (kind < 4)
        return add_step(e, of_any[draw(s, 7)], a, 0, 0, 0);
    if (kind == 4) /* 1 or 0, of what was not rounded yet */
        return add_step(e, of_inputs[draw(s, 3)], in, flip(s) ? PP_EXPR_NUMBER : in2, 0, number);
    if (kind == 5 && draw(s, 3) == 0)
        return add_step(e, flip(s) ? PP_EXPR_FLOOR : PP_EXPR_TRUNC,
                        add_step(e, PP_EXPR_MUL, in, PP_EXPR_NUMBER, 0, 4), 0, 0, 0);
    if (kind == 5)
        return add_step(e, PP_EXPR_SELECT, in, left, right, number);
    if (kind == 6)
        return add_step(e, of_positive[draw(s, 5)], make_positive(e, a), 0, 0, number * 4);
    if (kind == 7)
        return add_step(e, PP_EXPR_DIV, left, make_positive(e, b), 0, number);
    if (kind == 8) {
        bool back = flip(s); /* of what was not rounded: a relu's gradient jumps */
        to = add_step(e, back ? PP_EXPR_ACT_BACK : PP_EXPR_ACT, back ? in : a, b, 0, 0);
        e->steps[to].which = (uint8_t)(PP_ACT_NONE + 1 + (int)draw(s, 5));
        return to;
    }
    to = add_step(e, of_two[draw(s, 5)], left, right, 0, number);
    return draw(s, 4) == 0 ? add_step(e, flip(s) ? PP_EXPR_EXP : PP_EXPR_EXPM1,
                                      add_step(e, PP_EXPR_TANH, to, 0, 0, 0), 0, 0, 0)
                           : to;
}

/* The gelu of GPT-2, written out. */
static int add_gelu(struct pp_expr *e, int x)
{
    int t = add_step(e, PP_EXPR_MUL, add_step(e, PP_EXPR_MUL, x, x, 0, 0), x, 0, 0);
    t = add_step(e, PP_EXPR_ADD, x, add_step(e, PP_EXPR_MUL, t, PP_EXPR_NUMBER, 0, 0.044715f), 0,
                 0);
    t = add_step(e, PP_EXPR_TANH, add_step(e, PP_EXPR_MUL, t, PP_EXPR_NUMBER, 0, 0.79788456f), 0, 0,
                 0);
    t = add_step(e, PP_EXPR_ADD, t, PP_EXPR_NUMBER, 0, 1);
    int half = add_step(e, PP_EXPR_MUL, x, PP_EXPR_NUMBER, 0, 0.5f);
    return add_step(e, PP_EXPR_MUL, half, t, 0, 0);
}

void make_expr(struct sample *s, struct pp_expr_run *a)
{
    static const int most[] = {3000, 60, 17, 7};
    struct pp_expr *e = &s->image.expr;
    struct tables tables = {0};
    *e = (struct pp_expr){.n_axes = s->large ? 1 : 1 + (int)draw(s, 4)};
    point_inside(s, &a->e, e);
    a->B = s->large ? 16 : some_rows(s, 5);
    for (int i = 0; i < e->n_axes; i++)
        e->size[i] = s->large ? 75000 : odd(s, most[e->n_axes - 1]);
    e->n_in = s->large ? 1 : 1 + (int)draw(s, 4);
    e->n_out = s->large ? 1 : 1 + (int)draw(s, 3);
    size_t floats[PP_EXPR_INPUTS];
    for (int k = 0; k < e->n_in; k++) {
        floats[k] = lay_out(s, e, false, &tables, &e->in[k]);
        if (s->large) {
            e->in[k] = (struct pp_expr_array){.stride = {1}, .table_axis = -1, .sample = 75000};
            floats[k] = 75000;
        }
        add_step(e, PP_EXPR_LOAD, k, 0, 0, 0);
    }
    int last = s->large ? add_gelu(e, 0) : 0;
    for (int k = s->large ? 0 : 1 + (int)draw(s, 6); k > 0; k--)
        last = add_random_step(s, e);
    for (int k = 0; k < e->n_in; k++)
        give(s, "x", &a->x[k], floats[k] + (size_t)a->B * e->in[k].sample, sizeof(float),
             !(e->in[k].f32 = draw(s, 8) == 0), NOISE);
    for (int k = 0; k < e->n_out; k++) {
        struct pp_expr_array *v = &e->out[k];
        size_t each = lay_out(s, e, true, &tables, v);
        if (s->large)
            *v = e->in[0];
        a->add[k] = v->repeats || (flip(s) && !s->large);
        e->steps[e->n_steps] =
            (struct pp_expr_step){PP_EXPR_STORE, 0, (uint8_t)k, (uint8_t)last, 0, 0, 0};
        e->n_steps++;
        last = (int)draw(s, (uint32_t)(e->n_steps - k - 1));
        if (k > 0 && draw(s, 8) == 0)
            continue; /* nobody needs it */
        give(s, "y", &a->y[k], each + (size_t)a->B * v->sample, sizeof(float), !v->f32,
             a->add[k] ? NOISE : UNSET);
    }
    if (tables.n > 0)
        memcpy(BYTES(tables, tables.n), tables.of, tables.n * sizeof(*tables.of));
    pp_expr_finish(e);
}

/* ---- softmax */

static void shape_softmax(struct sample *s, int *B, int *outer, int *n, int *inner)
{
    *B = some_rows(s, 9);
    *outer = odd(s, 17);
    *n = odd(s, 260);
    *inner = s->large || flip(s) ? 1 : odd(s, 140 / (1 + *n / 60));
}

void make_softmax_forward(struct sample *s, struct pp_softmax_forward *a)
{
    shape_softmax(s, &a->B, &a->outer, &a->n, &a->inner);
    size_t n = (size_t)(a->B * a->outer * a->n * a->inner);
    a->log = flip(s);
    float *x = VALUES(x, n), larger = (float)draw(s, 11);
    for (size_t i = 0; i < n; i++)
        x[i] = !a->log && draw(s, 40) == 0 && i % 7 > 0 ? -INFINITY : x[i] * larger;
    VALUE_RESULT(y, n, false);
}

void make_softmax_backward(struct sample *s, struct pp_softmax_backward *a)
{
    shape_softmax(s, &a->B, &a->outer, &a->n, &a->inner);
    size_t n = (size_t)(a->B * a->outer * a->n * a->inner);
    a->log = flip(s);
    a->add = flip(s);
    float *y = VALUES(y, n);
    for (size_t i = 0; i < n; i++)
        y[i] = a->log ? -1 - fabsf(y[i]) : fabsf(y[i]) / (float)a->n;
    VALUES(dy, n);
    VALUE_RESULT(dx, n, a->add);
}
