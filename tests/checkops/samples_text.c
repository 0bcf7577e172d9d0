/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of attention, of norms of a row and of embeddings. */
#include <math.h>

#include "checkops.h"
#include "ppcli/base/base.h"

/* ---- attention */

/* q, k and v in one array, either in one row of a position or all q of a sequence before the rest. */
static size_t lay_out(struct sample *s, struct pp_attention *a)
{
    size_t q = (size_t)(a->heads * a->width), kv = (size_t)(a->kv_heads * a->width);
    size_t queries = (size_t)a->queries, keys = (size_t)a->keys;
    bool rows = flip(s) && queries == keys;
    size_t all = queries * q + keys * 2 * kv;
    a->q_at = (struct pp_strides){all, rows ? q + 2 * kv : q};
    a->kv_at = (struct pp_strides){all, rows ? q + 2 * kv : 2 * kv};
    a->y_at = (struct pp_strides){queries * q, q};
    VALUES(q, (size_t)a->B * all);
    give_also(s, &a->k, rows ? q : queries * q);
    give_also(s, &a->v, (rows ? q : queries * q) + kv);
    return rows ? q : queries * q;
}

static size_t make_attention(struct sample *s, struct pp_attention *a)
{
    a->B = some_rows(s, 2);
    a->kv_heads = 1 + (int)draw(s, 3);
    a->heads = a->kv_heads * (1 + (int)draw(s, 2));
    a->width = odd(s, 130);
    a->queries = odd(s, 130);
    a->causal = flip(s);
    a->keys = flip(s) ? a->queries : a->causal ? a->queries + odd(s, 70) - 1 : odd(s, 130);
    a->p = flip(s) ? 0.25f : 0;
    a->key = 99;
    a->first_row = draw(s, 5);
    a->of_queries = flip(s);
    size_t k = lay_out(s, a);
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
    return k;
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
    size_t k = make_attention(s, a), kv = (size_t)(a->kv_heads * a->width);
    size_t n = (size_t)(a->B * a->queries * a->heads);
    bool add = flip(s);
    VALUE_RESULT(y, n * (size_t)a->width, false);
    RESULT(lse, n, false);
    PP_OWN_MEMORY float *scratch = pp_alloc(s->scratch_floats, sizeof(float));
    a->scratch = scratch;
    pp_backend_attention_forward(s->plain, a);
    a->scratch = NULL;
    a->add = a->add_kv = add;
    VALUES(dy, n * (size_t)a->width);
    VALUE_RESULT(dq, (size_t)a->B * a->q_at.sequence, add);
    give_also(s, &a->dk, k);
    give_also(s, &a->dv, k + kv);
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
