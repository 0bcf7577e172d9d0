/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass 2, check: is each rank's list, looked at alone, part of a legal training step? Each
 * (virtual stage, micro-batch) has one F and then one B, or one I and then one W, on the rank that
 * holds the stage, and W (or B) ascends. What the lists do to each other is the proof's business.
 */
#include "pass.h"

#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

struct checker {
    const struct pp_plan *plan;
    int rank;
    uint8_t *saw;    /* [V][M] of the current rank: bit 1 << op */
    int32_t *next_w; /* [n_virtual] the micro-batch that must be accumulated next; eval: next F */
};

#define SAW(op) (1u << (op))

static char letter(int op)
{
    return PP_OP_LETTERS[op];
}

/* Does the current rank run `op` of (stage, mb) after action k? Only asked to word a refusal. */
static bool comes_later(const struct checker *c, int k, int op, int stage, int mb)
{
    const struct pp_rank_plan *list = &c->plan->ranks[c->rank];
    for (int i = k + 1; i < list->n_actions; i++) {
        const struct pp_action *a = &list->actions[i];
        if (a->op == op && a->stage == stage && a->mb == mb) {
            return true;
        }
    }
    return false;
}

/* Action k needs an earlier `need` of the same (stage, mb). */
static int fail_needs(const struct checker *c, int k, int need)
{
    const struct pp_action *a = &c->plan->ranks[c->rank].actions[k];
    if (comes_later(c, k, need, a->stage, a->mb)) {
        return pp_fail(PP_EFORMAT, "rank %d: %c%d of stage %d comes before its %c%d", c->rank,
                       letter(a->op), a->mb, a->stage, letter(need), a->mb);
    }
    return pp_fail(PP_EFORMAT, "rank %d: %c%d of stage %d has no %c%d", c->rank, letter(a->op),
                   a->mb, a->stage, letter(need), a->mb);
}

static int fail_both(const struct checker *c, const struct pp_action *a, unsigned saw)
{
    char other = a->op != PP_OP_B ? 'B' : saw & SAW(PP_OP_W) ? 'W' : 'I';
    return pp_fail(PP_EFORMAT,
                   "rank %d: stage %d has both %c%d and %c%d: a micro-batch has one B, or one I "
                   "and one W",
                   c->rank, a->stage, other, a->mb, letter(a->op), a->mb);
}

/* Action k accumulates micro-batch a->mb where `due` should have been next. */
static int fail_order(const struct checker *c, int k, int due)
{
    const struct pp_action *a = &c->plan->ranks[c->rank].actions[k];
    if (comes_later(c, k, PP_OP_W, a->stage, due) || comes_later(c, k, PP_OP_B, a->stage, due)) {
        return pp_fail(PP_EFORMAT,
                       "rank %d: %c of stage %d runs for micro-batch %d before %d: gradients must "
                       "be accumulated in ascending order",
                       c->rank, letter(a->op), a->stage, a->mb, due);
    }
    return pp_fail(PP_EFORMAT, "rank %d: stage %d has no W%d and no B%d", c->rank, a->stage, due,
                   due);
}

/* Is this a cell of this geometry, on the rank that holds it? */
static int check_place(const struct checker *c, int k)
{
    const struct pp_plan *plan = c->plan;
    const struct pp_action *a = &plan->ranks[c->rank].actions[k];
    if (a->op > PP_OP_B) {
        return pp_fail(PP_EFORMAT, "rank %d: cell %d is neither F, I, W nor B (op %d)", c->rank, k,
                       a->op);
    }
    if (a->stage < 0 || a->stage >= plan->n_virtual) {
        return pp_fail(PP_EFORMAT, "rank %d: cell %d (%c%d) is of stage %d, stages are 0..%d",
                       c->rank, k, letter(a->op), a->mb, a->stage, plan->n_virtual - 1);
    }
    if (a->mb < 0 || a->mb >= plan->geometry.microbatches) {
        return pp_fail(PP_EFORMAT,
                       "rank %d: cell %d is %c of stage %d for micro-batch %d, micro-batches are "
                       "0..%d",
                       c->rank, k, letter(a->op), a->stage, a->mb, plan->geometry.microbatches - 1);
    }
    if (plan->rank_of[a->stage] != c->rank) {
        return pp_fail(PP_EFORMAT, "rank %d: %c%d of stage %d belongs to rank %d", c->rank,
                       letter(a->op), a->mb, a->stage, plan->rank_of[a->stage]);
    }
    if (plan->kind == PP_PLAN_EVAL && a->op != PP_OP_F) {
        return pp_fail(PP_EFORMAT, "rank %d: %c%d of stage %d in a forward-only plan", c->rank,
                       letter(a->op), a->mb, a->stage);
    }
    return 0;
}

/* What is meant to overlap is an F and the B right behind it. */
static int check_overlap(const struct checker *c, int k)
{
    const struct pp_rank_plan *list = &c->plan->ranks[c->rank];
    const struct pp_action *a = &list->actions[k];
    if (a->op != PP_OP_F || k + 1 == list->n_actions || a[1].op != PP_OP_B) {
        return pp_fail(PP_EFORMAT,
                       "rank %d: %c%d of stage %d is marked to overlap, but is not an F right "
                       "before a B",
                       c->rank, letter(a->op), a->mb, a->stage);
    }
    return 0;
}

static int check_cell(const struct checker *c, int k)
{
    PP_TRY(check_place(c, k));
    if (c->plan->ranks[c->rank].actions[k].overlap) {
        PP_TRY(check_overlap(c, k));
    }
    const struct pp_action *a = &c->plan->ranks[c->rank].actions[k];
    size_t row = (size_t)c->plan->chunk_of[a->stage] * (size_t)c->plan->geometry.microbatches;
    uint8_t *saw = &c->saw[row + (size_t)a->mb];

    if (*saw & SAW(a->op)) {
        return pp_fail(PP_EFORMAT, "rank %d: %c%d of stage %d comes twice", c->rank, letter(a->op),
                       a->mb, a->stage);
    }
    bool fused = a->op == PP_OP_B;
    bool split = a->op == PP_OP_I || a->op == PP_OP_W;
    if ((fused && (*saw & (SAW(PP_OP_I) | SAW(PP_OP_W)))) || (split && (*saw & SAW(PP_OP_B)))) {
        return fail_both(c, a, *saw);
    }
    if (a->op == PP_OP_W && !(*saw & SAW(PP_OP_I))) {
        return fail_needs(c, k, PP_OP_I);
    }
    if ((fused || a->op == PP_OP_I) && !(*saw & SAW(PP_OP_F))) {
        return fail_needs(c, k, PP_OP_F);
    }
    if (fused || a->op == PP_OP_W) {
        if (a->mb != c->next_w[a->stage]) {
            return fail_order(c, k, c->next_w[a->stage]);
        }
        c->next_w[a->stage]++;
    }
    *saw |= (uint8_t)SAW(a->op);
    return 0;
}

/* Everything seen was legal: what is missing is at the end. A W or B implies all that it needs. */
static int check_complete(struct checker *c)
{
    for (int s = 0; s < c->plan->n_virtual; s++) {
        int due = c->next_w[s];
        if (due == c->plan->geometry.microbatches) {
            continue;
        }
        c->rank = c->plan->rank_of[s];
        if (!comes_later(c, -1, PP_OP_F, s, due)) {
            return pp_fail(PP_EFORMAT, "rank %d: stage %d has no F%d", c->rank, s, due);
        }
        if (comes_later(c, -1, PP_OP_I, s, due)) {
            return pp_fail(PP_EFORMAT, "rank %d: stage %d has I%d but no W%d", c->rank, s, due,
                           due);
        }
        return pp_fail(PP_EFORMAT, "rank %d: stage %d has no backward of micro-batch %d (no B%d)",
                       c->rank, s, due, due);
    }
    return 0;
}

/* Forward only: each F once, ascending. */
static int check_eval(struct checker *c)
{
    for (; c->rank < c->plan->geometry.stages; c->rank++) {
        const struct pp_rank_plan *list = &c->plan->ranks[c->rank];
        for (int k = 0; k < list->n_actions; k++) {
            PP_TRY(check_place(c, k));
            const struct pp_action *a = &list->actions[k];
            if (a->mb != c->next_w[a->stage]++) {
                return pp_fail(PP_EFORMAT, "rank %d: F%d of stage %d is out of order", c->rank,
                               a->mb, a->stage);
            }
        }
    }
    for (int s = 0; s < c->plan->n_virtual; s++) {
        if (c->next_w[s] != c->plan->geometry.microbatches) {
            return pp_fail(PP_EFORMAT, "rank %d: stage %d has no F%d", c->plan->rank_of[s], s,
                           c->next_w[s]);
        }
    }
    return 0;
}

static int check_train(struct checker *c)
{
    size_t cells = (size_t)c->plan->geometry.chunks * (size_t)c->plan->geometry.microbatches;
    for (; c->rank < c->plan->geometry.stages; c->rank++) {
        memset(c->saw, 0, cells);
        for (int k = 0; k < c->plan->ranks[c->rank].n_actions; k++) {
            PP_TRY(check_cell(c, k));
        }
    }
    return check_complete(c);
}

int pp_pass_check(const struct pp_plan *plan)
{
    struct checker c = {.plan = plan};
    int rc = PP_ERESOURCE;
    c.saw = pp_alloc((size_t)plan->geometry.chunks, (size_t)plan->geometry.microbatches);
    c.next_w = pp_alloc((size_t)plan->n_virtual, sizeof(*c.next_w));
    if (!c.saw || !c.next_w) {
        goto out;
    }
    rc = plan->kind == PP_PLAN_EVAL ? check_eval(&c) : check_train(&c);
out:
    pp_free(c.saw);
    pp_free(c.next_w);
    return rc;
}
