/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a plan as torch's compute-only CSV. */
#include "csv.h"
#include "plan.h"

int pp_csv_written(FILE *f)
{
    return ferror(f) ? pp_fail(PP_EIO, "cannot write the plan") : 0;
}

static int print_rank(void *ctx, int rank, const struct pp_emit *e)
{
    struct pp_csv_printer row = {.f = ctx};
    for (size_t k = 0; k < e->n; k++) {
        const struct pp_cell *c = &e->cells[k];
        pp_csv_print(&row, c->op, c->stage, c->mb, c->overlap);
    }
    putc('\n', row.f);
    return 0;
}

int pp_schedule_print_csv(const struct pp_schedule_ops *ops, const struct pp_geometry *g, FILE *f)
{
    PP_TRY(pp_check_geometry(g));
    PP_TRY(pp_schedule_check(ops, g));
    struct pp_geometry share = pp_schedule_share(ops, g);
    PP_TRY(pp_schedule_visit(ops, &share, print_rank, f));
    return pp_csv_written(f);
}

int pp_plan_print_csv(const struct pp_plan *plan, FILE *f)
{
    for (int r = 0; r < plan->geometry.stages; r++) {
        struct pp_csv_printer row = {.f = f};
        for (int k = 0; k < pp_plan_first_tied(&plan->ranks[r]); k++) {
            const struct pp_action *a = &plan->ranks[r].actions[k];
            pp_csv_print(&row, a->op, a->stage, a->mb, a->overlap);
        }
        putc('\n', f);
    }
    return pp_csv_written(f);
}
