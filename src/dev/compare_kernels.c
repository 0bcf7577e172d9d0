/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of kernels.def in the compare backend. Each says what it writes and how far off that
 * may be; the rest is the same for all: the plain version writes to copies, the fast one to the
 * caller's arrays, then the two are compared.
 */
#include "compare.h"

#include <math.h>
#include <string.h>

#define OUTPUTS 6
#define EXACT -1.0

/* An array that a kernel writes. */
struct output {
    const char *name;
    void *at;       /* the pointer to it in the kernel's arguments */
    size_t n, size; /* elements and bytes of one; of one byte: must be equal */
    size_t columns; /* for the message */
    double scale; /* of the terms: allowed are ROUNDINGS of it and of the result; EXACT: nothing */
    /* Of an array with gaps: these rows of `columns` are written. n counts all up to the last. */
    int rows[2];
    struct pp_strides step;
    double loss; /* of loss sums: what they begin with */
};

/* The list of one kernel. */
struct outputs {
    int n;
    struct output of[OUTPUTS];
};

#define OUT(o, field, count, col, terms)                                                           \
    ((o)->of[(o)->n++] = (struct output){.name = #field,                                           \
                                         .at = (void *)&a->field,                                  \
                                         .n = (size_t)(count),                                     \
                                         .size = sizeof(*a->field),                                \
                                         .columns = (size_t)(col),                                 \
                                         .scale = (terms)})

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
    double x = longest_patch(g, (size_t)a->B * (size_t)g->H * (size_t)g->W, g->C, a->x);
    double W = compare_longest(g->O, K, (size_t)K, 1, a->W);
    OUT(o, y, floats_out(g, a->B), g->O, product(K, x, W) + MOST((size_t)g->O, a->b));
}

static void conv_backward_input(struct pp_conv_backward_input *a, struct outputs *o)
{
    const struct pp_conv *g = a->g;
    int taps = g->kh * g->kw, K = taps * (g->C / g->groups);
    size_t n = floats_in(g, a->B);
    double dz = longest_patch(g, (size_t)a->B * (size_t)g->OH * (size_t)g->OW, g->O, a->dz);
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

static void move_pictures(struct pp_move_pictures *a, struct outputs *o)
{
    OUT(o, pictures, (size_t)a->B * (size_t)(a->H * a->W * a->C), a->C, EXACT);
}

static void gather(struct pp_gather *a, struct outputs *o)
{
    OUT(o, x, (size_t)a->B * (size_t)a->F, a->F, EXACT);
}

static void targets(struct pp_targets *a, struct outputs *o)
{
    OUT(o, targets, (size_t)a->B * (size_t)a->P, a->P, EXACT);
    struct output *bytes = &o->of[0]; /* as floats, small numbers are denormals: all alike */
    bytes->n *= bytes->size;
    bytes->columns *= bytes->size;
    bytes->size = 1;
}

/* x - max is rounded at the size of x, and exp passes that on as a relative error. */
static void softmax_cross_entropy(struct pp_softmax_cross_entropy *a, struct outputs *o)
{
    size_t rows = (size_t)a->B * (size_t)a->P, n = rows * (size_t)a->C;
    double x = MOST(n, a->logits);
    OUT(o, dlogits, n, a->C, (1 + x) * fabs((double)a->grad_scale));
    OUT(o, sums, 1, rows, 1 + x);
    o->of[1].loss = a->sums->loss;
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
    double n = (double)a->B * a->P, sums = MOST(2 * C, a->sums), square = 0;
    double mean = n > 0 ? n * MOST(C, a->keep) : 0;
    for (size_t c = 0; c < C && n > 0; c++)
        square = fmax(square, n / pow((double)a->keep[C + c], 2));
    OUT(o, dgamma, C, C, sums + most_old(a->beta != 0, C, a->dgamma));
    OUT(o, dbeta, C, C, sums + most_old(a->beta != 0, C, a->dbeta));
    OUT(o, stat_mean, C, C, mean);
    OUT(o, stat_squares, C, C, square + most_old(a->beta != 0, C, a->stat_squares));
    OUT(o, stat_n, 1, 1, 0);
}

static void batch_norm_spread(struct pp_batch_norm_spread *a, struct outputs *o)
{
    OUT(o, own, a->C, a->C, MOST(a->C, a->stat_mean));
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
    size_t C = (size_t)a->C, n = (size_t)a->B * (size_t)a->P * C,
           keep = (size_t)a->B * (size_t)a->G;
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

/* ---- attention */

/* The longest |head| of an array. */
static double longest_head(const struct pp_attention *a, int heads, int positions,
                           const struct pp_strides *s, const float *x)
{
    double most = 0;
    for (int b = 0; b < a->B; b++)
        for (int i = 0; i < positions; i++)
            most =
                fmax(most, compare_longest(heads, a->width, (size_t)a->width, 1,
                                           x + (size_t)b * s->sequence + (size_t)i * s->position));
    return most;
}

/* Rows of all heads at each position. */
static void out_heads(struct outputs *o, const char *name, float **at, const struct pp_attention *a,
                      int heads, int positions, struct pp_strides step, double scale)
{
    size_t columns = (size_t)heads * (size_t)a->width, n = 0;
    if (a->B > 0 && positions > 0)
        n = (size_t)(a->B - 1) * step.sequence + (size_t)(positions - 1) * step.position + columns;
    o->of[o->n++] =
        (struct output){name, at, n, sizeof(float), columns, scale, {a->B, positions}, step, 0};
}

/* A probability is off by the roundings of its score, and by those of the sum that divides it. */
static double of_probability(const struct pp_attention *a)
{
    double q = longest_head(a, a->heads, a->queries, &a->q_at, a->q);
    double k = longest_head(a, a->kv_heads, a->keys, &a->kv_at, a->k);
    return 2 * product(a->width, q, k) / sqrt((double)a->width) + product(a->keys, 1, 1);
}

static void attention_forward(struct pp_attention *a, struct outputs *o)
{
    double p = of_probability(a), v = longest_head(a, a->kv_heads, a->keys, &a->kv_at, a->v);
    double grown = a->step ? 1 / (1 - (double)a->p) : 1;
    out_heads(o, "y", &a->y, a, a->heads, a->queries, a->y_at, grown * (1 + p) * v);
    OUT(o, lse, a->B * a->queries * a->heads, a->heads, p);
}

/* The gradient of a score is p (dp - sum of p dp), dp = dy . v, and no |dp| is larger than twice
 * the lengths'; sums over keys have the weights p, those over queries are of as many terms. */
static void attention_backward(struct pp_attention *a, struct outputs *o)
{
    double q = longest_head(a, a->heads, a->queries, &a->q_at, a->q);
    double k = longest_head(a, a->kv_heads, a->keys, &a->kv_at, a->k);
    double v = longest_head(a, a->kv_heads, a->keys, &a->kv_at, a->v);
    double dy = longest_head(a, a->heads, a->queries, &a->y_at, a->dy);
    double grown = a->step ? 1 / (1 - (double)a->p) : 1;
    double p = grown * (1 + of_probability(a) + product(a->width, 1, 1));
    double ds = 2 * p * dy * v / sqrt((double)a->width);
    int group = a->heads / a->kv_heads;
    double terms = (double)a->queries * group;
    size_t n = (size_t)a->queries * (size_t)a->heads * (size_t)a->width;
    out_heads(o, "dq", &a->dq, a, a->heads, a->queries, a->q_at,
              ds * k + (a->add && n ? longest_head(a, a->heads, a->queries, &a->q_at, a->dq) : 0));
    for (int j = 0; j < 2; j++) {
        float **d = j ? &a->dv : &a->dk;
        double old = a->add_kv && *d ? longest_head(a, a->kv_heads, a->keys, &a->kv_at, *d) : 0;
        out_heads(o, j ? "dv" : "dk", d, a, a->kv_heads, a->keys, a->kv_at,
                  terms * (j ? p * dy : ds * q) + old);
    }
}

static void row_norm_forward(struct pp_row_norm_forward *a, struct outputs *o)
{
    size_t C = (size_t)a->C, n = (size_t)a->B * C;
    OUT(o, y, n, C, MOST(C, a->gamma) * SIGMAS + MOST(C, a->beta));
    OUT(o, keep, 2 * (size_t)a->B, 2, MOST(n, a->x)); /* a mean is rounded at the size of x */
}

static void row_norm_backward_input(struct pp_row_norm_backward_input *a, struct outputs *o)
{
    size_t C = (size_t)a->C, n = (size_t)a->B * C, keep = 2 * (size_t)a->B;
    double rstd = 0;
    for (size_t i = 1; i < keep; i += 2)
        rstd = fmax(rstd, (double)a->keep[i]);
    OUT(o, dx, n, C,
        MOST(C, a->gamma) * rstd * SIGMAS * MOST(n, a->dy) + most_old(a->add, n, a->dx));
}

static void row_norm_backward_weight(struct pp_row_norm_backward_weight *a, struct outputs *o)
{
    size_t C = (size_t)a->C, rows = (size_t)a->B;
    double sum = SIGMAS * sqrt((double)rows) * MOST(rows * C, a->dy);
    OUT(o, dgamma, C, C, sum + most_old(a->beta != 0, C, a->dgamma));
    OUT(o, dbeta, C, C, sum + (a->dbeta ? most_old(a->beta != 0, C, a->dbeta) : 0));
}

static void embedding_forward(struct pp_embedding_forward *a, struct outputs *o)
{
    OUT(o, y, (size_t)a->B * (size_t)a->T * (size_t)a->C, a->C, (double)FLT_MIN);
}

static void embedding_backward_weight(struct pp_embedding_backward_weight *a, struct outputs *o)
{
    size_t C = (size_t)a->C, W = (size_t)a->V * C, P = (size_t)a->T * C;
    size_t rows = (size_t)a->B * (size_t)a->T;
    double sum = SIGMAS * sqrt((double)rows) * MOST(rows * C, a->dy);
    OUT(o, dW, W, C, sum + most_old(a->beta != 0, W, a->dW));
    OUT(o, dP, P, C, sum + (a->dP ? most_old(a->beta != 0, P, a->dP) : 0));
}

static void rotary(struct pp_rotary *a, struct outputs *o)
{
    size_t n = (size_t)a->B * (size_t)a->T * (size_t)a->C;
    OUT(o, y, n, a->C, MOST(n, a->x) + most_old(a->add, n, a->y));
}

static void gated_forward(struct pp_gated *a, struct outputs *o)
{
    size_t n = (size_t)a->B * (size_t)a->F;
    double x = MOST(2 * n, a->x); /* silu of a number is no larger */
    OUT(o, y, n, a->F, fmin(x, 10) * x);
}

static void gated_backward(struct pp_gated_backward *a, struct outputs *o)
{
    size_t n = (size_t)a->B * (size_t)a->F;
    double x = fmax(MOST(2 * n, a->x), 1);
    OUT(o, dx, 2 * n, 2 * a->F, MOST(n, a->dy) * x + most_old(a->add, 2 * n, a->dx));
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

/* Room for a copy of it, so that what follows is aligned for any type. */
static size_t floats_of(const struct output *o)
{
    return (o->n * o->size + 15) / 16 * 4;
}

/* Give each output a copy of its array to write to. */
static int set_copies(struct compare *c, struct outputs *o)
{
    size_t floats = 0, at = 0;
    for (int i = 0; i < o->n; i++)
        floats += array_of(&o->of[i]) ? floats_of(&o->of[i]) : 0;
    float *copies;
    PP_TRY(compare_scratch(c, floats, &copies));
    for (int i = 0; i < o->n; i++) {
        void *from = array_of(&o->of[i]), *to = copies + at;
        if (!from)
            continue;
        if (o->of[i].n > 0)
            memcpy(to, from, o->of[i].n * o->of[i].size);
        memcpy(o->of[i].at, &to, sizeof(to));
        at += floats_of(&o->of[i]);
    }
    return 0;
}

static int same_sums(const char *kernel, const struct output *o, const struct pp_loss_sums *fast,
                     const struct pp_loss_sums *plain)
{
    double terms = o->scale * ((double)o->columns + fabs(plain->loss - o->loss));
    if (!(fabs(fast->loss - plain->loss) <= ROUNDINGS * EPS * terms) && fast->loss != plain->loss &&
        !(isnan(fast->loss) && isnan(plain->loss))) {
        return pp_fail(PP_ECHECK,
                       "compare: %s: the loss of %zu rows is %.17g, the plain version gives %.17g",
                       kernel, o->columns, fast->loss - o->loss, plain->loss - o->loss);
    }
    if (fast->correct == plain->correct && fast->rows == plain->rows &&
        fast->targets == plain->targets)
        return 0;
    return pp_fail(
        PP_ECHECK,
        "compare: %s: %lld of %lld targets correct, the plain version gives %lld of %lld", kernel,
        (long long)fast->correct, (long long)fast->targets, (long long)plain->correct,
        (long long)plain->targets);
}

static int same(const char *kernel, const struct output *o, const void *fast, const void *plain)
{
    double allowed = o->scale == EXACT ? 0 : ROUNDINGS * EPS;
    if (o->rows[0] > 0) {
        for (int r = 0; r < o->rows[0] * o->rows[1]; r++) {
            int i = r / o->rows[1], j = r % o->rows[1];
            size_t at = (size_t)i * o->step.sequence + (size_t)j * o->step.position;
            PP_TRY(compare_same(o->columns, (const float *)fast + at, (const float *)plain + at,
                                allowed * o->scale, allowed, o->columns, "%s: %s[%d][%d]", kernel,
                                o->name, i, j));
        }
        return 0;
    }
    if (o->size == sizeof(float)) {
        return compare_same(o->n, fast, plain, allowed * o->scale, allowed, o->columns, "%s: %s",
                            kernel, o->name);
    }
    if (o->size == sizeof(struct pp_loss_sums))
        return same_sums(kernel, o, fast, plain);
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
