/* SPDX-License-Identifier: Apache-2.0 */
/* What several schedules share. */
#ifndef PPCLI_SCHED_ORDERS_H
#define PPCLI_SCHED_ORDERS_H

#include "../pass.h"

/* ---- groups.c
 *
 * The order in which interleaved schedules take (chunk, micro-batch): group by group of consecutive
 * micro-batches, within a group chunk by chunk. Forward number k is entry k of the table; backward
 * number k is entry k with the chunks the other way round.
 *
 * Without a wish, the groups are M/P (at least one) of even size, the larger ones first: for M a
 * multiple of P that is the classic group of P, where torch has an answer it is torch's, and every
 * other M works too, because no group is smaller than P unless it is the only one. With a wish G,
 * as Megatron has it: [0,G), [G,2G), ..., the last with what is left.
 */

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

/* ---- chimera.c, dualpipe.c
 *
 * Two pipelines over the same ranks: stage s of the one that goes down is on rank s, stage s of the
 * one that goes up, which is virtual stage P + s, on rank P-1-s. That is the V placement of two
 * chunks, without the transfer at the fold. Each pipeline has half of the micro-batches, counted
 * from 0.
 */

/* Both need an even number of ranks and an even number of micro-batches, at least
 * `least` per stage. PP_ECONFIG with the nearest legal shape. */
int pp_check_two_way(const struct pp_geometry *g, int least);

/* ---- one_f_one_b.c */

/* The list of a rank of one chunk: `ahead` forwards, or all there are, then one forward and one
 * backward in turn. */
int pp_emit_1f1b(const struct pp_geometry *g, int rank, int64_t ahead, struct pp_emit *e);

/* ---- zb_h1.c: what ZB-H1 and ZB-H2 share */

/*
 * The list of rank r: `ahead` forwards, then F (while there are any) and I in turn; from I number
 * `hold` on, the oldest weight gradient after each; the rest of them at the end. Where all ranks
 * have ahead + hold >= P-1, every wait of the first micro-batches is filled.
 */
int pp_emit_zb_h(const struct pp_geometry *g, int rank, int ahead, int hold, struct pp_emit *e);

/* ---- zb_auto.c: what schedules with a memory cap share */

/* PP_ECONFIG for a memory_cap that holds nothing. */
int pp_check_cap(const struct pp_geometry *g);

/* The same, and PP_ECONFIG for more cells than a proof is tried for. zb_exact.c */
int pp_check_exact(const struct pp_geometry *g);

/* What a rank may hold, in forwards of a whole one. */
static inline double pp_cap(const struct pp_geometry *g)
{
    return g->memory_cap > 0 ? g->memory_cap : 2.0 * g->stages;
}

/* ---- greedy.c */

/* Of lists that are played forward in time: */
enum pp_greedy {
    PP_GREEDY_SPLIT,   /* the best found for g->ticks, with at most pp_cap() forwards on a rank */
    PP_GREEDY_EXACT,   /* the same with a proof that none is shorter: else PP_ECONFIG */
    PP_GREEDY_WHOLE,   /* a W follows its I, as B; equal ticks, whatever that holds */
    PP_GREEDY_FORWARD, /* F alone, of equal ticks */
};

/* Errors: PP_ERESOURCE. */
int pp_greedy_emit(const struct pp_geometry *g, enum pp_placement placement, enum pp_greedy mode,
                   struct pp_emit **e);

/* ---- v_rank.c
 *
 * What the schedules over a V share: every rank holds two chunks, `a` on the way down (stage r) and
 * `z` on the way back (stage 2P-1-r), so that rank 0 holds the first stage and the last one.
 *
 * Their papers give each rank's list as phases of a few cells, repeated. So does the code:
 *
 *   pp_v_phase(&v, 3, "zF zI zW")    three times: the next F of z, the next I of z, the next W of z
 *   pp_v_phase(&v, 1, "(aF zB)")     the F and the B of one overlapped cell
 *   pp_v_phase(&v, 2, "-W")          the W of the oldest I that has none yet, of whichever chunk
 */

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

/* Repeat the cells `times` times (0 or less: not at all). Cells after the last micro-batch count
 * but are not written, which is how a list for many micro-batches becomes one for few. */
void pp_v_phase(struct pp_v_rank *v, int times, const char *cells);

/* DualPipeV's list of one of p ranks; DualPipe's, where the ranks are half of all. */
void pp_dualpipe_phases(struct pp_v_rank *v, int p, int rank);

/* ---- v_grid.c
 *
 * Schedules as patterns on a grid (Qi et al., "Pipeline Parallelism with Controllable Memory",
 * 2024): ranks down, unit time across, every micro-batch the same cells as the one before, six
 * slots later. A pattern says when each rank runs each cell of micro-batch 0; how far apart F and W
 * are decides how much memory a rank needs, so the pattern is where memory is controlled. Then
 * cells are squeezed to the left into slots that the first and the last micro-batches leave empty.
 *
 * All ranks share one grid, so these schedules are made for all ranks together.
 */

/* The cells of one micro-batch on a rank: chunk a goes down the ranks, chunk z comes back up. */
enum pp_v_kind {
    PP_V_FA,
    PP_V_FZ,
    PP_V_IZ,
    PP_V_IA,
    PP_V_WZ,
    PP_V_WA,
    PP_V_KINDS
};

enum {
    PP_V_PERIOD = 6
};

struct pp_v_grid {
    int p, m;
    int width;      /* slots of a row */
    int cap;        /* most micro-batches (of one chunk) that a rank holds at once */
    bool fused;     /* W follows its I at once: a B of two slots */
    int32_t *cells; /* [p][width] kind * m + mb; -1: empty */
    int32_t *live;  /* [p][width] micro-batches held when the slot is over */
    int32_t *slot;  /* [p][PP_V_KINDS][m] where each cell is */
};

/*
 * An empty grid with room for first[rank * PP_V_KINDS + kind], the slots of micro-batch 0 (the W's
 * are ignored unless fused), and everything after it; then their periodic cells in place. Errors:
 * PP_ERESOURCE. pp_v_grid_fini() accepts a half-built or zeroed grid.
 */
int pp_v_grid_init(struct pp_v_grid *g, int p, int m, bool fused, const int *first);
void pp_v_grid_fini(struct pp_v_grid *g);

static inline int32_t *pp_v_row(const struct pp_v_grid *g, int rank)
{
    return g->cells + (size_t)rank * (size_t)g->width;
}

static inline int32_t *pp_v_live(const struct pp_v_grid *g, int rank)
{
    return g->live + (size_t)rank * (size_t)g->width;
}

static inline int32_t *pp_v_slot(const struct pp_v_grid *g, int rank, int kind, int mb)
{
    size_t row = (size_t)rank * PP_V_KINDS + (size_t)kind;
    return g->slot + row * (size_t)g->m + (size_t)mb;
}

void pp_v_grid_put(struct pp_v_grid *g, int rank, int kind, int mb, int t);

/* The first slot in which a cell may run, whatever else is there: after the same cell of the
 * micro-batch before, and after what it needs. */
int pp_v_grid_earliest(const struct pp_v_grid *g, int rank, int kind, int mb);

/* Count what each rank holds, and set cap to the most of it. */
void pp_v_grid_count(struct pp_v_grid *g);

/* Every cell, in the order of time, goes to the first empty slot that its dependencies and the cap
 * allow. */
void pp_v_grid_squeeze(struct pp_v_grid *g);

/* The rows as lists. */
int pp_v_grid_emit(const struct pp_v_grid *g, struct pp_emit **e);

/* ---- v_control.c
 *
 * V-Half and V-Min differ in their pattern only: first[4] is set to the slots of F a, F z, I z, I a
 * of micro-batch 0 on `rank`.
 */

int pp_v_control(const struct pp_geometry *g, void (*pattern)(int p, int rank, int *first),
                 struct pp_emit **e);

#endif
