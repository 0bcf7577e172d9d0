/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that several schedules share. */
#ifndef PPCLI_SCHED_ORDERS_H
#define PPCLI_SCHED_ORDERS_H

#include "../pass.h"

/*
 * ---- groups.c
 *
 * The order in which interleaved schedules take (chunk, micro-batch): group by group of consecutive
 * micro-batches, and within a group chunk by chunk. Forward number k is entry k of the table;
 * backward number k is entry k with the chunks in reverse.
 *
 * Without a wish for the size of groups, there are M/P groups (at least one) of even size, the
 * larger ones first. For M a multiple of P these are the classic groups of P; where torch supports
 * an M, the groups are torch's; every other M works too, because no group is smaller than P unless
 * it is the only one. With a wish G the groups are Megatron's: [0,G), [G,2G), ..., the last one
 * with the rest.
 */

struct pp_groups {
    int chunks;
    int size, n;        /* the first n groups have `size` micro-batches, */
    int size_rest;      /* all other groups have `size_rest` (0: there are no others) */
    int64_t cells_full; /* entries of the first n groups */
};

/* Computes the groups, with g->group as the wish, which may be larger than M. */
struct pp_groups pp_groups_of(const struct pp_geometry *g);

/* Sets *chunk and *mb to entry k of the order of forwards, 0 <= k < V*M. */
void pp_groups_entry(const struct pp_groups *groups, int k, int *chunk, int *mb);

/*
 * Checks that two groups in a row hold at least `ahead` micro-batches together, where rank 0 runs
 * (V-1)*G + `ahead` forwards before its first backward. With fewer, rank 0 needs a backward of the
 * first group before it sends the forwards that the last rank needs first. The rule was found by
 * trying, and is exact for P <= 10, V <= 5, G <= 2P + 2. Errors: PP_ECONFIG with the nearest legal
 * group.
 */
int pp_groups_check(const struct pp_geometry *g, int ahead);

/*
 * ---- chimera.c, dualpipe.c
 *
 * Two pipelines over the same ranks: stage s of the pipeline that goes down is on rank s; stage s
 * of the pipeline that goes up, which is virtual stage P + s, is on rank P-1-s. That is the V
 * placement of two chunks without the transfer at the fold. Each pipeline has half of the
 * micro-batches, counted from 0.
 */

/* Checks that the number of ranks is even, and that the number of micro-batches is even and at
 * least `least` per stage. Errors: PP_ECONFIG with the nearest legal shape. */
int pp_check_two_way(const struct pp_geometry *g, int least);

/* ---- one_f_one_b.c */

/* Emits the list of a rank of one chunk: `ahead` forwards, or all if there are fewer, then one
 * forward and one backward in turn. */
int pp_emit_1f1b(const struct pp_geometry *g, int rank, int64_t ahead, struct pp_emit *e);

/* Returns how many chunks rank r of 1F1B holds at most: P - r. */
int pp_held_1f1b(const struct pp_geometry *g, int rank);

/* ---- interleaved.c */

/* Returns how many chunks a rank of an interleaved schedule holds at most, with groups of P. */
int pp_held_interleaved(const struct pp_geometry *g, int rank);

/* ---- zb_h1.c: what ZB-H1 and ZB-H2 share */

/*
 * Emits the list of rank r: `ahead` forwards, then F (as long as there are any) and I in turn.
 * After each I from number `hold` on comes the oldest weight gradient; the remaining ones come at
 * the end. If all ranks have ahead + hold >= P-1, every wait of the first micro-batches is filled.
 */
int pp_emit_zb_h(const struct pp_geometry *g, int rank, int ahead, int hold, struct pp_emit *e);

/* ---- zb_auto.c: what schedules with a memory cap share */

/* Checks that memory_cap allows at least one forward. Errors: PP_ECONFIG. */
int pp_check_cap(const struct pp_geometry *g);

/* Checks what pp_check_cap() checks, and that the shape has no more cells than a proof is tried for
 * (zb_exact.c). Errors: PP_ECONFIG. */
int pp_check_exact(const struct pp_geometry *g);

/* Returns how many whole micro-batches (forwards of all its chunks) a rank may hold. */
static inline double pp_cap(const struct pp_geometry *g)
{
    return g->memory_cap > 0 ? g->memory_cap : 2.0 * g->stages;
}

/* ---- greedy.c */

/* Kinds of lists made by simulation. */
enum pp_greedy {
    /* the best list found for g->ticks, with at most pp_cap() forwards on a rank */
    PP_GREEDY_SPLIT,
    PP_GREEDY_EXACT,   /* the same with a proof that no list is shorter, else PP_ECONFIG */
    PP_GREEDY_WHOLE,   /* a W follows its I, as B; all ticks equal, no memory limit */
    PP_GREEDY_FORWARD, /* only F, all ticks equal */
};

/* Emits the lists of all ranks. Errors: PP_ERESOURCE. */
int pp_greedy_emit(const struct pp_geometry *g, enum pp_placement placement, enum pp_greedy mode,
                   struct pp_emit **e);

/*
 * ---- v_rank.c
 *
 * Helpers of the schedules over a V: every rank holds two chunks, `a` on the way down (stage r) and
 * `z` on the way back (stage 2P-1-r), so that rank 0 holds the first stage and the last one.
 *
 * The papers give each rank's list as phases of a few cells, repeated. So does the code:
 *
 *   pp_v_phase(&v, 3, "zF zI zW")    three times: the next F of z, the next I of z, the next W of z
 *   pp_v_phase(&v, 1, "(aF zB)")     the F and the B of one overlapped cell
 *   pp_v_phase(&v, 2, "-W")          the W of the oldest I without a W, of either chunk
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
    int rc;         /* the first failure, after which phases do nothing */
};

void pp_v_start(struct pp_v_rank *v, const struct pp_geometry *g, int rank, struct pp_emit *e);

/* Writes the cells `times` times; not at all if that is 0 or less. Cells after the last micro-batch
 * are counted but not written, so that a list for many micro-batches also gives one for few. */
void pp_v_phase(struct pp_v_rank *v, int times, const char *cells);

/* Writes the list that a rank has in DualPipeV with p ranks. In DualPipe p is half of all ranks. */
void pp_dualpipe_phases(struct pp_v_rank *v, int p, int rank);

/*
 * ---- v_grid.c
 *
 * Schedules as patterns on a grid (Qi et al., "Pipeline Parallelism with Controllable Memory",
 * 2024): ranks down, unit time across; every micro-batch has the cells of the one before, six slots
 * later. A pattern defines when each rank runs each cell of micro-batch 0. The distance between F
 * and W decides how much memory a rank needs, so the pattern controls memory. Then cells are
 * squeezed to the left, into slots that the first and the last micro-batches leave empty.
 *
 * All ranks share one grid, so these schedules are made for all ranks together.
 */

/* The cells of one micro-batch on a rank: chunk a runs down the ranks, chunk z runs back up. */
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
    int cap;        /* most micro-batches (of one chunk) that a rank may hold at once */
    bool fused;     /* W follows its I directly: a B of two slots */
    int32_t *cells; /* [p][width] kind * m + mb; -1: empty */
    int32_t *live;  /* [p][width] micro-batches held at the end of the slot */
    int32_t *slot;  /* [p][PP_V_KINDS][m] where each cell is */
};

/*
 * Makes an empty grid that holds first[rank * PP_V_KINDS + kind], the slots of micro-batch 0 (the
 * W's are ignored unless fused), and everything after them, then places their periodic cells.
 * Errors: PP_ERESOURCE. pp_v_grid_fini() accepts a half-built or zeroed grid.
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

/* Returns the first slot in which a cell may run: after the same cell of the micro-batch before,
 * and after the cell that makes its input. Ignores whether another cell is in that slot. */
int pp_v_grid_earliest(const struct pp_v_grid *g, int rank, int kind, int mb);

/* Counts the micro-batches that each rank holds, and sets cap to the largest count. */
void pp_v_grid_count(struct pp_v_grid *g);

/* Moves every cell, in the order of time, to the first empty slot that its dependencies and the cap
 * allow. */
void pp_v_grid_squeeze(struct pp_v_grid *g);

/* Emits the rows of the grid as the lists of the ranks. */
int pp_v_grid_emit(const struct pp_v_grid *g, struct pp_emit **e);

/*
 * ---- v_control.c
 *
 * V-Half and V-Min differ only in their pattern, which sets first[4] to the slots of F a, F z, I z
 * and I a of micro-batch 0 on `rank`.
 */

int pp_v_control(const struct pp_geometry *g, void (*pattern)(int p, int rank, int *first),
                 struct pp_emit **e);

#endif
