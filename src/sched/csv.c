/* SPDX-License-Identifier: Apache-2.0 */
/* Lowered lists as CSV, byte for byte as torch.distributed.pipelining writes them (with plain line
 * ends). The compute-only format is pp_plan_print_csv(). */
#include "comms.h"

#include "ppcli/err.h"

static void print_row(const struct pp_plan *plan, int rank, const struct pp_comm_list *list,
                      FILE *f)
{
    const char *before = "";
    char name[PP_COMM_NAME_MAX];
    for (int k = 0; k < list->n; k++) {
        const struct pp_comm *c = &list->cells[k];
        bool pair = c->kind == PP_COMM_RUN && plan->ranks[rank].actions[c->index].overlap;
        fprintf(f, "%s%s%s", before, pair ? "(" : "", pp_comm_name(plan, rank, c, name));
        if (pair) {
            k++;
            fprintf(f, ";%s)OVERLAP_F_B", pp_comm_name(plan, rank, &list->cells[k], name));
        }
        before = ",";
    }
    putc('\n', f);
}

int pp_plan_print_csv_comms(const struct pp_plan *plan, FILE *f)
{
    struct pp_comms comms;
    PP_TRY(pp_comms_build(plan, PP_COMM_LOWERED, &comms));
    for (int r = 0; r < comms.n_ranks; r++) {
        print_row(plan, r, &comms.ranks[r], f);
    }
    pp_comms_fini(&comms);
    /* stdio keeps the first failure; one look at the end is enough. */
    return ferror(f) ? pp_fail(PP_EIO, "cannot write the plan") : 0;
}
