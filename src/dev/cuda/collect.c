/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes over parameters: many arrays, one launch. Calls wait in a table that becomes the argument
 * of a kernel; a table that is full is launched at once.
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

int cuda_collect(struct pp_backend *be, enum pp_collect what)
{
    struct cuda *c = cuda_of(be);
    c->collects = what;
    PP_TRY(launch_squares(c));
    PP_TRY(launch_updates(c));
    PP_TRY(launch_sums(c));
    PP_TRY(launch_norms(c));
    return launch_commits(c);
}

int cuda_sum_squares(struct pp_backend *be, const struct pp_sum_squares *a)
{
    struct cuda *c = cuda_of(be);
    struct cuda_squares *q = &c->squares;
    size_t blocks = kernels_square_blocks(a->n);
    for (int i = 0; i < q->n; i++)
        blocks += kernels_square_blocks(q->at[i].n);
    if (q->n == CUDA_SQUARES || blocks > CUDA_SCRATCH)
        PP_TRY(launch_squares(c));
    q->at[q->n++] = (struct cuda_square){.g = a->g, .out = a->out, .n = a->n};
    return c->collects == PP_COLLECT_SQUARES ? 0 : launch_squares(c);
}

int cuda_optimizer_step(struct pp_backend *be, const struct pp_optimizer_step *a)
{
    struct cuda *c = cuda_of(be);
    struct cuda_updates *u = &c->updates;
    if (a->n == 0)
        return 0;
    if (u->n == CUDA_UPDATES || u->args != a->args)
        PP_TRY(launch_updates(c));
    u->args = a->args;
    u->at[u->n++] = (struct cuda_update){
        .p = a->p, .m = a->m, .v = a->v, .g = a->g, .n = a->n, .decay = a->decay};
    return c->collects == PP_COLLECT_UPDATES ? 0 : launch_updates(c);
}

/* n elements of it from `at` on. */
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
    bool alone = q->n == CUDA_SUMS;
    for (int i = 0; i < q->n; i++) {
        const struct cuda_sum *p = &q->at[i];
        alone = alone || (p->db && p->db == one->db) || (p->dgamma && p->dgamma == one->dgamma);
        units += kernels_sum_units(p);
    }
    if (alone || units > CUDA_COUNTERS)
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
    bool alone = q->n == CUDA_NORMS;
    for (int i = 0; i < q->n; i++)
        alone = alone || q->at[i].dgamma == a->dgamma;
    if (alone)
        PP_TRY(launch_norms(c));
    q->at[q->n++] = *a;
    return c->collects == PP_COLLECT_WEIGHTS ? 0 : launch_norms(c);
}

int cuda_batch_norm_commit(struct pp_backend *be, const struct pp_batch_norm_commit *a)
{
    struct cuda *c = cuda_of(be);
    if (c->commits.n == CUDA_COMMITS)
        PP_TRY(launch_commits(c));
    c->commits.at[c->commits.n++] = *a;
    return c->collects == PP_COLLECT_UPDATES ? 0 : launch_commits(c);
}
