/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists what the product's waiting calls (collect.c) will read and write, from its own tables, so that
 * the emulation can stop where something enqueued meanwhile touches one of these ranges. A rank's
 * thread collects for one backend at a time.
 */
#include "../../src/dev/cuda/cuda_impl.h"

#include "fake_gpu.h"

static __thread struct cuda *collecting;
static __thread const void
    *launching; /* the table that is being launched: it may touch its own arrays */

int __real_cuda_collect(struct pp_backend *be, enum pp_collect what);
int __wrap_cuda_collect(struct pp_backend *be, enum pp_collect what);
int __wrap_cuda_collect(struct pp_backend *be, enum pp_collect what)
{
    collecting = cuda_of(be);
    int rc = __real_cuda_collect(be, what);
    collecting = what == PP_COLLECT_NOTHING ? NULL : collecting;
    return rc;
}

/* A backend may be closed before its calls are launched, after an error. */
void __real_cuda_scratch_free(struct cuda *c);
void __wrap_cuda_scratch_free(struct cuda *c);
void __wrap_cuda_scratch_free(struct cuda *c)
{
    collecting = collecting == c ? NULL : collecting;
    __real_cuda_scratch_free(c);
}

#define LAUNCH(name, table, parameters, ...)                                                       \
    cudaError_t __real_##name parameters;                                                          \
    cudaError_t __wrap_##name parameters;                                                          \
    cudaError_t __wrap_##name parameters                                                           \
    {                                                                                              \
        launching = table;                                                                         \
        cudaError_t e = __real_##name(__VA_ARGS__);                                                \
        launching = NULL;                                                                          \
        return e;                                                                                  \
    }
LAUNCH(kernels_all_squares, all, (cudaStream_t s, struct cuda_squares *all, double *scratch), s,
       all, scratch)
LAUNCH(kernels_all_updates, all, (cudaStream_t s, struct cuda_updates *all), s, all)
LAUNCH(kernels_sum_all, all, (cudaStream_t s, bool bf16, struct cuda_sums *all, double *scratch), s,
       bf16, all, scratch)
LAUNCH(kernels_batch_norm_weights, all, (cudaStream_t s, const struct cuda_norms *all), s, all)
LAUNCH(kernels_batch_norm_commits, all, (cudaStream_t s, const struct cuda_commits *all), s, all)

static __thread struct fake_range *out_at;
static __thread size_t out_n, out_max;

static void add_range(const char *what, const void *p, size_t bytes, bool written)
{
    if (!p || bytes == 0)
        return;
    if (out_n == out_max)
        fake_die("more calls wait than are listed here");
    out_at[out_n++] = (struct fake_range){(uintptr_t)p, (uintptr_t)p + bytes, written, what};
}

#define READ(q, field, n) add_range(what, (q)->field, (size_t)(n) * sizeof(*(q)->field), false)
#define WRITE(q, field, n) add_range(what, (q)->field, (size_t)(n) * sizeof(*(q)->field), true)

static void list_sums(const struct cuda *c)
{
    size_t value = c->bf16 ? sizeof(uint16_t) : sizeof(float);
    for (const struct cuda_sum *q = c->sums.at; q < c->sums.at + c->sums.n; q++) {
        const char *what = q->slices ? "a sum of slices" : "a sum over rows";
        size_t n = (size_t)q->rows * (size_t)q->C;
        add_range(what, q->dz, n * (q->slices ? sizeof(float) : value), false);
        add_range(what, q->x, n * value, false);
        READ(q, keep, 2 * (q->G > 0 ? q->rows / q->P * q->G : q->rows));
        WRITE(q, db, q->C);
        WRITE(q, dgamma, q->C);
    }
}

static void list_norms(const struct cuda *c)
{
    const char *what = "a sum of batch norm";
    const struct pp_batch_norm_backward_weight *q = c->norms.at;
    for (; q < c->norms.at + c->norms.n; q++) {
        READ(q, keep, 2 * q->C);
        READ(q, sums, 2 * q->C);
        WRITE(q, dgamma, q->C);
        WRITE(q, dbeta, q->C);
        WRITE(q, stat_mean, q->C);
        WRITE(q, stat_squares, q->C);
        WRITE(q, stat_n, 1);
    }
}

static void list_squares(const struct cuda *c)
{
    const char *what = "a sum of squares";
    for (const struct cuda_square *q = c->squares.at; q < c->squares.at + c->squares.n; q++) {
        READ(q, g, q->n);
        WRITE(q, out, 1);
    }
}

static void list_updates(const struct cuda *c)
{
    const char *what = "an update";
    for (const struct cuda_update *q = c->updates.at; q < c->updates.at + c->updates.n; q++) {
        READ(q, g, q->n);
        WRITE(q, p, q->n);
        WRITE(q, m, q->n);
        WRITE(q, v, q->n);
        WRITE(q, copy, q->n);
    }
}

static void list_commits(const struct cuda *c)
{
    const char *what = "an update of running statistics";
    const struct pp_batch_norm_commit *q = c->commits.at;
    for (; q < c->commits.at + c->commits.n; q++) {
        READ(q, stat_mean, q->C);
        READ(q, stat_squares, q->C);
        READ(q, stat_n, 1);
        WRITE(q, running_mean, q->C);
        WRITE(q, running_var, q->C);
        WRITE(q, tracked, 1);
    }
}

size_t fake_waiting(struct fake_range *out, size_t max)
{
    const struct cuda *c = collecting;
    out_at = out;
    out_max = max;
    out_n = 0;
    if (!c)
        return 0;
    const struct {
        const void *table;
        void (*list)(const struct cuda *c);
    } all[] = {{&c->sums, list_sums},
               {&c->norms, list_norms},
               {&c->squares, list_squares},
               {&c->updates, list_updates},
               {&c->commits, list_commits}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (launching != all[i].table)
            all[i].list(c);
    return out_n;
}
