/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes over parameters: many arrays in one launch. Calls wait in a table that becomes the
 * argument of a kernel, and a full table is launched at once. A launch that touches what a waiting
 * call writes, or writes what a waiting call reads, must come after it: see cuda_settle().
 */
#include "cuda_impl.h"

static int launch_squares(struct cuda *c)
{
    cudaError_t e = kernels_all_squares(c->stream, &c->squares, c->between);
    c->squares.n = 0;
    return cuda_code(c->device, "kernels_all_squares(", e, __FILE__, __LINE__);
}

static int launch_updates(struct cuda *c)
{
    cudaError_t e = kernels_all_updates(c->stream, &c->updates);
    c->updates.n = 0;
    return cuda_code(c->device, "kernels_all_updates(", e, __FILE__, __LINE__);
}

static int launch_sums(struct cuda *c)
{
    cudaError_t e = kernels_sum_all(c->stream, c->bf16, &c->sums, c->between);
    c->sums.n = 0;
    return cuda_code(c->device, "kernels_sum_all(", e, __FILE__, __LINE__);
}

static int launch_norms(struct cuda *c)
{
    cudaError_t e = kernels_batch_norm_weights(c->stream, &c->norms);
    c->norms.n = 0;
    return cuda_code(c->device, "kernels_batch_norm_weights(", e, __FILE__, __LINE__);
}

static int launch_commits(struct cuda *c)
{
    cudaError_t e = kernels_batch_norm_commits(c->stream, &c->commits);
    c->commits.n = 0;
    return cuda_code(c->device, "kernels_batch_norm_commits(", e, __FILE__, __LINE__);
}

/* ---- order */

/* n elements of `element` bytes from p on. */
struct span {
    const void *p;
    size_t n, element;
};

/* The arrays of a waiting call. */
struct use {
    struct span reads[3], writes[5];
};

static bool spans_meet(const struct span *a, const struct span *b)
{
    uintptr_t from = (uintptr_t)a->p, other = (uintptr_t)b->p;
    return from && other && from < other + b->n * b->element && other < from + a->n * a->element;
}

static bool use_meets(const struct use *u, const struct span *s, bool writes)
{
    bool meets = false;
    for (size_t i = 0; i < sizeof(u->writes) / sizeof(*u->writes); i++)
        meets = meets || spans_meet(&u->writes[i], s);
    for (size_t i = 0; i < sizeof(u->reads) / sizeof(*u->reads) && writes; i++)
        meets = meets || spans_meet(&u->reads[i], s);
    return meets;
}

static struct use use_of_square(const struct cuda_square *q)
{
    return (struct use){{{q->g, q->n, sizeof(*q->g)}}, {{q->out, 1, sizeof(*q->out)}}};
}

static struct use use_of_update(const struct cuda_update *q)
{
    size_t f = sizeof(*q->p);
    return (struct use){
        {{q->g, q->n, f}},
        {{q->p, q->n, f}, {q->m, q->n, f}, {q->v, q->n, f}, {q->copy, q->n, sizeof(*q->copy)}}};
}

/* Returns which arrays a sum reads and writes. Slices are not listed: cuda_slices() gives out their
 * memory in the order in which it is used. */
static struct use use_of_sum(const struct cuda *c, const struct cuda_sum *q)
{
    size_t C = (size_t)q->C, n = (size_t)q->rows * C, f = sizeof(float);
    size_t value = c->bf16 ? sizeof(uint16_t) : f;
    size_t kept = q->G > 0 ? (size_t)(q->rows / q->P) * (size_t)q->G : (size_t)q->rows;
    return (struct use){
        {{q->slices ? NULL : q->dz, n, value}, {q->x, n, value}, {q->keep, 2 * kept, f}},
        {{q->db, C, f}, {q->dgamma, C, f}}};
}

static struct use use_of_norm(const struct pp_batch_norm_backward_weight *q)
{
    size_t C = (size_t)q->C, f = sizeof(float);
    return (struct use){{{q->keep, 2 * C, f}, {q->sums, 2 * C, f}},
                        {{q->dgamma, C, f},
                         {q->dbeta, C, f},
                         {q->stat_mean, C, f},
                         {q->stat_squares, C, f},
                         {q->stat_n, 1, f}}};
}

static struct use use_of_commit(const struct pp_batch_norm_commit *q)
{
    size_t C = (size_t)q->C, f = sizeof(float);
    return (struct use){{{q->stat_mean, C, f}, {q->stat_squares, C, f}, {q->stat_n, 1, f}},
                        {{q->running_mean, C, f}, {q->running_var, C, f}, {q->tracked, 1, f}}};
}

/* Launches the calls waiting in one table if one of them meets the span. */
#define SETTLE(c, table, launch, ...)                                                              \
    for (int i = 0; i < (c)->table.n; i++) {                                                       \
        const struct use u = __VA_ARGS__;                                                          \
        if (use_meets(&u, &s, writes))                                                             \
            PP_TRY(launch(c)); /* empties the table */                                             \
    }

int cuda_settle(struct cuda *c, const void *p, size_t bytes, bool writes)
{
    const struct span s = {p, bytes, 1};
    SETTLE(c, squares, launch_squares, use_of_square(&c->squares.at[i]))
    SETTLE(c, updates, launch_updates, use_of_update(&c->updates.at[i]))
    SETTLE(c, sums, launch_sums, use_of_sum(c, &c->sums.at[i]))
    SETTLE(c, norms, launch_norms, use_of_norm(&c->norms.at[i]))
    SETTLE(c, commits, launch_commits, use_of_commit(&c->commits.at[i]))
    return 0;
}

/* Calls cuda_settle() for all arrays of a call that is about to wait in a table. */
static int settle_use(struct cuda *c, const struct use *u)
{
    for (size_t i = 0; i < sizeof(u->reads) / sizeof(*u->reads); i++)
        PP_TRY(cuda_settle(c, u->reads[i].p, u->reads[i].n * u->reads[i].element, false));
    for (size_t i = 0; i < sizeof(u->writes) / sizeof(*u->writes); i++)
        PP_TRY(cuda_settle(c, u->writes[i].p, u->writes[i].n * u->writes[i].element, true));
    return 0;
}

int cuda_settle_all(struct cuda *c)
{
    PP_TRY(launch_squares(c));
    PP_TRY(launch_updates(c));
    PP_TRY(launch_sums(c));
    PP_TRY(launch_norms(c));
    return launch_commits(c);
}

/* ---- calls that wait */

int cuda_collect(struct pp_backend *be, enum pp_collect what)
{
    struct cuda *c = cuda_of(be);
    c->collects = what;
    return cuda_settle_all(c);
}

int cuda_sum_squares(struct pp_backend *be, const struct pp_sum_squares *a)
{
    struct cuda *c = cuda_of(be);
    struct cuda_squares *q = &c->squares;
    size_t blocks = kernels_square_blocks(a->n);
    const struct cuda_square one = {.g = a->g, .out = a->out, .n = a->n};
    const struct use use = use_of_square(&one);
    PP_TRY(settle_use(c, &use));
    for (int i = 0; i < q->n; i++)
        blocks += kernels_square_blocks(q->at[i].n);
    if (q->n == CUDA_SQUARES || blocks > CUDA_SCRATCH)
        PP_TRY(launch_squares(c));
    q->at[q->n++] = one;
    return c->collects == PP_COLLECT_SQUARES ? 0 : launch_squares(c);
}

int cuda_optimizer_step(struct pp_backend *be, const struct pp_optimizer_step *a)
{
    struct cuda *c = cuda_of(be);
    struct cuda_updates *u = &c->updates;
    const struct cuda_update one = {
        .p = a->p, .m = a->m, .v = a->v, .g = a->g, .n = a->n, .decay = a->decay};
    const struct use use = use_of_update(&one);
    if (a->n == 0)
        return 0;
    PP_TRY(settle_use(c, &use));
    if (u->n == CUDA_UPDATES || u->args != a->args)
        PP_TRY(launch_updates(c));
    u->args = a->args;
    u->at[u->n++] = one;
    return c->collects == PP_COLLECT_UPDATES ? 0 : launch_updates(c);
}

/* Returns the part of an update that has n elements from `at` on. */
static struct cuda_update cut_update(struct cuda_update u, size_t at, size_t n)
{
    u.p += at;
    u.g += at;
    u.m = u.m ? u.m + at : NULL;
    u.v = u.v ? u.v + at : NULL;
    u.n = n;
    return u;
}

int cuda_update_copies(struct cuda *c, size_t n, const float *W, uint16_t *copy, bool *out)
{
    struct cuda_updates *all = &c->updates;
    int i = 0;
    while (i < all->n && (W >= all->at[i].p + all->at[i].n || W + n <= all->at[i].p))
        i++;
    *out = false;
    if (i == all->n)
        return 0;
    const struct cuda_update u = all->at[i];
    if (W < u.p || W + n > u.p + u.n || u.copy || all->n + 2 > CUDA_UPDATES)
        return launch_updates(c);
    size_t before = (size_t)(W - u.p), after = u.n - before - n;
    all->at[i] = cut_update(u, before, n);
    all->at[i].copy = copy;
    if (before > 0)
        all->at[all->n++] = cut_update(u, 0, before);
    if (after > 0)
        all->at[all->n++] = cut_update(u, before + n, after);
    *out = true;
    return 0;
}

/* ---- gradients of biases and norms */

int cuda_add_sum(struct cuda *c, const struct cuda_sum *one)
{
    struct cuda_sums *q = &c->sums;
    unsigned units = kernels_sum_units(one);
    const struct use use = use_of_sum(c, one);
    PP_TRY(settle_use(c, &use));
    for (int i = 0; i < q->n; i++)
        units += kernels_sum_units(&q->at[i]);
    if (q->n == CUDA_SUMS || units > CUDA_COUNTERS)
        PP_TRY(launch_sums(c));
    q->at[q->n++] = *one;
    return c->collects == PP_COLLECT_WEIGHTS ? 0 : launch_sums(c);
}

int cuda_slices(struct cuda *c, size_t n, float **out)
{
    if (!c->slices) {
        void *p = NULL;
        size_t bytes = CUDA_SLICED_FLOATS * sizeof(*c->slices);
        cudaError_t e = cudaMalloc(&p, bytes);
        if (e != cudaSuccess)
            return cuda_no_memory(c->device, bytes, e, __FILE__, __LINE__);
        c->slices = p;
    }
    if (c->slices_used + n > CUDA_SLICED_FLOATS)
        PP_TRY(launch_sums(c));
    if (c->sums.n == 0)
        c->slices_used = 0;
    *out = c->slices + c->slices_used;
    c->slices_used += (n + 63) / 64 * 64;
    return 0;
}

int cuda_row_norm_backward_weight(struct pp_backend *be,
                                  const struct pp_row_norm_backward_weight *a)
{
    return cuda_add_sum(cuda_of(be), &(struct cuda_sum){.dz = a->dy,
                                                        .x = a->x,
                                                        .keep = a->keep,
                                                        .db = a->dbeta,
                                                        .dgamma = a->dgamma,
                                                        .rows = a->B,
                                                        .C = a->C,
                                                        .adds = a->beta != 0});
}

int cuda_group_norm_backward_weight(struct pp_backend *be,
                                    const struct pp_group_norm_backward_weight *a)
{
    return cuda_add_sum(cuda_of(be), &(struct cuda_sum){.dz = a->dz,
                                                        .x = a->x,
                                                        .keep = a->keep,
                                                        .db = a->dbeta,
                                                        .dgamma = a->dgamma,
                                                        .rows = a->B * a->P,
                                                        .C = a->C,
                                                        .P = a->P,
                                                        .G = a->G,
                                                        .adds = a->beta != 0});
}

int cuda_batch_norm_backward_weight(struct pp_backend *be,
                                    const struct pp_batch_norm_backward_weight *a)
{
    struct cuda *c = cuda_of(be);
    struct cuda_norms *q = &c->norms;
    const struct use use = use_of_norm(a);
    PP_TRY(settle_use(c, &use));
    if (q->n == CUDA_NORMS)
        PP_TRY(launch_norms(c));
    q->at[q->n++] = *a;
    return c->collects == PP_COLLECT_WEIGHTS ? 0 : launch_norms(c);
}

int cuda_batch_norm_commit(struct pp_backend *be, const struct pp_batch_norm_commit *a)
{
    struct cuda *c = cuda_of(be);
    const struct use use = use_of_commit(a);
    PP_TRY(settle_use(c, &use));
    if (c->commits.n == CUDA_COMMITS)
        PP_TRY(launch_commits(c));
    c->commits.at[c->commits.n++] = *a;
    return c->collects == PP_COLLECT_UPDATES ? 0 : launch_commits(c);
}
