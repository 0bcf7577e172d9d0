/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the attention kernels: their arguments, which keys a query sees, and dropout. */
#ifndef PPCLI_DEV_CUDA_ATTENTION_CALL_H
#define PPCLI_DEV_CUDA_ATTENTION_CALL_H

#include "kernels.h"
#include "vector.h"

#include "../numbers.h"

#include <math.h>

struct call {
    struct pp_attention a;
    float scale;
    uint32_t limit; /* of dropout; 0: none */
    float grown;
};

static inline struct call call_of(const struct pp_attention *a)
{
    float scale = a->scale > 0 ? a->scale : (float)(1 / sqrt((double)a->width));
    struct call q = {*a, scale, 0, 1.0f};
    if (a->step && a->p > 0) {
        q.limit = dropout_limit(a->p);
        q.grown = (float)(1 / (1 - (double)a->p));
    }
    return q;
}

static __device__ inline size_t head_at(const struct pp_strides *s, int b, int h)
{
    return (size_t)b * s->sequence + (size_t)h * s->head;
}

/* Returns the same for the gradient of the array. */
static __device__ inline size_t gradient_at(const struct pp_strides *s, int b, int h)
{
    return (size_t)b * (s->gradient > 0 ? s->gradient : s->sequence) + (size_t)h * s->head;
}

/* Limits the call to the keys of sequence b before its padding, if sequences have padding. */
static __device__ inline void drop_padding(struct pp_attention *a, int b)
{
    a->keys = a->lengths ? (int)a->lengths[a->index[b]] : a->keys;
}

/* Returns the number of keys that query i sees. */
static __device__ inline int count_seen(const struct pp_attention *a, int i)
{
    return a->causal ? a->keys - a->queries + i + 1 : a->keys;
}

/* Returns the factor by which dropout multiplies the probability of query i and key j. */
static __device__ inline float dropout_factor(const struct call *q, int64_t step, int b, int h,
                                              int i, int j)
{
    const struct pp_attention *a = &q->a;
    if (q->limit == 0)
        return 1.0f;
    uint64_t of = dropout_row(a->key, step, a->first_row + (uint32_t)(a->of_queries ? i : b));
    uint32_t line = a->of_queries ? (uint32_t)h * (uint32_t)a->B + (uint32_t)b
                                  : (uint32_t)h * (uint32_t)a->queries + (uint32_t)i;
    return dropout_number(of, line * (uint32_t)a->keys + (uint32_t)j) < q->limit ? 0.0f : q->grown;
}

/* Compute the same results on tensor cores, for bf16 and tf32. mma_attention_fits() returns false
 * for shapes that they do not support. */
bool mma_attention_fits(const struct pp_attention *a);
cudaError_t mma_attention_forward(cudaStream_t s, const struct call *q, bool bf16);
cudaError_t mma_attention_backward(cudaStream_t s, const struct call *q, bool bf16,
                                   double *scratch);

#endif
