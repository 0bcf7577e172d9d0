/* SPDX-License-Identifier: Apache-2.0 */
/* Pass 1, generate: a schedule's cells become the actions of each rank. */
#include "pass.h"

#include "ppcli/err.h"
#include "ppcli/mem.h"

int pp_emit_cell(struct pp_emit *e, enum pp_op op, int stage, int mb)
{
    if (e->n == e->capacity) {
        size_t capacity = e->capacity ? 2 * e->capacity : 256;
        struct pp_cell *cells = pp_realloc(e->cells, capacity, sizeof(*cells));
        if (!cells) {
            return PP_ERESOURCE;
        }
        e->cells = cells;
        e->capacity = capacity;
    }
    e->cells[e->n++] = (struct pp_cell){.op = (uint8_t)op, .stage = stage, .mb = mb};
    return 0;
}

/* The emit buffer is used again for the next rank: only one rank's cells exist twice. */
static int generate_rank(struct pp_plan *plan, int rank, struct pp_emit *e)
{
    e->n = 0;
    PP_TRY(plan->schedule->emit(&plan->geometry, rank, e));
    if (e->n > INT32_MAX) {
        return pp_fail(PP_EFORMAT, "rank %d: %zu cells are too many", rank, e->n);
    }
    PP_TRY(pp_plan_take_actions(plan, rank, (int)e->n));
    struct pp_action *actions = plan->ranks[rank].actions;
    for (size_t k = 0; k < e->n; k++) {
        actions[k].op = e->cells[k].op;
        actions[k].stage = e->cells[k].stage;
        actions[k].mb = e->cells[k].mb;
    }
    return 0;
}

int pp_pass_generate(struct pp_plan *plan)
{
    struct pp_emit e = {0};
    int rc = 0;
    for (int r = 0; r < plan->geometry.stages && rc == 0; r++) {
        rc = generate_rank(plan, r, &e);
    }
    pp_free(e.cells);
    return rc;
}
