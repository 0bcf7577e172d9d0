/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of micro-batches in the interleaved schedules. */
#include "orders.h"

struct pp_groups pp_groups_of(const struct pp_geometry *g)
{
    int m = g->microbatches;
    struct pp_groups groups = {.chunks = g->chunks};
    if (g->group > 0) {
        groups.size = g->group < m ? g->group : m;
        groups.n = m / groups.size;
        groups.size_rest = m % groups.size;
    } else {
        int rounds = m / g->stages > 1 ? m / g->stages : 1;
        int larger = m % rounds;
        groups.size = m / rounds + (larger > 0 ? 1 : 0);
        groups.n = larger > 0 ? larger : rounds;
        groups.size_rest = larger > 0 ? m / rounds : 0;
    }
    groups.cells_full = (int64_t)groups.n * groups.size * groups.chunks;
    return groups;
}

void pp_groups_entry(const struct pp_groups *groups, int k, int *chunk, int *mb)
{
    int size = groups->size;
    int first = 0;
    if (k >= groups->cells_full) {
        k -= (int)groups->cells_full;
        first = groups->n * size;
        size = groups->size_rest;
    }
    int in = k % (groups->chunks * size);
    *chunk = in / size;
    *mb = first + k / (groups->chunks * size) * size + in % size;
}

/* Returns whether the ranks would wait in a circle if a group of `next` micro-batches followed one
 * of groups->size. Rank 0 runs (V-1)*G + `ahead` forwards before its first backward; see
 * pp_groups_check(). */
static bool group_blocks(const struct pp_groups *groups, int next, int ahead)
{
    /* With two chunks, a group of one micro-batch blocks no rank, unless two more such groups
     * follow. */
    bool alone = groups->chunks == 2 && next == 1 && !(groups->size == 1 && groups->n > 2);
    return groups->size + next < ahead && !alone;
}

static bool groups_deadlock(const struct pp_geometry *g, int ahead)
{
    struct pp_groups groups = pp_groups_of(g);
    return (groups.n > 1 && group_blocks(&groups, groups.size, ahead)) ||
           (groups.size_rest > 0 && group_blocks(&groups, groups.size_rest, ahead));
}

int pp_groups_check(const struct pp_geometry *g, int ahead)
{
    if (g->group < 0)
        return pp_fail(PP_ECONFIG, "group = %d, must be at least 1 (0: automatic)", g->group);
    if (g->chunks == 1 || g->group == 0 || !groups_deadlock(g, ahead))
        return 0;
    struct pp_groups groups = pp_groups_of(g);
    int last = groups.size_rest > 0 ? groups.size_rest : groups.size;
    struct pp_geometry nearest = *g;
    /* A single group of all micro-batches is always legal, so this loop ends. */
    for (int step = 1; step <= g->microbatches; step++) {
        nearest.group = g->group + step;
        if (!groups_deadlock(&nearest, ahead))
            break;
        nearest.group = g->group - step;
        if (nearest.group > 0 && !groups_deadlock(&nearest, ahead))
            break;
    }
    return pp_refuse_shape(g, &nearest,
                           "at least %d micro-batches in any two groups in a row (group = %d gives "
                           "%d and %d, and ranks that wait for each other)",
                           ahead, g->group, groups.size, last);
}
