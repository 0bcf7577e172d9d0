/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part of pass 1, for published orders in which backwards descend. Input gradients keep their
 * places, because neighbours wait for them; only the sums that everybody's bits depend on move.
 */
#include "pass.h"

#include "ppcli/err.h"
#include "ppcli/mem.h"

struct queue {
    const struct pp_plan *plan;
    struct pp_emit *out;
    uint8_t *waits; /* [V][M] has its I, and a W that came too early */
    int32_t *next;  /* [V] whose turn it is */
};

static bool is_cell(const struct pp_plan *plan, const struct pp_cell *c)
{
    return c->stage >= 0 && c->stage < plan->n_virtual && c->mb >= 0 &&
           c->mb < plan->geometry.microbatches;
}

/* All whose turn has come. */
static int catch_up(struct queue *q, int stage, uint8_t *waits, int32_t *next)
{
    while (*next < q->plan->geometry.microbatches && waits[*next]) {
        PP_TRY(pp_emit_cell(q->out, PP_OP_W, stage, (*next)++));
    }
    return 0;
}

static int take(struct queue *q, const struct pp_cell *c)
{
    bool adds = c->op == PP_OP_W || c->op == PP_OP_B;
    if (!adds || !is_cell(q->plan, c)) {
        PP_TRY(pp_emit_cell(q->out, (enum pp_op)c->op, c->stage, c->mb));
        q->out->cells[q->out->n - 1].overlap = c->overlap;
        return 0;
    }
    int chunk = q->plan->chunk_of[c->stage];
    uint8_t *waits = q->waits + (size_t)chunk * (size_t)q->plan->geometry.microbatches;
    int32_t *next = &q->next[chunk];
    if (c->mb == *next) {
        (*next)++;
        PP_TRY(pp_emit_cell(q->out, (enum pp_op)c->op, c->stage, c->mb));
        return catch_up(q, c->stage, waits, next);
    }
    waits[c->mb] = true;
    if (c->op == PP_OP_W) {
        return 0;
    }
    if (q->out->n > 0) {
        q->out->cells[q->out->n - 1].overlap = false; /* its partner is no B any more */
    }
    return pp_emit_cell(q->out, PP_OP_I, c->stage, c->mb);
}

int pp_cells_ascend(const struct pp_plan *plan, const struct pp_emit *in, struct pp_emit *out)
{
    size_t v = (size_t)plan->geometry.chunks;
    struct queue q = {.plan = plan, .out = out};
    int rc = PP_ERESOURCE;
    q.waits = pp_alloc(v, (size_t)plan->geometry.microbatches);
    q.next = pp_alloc(v, sizeof(*q.next));
    if (q.waits && q.next) {
        rc = 0;
    }
    for (size_t k = 0; k < in->n && rc == 0; k++) {
        rc = take(&q, &in->cells[k]);
    }
    pp_free(q.waits);
    pp_free(q.next);
    return rc;
}
