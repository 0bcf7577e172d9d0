/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of a step's end: the verdict on its gradients, and the optimizer. */
#include "kernels.h"
#include "vector.h"

#include <math.h>

/* ---- verdict */

/* The sum of squares of all gradients, in the order that the op promises: the columns in parallel,
 * then thread 0 over them. Only there it is right. Every thread of the block calls it. */
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

/* Place of the first vote that is not finite, or `n`. Every thread of the block calls it. */
static __device__ int first_bad(int n, const double *votes)
{
    __shared__ int first[THREADS];
    int t = (int)threadIdx.x, found = n;
    for (int i = t; i < n && found == n; i += THREADS) {
        double v = votes[i];
        if (!(v - v == 0)) /* infinity - infinity is a NaN too */
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

extern "C" cudaError_t kernels_judge(cudaStream_t s, const struct pp_judgement *j)
{
    return PP_LAUNCHED(judge, 1, THREADS, 0, s, *j);
}

/* ---- optimizer */

/* What all elements have in common, worked out once a block. */
struct step {
    int kind;
    float lr, momentum, beta1, beta2, eps, decay, scale;
    float c1, c2;     /* 1 - beta */
    float rate, root; /* lr / bias correction of m; 1 / sqrt(bias correction of v) */
    float keep;       /* of p, adamw's decay */
    bool nesterov, skip;
};

static __device__ struct step step_of(const struct pp_optimizer_args *a, bool decay)
{
    struct step s;
    s.skip = a->skip;
    s.nesterov = a->nesterov;
    s.kind = (int)a->kind;
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

/* scale and decay are used without a test: 1 * g and g + 0 * p are g. */
static __device__ void update(const struct step *s, float g, float *m, float *v, float *p)
{
    float gi = s->scale * g + s->decay * *p;
    switch (s->kind) {
    case PP_OPT_SGD:
        *p -= s->lr * gi;
        break;
    case PP_OPT_MOMENTUM:
        *m = s->momentum * *m + gi;
        *p -= s->lr * (s->nesterov ? gi + s->momentum * *m : *m);
        break;
    default: /* adam, adamw, muon */
        *m = s->beta1 * *m + s->c1 * gi;
        *v = s->beta2 * *v + s->c2 * gi * gi;
        *p = s->keep * *p - s->rate * *m / (sqrtf(*v) * s->root + s->eps);
        break;
    }
}

/* Element i of the buffers. V: one float or four. */
template <typename V>
static __device__ void update_at(const struct step *s, size_t i, const V *g, V *m, V *v, V *p)
{
    V gi = g[i], mi = {}, vi = {}, pi = p[i];
    if (m)
        mi = m[i];
    if (v)
        vi = v[i];
    for (size_t k = 0; k < sizeof(V) / sizeof(float); k++)
        update(s, gi.at[k], &mi.at[k], &vi.at[k], &pi.at[k]);
    if (m)
        m[i] = mi;
    if (v)
        v[i] = vi;
    p[i] = pi;
}

/* n floats by V, and what is left of them one by one. */
template <typename V>
__global__ void optimize(size_t n, const struct pp_optimizer_args *a, bool decay, const float *g,
                         float *m, float *v, float *p)
{
    __shared__ struct step step;
    if (threadIdx.x == 0)
        step = step_of(a, decay);
    __syncthreads();
    if (step.skip)
        return;
    size_t lanes = sizeof(V) / sizeof(float), left = n - n % lanes;
    for (size_t i = first_of_grid(); i < n / lanes; i += threads_of_grid())
        update_at(&step, i, (const V *)g, (V *)m, (V *)v, (V *)p);
    for (size_t i = left + first_of_grid(); i < n; i += threads_of_grid())
        update_at(&step, i, (const struct float1_ *)g, (struct float1_ *)m, (struct float1_ *)v,
                  (struct float1_ *)p);
}

extern "C" cudaError_t kernels_optimizer_step(cudaStream_t s, size_t n,
                                              const struct pp_optimizer_args *a, bool decay,
                                              const float *g, float *m, float *v, float *p)
{
    if (n == 0)
        return cudaSuccess;
    bool fours =
        n >= 4 && is_aligned(g, 16) && is_aligned(m, 16) && is_aligned(v, 16) && is_aligned(p, 16);
    auto kernel = fours ? optimize<struct float4_> : optimize<struct float1_>;
    return PP_LAUNCHED(kernel, blocks_for(fours ? n / 4 : n), THREADS, 0, s, n, a, decay, g, m, v,
                       p);
}
