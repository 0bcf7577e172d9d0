/* SPDX-License-Identifier: Apache-2.0 */
/* Computes batches, shares and micro-batches from one permutation per epoch. */
#include "ppcli/data/dataset.h"

#include "ppcli/base/base.h"

static int ceil_div(int a, int b)
{
    return (int)(((int64_t)a + b - 1) / b);
}

void pp_balanced_piece(int n, int parts, int k, int *first, int *count)
{
    int each = n / parts, larger = n % parts;
    *first = k * each + PP_MIN(k, larger);
    *count = each + (k < larger ? 1 : 0);
}

int pp_loader_shape(int n, int batch_size, int replicas, int replica, int microbatches,
                    struct pp_loader *out)
{
    if (n < 1 || batch_size < 1 || replicas < 1 || microbatches < 1) {
        return pp_fail(PP_ECONFIG,
                       "%d samples in batches of %d over %d replicas in %d micro-batches: each "
                       "must be at least 1",
                       n, batch_size, replicas, microbatches);
    }
    pp_assert(replica >= 0 && replica < replicas);
    *out = (struct pp_loader){.n = n,
                              .all = n,
                              .batch_size = batch_size,
                              .replicas = replicas,
                              .replica = replica,
                              .microbatches = microbatches};
    return 0;
}

int pp_loader_create(int n, int batch_size, int replicas, int replica, int microbatches,
                     bool shuffle, uint64_t seed, struct pp_loader **out)
{
    struct pp_loader shape;
    PP_TRY(pp_loader_shape(n, batch_size, replicas, replica, microbatches, &shape));
    struct pp_loader *ld;
    PP_ALLOC(ld, 1);
    *ld = shape;
    ld->shuffle = shuffle;
    ld->seed = seed;
    ld->order = pp_alloc((size_t)n, sizeof(*ld->order));
    PP_TRY_UNDO(ld->order ? 0 : PP_ERESOURCE, pp_loader_destroy(&ld));
    pp_loader_start_epoch(ld, 0);
    *out = ld;
    return 0;
}

void pp_loader_destroy(struct pp_loader **ld)
{
    if (!*ld)
        return;
    pp_free((*ld)->order);
    pp_free(*ld);
    *ld = NULL;
}

void pp_loader_windows(struct pp_loader *ld, uint64_t starts)
{
    pp_assert(starts >= 1 && starts <= (uint64_t)1 << 32);
    ld->starts = starts;
    pp_loader_start_epoch(ld, 0);
}

void pp_loader_start_epoch(struct pp_loader *ld, uint64_t epoch)
{
    for (int i = 0; ld->starts > 0 && i < ld->n; i++) {
        uint64_t word = pp_rng_u32(ld->seed, pp_rng_stream("windows", 0),
                                   epoch * (uint64_t)ld->n + (uint64_t)i);
        ld->order[i] = (uint32_t)(word * ld->starts >> 32);
    }
    if (ld->starts > 0)
        return;
    if (ld->shuffle) {
        pp_rng_permutation(ld->seed, pp_rng_stream("shuffle", epoch), (uint32_t)ld->all, ld->order);
        return;
    }
    for (int i = 0; i < ld->all; i++)
        ld->order[i] = (uint32_t)i;
}

int pp_loader_steps(const struct pp_loader *ld)
{
    return ceil_div(ld->n, ld->batch_size);
}

/* Returns the index of the batch's first row in ld->order. */
static int find_batch_start(const struct pp_loader *ld, int step)
{
    pp_assert(step >= 0 && step < pp_loader_steps(ld));
    return step * ld->batch_size; /* below n */
}

int pp_loader_batch_rows(const struct pp_loader *ld, int step)
{
    return PP_MIN(ld->batch_size, ld->n - find_batch_start(ld, step));
}

static void find_share(const struct pp_loader *ld, int step, int *first, int *count)
{
    pp_balanced_piece(pp_loader_batch_rows(ld, step), ld->replicas, ld->replica, first, count);
    *first += find_batch_start(ld, step);
}

int pp_loader_share_first(const struct pp_loader *ld, int step)
{
    int first, count;
    find_share(ld, step, &first, &count);
    return first - find_batch_start(ld, step);
}

int pp_loader_share_rows(const struct pp_loader *ld, int step)
{
    int first, count;
    find_share(ld, step, &first, &count);
    return count;
}

int pp_loader_microbatches(const struct pp_loader *ld, int step)
{
    int rows = pp_loader_share_rows(ld, step);
    int first, full;
    pp_balanced_piece(ld->batch_size, ld->replicas, ld->replica, &first, &full);
    if (rows == full)
        return PP_MIN(ld->microbatches, rows);
    /* A small share gets fewer micro-batches of about the usual size, not the usual number of tiny
     * ones. */
    return PP_MIN(ld->microbatches, ceil_div(rows, ceil_div(full, ld->microbatches)));
}

int pp_loader_microbatch(const struct pp_loader *ld, int step, int mb, const uint32_t **index)
{
    int first, count, piece_first, piece_count;
    int parts = pp_loader_microbatches(ld, step);
    pp_assert(mb >= 0 && mb < parts);
    find_share(ld, step, &first, &count);
    pp_balanced_piece(count, parts, mb, &piece_first, &piece_count);
    *index = ld->order + first + piece_first;
    return piece_count;
}

int pp_loader_max_rows(const struct pp_loader *ld)
{
    /* All steps but the last are alike, and the first micro-batch of a step is its largest. */
    const int steps[2] = {0, pp_loader_steps(ld) - 1};
    int most = 0;
    for (int i = 0; i < 2; i++) {
        int parts = pp_loader_microbatches(ld, steps[i]);
        int rows = parts > 0 ? ceil_div(pp_loader_share_rows(ld, steps[i]), parts) : 0;
        most = rows > most ? rows : most;
    }
    return most;
}
