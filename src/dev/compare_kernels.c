/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of kernels.def in the compare backend. Each says what it writes and how far off that
 * may be; the rest is the same for all: the plain version writes to copies, the fast one to the
 * caller's arrays, then the two are compared.
 */
#include "compare.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ppcli/err.h"

#define OUTPUTS 6
#define EXACT -1.0

/* An array that a kernel writes. */
struct output {
    const char *name;
    void *at;       /* the pointer to it in the kernel's arguments */
    size_t n, size; /* elements and bytes of one; of one byte: must be equal */
    size_t columns; /* for the message */
    double scale; /* of the terms: allowed are ROUNDINGS of it and of the result; EXACT: nothing */
};

/* The list of one kernel. */
struct outputs {
    int n;
    struct output of[OUTPUTS];
};

#define OUT(o, field, count, col, terms)                                                           \
    ((o)->of[(o)->n++] = (struct output){#field, (void *)&a->field, (size_t)(count),               \
                                         sizeof(*a->field), (size_t)(col), (terms)})

#define MOST compare_greatest

static double most_old(bool add, size_t n, const float *a)
{
    return add ? MOST(n, a) : 0;
}

/* ---- what each writes. Normal numbers are taken to lie within SIGMAS of their mean. */

#define SIGMAS 8

static size_t floats_in(const struct pp_conv *g, int B)
{
    return (size_t)B * (size_t)g->H * (size_t)g->W * (size_t)g->C;
}

static size_t floats_out(const struct pp_conv *g, int B)
{
    return (size_t)B * (size_t)g->OH * (size_t)g->OW * (size_t)g->O;
}

/* Of the terms of a sum of K products of vectors of these lengths: see compare.c. */
static double product(int K, double left, double right)
{
    return 2 * (4 + sqrt((double)K)) / ROUNDINGS * left * right;
}

/* No shorter than what an output of a convolution sees: one of these pixels a tap. */
static double longest_patch(const struct pp_conv *g, size_t pixels, int C, const float *x)
{
    return sqrt((double)g->kh * g->kw) * compare_longest((int)pixels, C, (size_t)C, 1, x);
}

static void conv_forward(struct pp_conv_forward *a, struct outputs *o)
{
    const struct pp_conv *g = a->g;
    int K = g->kh * g->kw * (g->C / g->groups);
    double x = longest_patch(g, (size_t)(a->B * g->H * g->W), g->C, a->x);
    double W = compare_longest(g->O, K, (size_t)K, 1, a->W);
    OUT(o, y, floats_out(g, a->B), g->O, product(K, x, W) + MOST((size_t)g->O, a->b));
}

static void conv_backward_input(struct pp_conv_backward_input *a, struct outputs *o)
{
    const struct pp_conv *g = a->g;
    int taps = g->kh * g->kw, K = taps * (g->C / g->groups);
    size_t n = floats_in(g, a->B);
    double dz = longest_patch(g, (size_t)(a->B * g->OH * g->OW), g->O, a->dz);
    double W = sqrt((double)taps) * compare_longest(K, g->O, 1, (size_t)K, a->W);
    OUT(o, dx, n, g->C, product(taps * (g->O / g->groups), dz, W) + most_old(a->add, n, a->dx));
}

static void conv_backward_weight(struct pp_conv_backward_weight *a, struct outputs *o)
{
    const struct pp_conv *g = a->g;
    size_t O = (size_t)g->O, K = (size_t)(g->kh * g->kw) * (size_t)(g->C / g->groups);
    double weight = most_old(a->beta != 0, O * K, a->dW), bias = 0;
    int rows = 0;
    for (const struct pp_weight_part *p = a->parts; p < a->parts + a->n; p++) {
        int out = p->B * g->OH * g->OW, in = p->B * g->H * g->W;
        double dz = compare_longest(g->O, out, 1, O, p->dz);
        rows += out;
        weight += product(rows, dz, compare_longest(g->C, in, 1, (size_t)g->C, p->x));
        bias += product(rows, dz, sqrt((double)out));
    }
    OUT(o, dW, O * K, K, weight);
    OUT(o, db, O, O, bias + (a->db ? most_old(a->beta != 0, O, a->db) : 0));
}

static void gather(struct pp_gather *a, struct outputs *o)
{
    OUT(o, x, (size_t)a->B * (size_t)a->F, a->F, EXACT);
}

static void batch_norm_forward(struct pp_batch_norm_forward *a, struct outputs *o)
{
    size_t C = (size_t)a->C, n = (size_t)a->B * (size_t)a->P * C;
    double x = MOST(n, a->x), sigmas = SIGMAS;
    for (size_t c = 0; a->running_mean && c < C; c++) {
        double far = x + fabs((double)a->running_mean[c]);
        sigmas = fmax(sigmas, far / sqrt((double)a->running_var[c] + (double)a->eps));
    }
    OUT(o, y, n, C, MOST(C, a->gamma) * sigmas + MOST(C, a->beta) + MOST(n, a->residual));
    if (!a->running_mean)
        OUT(o, keep, 2 * C, C, 0);
}

static void batch_norm_backward_input(struct pp_batch_norm_backward_input *a, struct outputs *o)
{
    size_t C = (size_t)a->C, rows = (size_t)a->B * (size_t)a->P, n = rows * C;
    double dy = MOST(n, a->dy), rstd = n ? MOST(C, a->keep + C) : 0;
    OUT(o, dy, n, C, 0);
    OUT(o, sums, 2 * C, C, SIGMAS * sqrt((double)rows) * dy);
    OUT(o, dx, n, C, MOST(C, a->gamma) * rstd * dy * SIGMAS + most_old(a->add, n, a->dx));
    OUT(o, d_residual, n, C, dy + most_old(a->add_residual, n, a->d_residual));
}

static void batch_norm_backward_weight(struct pp_batch_norm_backward_weight *a, struct outputs *o)
{
    size_t C = (size_t)a->C;
    double n = (double)a->B * a->P, sums = MOST(2 * C, a->sums);
    double mean = n > 0 ? n * MOST(C, a->keep) : 0, square = mean * mean;
    for (size_t c = 0; c < C && n > 0; c++)
        square = fmax(square, n / pow((double)a->keep[C + c], 2));
    OUT(o, dgamma, C, C, sums + most_old(a->beta != 0, C, a->dgamma));
    OUT(o, dbeta, C, C, sums + most_old(a->beta != 0, C, a->dbeta));
    OUT(o, stat_mean, C, C, mean);
    OUT(o, stat_var, C, C, square);
    OUT(o, stat_n, 1, 1, 0);
}

static void batch_norm_commit(struct pp_batch_norm_commit *a, struct outputs *o)
{
    OUT(o, running_mean, a->C, a->C, 0);
    OUT(o, running_var, a->C, a->C, 0);
    OUT(o, tracked, 1, 1, 0);
}

static void group_norm_forward(struct pp_group_norm_forward *a, struct outputs *o)
{
    size_t C = (size_t)a->C, n = (size_t)a->B * (size_t)a->P * C;
    OUT(o, y, n, C, MOST(C, a->gamma) * SIGMAS + MOST(C, a->beta) + MOST(n, a->residual));
    OUT(o, keep, 2 * (size_t)a->B * (size_t)a->G, a->G, 0);
}

static void group_norm_backward_input(struct pp_group_norm_backward_input *a, struct outputs *o)
{
    size_t C = (size_t)a->C, n = (size_t)a->B * (size_t)a->P * C, keep = (size_t)(a->B * a->G);
    double dy = MOST(n, a->dy), factor = MOST(C, a->gamma) * MOST(keep, a->keep + keep) * SIGMAS;
    OUT(o, dy, n, C, 0);
    OUT(o, dx, n, C, factor * dy + most_old(a->add, n, a->dx));
    OUT(o, d_residual, n, C, dy + most_old(a->add_residual, n, a->d_residual));
}

static void group_norm_backward_weight(struct pp_group_norm_backward_weight *a, struct outputs *o)
{
    size_t C = (size_t)a->C, rows = (size_t)a->B * (size_t)a->P;
    double sum = SIGMAS * sqrt((double)rows) * MOST(rows * C, a->dz);
    OUT(o, dgamma, C, C, sum + most_old(a->beta != 0, C, a->dgamma));
    OUT(o, dbeta, C, C, sum + most_old(a->beta != 0, C, a->dbeta));
}

static void max_pool_forward(struct pp_max_pool_forward *a, struct outputs *o)
{
    OUT(o, y, floats_out(a->g, a->B), a->g->O, 0);
    OUT(o, taken, floats_out(a->g, a->B), a->g->O, 0);
}

static void max_pool_backward(struct pp_max_pool_backward *a, struct outputs *o)
{
    size_t n = floats_in(a->g, a->B);
    OUT(o, dx, n, a->g->C, MOST(floats_out(a->g, a->B), a->dy) + most_old(a->add, n, a->dx));
}

static void avg_pool_forward(struct pp_avg_pool *a, struct outputs *o)
{
    OUT(o, y, floats_out(a->g, a->B), a->g->O, MOST(floats_in(a->g, a->B), a->x));
}

static void avg_pool_backward(struct pp_avg_pool *a, struct outputs *o)
{
    size_t n = floats_in(a->g, a->B);
    OUT(o, y, n, a->g->C, MOST(floats_out(a->g, a->B), a->x) + most_old(a->add, n, a->y));
}

static void activate_forward(struct pp_activate *a, struct outputs *o)
{
    OUT(o, y, a->n, a->n, fmin(MOST(a->n, a->x), 10)); /* further out they are flat or straight */
}

static void activate_backward(struct pp_activate_backward *a, struct outputs *o)
{
    OUT(o, dx, a->n, a->n, MOST(a->n, a->dy) + most_old(a->add, a->n, a->dx));
}

static void sum(struct pp_sum *a, struct outputs *o)
{
    OUT(o, y, a->n, a->n, (double)FLT_MIN);
}

static void dropout(struct pp_dropout *a, struct outputs *o)
{
    size_t n = (size_t)a->B * a->F;
    OUT(o, y, n, a->F, most_old(a->add, n, a->y));
}

/* ---- the comparison */

static void *array_of(const struct output *o)
{
    void *p;
    memcpy(&p, o->at, sizeof(p));
    return p;
}

/* Give each output a copy of its array to write to. */
static int set_copies(struct compare *c, struct outputs *o)
{
    size_t floats = 0, at = 0;
    for (int i = 0; i < o->n; i++)
        floats += array_of(&o->of[i]) ? (o->of[i].n * o->of[i].size + 3) / 4 : 0;
    float *copies;
    PP_TRY(compare_scratch(c, floats, &copies));
    for (int i = 0; i < o->n; i++) {
        void *from = array_of(&o->of[i]), *to = copies + at;
        if (!from)
            continue;
        if (o->of[i].n > 0)
            memcpy(to, from, o->of[i].n * o->of[i].size);
        memcpy(o->of[i].at, &to, sizeof(to));
        at += (o->of[i].n * o->of[i].size + 3) / 4;
    }
    return 0;
}

static int same(const char *kernel, const struct output *o, const void *fast, const void *plain)
{
    if (o->size == sizeof(float)) {
        double allowed = o->scale == EXACT ? 0 : ROUNDINGS * EPS;
        return compare_same(o->n, fast, plain, allowed * o->scale, allowed, o->columns, "%s: %s",
                            kernel, o->name);
    }
    const uint8_t *f = fast, *p = plain;
    for (size_t i = 0; i < o->n; i++) {
        if (f[i] != p[i]) {
            return pp_fail(PP_ECHECK, "compare: %s: %s[%zu][%zu] is %d, the plain version gives %d",
                           kernel, o->name, i / o->columns, i % o->columns, f[i], p[i]);
        }
    }
    return 0;
}

#define PP_KERNEL(kernel, type)                                                                    \
    int compare_##kernel(struct pp_backend *be, const struct type *args)                           \
    {                                                                                              \
        struct compare *c = be->impl;                                                              \
        struct type plain = *args;                                                                 \
        struct outputs o = {0};                                                                    \
        kernel(&plain, &o);                                                                        \
        PP_TRY(set_copies(c, &o));                                                                 \
        PP_TRY(pp_backend_##kernel(c->plain, &plain));                                             \
        PP_TRY(pp_backend_##kernel(c->fast, args));                                                \
        for (int i = 0; i < o.n; i++) {                                                            \
            struct output given = o.of[i];                                                         \
            given.at = (char *)args + ((char *)given.at - (char *)&plain);                         \
            if (array_of(&given))                                                                  \
                PP_TRY(same(#kernel, &given, array_of(&given), array_of(&o.of[i])));               \
        }                                                                                          \
        return 0;                                                                                  \
    }
#include "ppcli/kernels.def"
#undef PP_KERNEL
