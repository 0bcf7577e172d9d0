/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which interleaved schedules take (chunk, micro-batch): group by group of consecutive
 * micro-batches, within a group chunk by chunk. Forward number k is entry k of the table; backward
 * number k is entry k with the chunks the other way round.
 *
 * Without a wish, the groups are M/P (at least one) of even size, the larger ones first: for M a
 * multiple of P that is the classic group of P, where torch has an answer it is torch's, and every
 * other M works too, because no group is smaller than P unless it is the only one. With a wish G,
 * as Megatron has it: [0,G), [G,2G), ..., the last with what is left.
 */
#ifndef PPCLI_SCHED_GROUPS_H
#define PPCLI_SCHED_GROUPS_H

#include "../pass.h"

struct pp_groups {
    int chunks;
    int size, n;        /* the first n groups have `size` micro-batches, */
    int size_rest;      /* all others `size_rest` (0: there are none) */
    int64_t cells_full; /* entries of the first n groups */
};

/* g->group as the wish; it may be larger than M. */
struct pp_groups pp_groups_of(const struct pp_geometry *g);

/* Entry k, 0 <= k < V*M. */
void pp_groups_entry(const struct pp_groups *groups, int k, int *chunk, int *mb);

/*
 * Two groups in a row must hold at least `ahead` micro-batches together, where rank 0 runs ahead of
 * the first backward by (V-1)*G + `ahead` forwards: with fewer, rank 0 wants a backward of the
 * first group before it sends the forwards that the last rank wants first. Found by trying, and
 * exact: P <= 10, V <= 5, G <= 2P + 2. Errors: PP_ECONFIG with the nearest legal group.
 */
int pp_groups_check(const struct pp_geometry *g, int ahead);

#endif
