/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the schedules over a V share: every rank holds two chunks, `a` on the way down (stage r) and
 * `z` on the way back (stage 2P-1-r), so that rank 0 holds the first stage and the last one.
 *
 * Their papers give each rank's list as phases of a few cells, repeated. So does the code:
 *
 *   pp_v_phase(&v, 3, "zF zI zW")    three times: the next F of z, the next I of z, the next W of z
 *   pp_v_phase(&v, 1, "(aF zB)")     the F and the B of one overlapped cell
 *   pp_v_phase(&v, 2, "-W")          the W of the oldest I that has none yet, of whichever chunk
 */
#ifndef PPCLI_SCHED_V_RANK_H
#define PPCLI_SCHED_V_RANK_H

#include "../pass.h"

enum pp_v_chunk {
    PP_V_A,
    PP_V_Z
};

/* One rank's list while it is written. */
struct pp_v_rank {
    struct pp_emit *emit;
    int m;
    int stage[2];   /* by chunk */
    int next[2][4]; /* by chunk and op: the micro-batch of the next cell */
    size_t oldest;  /* cells before this one hold no I without its W; used by "-W" */
    int rc;         /* the first failure; later phases do nothing */
};

void pp_v_start(struct pp_v_rank *v, const struct pp_geometry *g, int rank, struct pp_emit *e);

/* Repeat the cells `times` times (0 or less: not at all). Cells behind the last micro-batch count
 * but are not written, which is how a list for many micro-batches becomes one for few. */
void pp_v_phase(struct pp_v_rank *v, int times, const char *cells);

/* DualPipeV's list of one of p ranks; DualPipe's, where the ranks are half of all. */
void pp_dualpipe_phases(struct pp_v_rank *v, int p, int rank);

#endif
