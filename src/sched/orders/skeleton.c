/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A schedule to begin with. Copy this file to NAME.c, call its table schedule_NAME, and add a row to
 * schedules.def. Then `ppcli plan --schedule NAME --stages 4 --microbatches 8` proves and draws it,
 * and train runs it to the bits of one stage. Until then it is in no table: a test plans this one.
 *
 * Here rank r has stage r, and runs one forward more ahead than 1F1B; the weight gradients are apart
 * from the backwards (I, W) and come where a rank would wait at the end.
 */
#include "orders.h"
#include "../schedule.h"

/* Checks whether the schedule can run this shape. Returns 0, or PP_ECONFIG through
 * pp_refuse_shape(), which names the nearest legal shape; here one micro-batch is refused, because
 * it fills no pipeline. A schedule that can run every shape leaves this hook NULL. */
static int check(const struct pp_geometry *g)
{
    struct pp_geometry nearest = *g;
    nearest.microbatches = 2;
    return g->microbatches >= 2 ? 0 : pp_refuse_shape(g, &nearest, "2 micro-batches or more");
}

/* Emits the cells (op, virtual stage, micro-batch) of one rank in order. For each of its stages and
 * each micro-batch there is one F, and after it either one B, or one I and later one W. The W of a
 * stage ascend, because gradients are added up in the order of micro-batches. The caller derives
 * messages, slots and the proof from the lists of all ranks. */
static int emit(const struct pp_geometry *g, int rank, struct pp_emit *e)
{
    int m = g->microbatches, ahead = g->stages - rank;
    ahead = ahead < m ? ahead : m;
    for (int k = 0; k < m + ahead; k++) {
        if (k < m)
            PP_TRY(pp_emit_cell(e, PP_OP_F, rank, k));
        if (k >= ahead)
            PP_TRY(pp_emit_cell(e, PP_OP_I, rank, k - ahead));
    }
    for (int k = 0; k < m; k++)
        PP_TRY(pp_emit_cell(e, PP_OP_W, rank, k));
    return 0;
}

extern const struct pp_schedule_ops schedule_skeleton; /* PP_SCHEDULE declares it */
const struct pp_schedule_ops schedule_skeleton = {
    .placement = PP_PLACE_LOOP, /* which rank has which virtual stage: ppcli/sched/schedule.h */
    .chunks = 1,                /* of each rank; 0: any number, and default_chunks */
    .merges = false,            /* I and W are apart, so a run must not merge W by itself */
    .check = check,
    .held = NULL, /* not required: the most chunks that a rank holds, if a formula gives it */
    .emit = emit, /* or emit_all, if the lists of all ranks are made together */
};
