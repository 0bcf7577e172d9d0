/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a plan of a table: its shape, the passes, and the proof of the order of its messages. */
#include "csv.h"
#include "schedule.h"

#include "ppcli/sched/plan.h"
#include "ppcli/base/base.h"

/* Copies the compute cells of one row of the table, without SEND and RECV, into the plan. */
static int take_plan_row(const struct pp_table *t, int rank, struct pp_plan *plan)
{
    const struct pp_csv_row *row = &t->csv.rows[rank];
    struct pp_emit e = {0};
    int rc = 0;
    for (int k = 0; k < row->n && rc == 0; k++) {
        const struct pp_csv_cell *c = &row->cells[k];
        if (!pp_csv_is_message(c)) {
            rc = pp_emit_cell(&e, pp_table_op(t, c), c->stage, c->mb);
            if (rc == 0)
                e.cells[e.n - 1].overlap = c->overlap;
        }
    }
    if (rc == 0)
        rc = pp_plan_take_cells(plan, rank, e.cells, e.n);
    pp_free(e.cells);
    return rc;
}

static int build_plan(const struct pp_table *t, struct pp_plan **out)
{
    PP_TRY(pp_plan_create(PP_PLAN_TRAIN, &t->g, t->rank_of, PP_PLACE_LOOP, out));
    for (int r = 0; r < t->g.stages; r++)
        PP_TRY(take_plan_row(t, r, *out));
    return pp_plan_run_passes(*out, t);
}

int pp_plan_read_csv(FILE *f, const char *name, struct pp_plan **out)
{
    struct pp_table t = {0};
    struct pp_plan *plan = NULL;
    int rc = pp_csv_read(f, name, &t.csv);
    if (rc == 0)
        rc = pp_table_shape(&t);
    if (rc == 0)
        rc = build_plan(&t, &plan);
    if (rc == 0 && t.csv.message.line > 0)
        rc = pp_table_prove_messages(&t, plan);
    pp_free(t.rank_of);
    pp_csv_fini(&t.csv);
    return pp_plan_hand_over(plan, rc, out);
}
