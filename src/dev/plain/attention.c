/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in double. Every probability is computed again where it is needed. */
#include <math.h>

#include "../attention.h"
#include "../kernels.h"
#include "../numbers.h"
#include "plain.h"

/* Returns the offset of head h at a position of an array. */
static size_t offset_of(const struct pp_strides *s, int b, int i, int h)
{
    return (size_t)b * s->sequence + (size_t)i * s->position + (size_t)h * s->head;
}

/* Returns the same for the gradient of the array. */
static size_t gradient_of(const struct pp_strides *s, int b, int i, int h)
{
    struct pp_strides gradient = attention_gradient(*s);
    return offset_of(&gradient, b, i, h);
}

static double dot_product(int n, const float *a, const float *b)
{
    double sum = 0;
    for (int d = 0; d < n; d++)
        sum += (double)a[d] * b[d];
    return sum;
}

static int count_seen(const struct pp_attention *a, int i)
{
    return a->causal ? a->keys - a->queries + i + 1 : a->keys;
}

static int kv_head(const struct pp_attention *a, int h)
{
    return h / (a->heads / a->kv_heads);
}

/* Returns s times the scale of the scores. */
static double scaled(const struct pp_attention *a, double s)
{
    return a->scale > 0 ? s * (double)a->scale : s / sqrt((double)a->width);
}

double plain_attention_score(const struct pp_attention *a, int b, int h, int i, int j)
{
    double s = dot_product(a->width, a->q + offset_of(&a->q_at, b, i, h),
                           a->k + offset_of(&a->k_at, b, j, kv_head(a, h)));
    s = scaled(a, s);
    return a->mask ? s + (double)a->mask[offset_of(&a->mask_at, b, i, h) + (size_t)j * a->mask_key]
                   : s;
}

int plain_attention_most(const struct pp_attention *a, int b, int h, int i, double *sum)
{
    int key = 0;
    double most = -INFINITY;
    for (int j = 0; j < count_seen(a, i); j++) {
        double s = plain_attention_score(a, b, h, i, j);
        key = s > most ? j : key;
        most = s > most ? s : most;
    }
    most = most > -INFINITY ? most : 0; /* all keys are hidden, or NaN */
    *sum = 0;
    for (int j = 0; j < count_seen(a, i); j++)
        *sum += exp(plain_attention_score(a, b, h, i, j) - most);
    return key;
}

/* Returns the factor that dropout applies to a probability. */
static double dropout_factor(const struct pp_attention *a, int b, int h, int i, int j)
{
    if (!a->step || a->p == 0)
        return 1;
    uint32_t row = a->first_row + (uint32_t)(a->of_queries ? i : b);
    uint32_t line = a->of_queries ? (uint32_t)h * (uint32_t)a->B + (uint32_t)b
                                  : (uint32_t)h * (uint32_t)a->queries + (uint32_t)i;
    uint64_t of = dropout_row(a->key, *a->step, row);
    bool dropped = dropout_number(of, line * (uint32_t)a->keys + (uint32_t)j) < dropout_limit(a->p);
    return dropped ? 0 : 1 / (1 - (double)a->p);
}

static void attend_query(const struct pp_attention *a, int b, int h, int i)
{
    double sum, *y = (double *)a->scratch;
    int key = plain_attention_most(a, b, h, i, &sum);
    double most = sum == 0 ? 0 : plain_attention_score(a, b, h, i, key);
    double log_sum = sum == 0 ? INFINITY : most + log(sum);
    sum = sum == 0 ? 1 : sum;
    for (int d = 0; d < a->width; d++)
        y[d] = 0;
    for (int j = 0; j < count_seen(a, i); j++) {
        const float *v = a->v + offset_of(&a->v_at, b, j, kv_head(a, h));
        double p = exp(plain_attention_score(a, b, h, i, j) - most),
               part = p * dropout_factor(a, b, h, i, j);
        for (int d = 0; d < a->width; d++)
            y[d] += part * v[d];
    }
    for (int d = 0; d < a->width; d++)
        a->y[offset_of(&a->y_at, b, i, h) + (size_t)d] = (float)(y[d] / sum);
    if (a->lse)
        a->lse[((size_t)b * (size_t)a->queries + (size_t)i) * (size_t)a->heads + (size_t)h] =
            (float)log_sum;
}

int plain_attention_forward(struct pp_backend *be, const struct pp_attention *a)
{
    struct pp_attention one = *a;
    for (int b = 0; b < a->B; b++) {
        one.keys = pp_length(a->lengths, a->index, b, a->keys);
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; i < a->queries; i++)
                attend_query(&one, b, h, i);
    }
    return 0;
}

/* Sets *dropped_p to the probability of query i and key j after dropout, and returns the gradient
 * of their score. */
static double score_gradient(const struct pp_attention *a, int b, int h, int i, int j,
                             double *dropped_p)
{
    size_t row = offset_of(&a->y_at, b, i, h);
    size_t line = (size_t)b * (size_t)a->queries + (size_t)i;
    double lse = a->lse[line * (size_t)a->heads + (size_t)h];
    double s = plain_attention_score(a, b, h, i, j), p = exp(s - lse), sum;
    if (isfinite(lse) && fabs(lse) >= ATTENTION_LARGE) {
        int key = plain_attention_most(a, b, h, i, &sum);
        p = exp(s - plain_attention_score(a, b, h, i, key)) / sum;
    }
    double keep = dropout_factor(a, b, h, i, j);
    double dp = dot_product(a->width, a->dy + row, a->v + offset_of(&a->v_at, b, j, kv_head(a, h)));
    *dropped_p = p * keep;
    return p * (dp * keep - dot_product(a->width, a->dy + row, a->y + row));
}

/* Stores sum[n] in to[n], or adds it if `add`. */
static void store_sum(int n, bool add, const double *sum, float *to)
{
    for (int d = 0; d < n; d++)
        to[d] = (float)((add ? (double)to[d] : 0) + sum[d]);
}

static void query_gradient(const struct pp_attention *a, int b, int h, int i)
{
    double *sum = (double *)a->scratch, p;
    for (int d = 0; d < a->width; d++)
        sum[d] = 0;
    for (int j = 0; j < count_seen(a, i); j++) {
        double ds = scaled(a, score_gradient(a, b, h, i, j, &p));
        for (int d = 0; d < a->width; d++)
            sum[d] += ds * a->k[offset_of(&a->k_at, b, j, kv_head(a, h)) + (size_t)d];
    }
    store_sum(a->width, a->add, sum, a->dq + gradient_of(&a->q_at, b, i, h));
}

static void key_gradient(const struct pp_attention *a, int b, int g, int j)
{
    double *dk = (double *)a->scratch, *dv = dk + a->width, p;
    int group = a->heads / a->kv_heads;
    for (int d = 0; d < 2 * a->width; d++)
        dk[d] = 0;
    for (int h = g * group; h < (g + 1) * group; h++) {
        for (int i = 0; i < a->queries; i++) {
            if (j >= count_seen(a, i))
                continue;
            double ds = scaled(a, score_gradient(a, b, h, i, j, &p));
            for (int d = 0; d < a->width; d++) {
                dk[d] += ds * a->q[offset_of(&a->q_at, b, i, h) + (size_t)d];
                dv[d] += p * a->dy[offset_of(&a->y_at, b, i, h) + (size_t)d];
            }
        }
    }
    if (a->dk)
        store_sum(a->width, a->add_k, dk, a->dk + gradient_of(&a->k_at, b, j, g));
    if (a->dv)
        store_sum(a->width, a->add_v, dv, a->dv + gradient_of(&a->v_at, b, j, g));
}

/* Adds up the gradients of the scores to which the number of the mask at (h, i, j) was added. */
static void mask_gradient(const struct pp_attention *a, int b, int h, int i, int j)
{
    int heads = a->mask_at.head > 0 ? h + 1 : a->heads, keys = a->mask_key > 0 ? j + 1 : a->keys;
    int queries = a->mask_at.position > 0 ? i + 1 : a->queries;
    double sum = 0, p;
    for (int of_h = h; of_h < heads; of_h++)
        for (int of_i = i; of_i < queries; of_i++)
            for (int of_j = j; of_j < keys && of_j < count_seen(a, of_i); of_j++)
                sum += score_gradient(a, b, of_h, of_i, of_j, &p);
    store_sum(1, a->add_mask, &sum,
              a->dmask + gradient_of(&a->mask_at, b, i, h) + (size_t)j * a->mask_key);
}

/* Computes the gradient of the mask of sequence b; `padded` has its keys with the padding. */
static void mask_gradients(const struct pp_attention *a, const struct pp_attention *padded, int b)
{
    int heads = a->mask_at.head > 0 ? a->heads : 1, keys = a->mask_key > 0 ? padded->keys : 1;
    int queries = a->mask_at.position > 0 ? a->queries : 1;
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < queries; i++)
            for (int j = 0; j < keys; j++)
                mask_gradient(a, b, h, i, j);
}

int plain_attention_backward(struct pp_backend *be, const struct pp_attention *a)
{
    struct pp_attention one = *a;
    for (int b = 0; b < a->B; b++) {
        one.keys = pp_length(a->lengths, a->index, b, a->keys);
        for (int h = 0; a->dq && h < a->heads; h++)
            for (int i = 0; i < a->queries; i++)
                query_gradient(&one, b, h, i);
        for (int g = 0; (a->dk || a->dv) && g < a->kv_heads; g++)
            for (int j = 0; j < a->keys; j++)
                key_gradient(&one, b, g, j);
        if (a->dmask)
            mask_gradients(&one, a, b);
    }
    return 0;
}
