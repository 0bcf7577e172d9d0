/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules as patterns on a grid (Qi et al., "Pipeline Parallelism with Controllable Memory",
 * 2024): ranks down, unit time across, every micro-batch the same cells as the one before, six
 * slots later. A pattern says when each rank runs each cell of micro-batch 0; how far apart F and W
 * are decides how much memory a rank needs, so the pattern is where memory is controlled. Then
 * cells are squeezed to the left into slots that the first and the last micro-batches leave empty.
 *
 * All ranks share one grid, so these schedules are made for all ranks together.
 */
#ifndef PPCLI_SCHED_V_GRID_H
#define PPCLI_SCHED_V_GRID_H

#include "../pass.h"

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
int pp_v_grid_emit(const struct pp_v_grid *g, struct pp_emit_all *e);

#endif
