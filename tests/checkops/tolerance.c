/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each kernel writes, and how far off that may be. The tolerances follow from the arithmetic,
 * not from experience:
 *   products     a sum of K products is off by at most about sqrt(K) roundings (K in the worst
 *                case, which blocked summation does not meet) of a number no larger than the
 *                product of the two vectors' lengths: 2 eps (4 + sqrt(K)) * length * length
 *   added up     to what is there already: a rounding of that for each term
 *   the rest     ROUNDINGS eps, of the element or of the scale that the formula works at
 * and numbers so small that the CPU backend takes them for 0.
 */
#include "checkops.h"

#include "../../src/dev/attention.h"

#include <math.h>

#define OUT(o, field, count, col, terms)                                                           \
    ((o)->of[(o)->n++] = (struct output){.name = #field,                                           \
                                         .at = (void *)&a->field,                                  \
                                         .n = (size_t)(count),                                     \
                                         .size = sizeof(*a->field),                                \
                                         .columns = (size_t)(col),                                 \
                                         .scale = (terms)})

#define MOST greatest_of

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

/* Of the terms of a sum of K products of vectors of these lengths: see above. */
static double product(int K, double left, double right)
{
    return 2 * (4 + sqrt((double)K)) / ROUNDINGS * left * right;
}

/* Sums of K products of vectors of these lengths are so large when the signs are random. */
static void add_typical(struct outputs *o, double K, double left, double right)
{
    for (int i = 0; i < o->n; i++)
        o->of[i].typical += K > 0 ? left * right / sqrt(K) : 0;
}

/* ---- linear layers and flat buffers */

void bound_linear_forward(struct pp_linear_forward *a, struct outputs *o)
{
    size_t n = (size_t)a->B * (size_t)a->O, I = (size_t)a->I;
    double x = longest_of(a->B, a->I, I, 1, a->x), W = longest_of(a->O, a->I, I, 1, a->W);
    double terms =
        pp_activation_facts(a->act)->steepest * product(a->I, x, W) + MOST((size_t)a->O, a->b);
    OUT(o, z, n, a->O, terms);
    OUT(o, y, n, a->O, terms);
    add_typical(o, a->I, x, W);
}

void bound_linear_backward_input(struct pp_linear_backward_input *a, struct outputs *o)
{
    double dz = longest_of(a->B, a->O, (size_t)a->O, 1, a->dz);
    double W = longest_of(a->I, a->O, 1, (size_t)a->I, a->W);
    OUT(o, dx, (size_t)a->B * (size_t)a->I, a->I, product(a->O, dz, W));
    add_typical(o, a->O, dz, W);
}

/* The sum of the parts' tolerances bounds that of one product over all their rows. */
void bound_linear_backward_weight(struct pp_linear_backward_weight *a, struct outputs *o)
{
    size_t I = (size_t)a->I, O = (size_t)a->O;
    double old[2] = {most_old(a->beta != 0, O * I, a->dW),
                     a->db ? most_old(a->beta != 0, O, a->db) : 0};
    double weight = 0, bias = 0, most = 0;
    int rows = 0;
    for (const struct pp_weight_part *p = a->parts; p < a->parts + a->n; p++) {
        double dz = longest_of(a->O, p->B, 1, O, p->dz), x = longest_of(a->I, p->B, 1, I, p->x);
        rows += p->B;
        most = fmax(most, dz * x);
        weight += p->B * old[0] / ROUNDINGS + product(rows, dz, x);
        bias += p->B * old[1] / ROUNDINGS + product(rows, dz, sqrt((double)p->B));
    }
    OUT(o, dW, O * I, I, weight);
    OUT(o, db, O, O, bias);
    add_typical(o, rows, most, 1);
}

void bound_sum_squares(struct pp_sum_squares *a, struct outputs *o)
{
    OUT(o, out, 1, 1, 0);
}

void bound_largest(struct pp_largest *a, struct outputs *o)
{
    OUT(o, io, 1, 1, EXACT);
}

/* One step moves p by lr * (about 1 where a second moment divides, as in Adam, else the gradient or
 * the velocity). */
void bound_optimizer_step(struct pp_optimizer_step *a, struct outputs *o)
{
    const struct pp_optimizer_args *args = a->args;
    double p = MOST(a->n, a->p), g = MOST(a->n, a->g) * fabs((double)args->grad_scale) +
                                     fabs((double)args->weight_decay) * p;
    double m = fmax(MOST(a->n, a->m), g), v = fmax(MOST(a->n, a->v), g * g);
    bool has_second = pp_optimizer_moments(args->kind) > 1;
    OUT(o, p, a->n, a->n, p + fabs((double)args->lr) * (has_second ? 100 : m));
    OUT(o, m, a->n, a->n, m);
    OUT(o, v, a->n, a->n, v);
}

void bound_judge(struct pp_judgement *a, struct outputs *o)
{
    OUT(o, verdict, 1, 1, EXACT);
    OUT(o, args, 1, 1, EXACT);
    OUT(o, sums, 1, 1, 0);
    o->of[2].loss = a->sums->loss;
}

/* ---- images */

/* No shorter than what an output of a convolution sees: one of these pixels a tap. */
static double longest_patch(const struct pp_conv *g, size_t pixels, int C, const float *x)
{
    return sqrt((double)g->kh * g->kw) * longest_of((int)pixels, C, (size_t)C, 1, x);
}

void bound_conv_forward(struct pp_conv_forward *a, struct outputs *o)
{
    const struct pp_conv *g = a->g;
    int K = g->kh * g->kw * (g->C / g->groups);
    double x = longest_patch(g, (size_t)a->B * (size_t)g->H * (size_t)g->W, g->C, a->x);
    double W = longest_of(g->O, K, (size_t)K, 1, a->W);
    OUT(o, y, floats_out(g, a->B), g->O, product(K, x, W) + MOST((size_t)g->O, a->b));
    add_typical(o, K, x, W);
}

void bound_conv_backward_input(struct pp_conv_backward_input *a, struct outputs *o)
{
    const struct pp_conv *g = a->g;
    int taps = g->kh * g->kw, K = taps * (g->C / g->groups);
    size_t n = floats_in(g, a->B);
    double dz = longest_patch(g, (size_t)a->B * (size_t)g->OH * (size_t)g->OW, g->O, a->dz);
    double W = sqrt((double)taps) * longest_of(K, g->O, 1, (size_t)K, a->W);
    OUT(o, dx, n, g->C, product(taps * (g->O / g->groups), dz, W) + most_old(a->add, n, a->dx));
    add_typical(o, taps * (g->O / g->groups), dz, W);
}

void bound_conv_backward_weight(struct pp_conv_backward_weight *a, struct outputs *o)
{
    const struct pp_conv *g = a->g;
    size_t O = (size_t)g->O, K = (size_t)(g->kh * g->kw) * (size_t)(g->C / g->groups);
    double weight = most_old(a->beta != 0, O * K, a->dW), bias = 0, most = 0;
    int rows = 0;
    for (const struct pp_weight_part *p = a->parts; p < a->parts + a->n; p++) {
        int out = p->B * g->OH * g->OW, in = p->B * g->H * g->W;
        double dz = longest_of(g->O, out, 1, O, p->dz);
        double x = longest_of(g->C, in, 1, (size_t)g->C, p->x);
        rows += out;
        most = fmax(most, dz * x);
        weight += product(rows, dz, x);
        bias += product(rows, dz, sqrt((double)out));
    }
    OUT(o, dW, O * K, K, weight);
    OUT(o, db, O, O, bias + (a->db ? most_old(a->beta != 0, O, a->db) : 0));
    add_typical(o, rows, most, 1);
}

void bound_move_pictures(struct pp_move_pictures *a, struct outputs *o)
{
    OUT(o, pictures, (size_t)a->B * (size_t)(a->H * a->W * a->C), a->C, EXACT);
}

void bound_gather(struct pp_gather *a, struct outputs *o)
{
    OUT(o, x, (size_t)a->B * (size_t)a->F, a->F, EXACT);
}

void bound_targets(struct pp_targets *a, struct outputs *o)
{
    OUT(o, targets, (size_t)a->B * (size_t)a->P, a->P, EXACT);
    struct output *bytes = &o->of[0]; /* as floats, small numbers are denormals: all alike */
    bytes->n *= bytes->size;
    bytes->columns *= bytes->size;
    bytes->size = 1;
}

/* x - max is rounded at the size of x, and exp passes that on as a relative error. */
void bound_softmax_cross_entropy(struct pp_softmax_cross_entropy *a, struct outputs *o)
{
    size_t rows = (size_t)a->B * (size_t)a->P, n = rows * (size_t)a->C;
    double x = MOST(n, a->logits), w = a->weights ? MOST(a->C, a->weights) : 1;
    OUT(o, dlogits, n, a->C, (1 + x) * w * fabs((double)a->grad_scale));
    OUT(o, sums, 1, rows, (1 + x) * w);
    o->of[1].loss = a->sums->loss;
}

/* The difference is rounded at the size of its terms, and twice it is the largest derivative. */
void bound_numbers_loss(struct pp_numbers_loss *a, struct outputs *o)
{
    size_t n = (size_t)a->B * (size_t)a->C;
    double x = 1 + MOST(n, a->outputs) + MOST(n, a->targets);
    OUT(o, doutputs, n, a->C, 2 * x * fabs((double)a->grad_scale));
    OUT(o, sums, 1, n, x * x);
    o->of[1].loss = a->sums->loss;
}

void bound_batch_norm_forward(struct pp_batch_norm_forward *a, struct outputs *o)
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

void bound_batch_norm_backward_input(struct pp_batch_norm_backward_input *a, struct outputs *o)
{
    size_t C = (size_t)a->C, rows = (size_t)a->B * (size_t)a->P, n = rows * C;
    double dy = MOST(n, a->dy), rstd = n ? MOST(C, a->keep + C) : 0;
    OUT(o, dy, n, C, 0);
    OUT(o, sums, 2 * C, C, SIGMAS * sqrt((double)rows) * dy);
    OUT(o, dx, n, C, MOST(C, a->gamma) * rstd * dy * SIGMAS + most_old(a->add, n, a->dx));
    OUT(o, d_residual, n, C, dy + most_old(a->add_residual, n, a->d_residual));
}

void bound_batch_norm_backward_weight(struct pp_batch_norm_backward_weight *a, struct outputs *o)
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

void bound_batch_norm_spread(struct pp_batch_norm_spread *a, struct outputs *o)
{
    OUT(o, own, a->C, a->C, MOST(a->C, a->stat_mean));
}

void bound_batch_norm_commit(struct pp_batch_norm_commit *a, struct outputs *o)
{
    OUT(o, running_mean, a->C, a->C, 0);
    OUT(o, running_var, a->C, a->C, 0);
    OUT(o, tracked, 1, 1, 0);
}

void bound_group_norm_forward(struct pp_group_norm_forward *a, struct outputs *o)
{
    size_t C = (size_t)a->C, n = (size_t)a->B * (size_t)a->P * C;
    OUT(o, y, n, C, MOST(C, a->gamma) * SIGMAS + MOST(C, a->beta) + MOST(n, a->residual));
    OUT(o, keep, 2 * (size_t)a->B * (size_t)a->G, a->G, 0);
}

void bound_group_norm_backward_input(struct pp_group_norm_backward_input *a, struct outputs *o)
{
    size_t C = (size_t)a->C, n = (size_t)a->B * (size_t)a->P * C,
           keep = (size_t)a->B * (size_t)a->G;
    double dy = MOST(n, a->dy), factor = MOST(C, a->gamma) * MOST(keep, a->keep + keep) * SIGMAS;
    OUT(o, dy, n, C, 0);
    OUT(o, dx, n, C, factor * dy + most_old(a->add, n, a->dx));
    OUT(o, d_residual, n, C, dy + most_old(a->add_residual, n, a->d_residual));
}

void bound_group_norm_backward_weight(struct pp_group_norm_backward_weight *a, struct outputs *o)
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
    for (int b = 0; b < (s->sequence > 0 ? a->B : 1); b++)
        for (int i = 0; i < positions; i++)
            most = fmax(most, longest_of(heads, a->width, s->head, 1,
                                         x + (size_t)b * s->sequence + (size_t)i * s->position));
    return most;
}

/* Heads at each position. */
static void out_heads(struct outputs *o, const char *name, float **at, const struct pp_attention *a,
                      int heads, int positions, struct pp_strides step, double scale)
{
    size_t n = 0;
    if (a->B > 0 && positions > 0)
        n = (size_t)(a->B - 1) * step.sequence + (size_t)(positions - 1) * step.position +
            (size_t)(heads - 1) * step.head + (size_t)a->width;
    o->of[o->n++] = (struct output){.name = name,
                                    .at = at,
                                    .n = n,
                                    .size = sizeof(float),
                                    .columns = (size_t)a->width,
                                    .scale = scale,
                                    .rows = {a->B, positions, heads},
                                    .step = step};
}

static double scale_of(const struct pp_attention *a)
{
    return a->scale > 0 ? (double)a->scale : 1 / sqrt((double)a->width);
}

/* A probability is off by the roundings of its score, and by those of the sum that divides it. */
static double of_probability(const struct pp_attention *a)
{
    double q = longest_head(a, a->heads, a->queries, &a->q_at, a->q);
    double k = longest_head(a, a->kv_heads, a->keys, &a->k_at, a->k);
    double masked = a->mask ? 1 : 0; /* those of its numbers that hide no key are below 1 */
    return 2 * product(a->width, q, k) * scale_of(a) + masked + product(a->keys, 1, 1);
}

void bound_attention_forward(struct pp_attention *a, struct outputs *o)
{
    double p = of_probability(a), v = longest_head(a, a->kv_heads, a->keys, &a->v_at, a->v);
    double grown = a->step ? 1 / (1 - (double)a->p) : 1;
    out_heads(o, "y", &a->y, a, a->heads, a->queries, a->y_at, grown * (1 + p) * v);
    OUT(o, lse, a->B * a->queries * a->heads, a->heads, p);
}

/* The gradient of a score is p (dp - sum of p dp), dp = dy . v, and no |dp| is larger than twice
 * the lengths'; sums over keys have the weights p, those over queries are of as many terms. */
void bound_attention_backward(struct pp_attention *a, struct outputs *o)
{
    struct pp_strides q_at = attention_gradient(a->q_at), k_at = attention_gradient(a->k_at);
    double q = longest_head(a, a->heads, a->queries, &a->q_at, a->q);
    double k = longest_head(a, a->kv_heads, a->keys, &a->k_at, a->k);
    double v = longest_head(a, a->kv_heads, a->keys, &a->v_at, a->v);
    double dy = longest_head(a, a->heads, a->queries, &a->y_at, a->dy);
    double grown = a->step ? 1 / (1 - (double)a->p) : 1;
    double p = grown * (1 + of_probability(a) + product(a->width, 1, 1));
    double ds = 2 * p * dy * v, scale = scale_of(a);
    int group = a->heads / a->kv_heads;
    double terms = (double)a->queries * group;
    size_t n = (size_t)a->queries * (size_t)a->heads * (size_t)a->width;
    out_heads(o, "dq", &a->dq, a, a->heads, a->queries, q_at,
              scale * ds * k +
                  (a->add && n ? longest_head(a, a->heads, a->queries, &q_at, a->dq) : 0));
    for (int j = 0; j < 2; j++) {
        float **d = j ? &a->dv : &a->dk;
        double old =
            (j ? a->add_v : a->add_k) && *d ? longest_head(a, a->kv_heads, a->keys, &k_at, *d) : 0;
        out_heads(o, j ? "dv" : "dk", d, a, a->kv_heads, a->keys, k_at,
                  terms * (j ? p * dy : scale * ds * q) + old);
    }
    size_t mask = (size_t)a->B * a->mask_at.gradient;
    double shared =
        (a->mask_at.head > 0 ? 1 : a->heads) * (a->mask_at.position > 0 ? 1.0 : a->queries);
    OUT(o, dmask, mask, a->mask_at.gradient,
        ds * shared + (a->dmask ? most_old(a->add_mask, mask, a->dmask) : 0));
    for (int i = 0; i < o->n; i++) /* parts of a difference, which rounded factors keep from 0 */
        o->of[i].typical = dy * v / a->width * (i + 1 < o->n ? fmax(q, k) * scale : 1);
}

void bound_row_norm_forward(struct pp_row_norm_forward *a, struct outputs *o)
{
    size_t C = (size_t)a->C, n = (size_t)a->B * C;
    OUT(o, y, n, C, MOST(C, a->gamma) * SIGMAS + MOST(C, a->beta));
    OUT(o, keep, 2 * (size_t)a->B, 2, MOST(n, a->x)); /* a mean is rounded at the size of x */
}

void bound_row_norm_backward_input(struct pp_row_norm_backward_input *a, struct outputs *o)
{
    size_t C = (size_t)a->C, n = (size_t)a->B * C, keep = 2 * (size_t)a->B;
    double rstd = 0;
    for (size_t i = 1; i < keep; i += 2)
        rstd = fmax(rstd, (double)a->keep[i]);
    OUT(o, dx, n, C,
        MOST(C, a->gamma) * rstd * SIGMAS * MOST(n, a->dy) + most_old(a->add, n, a->dx));
}

void bound_row_norm_backward_weight(struct pp_row_norm_backward_weight *a, struct outputs *o)
{
    size_t C = (size_t)a->C, rows = (size_t)a->B;
    double sum = SIGMAS * sqrt((double)rows) * MOST(rows * C, a->dy);
    OUT(o, dgamma, C, C, sum + most_old(a->beta != 0, C, a->dgamma));
    OUT(o, dbeta, C, C, sum + (a->dbeta ? most_old(a->beta != 0, C, a->dbeta) : 0));
}

void bound_embedding_forward(struct pp_embedding_forward *a, struct outputs *o)
{
    OUT(o, y, (size_t)a->B * (size_t)a->T * (size_t)a->C, a->C, (double)FLT_MIN);
}

void bound_embedding_backward_weight(struct pp_embedding_backward_weight *a, struct outputs *o)
{
    size_t C = (size_t)a->C, W = (size_t)a->V * C, P = (size_t)a->T * C;
    size_t rows = (size_t)a->B * (size_t)a->T;
    double sum = SIGMAS * sqrt((double)rows) * MOST(rows * C, a->dy);
    OUT(o, dW, W, C, sum + most_old(a->beta != 0, W, a->dW));
    OUT(o, dP, P, C, sum + (a->dP ? most_old(a->beta != 0, P, a->dP) : 0));
}

void bound_rotary(struct pp_rotary *a, struct outputs *o)
{
    size_t n = (size_t)a->B * (size_t)a->T * (size_t)a->C;
    OUT(o, y, n, a->C, MOST(n, a->x) + most_old(a->add, n, a->y));
}

void bound_gated_forward(struct pp_gated *a, struct outputs *o)
{
    size_t n = (size_t)a->B * (size_t)a->F;
    double x = MOST(2 * n, a->x); /* silu of a number is no larger */
    OUT(o, y, n, a->F, fmin(x, 10) * x);
}

void bound_gated_backward(struct pp_gated_backward *a, struct outputs *o)
{
    size_t n = (size_t)a->B * (size_t)a->F;
    double x = fmax(MOST(2 * n, a->x), 1);
    OUT(o, dx, 2 * n, 2 * a->F, MOST(n, a->dy) * x + most_old(a->add, 2 * n, a->dx));
}

void bound_max_pool_forward(struct pp_max_pool_forward *a, struct outputs *o)
{
    OUT(o, y, floats_out(a->g, a->B), a->g->O, 0);
    OUT(o, taken, floats_out(a->g, a->B), a->g->O, 0);
}

void bound_max_pool_backward(struct pp_max_pool_backward *a, struct outputs *o)
{
    size_t n = floats_in(a->g, a->B);
    OUT(o, dx, n, a->g->C, MOST(floats_out(a->g, a->B), a->dy) + most_old(a->add, n, a->dx));
}

void bound_avg_pool_forward(struct pp_avg_pool *a, struct outputs *o)
{
    OUT(o, y, floats_out(a->g, a->B), a->g->O, MOST(floats_in(a->g, a->B), a->x));
}

void bound_avg_pool_backward(struct pp_avg_pool *a, struct outputs *o)
{
    size_t n = floats_in(a->g, a->B);
    OUT(o, y, n, a->g->C, MOST(floats_out(a->g, a->B), a->x) + most_old(a->add, n, a->y));
}

void bound_activate_forward(struct pp_activate *a, struct outputs *o)
{
    OUT(o, y, a->n, a->n, fmin(MOST(a->n, a->x), 10)); /* further out they are flat or straight */
}

void bound_activate_backward(struct pp_activate_backward *a, struct outputs *o)
{
    OUT(o, dx, a->n, a->n, MOST(a->n, a->dy) + most_old(a->add, a->n, a->dx));
}

void bound_sum(struct pp_sum *a, struct outputs *o)
{
    OUT(o, y, a->n, a->n, (double)FLT_MIN);
}

/* What a register holds: no more than `most`, and `off` roundings of 1 from the true number. */
struct held {
    double most, off;
};

/* The result of a step whose operands are these, given that roots, logarithms and divisors are of
 * numbers above 0.7 and powers within 2. */
static struct held hold_step(const struct pp_expr_step *s, struct held a, struct held b,
                             struct held c)
{
    double steepest = 1, most = 1;
    switch ((enum pp_expr_code)s->code) {
    case PP_EXPR_ADD:
    case PP_EXPR_SUB:
        return (struct held){a.most + b.most, a.off + b.off + a.most + b.most};
    case PP_EXPR_MUL:
        return (struct held){a.most * b.most, a.off * b.most + b.off * a.most + a.most * b.most};
    case PP_EXPR_DIV:
        return (struct held){a.most * 2, a.off * 2 + b.off * a.most * 4 + a.most * 2};
    case PP_EXPR_MAX:
    case PP_EXPR_MIN:
        return (struct held){fmax(a.most, b.most), fmax(a.off, b.off)};
    case PP_EXPR_SELECT:
        return (struct held){fmax(b.most, c.most), fmax(b.off, c.off)};
    case PP_EXPR_ACT_BACK:
        return (struct held){2 * b.most * (1 + a.most * a.most),
                             2 * b.off * (1 + a.most * a.most) +
                                 8 * (a.off + 1) * b.most * (1 + a.most)};
    case PP_EXPR_POW:
        most = fmax(pow(a.most, 2), 2);
        steepest = 6 * fmax(a.most, 1);
        break;
    case PP_EXPR_EXP: /* of a tanh */
    case PP_EXPR_EXPM1:
        most = steepest = 3;
        break;
    case PP_EXPR_SQRT:
    case PP_EXPR_RSQRT:
    case PP_EXPR_LOG:
    case PP_EXPR_LOG1P:
    case PP_EXPR_ACT:
    case PP_EXPR_NEG:
    case PP_EXPR_ABS:
    case PP_EXPR_FLOOR:
    case PP_EXPR_TRUNC:
        most = fmax(a.most, 1.5);
        steepest = 1.5;
        break;
    default: /* no larger than 1 */
        steepest = 1.2;
        break;
    }
    return (struct held){most, steepest * a.off + 2 * most};
}

void bound_expr(struct pp_expr_run *a, struct outputs *o)
{
    const struct pp_expr *e = a->e;
    struct held r[PP_EXPR_REGISTERS] = {{0, 0}};
    for (const struct pp_expr_step *s = e->steps; s < e->steps + e->n_steps; s++) {
        if (s->code != PP_EXPR_STORE) {
            struct held number = {fabs((double)s->number), 0};
            const struct held *of[] = {s->a == PP_EXPR_NUMBER ? &number : &r[s->a],
                                       s->b == PP_EXPR_NUMBER ? &number : &r[s->b],
                                       s->c == PP_EXPR_NUMBER ? &number : &r[s->c]};
            r[s->to] = s->code == PP_EXPR_LOAD ? (struct held){1, 0}
                                               : hold_step(s, *of[0], *of[1], *of[2]);
            continue;
        }
        const struct pp_expr_array *v = &e->out[s->to];
        size_t n = v->offset + 1, terms = 1;
        for (int i = 0; i < e->n_axes; i++)
            terms *= v->stride[i] == 0 || v->repeats ? (size_t)e->size[i] : 1;
        for (int i = 0; i < e->n_axes; i++) {
            size_t last = (size_t)e->size[i] - 1;
            for (int k = 0; i == v->table_axis && k < e->size[i]; k++)
                last = k == 0 || (size_t)a->tables[v->table + (size_t)k] > last
                           ? (size_t)a->tables[v->table + (size_t)k]
                           : last;
            n += v->stride[i] > 0 ? last * (size_t)v->stride[i] : 0;
        }
        n = a->B > 0 ? n + (size_t)(a->B - 1) * v->sample : 0;
        double old = a->y[s->to] ? most_old(a->add[s->to], n, a->y[s->to]) : 0;
        double sum = r[s->a].off / ROUNDINGS + r[s->a].most * (1 + sqrt((double)terms));
        OUT(o, y[s->to], n, n,
            (double)terms * sum / (terms > 1 ? 4 : 1) + old * sqrt((double)terms));
    }
}

void bound_softmax_forward(struct pp_softmax_forward *a, struct outputs *o)
{
    size_t n = (size_t)(a->B * a->outer * a->n * a->inner);
    double x = 0;
    for (size_t i = 0; i < n; i++)
        x = isfinite(a->x[i]) ? fmax(x, fabs((double)a->x[i])) : x;
    OUT(o, y, n, n, a->log ? 1 + 2 * x : (1 + x) / 4);
}

void bound_softmax_backward(struct pp_softmax_backward *a, struct outputs *o)
{
    size_t n = (size_t)(a->B * a->outer * a->n * a->inner);
    double dy = MOST(n, a->dy), most = a->log ? 1 : MOST(n, a->y);
    OUT(o, dx, n, n, 2 * dy * most * (a->log ? a->n : 1) + most_old(a->add, n, a->dx));
}

void bound_muon(struct pp_muon *a, struct outputs *o)
{
    double x = MOST(a->n, a->x), y = a->y ? MOST(a->n, a->y) : 0;
    if (a->part == PP_MUON_UNIT)
        x /= fmax(sqrt(*a->squares), 1e-7);
    if (a->part == PP_MUON_END || a->part == PP_MUON_MIX)
        x *= fabs((double)a->a);
    if (a->part == PP_MUON_BEGIN || a->part == PP_MUON_UNIT)
        OUT(o, x, a->n, a->n, x + y);
    if (a->part != PP_MUON_UNIT)
        OUT(o, y, a->n, a->n, x + (1 + fabs((double)a->b)) * y);
}

void bound_dropout(struct pp_dropout *a, struct outputs *o)
{
    size_t n = (size_t)a->B * a->F;
    OUT(o, y, n, a->F, most_old(a->add, n, a->y));
}
