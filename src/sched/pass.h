/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the plan's passes share. Every pass takes a plan that the passes before it accepted:
 *
 *   generate  cells of a schedule (or of a caller) -> actions with op, stage, mb
 *   check     each list alone: coverage, order, ascending W
 *   ascend    descending weight gradients, where a table or a schedule has them
 *   coalesce  W of several micro-batches together, where the geometry asks for it
 *   lower     channels, messages, send and recv of every action
 *   slots     state, gradient and message slots
 *   prove     nothing aliases, nothing waits in a circle
 *   recompute pp_plan_recompute(): of a proved plan; lower, slots and proof follow again
 *   tie       pp_plan_tie(): of a proved plan, which is proved again
 *
 * They fail with PP_EFORMAT ("not a legal training step"); plan.c turns that into PP_EINTERNAL when
 * the list was one of our own schedules.
 */
#ifndef PPCLI_SCHED_PASS_H
#define PPCLI_SCHED_PASS_H

#include <stddef.h>

#include "ppcli/sched/plan.h"

/* schedule_naive, schedule_gpipe, ... */
#define PP_SCHEDULE(x, name, help) extern const struct pp_schedule_ops schedule_##x;
#define PP_SCHEDULE_TWO_WAY PP_SCHEDULE
#include "schedules.def"
#undef PP_SCHEDULE
#undef PP_SCHEDULE_TWO_WAY

/* The cells of one rank while its schedule emits them. */
struct pp_emit {
    struct pp_cell *cells;
    size_t n, capacity;
};

/* Visits the cells of one rank; they are valid until it returns. */
typedef int pp_cells_visit(void *ctx, int rank, const struct pp_emit *e);

/* Visit the lists of a checked schedule, rank by rank, as published. */
int pp_schedule_visit(const struct pp_schedule_ops *ops, const struct pp_geometry *g,
                      pp_cells_visit *visit, void *ctx);

/* The channel that a sends on, when it does. */
static inline int pp_sends_on(const struct pp_plan *plan, const struct pp_action *a)
{
    if (a->op >= PP_OP_G)
        return plan->messages[a->send].channel;
    return a->op == PP_OP_F ? 2 * a->stage : 2 * (a->stage - 1) + 1;
}

/* Bytes of a name of a cell, as tables have it: "0F2", stage, op and micro-batch. */
#define PP_CELL_NAME_MAX 48
const char *pp_cell_name(const struct pp_plan *plan, const struct pp_action *a,
                         char name[PP_CELL_NAME_MAX]);

/* 0, or PP_ECONFIG: P, V and M are at least 1 and their product is not too much. */
int pp_check_geometry(const struct pp_geometry *g);

/*
 * PP_ECONFIG for a shape that breaks a rule: "needs RULE, not 4 stages, 1 chunk, 7 micro-batches;
 * nearest legal: microbatches = 8". `nearest` differs from `g` in what must change: stages, chunks,
 * microbatches, group.
 */
int pp_refuse_shape(const struct pp_geometry *g, const struct pp_geometry *nearest,
                    const char *rule, ...) __attribute__((format(printf, 3, 4)));

/* What one copy of the weights sees of a shape: its share of the micro-batches. */
struct pp_geometry pp_schedule_share(const struct pp_schedule_ops *ops,
                                     const struct pp_geometry *g);

/* An empty plan. rank_of: of every virtual stage; NULL for `placement`. */
int pp_plan_create(enum pp_plan_kind kind, const struct pp_geometry *g, const int *rank_of,
                   enum pp_placement placement, struct pp_plan **out);

/* The end of a builder: *out = plan, or with an error code no plan. Returns rc. */
int pp_plan_hand_over(struct pp_plan *plan, int rc, struct pp_plan **out);

/* Room for `n` actions of `rank`, zeroed, instead of those it has. Errors: PP_ERESOURCE. */
int pp_plan_take_actions(struct pp_plan *plan, int rank, int n);
/* The same with cells in it; the check judges what they are. */
int pp_plan_take_cells(struct pp_plan *plan, int rank, const struct pp_cell *cells, size_t n);

/* All passes after the first. table: where the lists were read from, for the places in errors;
 * NULL: from no file. */
struct pp_table;
int pp_plan_run_passes(struct pp_plan *plan, const struct pp_table *table);

/* The passes from lower on, again where they have been. */
int pp_plan_make_slots(struct pp_plan *plan);

int pp_pass_generate(struct pp_plan *plan); /* from plan->schedule */
/* Forward only: of the deepest stage that has an input. */
int pp_pass_generate_eval(struct pp_plan *plan, enum pp_placement placement);
/* *out_descends: weight gradients do, which only tables and schedules that say so may. */
int pp_pass_check(const struct pp_plan *plan, const struct pp_table *table, bool *out_descends);
int pp_pass_ascend(struct pp_plan *plan);   /* of a checked plan that descends */
int pp_pass_coalesce(struct pp_plan *plan); /* of a checked training plan */

/* order[message of (channel, 0) + k]: micro-batch that the channel's k-th message carries. */
int pp_pass_lower(struct pp_plan *plan, int32_t **out_order);
int pp_pass_slots(struct pp_plan *plan, const int32_t *order);

/* Every list ends with its G and T, as pp_plan_tie() says, and what they send is one message in one
 * slot. Errors: PP_EFORMAT, PP_ERESOURCE. */
int pp_prove_ties(const struct pp_plan *plan);

/*
 * One walk over all actions in an order that respects every wait, with times (F = I = W = 1). The
 * engine under the slots and the proof: a rank runs until it must wait, and the event that it
 * waits for wakes it, so the whole walk is linear in the number of actions.
 */
enum pp_wait_kind {
    PP_WAIT_NONE,
    PP_WAIT_MESSAGE,
    PP_WAIT_SLOT
};

struct pp_wait {
    enum pp_wait_kind kind;
    int32_t message; /* to arrive; or whose reader must release the slot */
};

/* mid: end of the I half of a B, when its message leaves; else end */
typedef void pp_walk_visit(void *ctx, int rank, int k, int64_t mid, int64_t end);

struct pp_walk {
    const struct pp_plan *plan;
    bool slots;           /* honour message slots (the executor's semantics), and keep no time:
                             waiting for a slot takes none */
    pp_walk_visit *visit; /* with times only */
    void *ctx;

    int64_t *avail;           /* [n_messages] time at which it is there, plus 1; 0: not yet */
    bool *there;              /* [n_messages] the same without times, for slots */
    int32_t *sent, *released; /* [n_channels] how many so far, for slots */
    int64_t *now;             /* [P] */
    int *at;                  /* [P] next action */
    struct pp_wait *wait;
    /* Ranks that may run, as bits of blocks of 64 neighbours, and the blocks that have any, in
     * turn: a block runs as long as it can, so that what its ranks touch stays in the cache. */
    uint64_t *ready;
    int *turn;
    int n_blocks, first_turn, n_turns;
};

/* Allocates; pp_walk_fini() accepts a half-built or zeroed walk. Set visit and ctx in between. */
int pp_walk_init(struct pp_walk *w, const struct pp_plan *plan, bool slots);
/* 0, or PP_EFORMAT with the wait cycle. */
int pp_walk_run(struct pp_walk *w);
void pp_walk_fini(struct pp_walk *w);

/* Some ranks of the finished walk still wait: record who waits for whom, return PP_EFORMAT. */
int pp_walk_fail_cycle(const struct pp_walk *w);

/* Describes what a waiting rank waits for, unless bytes is 0. Returns the rank that would end the
 * wait; -1 when that rank does not wait itself. */
typedef int pp_tell_wait(const void *ctx, int rank, char *text, size_t bytes);

/* PP_EFORMAT with the circle of waits that rank r leads to; `under` comes before it. */
int pp_fail_circle(const char *under, int n_ranks, int r, pp_tell_wait *tell, const void *ctx);

#endif
