/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of attention, of norms of a row and of embeddings. */
#include <math.h>

#include "checkops.h"
#include "ppcli/base/base.h"

/* ---- attention */

/* q, k and v in one array: in one row of a position; all q of a sequence before the rest; or head by
 * head, the positions of a head one after the other. Now and then all sequences share them. */
static void lay_out(struct sample *s, struct pp_attention *a)
{
    enum {
        ROWS,
        BLOCKS,
        HEADS,
        LAYOUTS
    } layout = (int)draw(s, LAYOUTS);
    size_t W = (size_t)a->width, q = (size_t)a->heads * W, kv = (size_t)a->kv_heads * W;
    size_t queries = (size_t)a->queries, keys = (size_t)a->keys;
    layout = s->large || (layout == ROWS && queries != keys) ? BLOCKS : layout;
    size_t all = queries * q + keys * 2 * kv, k = layout == ROWS ? q : queries * q, v = k + kv;
    size_t sequence = !s->large && draw(s, 8) == 0 ? 0 : all;
    a->q_at = (struct pp_strides){sequence, layout == ROWS ? q + 2 * kv : q, W, all};
    a->k_at = (struct pp_strides){sequence, layout == ROWS ? q + 2 * kv : 2 * kv, W, all};
    a->y_at = (struct pp_strides){queries * q, q, W, 0};
    if (layout == HEADS) {
        a->q_at = (struct pp_strides){sequence, W, queries * W, all};
        a->k_at = (struct pp_strides){sequence, W, keys * W, all};
        a->y_at = (struct pp_strides){queries * q, W, queries * W, 0};
        v = k + keys * kv;
    }
    a->v_at = a->k_at;
    VALUES(q, sequence > 0 ? (size_t)a->B * all : all);
    give_also(s, &a->k, k);
    give_also(s, &a->v, v);
}

/* A mask with any of its axes missing, and in one of two orders: small numbers; or those that hide
 * keys, as a bool mask or with a large number. */
static void make_mask(struct sample *s, struct pp_attention *a)
{
    size_t B = draw(s, 3) > 0 ? (size_t)a->B : 1, H = flip(s) ? (size_t)a->heads : 1;
    size_t Q = draw(s, 3) > 0 ? (size_t)a->queries : 1, K = draw(s, 5) > 0 ? (size_t)a->keys : 1;
    bool keys_first = draw(s, 4) == 0;
    a->mask_at.sequence = B > 1 ? H * Q * K : 0;
    a->mask_at.gradient = H * Q * K;
    a->mask_at.head = H == 1 ? 0 : keys_first ? 1 : Q * K;
    a->mask_at.position = Q == 1 ? 0 : keys_first ? H * K : K;
    a->mask_key = K == 1 ? 0 : keys_first ? H : 1;
    float *mask = VALUES(mask, B * H * Q * K);
    const float hide[] = {0, -INFINITY, -0x1p100f}, hidden = hide[draw(s, 3)];
    for (size_t i = 0; hidden < 0 && i < B * H * Q * K; i++)
        mask[i] = draw(s, 3) == 0 ? hidden : flip(s) ? 0 : mask[i];
    if (hidden < 0 && !keys_first && B > 0 && flip(s))
        for (size_t j = 0; j < K; j++) /* a query that sees nothing */
            mask[j] = hidden;
}

static void make_attention(struct sample *s, struct pp_attention *a)
{
    a->B = some_rows(s, 2);
    a->kv_heads = 1 + (int)draw(s, 3);
    a->heads = a->kv_heads * (1 + (int)draw(s, 2));
    a->width = odd(s, 130);
    a->queries = odd(s, 130);
    a->causal = flip(s);
    a->keys = flip(s) ? a->queries : a->causal ? a->queries + odd(s, 70) - 1 : odd(s, 130);
    a->scale = !s->large && draw(s, 3) == 0 ? 0.3f : 0;
    a->p = flip(s) ? 0.25f : 0;
    a->key = 99;
    a->first_row = draw(s, 5);
    a->of_queries = flip(s);
    lay_out(s, a);
    if (!s->large && flip(s))
        make_mask(s, a);
    if (a->p > 0) {
        int64_t *step = BYTES(step, 1);
        *step = 3;
    }
    if (!a->causal && flip(s)) { /* padding */
        uint32_t *lengths = BYTES(lengths, 3), *index = BYTES(index, a->B);
        for (int i = 0; i < 3; i++)
            lengths[i] = 1 + draw(s, (uint32_t)a->keys);
        for (int i = 0; i < a->B; i++)
            index[i] = draw(s, 3);
    }
    s->scratch_at = OFFSET(scratch);
    s->scratch_floats =
        pp_attention_scratch_floats(a->queries, a->keys, a->heads / a->kv_heads, a->width);
}

void make_attention_forward(struct sample *s, struct pp_attention *a)
{
    make_attention(s, a);
    VALUE_RESULT(y, a->B * a->queries * a->heads * a->width, false);
    if (flip(s))
        RESULT(lse, a->B * a->queries * a->heads, false);
}

/* lse and y are what a forward pass left. */
void make_attention_backward(struct sample *s, struct pp_attention *a)
{
    make_attention(s, a);
    size_t n = (size_t)(a->B * a->queries * a->heads);
    ptrdiff_t k = a->k - a->q, v = a->v - a->q;
    bool add = flip(s), whole = s->large || draw(s, 4) > 0;
    VALUE_RESULT(y, n * (size_t)a->width, false);
    RESULT(lse, n, false);
    PP_OWN_MEMORY float *scratch = pp_alloc(s->scratch_floats, sizeof(float));
    a->scratch = scratch;
    pp_backend_attention_forward(s->plain, a);
    a->scratch = NULL;
    a->add = a->add_k = a->add_v = add;
    VALUES(dy, n * (size_t)a->width);
    VALUE_RESULT(dq, (size_t)a->B * a->q_at.gradient, add);
    if (whole || flip(s))
        give_also(s, &a->dk, (size_t)k);
    if (whole || flip(s))
        give_also(s, &a->dv, (size_t)v);
    a->add_mask = flip(s);
    if (a->mask && flip(s))
        VALUE_RESULT(dmask, (size_t)a->B * a->mask_at.gradient, a->add_mask);
}

/* ---- rows */

/* Mean and one over the deviation of each row. */
static void some_moments(float *keep, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        keep[2 * i] *= 0.3f;
        keep[2 * i + 1] = 1 + 0.5f * keep[2 * i + 1];
    }
}

void make_row_norm_forward(struct sample *s, struct pp_row_norm_forward *a)
{
    a->B = some_rows(s, 33);
    a->C = odd(s, 770);
    a->centred = flip(s);
    a->eps = 1e-5f;
    float *x = VALUES(x, a->B * a->C), offset = draw(s, 6) == 0 ? 1000 : 0;
    for (int i = 0; i < a->B * a->C; i++)
        x[i] = x[i] * (float)(1 + i / a->C % 5) + offset;
    FLOATS(gamma, a->C);
    if (flip(s))
        FLOATS(beta, a->C);
    RESULT(keep, 2 * a->B, false);
    VALUE_RESULT(y, a->B * a->C, false);
}

void make_row_norm_backward_input(struct sample *s, struct pp_row_norm_backward_input *a)
{
    a->B = some_rows(s, 33);
    a->C = odd(s, 770);
    a->centred = flip(s);
    a->add = flip(s);
    VALUES(x, a->B * a->C);
    FLOATS(gamma, a->C);
    some_moments(FLOATS(keep, 2 * a->B), (size_t)a->B);
    VALUES(dy, a->B * a->C);
    VALUE_RESULT(dx, a->B * a->C, a->add);
}

void make_row_norm_backward_weight(struct sample *s, struct pp_row_norm_backward_weight *a)
{
    a->B = some_rows(s, 33);
    a->C = odd(s, 770);
    a->beta = (float)flip(s);
    VALUES(x, a->B * a->C);
    some_moments(FLOATS(keep, 2 * a->B), (size_t)a->B);
    VALUES(dy, a->B * a->C);
    RESULT(dgamma, a->C, a->beta != 0);
    if (flip(s))
        RESULT(dbeta, a->C, a->beta != 0);
}

/* ---- texts */

/* Some are none. */
static void make_tokens(struct sample *s, float *x, int n, int V)
{
    for (int i = 0; i < n; i++)
        x[i] = draw(s, 17) == 0 ? (float)(flip(s) ? V : -1) : (float)draw(s, (uint32_t)V);
}

void make_embedding_forward(struct sample *s, struct pp_embedding_forward *a)
{
    a->B = some_rows(s, 5);
    a->T = odd(s, 33);
    a->V = odd(s, 300);
    a->C = odd(s, 257);
    a->first = (int)draw(s, 7);
    make_tokens(s, BYTES(x, a->B * a->T), a->B * a->T, a->V);
    FLOATS(W, a->V * a->C);
    if (flip(s))
        FLOATS(P, (a->T + a->first) * a->C);
    VALUE_RESULT(y, a->B * a->T * a->C, false);
}

void make_embedding_backward_weight(struct sample *s, struct pp_embedding_backward_weight *a)
{
    a->B = some_rows(s, 5);
    a->T = odd(s, 33);
    a->V = odd(s, 300);
    a->C = odd(s, 257);
    a->beta = (float)flip(s);
    make_tokens(s, BYTES(x, a->B * a->T), a->B * a->T, a->V);
    VALUES(dy, a->B * a->T * a->C);
    RESULT(dW, a->V * a->C, a->beta != 0);
    if (flip(s))
        RESULT(dP, a->T * a->C, a->beta != 0);
    a->padding = flip(s) ? 1 + (int)draw(s, (uint32_t)a->V) : 0;
}

void make_rotary(struct sample *s, struct pp_rotary *a)
{
    a->B = some_rows(s, 5);
    a->T = odd(s, 70);
    a->heads = 1 + (int)draw(s, 3);
    a->width = 2 * odd(s, 130);
    a->C = a->heads * a->width + (int)draw(s, 5);
    a->first = flip(s) ? 1000 : 0;
    a->base = 10000;
    if (flip(s)) /* linear or llama3's */
        a->scaling = flip(s) ? (struct pp_rope_scaling){.factor = 2.5f}
                             : (struct pp_rope_scaling){8, 1, 4, 512};
    a->back = flip(s);
    a->add = flip(s);
    VALUES(x, a->B * a->T * a->C);
    VALUE_RESULT(y, a->B * a->T * a->C, a->add);
}
