/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V schedules with controllable memory (Qi et al., 2024) from a pattern of F and I. The W's go into
 * the slots that the pattern leaves empty. Then the first micro-batches move up as far as the peak
 * of the steady state allows; the last ones move up without their W's, which then fill the gaps.
 * This is the greedy form, not the exhaustive search of the authors' code.
 */
#include "orders.h"

#include "ppcli/base/base.h"

struct control {
    struct pp_v_grid grid;
    bool *cool; /* [p][PP_V_KINDS][m] after the steady state */
};

static bool *cool_of(const struct control *c, int rank, int kind, int mb)
{
    return c->cool + (pp_v_slot(&c->grid, rank, kind, mb) - c->grid.slot);
}

/* Fills each empty slot of the rank with the W of the oldest I whose W has not run. Marks the cells
 * that run in the cool-down: after the first micro-batch has left the rank (its last I) and the
 * last one has turned around (its second F). */
static void fill_rank(struct control *c, int rank, int32_t *waiting)
{
    struct pp_v_grid *g = &c->grid;
    int n_waiting = 0;
    int next = 0;
    bool left = false;   /* I a of the first */
    bool turned = false; /* F z of the last */
    for (int t = 0; t < g->width; t++) {
        int32_t cell = pp_v_row(g, rank)[t];
        if (cell < 0 && next == n_waiting)
            continue;
        if (cell < 0) {
            cell = waiting[next++] + (PP_V_WZ - PP_V_IZ) * g->m;
            pp_v_grid_put(g, rank, cell / g->m, cell % g->m, t);
        }
        int kind = cell / g->m;
        int mb = cell % g->m;
        *cool_of(c, rank, kind, mb) = left && turned;
        if (kind == PP_V_IZ || kind == PP_V_IA)
            waiting[n_waiting++] = cell;
        left = left || (kind == PP_V_IA && mb == 0);
        turned = turned || (kind == PP_V_FZ && mb == g->m - 1);
    }
}

/* Removes the W's of the cool-down, and closes the gaps. */
static void close_ranks(struct control *c)
{
    struct pp_v_grid *g = &c->grid;
    for (size_t i = 0; i < (size_t)g->p * (size_t)g->width; i++) {
        int rank = (int)(i / (size_t)g->width);
        int32_t cell = g->cells[i];
        if (cell >= PP_V_WZ * g->m && *cool_of(c, rank, cell / g->m, cell % g->m))
            g->cells[i] = -1;
    }
    for (int t = 0; t < g->width; t++) {
        for (int r = 0; r < g->p; r++) {
            int32_t *row = pp_v_row(g, r);
            int32_t cell = row[t];
            if (cell < 0 || !*cool_of(c, r, cell / g->m, cell % g->m))
                continue;
            int to = pp_v_grid_earliest(g, r, cell / g->m, cell % g->m);
            while (to < t && row[to] >= 0)
                to++;
            if (to < t) {
                row[t] = -1;
                pp_v_grid_put(g, r, cell / g->m, cell % g->m, to);
            }
        }
    }
}

/* Returns the first micro-batch whose W of this kind runs in the cool-down (see fill_rank()); m if
 * there is none. W's run in ascending order, so those of the cool-down are the last ones. */
static int first_cool(const struct control *c, int rank, int kind)
{
    int mb = c->grid.m;
    while (mb > 0 && *cool_of(c, rank, kind, mb - 1))
        mb--;
    return mb;
}

/* Puts the W's of the cool-down back in their order, each into the first empty slot. */
static void fill_gaps(struct control *c, int rank)
{
    struct pp_v_grid *g = &c->grid;
    int z = first_cool(c, rank, PP_V_WZ);
    int a = first_cool(c, rank, PP_V_WA);
    while (z < g->m || a < g->m) {
        bool take_z = z < g->m && (a == g->m || *pp_v_slot(g, rank, PP_V_WZ, z) <
                                                    *pp_v_slot(g, rank, PP_V_WA, a));
        int kind = take_z ? PP_V_WZ : PP_V_WA;
        int mb = take_z ? z++ : a++;
        int t = pp_v_grid_earliest(g, rank, kind, mb);
        while (pp_v_row(g, rank)[t] >= 0)
            t++;
        pp_v_grid_put(g, rank, kind, mb, t);
    }
}

static int build_grid(struct control *c, const struct pp_geometry *geo,
                      void (*pattern)(int p, int rank, int *first))
{
    int p = geo->stages;
    int m = geo->microbatches;
    PP_TAKE(int, first, (size_t)p *PP_V_KINDS);
    for (int r = 0; r < p; r++)
        pattern(p, r, first + (size_t)r * PP_V_KINDS);
    PP_TRY(pp_v_grid_init(&c->grid, p, m, false, first));
    PP_ALLOC(c->cool, (size_t)p * PP_V_KINDS * (size_t)m);
    PP_TAKE(int32_t, waiting, 2 * (size_t)m);
    for (int r = 0; r < p; r++)
        fill_rank(c, r, waiting);
    pp_v_grid_count(&c->grid);
    pp_v_grid_squeeze(&c->grid);
    close_ranks(c);
    for (int r = 0; r < p; r++)
        fill_gaps(c, r);
    return 0;
}

int pp_v_control(const struct pp_geometry *g, void (*pattern)(int p, int rank, int *first),
                 struct pp_emit **e)
{
    struct control c = {0};
    int rc = build_grid(&c, g, pattern);
    if (rc == 0)
        rc = pp_v_grid_emit(&c.grid, e);
    pp_v_grid_fini(&c.grid);
    pp_free(c.cool);
    return rc;
}
