/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the end of a step: the verdict on its gradients, and the optimizer. */
#include "kernels.h"
#include "vector.h"

#include <math.h>

#include "ppcli/conf/config.h"

/* ---- verdict */

/* Returns the sum of squares of all gradients, in the order that the op promises: one thread for
 * each column adds up the ranks, then thread 0 adds up the columns. Only thread 0 has the result.
 * Every thread of the block calls it. */
static __device__ double sum_votes(const struct pp_judgement *j)
{
    __shared__ double squares[THREADS];
    int t = (int)threadIdx.x;
    double sum = 0;
    for (int from = 0; from < j->n; from += THREADS) {
        int column = from + t;
        double s = 0;
        for (int r = 0; r < j->stages && column < j->n; r++)
            s += j->votes[(size_t)r * (size_t)(j->n + 1) + (size_t)column];
        squares[t] = s;
        __syncthreads();
        for (int k = 0; t == 0 && k < THREADS && from + k < j->n; k++)
            sum += squares[k];
        __syncthreads();
    }
    return sum;
}

/* Returns the index of the first vote that is not finite, or `n`. Every thread of the block calls
 * it. */
static __device__ int first_bad(int n, const double *votes)
{
    __shared__ int first[THREADS];
    int t = (int)threadIdx.x, found = n;
    for (int i = t; i < n && found == n; i += THREADS) {
        double v = votes[i];
        if (!(v - v == 0)) /* infinity - infinity is NaN too */
            found = i;
    }
    first[t] = found;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half && first[t + half] < first[t])
            first[t] = first[t + half];
    }
    __syncthreads();
    return first[0];
}

__global__ void judge(struct pp_judgement j)
{
    double sum = sum_votes(&j);
    int columns = j.n + 1, n = j.ranks * columns, at = first_bad(n, j.votes);
    if (threadIdx.x != 0)
        return;
    bool bad = at < n, over = !bad && j.most > 0 && sum > j.most;
    struct pp_step_verdict v = *j.verdict;
    v.step = j.args->t;
    v.norm = sqrt(sum);
    if ((bad || over) && v.bad_step == 0) {
        v.bad_step = v.step;
        v.bad_rank = bad ? at / columns : 0;
        v.bad_index = bad ? at % columns : 0;
        v.bad_value = bad ? j.votes[at] : sum;
    }
    v.skipped = bad || over || (j.halt && v.bad_step > 0);
    double scale = j.clip_norm / (v.norm + 1e-6);
    v.grad_scale = j.clip_norm > 0 && scale < 1 ? (float)scale : 1.0f;
    *j.verdict = v;
    if (v.skipped && j.before)
        *j.sums = *j.before;
    j.args->grad_scale = v.grad_scale;
    j.args->skip = v.skipped;
}

extern "C" cudaError_t kernels_judge(cudaStream_t s, const struct pp_judgement *j,
                                     enum pp_precision, double *)
{
    return PP_LAUNCHED(judge, 1, THREADS, 0, s, *j);
}

/* ---- optimizer */

/* The numbers that all elements share, computed once in each block. */
struct step {
    int kind;
    float lr, momentum, beta1, beta2, eps, decay, scale;
    float c1, c2;     /* 1 - beta */
    float rate, root; /* lr / bias correction of m; 1 / sqrt(bias correction of v) */
    float keep;       /* factor of p: adamw's decay */
    bool nesterov, skip;
};

static __device__ struct step step_of(const struct pp_optimizer_args *a, bool decay)
{
    struct step s;
    s.skip = a->skip;
    s.nesterov = a->nesterov;
    s.kind = a->kind;
    s.lr = a->lr;
    s.momentum = a->momentum;
    s.beta1 = a->beta1;
    s.beta2 = a->beta2;
    s.eps = a->eps;
    s.scale = a->grad_scale;
    bool adamw = a->kind == PP_OPT_ADAMW || a->kind == PP_OPT_MUON;
    bool adam = adamw || a->kind == PP_OPT_ADAM;
    float rate = decay ? a->weight_decay : 0.0f;
    s.decay = adamw ? 0.0f : rate;
    s.keep = adamw ? 1.0f - a->lr * rate : 1.0f;
    s.c1 = (float)(1.0 - (double)a->beta1);
    s.c2 = (float)(1.0 - (double)a->beta2);
    s.rate = adam ? (float)(a->lr / (1.0 - pow((double)a->beta1, (double)a->step))) : a->lr;
    s.root = adam ? (float)(1.0 / sqrt(1.0 - pow((double)a->beta2, (double)a->step))) : 1.0f;
    return s;
}

/* Updates one element with the optimizer of `s`. Applies scale and decay without testing whether
 * they are used, because 1 * g and g + 0 * p are g. */
static __device__ void update_element(const struct step *s, float g, float *m, float *v, float *p)
{
    float gi = s->scale * g + s->decay * *p;
    switch ((enum pp_optimizer_kind)s->kind) {
    case PP_OPT_SGD:
        *p -= s->lr * gi;
        break;
    case PP_OPT_MOMENTUM:
        *m = s->momentum * *m + gi;
        *p -= s->lr * (s->nesterov ? gi + s->momentum * *m : *m);
        break;
    case PP_OPT_ADAM:
    case PP_OPT_ADAMW:
    case PP_OPT_MUON:
        *m = s->beta1 * *m + s->c1 * gi;
        *v = s->beta2 * *v + s->c2 * gi * gi;
        *p = s->keep * *p - s->rate * *m / (sqrtf(*v) * s->root + s->eps);
        break;
    }
}

/* Updates one element, number i, if V is a float, else four elements from number i on. */
template <typename V>
static __device__ void update_at(const struct step *s, const struct cuda_update *u, size_t i)
{
    const int n = sizeof(V) / sizeof(float);
    V g = *(const V *)(u->g + i), m = {}, v = {}, p = *(const V *)(u->p + i);
    if (u->m)
        m = *(const V *)(u->m + i);
    if (u->v)
        v = *(const V *)(u->v + i);
    for (int k = 0; k < n; k++)
        update_element(s, g.at[k], &m.at[k], &v.at[k], &p.at[k]);
    if (u->m)
        *(V *)(u->m + i) = m;
    if (u->v)
        *(V *)(u->v + i) = v;
    *(V *)(u->p + i) = p;
    if (!u->copy)
        return;
    struct several<bf16, n> half;
    for (int k = 0; k < n; k++)
        half.at[k] = p.at[k];
    if ((uintptr_t)(u->copy + i) % sizeof(half) == 0)
        *(struct several<bf16, n> *)(u->copy + i) = half;
    else
        for (int k = 0; k < n; k++)
            u->copy[i + k] = half.at[k].bits;
}

#define UPDATE_TILE 16384 /* elements of a block */

/* Updates arrays with the optimizer. Takes four elements at a time from the first element that is
 * aligned to 16 bytes on, and the others one by one. */
__global__ void optimize(const __grid_constant__ struct cuda_updates all)
{
    __shared__ struct step step;
    const struct cuda_update *u = of_block(all.at, all.n);
    if (threadIdx.x == 0)
        step = step_of(all.args, u->decay);
    __syncthreads();
    if (step.skip)
        return;
    size_t from = (size_t)(blockIdx.x - u->first) * UPDATE_TILE, i = threadIdx.x;
    size_t n = u->n - from < UPDATE_TILE ? u->n - from : UPDATE_TILE;
    size_t head = u->head < 0 || n < (size_t)u->head ? n : (size_t)u->head, fours = (n - head) / 4;
    for (; i < head; i += THREADS)
        update_at<struct float1_>(&step, u, from + i);
    for (i = threadIdx.x; i < fours; i += THREADS)
        update_at<struct float4_>(&step, u, from + head + 4 * i);
    for (i = head + 4 * fours + threadIdx.x; i < n; i += THREADS)
        update_at<struct float1_>(&step, u, from + i);
}

/* Returns how many floats p is from the next multiple of 16 bytes if m, v and g are as far from
 * one; else -1. */
static int8_t head_of(const struct cuda_update *u)
{
    uintptr_t p = (uintptr_t)u->p, m = u->m ? (uintptr_t)u->m : p, v = u->v ? (uintptr_t)u->v : p;
    bool alike = ((p ^ m) | (p ^ v) | (p ^ (uintptr_t)u->g)) % 16 == 0;
    return alike ? (int8_t)((16 - p % 16) % 16 / sizeof(float)) : (int8_t)-1;
}

extern "C" cudaError_t kernels_all_updates(cudaStream_t s, struct cuda_updates *all)
{
    unsigned blocks = 0;
    for (int i = 0; i < all->n; i++) {
        struct cuda_update *u = &all->at[i];
        u->head = head_of(u);
        u->first = blocks;
        blocks += (unsigned)((u->n + UPDATE_TILE - 1) / UPDATE_TILE);
    }
    return blocks > 0 ? PP_LAUNCHED(optimize, blocks, THREADS, 0, s, *all) : cudaSuccess;
}
