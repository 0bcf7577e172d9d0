/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the check and lowering, this pass repairs lists in which backward actions descend. A B
 * that comes too early becomes its I, and a W that comes too early is removed; both get their W as
 * soon as all earlier micro-batches of the stage have theirs. The input gradients keep their
 * places, because neighbours wait for them. Only the sums move, and their order decides the bits of
 * every run.
 */
#include "pass.h"
#include "schedule.h"

#include <string.h>

#include "ppcli/base/base.h"

struct queue {
    const struct pp_plan *plan;
    struct pp_emit out;
    uint8_t *waits; /* [V][M] I is done but W was too early */
    int32_t *next;  /* [V] micro-batch of the next W */
};

static int append_action(struct queue *q, const struct pp_action *a)
{
    int m = q->plan->geometry.microbatches;
    int chunk = q->plan->chunk_of[a->stage];
    uint8_t *waits = q->waits + (size_t)chunk * (size_t)m;
    int32_t *next = &q->next[chunk];
    bool adds = a->op == PP_OP_W || a->op == PP_OP_B;
    if (!adds || a->mb == *next) {
        PP_TRY(pp_emit_cell(&q->out, (enum pp_op)a->op, a->stage, a->mb));
        q->out.cells[q->out.n - 1].overlap = a->overlap;
        *next += adds;
        while (adds && *next < m && waits[*next])
            PP_TRY(pp_emit_cell(&q->out, PP_OP_W, a->stage, (*next)++));
        return 0;
    }
    waits[a->mb] = true;
    if (a->op == PP_OP_W)
        return 0;
    if (q->out.n > 0)
        q->out.cells[q->out.n - 1].overlap = false; /* the cell before it is no longer a B */
    return pp_emit_cell(&q->out, PP_OP_I, a->stage, a->mb);
}

static int ascend_rank(struct queue *q, struct pp_plan *plan, int rank)
{
    size_t chunks = (size_t)plan->geometry.chunks;
    memset(q->waits, 0, chunks * (size_t)plan->geometry.microbatches);
    memset(q->next, 0, chunks * sizeof(*q->next));
    q->out.n = 0;
    for (int k = 0; k < plan->ranks[rank].n_actions; k++)
        PP_TRY(append_action(q, &plan->ranks[rank].actions[k]));
    return pp_plan_take_cells(plan, rank, q->out.cells, q->out.n);
}

int pp_pass_ascend(struct pp_plan *plan)
{
    size_t chunks = (size_t)plan->geometry.chunks;
    PP_TAKE(uint8_t, waits, chunks * (size_t)plan->geometry.microbatches);
    PP_TAKE(int32_t, next, chunks);
    struct queue q = {.plan = plan, .waits = waits, .next = next};
    int rc = 0;
    for (int r = 0; r < plan->geometry.stages && rc == 0; r++)
        rc = ascend_rank(&q, plan, r);
    pp_free(q.out.cells);
    return rc;
}
