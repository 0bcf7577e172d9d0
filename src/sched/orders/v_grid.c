/* SPDX-License-Identifier: Apache-2.0 */
/* Places periodic patterns of cells on a grid and squeezes them to the left. */
#include "orders.h"
#include "../schedule.h"

#include <string.h>

#include "ppcli/base/base.h"

/* Returns by how many micro-batches a cell changes what its rank holds: 1 for an F, -1 for a W. */
static int delta_of(int kind)
{
    return kind <= PP_V_FZ ? 1 : kind >= PP_V_WZ ? -1 : 0;
}

void pp_v_grid_put(struct pp_v_grid *g, int rank, int kind, int mb, int t)
{
    int32_t *cell = &pp_v_row(g, rank)[t];
    pp_assert(t >= 0 && t < g->width && *cell < 0);
    *cell = kind * g->m + mb;
    *pp_v_slot(g, rank, kind, mb) = t;
}

static void put_pattern(struct pp_v_grid *g, const int *first)
{
    int kinds = g->fused ? PP_V_KINDS : PP_V_WZ;
    for (int r = 0; r < g->p; r++) {
        for (int kind = 0; kind < kinds; kind++) {
            for (int mb = 0; mb < g->m; mb++) {
                int t = first[r * PP_V_KINDS + kind] + PP_V_PERIOD * mb;
                pp_v_grid_put(g, r, kind, mb, t);
            }
        }
    }
}

int pp_v_grid_init(struct pp_v_grid *g, int p, int m, bool fused, const int *first)
{
    *g = (struct pp_v_grid){.p = p, .m = m, .fused = fused};
    int last = 0;
    for (int i = 0; i < p * PP_V_KINDS; i++)
        last = first[i] > last ? first[i] : last;
    /* After the last cell of the pattern, there are enough slots for every W. */
    int64_t width = (int64_t)last + 1 + (PP_V_PERIOD + 2) * (int64_t)m;
    if (width > INT32_MAX)
        return pp_fail(PP_ERESOURCE, "a schedule of %d micro-batches is too long to lay out", m);
    g->width = (int)width;
    size_t slots;
    size_t cells;
    PP_TRY(pp_size_mul((size_t)p, (size_t)width, &slots));
    PP_TRY(pp_size_mul((size_t)p * PP_V_KINDS, (size_t)m, &cells));
    PP_ALLOC(g->cells, slots);
    PP_ALLOC(g->live, slots);
    PP_ALLOC(g->slot, cells);
    memset(g->cells, 0xff, slots * sizeof(*g->cells));
    put_pattern(g, first);
    return 0;
}

void pp_v_grid_fini(struct pp_v_grid *g)
{
    pp_free(g->cells);
    pp_free(g->live);
    pp_free(g->slot);
    *g = (struct pp_v_grid){0};
}

/* Returns the slot of the cell that produces the input of this cell; -1 if it needs no input. */
static int find_input_slot(const struct pp_v_grid *g, int rank, int kind, int mb)
{
    bool fold = rank == g->p - 1;
    /* A fused B sends its gradient at its end. */
    int iz = g->fused ? PP_V_WZ : PP_V_IZ;
    int ia = g->fused ? PP_V_WA : PP_V_IA;
    switch (kind) {
    case PP_V_FA:
        return rank > 0 ? *pp_v_slot(g, rank - 1, PP_V_FA, mb) : -1;
    case PP_V_FZ:
        return fold ? *pp_v_slot(g, rank, PP_V_FA, mb) : *pp_v_slot(g, rank + 1, PP_V_FZ, mb);
    case PP_V_IZ:
        return rank > 0 ? *pp_v_slot(g, rank - 1, iz, mb) : *pp_v_slot(g, rank, PP_V_FZ, mb);
    case PP_V_IA:
        return fold ? *pp_v_slot(g, rank, iz, mb) : *pp_v_slot(g, rank + 1, ia, mb);
    default:
        return *pp_v_slot(g, rank, kind - PP_V_WZ + PP_V_IZ, mb);
    }
}

int pp_v_grid_earliest(const struct pp_v_grid *g, int rank, int kind, int mb)
{
    int before = mb > 0 ? *pp_v_slot(g, rank, kind, mb - 1) : -1;
    int need = find_input_slot(g, rank, kind, mb);
    return 1 + (before > need ? before : need);
}

void pp_v_grid_count(struct pp_v_grid *g)
{
    g->cap = 0;
    for (int r = 0; r < g->p; r++) {
        int live = 0;
        for (int t = 0; t < g->width; t++) {
            int32_t cell = pp_v_row(g, r)[t];
            live += cell < 0 ? 0 : delta_of(cell / g->m);
            pp_v_live(g, r)[t] = live;
            g->cap = live > g->cap ? live : g->cap;
        }
    }
}

static bool is_empty(const struct pp_v_grid *g, int rank, int t, bool wide)
{
    const int32_t *row = pp_v_row(g, rank);
    return row[t] < 0 && (!wide || row[t + 1] < 0);
}

/* Returns the slot to which the cell at slot t of `rank` moves; t if the cell stays. */
static int find_target_slot(const struct pp_v_grid *g, int rank, int kind, int mb, int t)
{
    int from = pp_v_grid_earliest(g, rank, kind, mb);
    if (delta_of(kind) > 0) {
        /* The micro-batch is held from its new slot on, so every slot from there to here must have
         * memory left. */
        const int32_t *live = pp_v_live(g, rank);
        int roomy = t;
        while (roomy > from && live[roomy - 1] < g->cap)
            roomy--;
        from = roomy;
    }
    bool wide = g->fused && (kind == PP_V_IZ || kind == PP_V_IA);
    while (from < t && !is_empty(g, rank, from, wide))
        from++;
    return from < t ? from : t;
}

void pp_v_grid_squeeze(struct pp_v_grid *g)
{
    for (int t = 0; t < g->width; t++) {
        for (int r = 0; r < g->p; r++) {
            int32_t cell = pp_v_row(g, r)[t];
            if (cell < 0)
                continue;
            int kind = cell / g->m;
            int mb = cell % g->m;
            int to = find_target_slot(g, r, kind, mb, t);
            if (to == t)
                continue;
            for (int i = to; i < t; i++)
                pp_v_live(g, r)[i] += delta_of(kind);
            pp_v_row(g, r)[t] = -1;
            pp_v_grid_put(g, r, kind, mb, to);
        }
    }
}

int pp_v_grid_emit(const struct pp_v_grid *g, struct pp_emit **e)
{
    for (int r = 0; r < g->p; r++) {
        for (int t = 0; t < g->width; t++) {
            int32_t cell = pp_v_row(g, r)[t];
            int kind = cell < 0 ? PP_V_KINDS : cell / g->m;
            if (kind == PP_V_KINDS || (g->fused && kind >= PP_V_WZ))
                continue;
            bool z = kind == PP_V_FZ || kind == PP_V_IZ || kind == PP_V_WZ;
            enum pp_op op = kind <= PP_V_FZ ? PP_OP_F : kind >= PP_V_WZ ? PP_OP_W : PP_OP_I;
            if (g->fused && op == PP_OP_I)
                op = PP_OP_B;
            PP_TRY(pp_emit_cell(e[r], op, z ? 2 * g->p - 1 - r : r, cell % g->m));
        }
    }
    return 0;
}
