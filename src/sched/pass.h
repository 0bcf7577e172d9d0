/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the passes of a plan share. Every pass takes a plan that the passes before it
 * accepted:
 *
 *   generate  turns cells of a schedule (or of a caller) into actions with op, stage, mb
 *   check     checks each list alone: coverage, order, ascending W
 *   ascend    reorders descending weight gradients of a table or a schedule
 *   coalesce  joins the W of several micro-batches, where the geometry asks for it
 *   lower     makes channels, messages, and send and recv of every action
 *   slots     chooses state, gradient and message slots
 *   prove     shows that no slot aliases and no ranks wait in a circle
 *   freeze    pp_plan_freeze(): for a proved plan; lower, slots and proof follow
 *   recompute pp_plan_add_recompute(): for a proved plan; lower, slots and proof follow
 *   tie       pp_plan_tie(): for a proved plan, which is proved again
 *
 * They fail with PP_EFORMAT ("not a legal training step"); plan.c turns that into PP_EINTERNAL when
 * the list came from one of ppcli's schedules.
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

/* Receives the cells of one rank, which are valid until it returns. */
typedef int pp_cells_visit(void *ctx, int rank, const struct pp_emit *e);

/* Visits the lists of a checked schedule rank by rank, in the order that was published. */
int pp_schedule_visit(const struct pp_schedule_ops *ops, const struct pp_geometry *g,
                      pp_cells_visit *visit, void *ctx);

/* Returns the channel on which action `a` sends its message; the action must send one. */
static inline int pp_sends_on(const struct pp_plan *plan, const struct pp_action *a)
{
    if (a->op >= PP_OP_G)
        return plan->messages[a->send].channel;
    return a->op == PP_OP_F ? 2 * a->stage : 2 * (a->stage - 1) + 1;
}

/* Bytes of the name of a cell as tables write it: "0F2" is stage, op and micro-batch. */
#define PP_CELL_NAME_MAX 48
const char *pp_cell_name(const struct pp_plan *plan, const struct pp_action *a,
                         char name[PP_CELL_NAME_MAX]);

/* Checks that P, V and M are at least 1 and their product is not too large. Errors: PP_ECONFIG. */
int pp_check_geometry(const struct pp_geometry *g);

/*
 * Fails with PP_ECONFIG for a shape that breaks a rule: "needs RULE, not 4 stages, 1 chunk, 7
 * micro-batches; nearest legal: microbatches = 8". `nearest` differs from `g` in the members that
 * must change: stages, chunks, microbatches, group.
 */
int pp_refuse_shape(const struct pp_geometry *g, const struct pp_geometry *nearest,
                    const char *rule, ...) __attribute__((format(printf, 3, 4)));

/* Returns the shape of one copy of the weights, with its share of the micro-batches. */
struct pp_geometry pp_schedule_share(const struct pp_schedule_ops *ops,
                                     const struct pp_geometry *g);

/* Makes an empty plan. rank_of gives the rank of every virtual stage; NULL: use `placement`. */
int pp_plan_create(enum pp_plan_kind kind, const struct pp_geometry *g, const int *rank_of,
                   enum pp_placement placement, struct pp_plan **out);

/* Ends a builder: if rc is 0 sets *out to the plan, else destroys the plan. Returns rc. */
int pp_plan_hand_over(struct pp_plan *plan, int rc, struct pp_plan **out);

/* Replaces the actions of `rank` by n actions that are all zero. Errors: PP_ERESOURCE. */
int pp_plan_take_actions(struct pp_plan *plan, int rank, int n);
/* Replaces the actions of `rank` by the n cells, which the check pass tests later. Errors:
 * PP_ERESOURCE. */
int pp_plan_take_cells(struct pp_plan *plan, int rank, const struct pp_cell *cells, size_t n);

/* Runs all passes after the first. table: the source of the lists, for positions in errors, or
 * NULL. */
struct pp_table;
int pp_plan_run_passes(struct pp_plan *plan, const struct pp_table *table);

/* Runs the passes from lower on; also for a plan that has been through them before. */
int pp_plan_make_slots(struct pp_plan *plan);

int pp_pass_generate(struct pp_plan *plan); /* from plan->schedule */
/* Generates a forward-only plan, which runs the deepest stage that has an input. */
int pp_pass_generate_eval(struct pp_plan *plan, enum pp_placement placement);
/* Checks each list. Sets *out_descends to whether weight gradients descend, which only tables may,
 * and schedules that declare it. */
int pp_pass_check(const struct pp_plan *plan, const struct pp_table *table, bool *out_descends);
int pp_pass_ascend(struct pp_plan *plan);   /* for a checked plan that descends */
int pp_pass_coalesce(struct pp_plan *plan); /* for a checked training plan */

/* Makes channels and messages. Sets order[message of (channel, 0) + k] to the micro-batch of the
 * channel's k-th message. */
int pp_pass_lower(struct pp_plan *plan, int32_t **out_order);
int pp_pass_slots(struct pp_plan *plan, const int32_t *order);

/* Proves that every list ends with its G and T, as pp_plan_tie() describes, and that each of their
 * messages has one sender, one receiver and one slot. Errors: PP_EFORMAT, PP_ERESOURCE. */
int pp_prove_ties(const struct pp_plan *plan);

/*
 * A walk over all actions in an order that respects every wait, with times (F = I = W = 1). Slots
 * and proof use it. A rank runs until it must wait, and the event that it waits for wakes it, so
 * the walk is linear in the number of actions.
 */
enum pp_wait_kind {
    PP_WAIT_NONE,
    PP_WAIT_MESSAGE,
    PP_WAIT_SLOT
};

struct pp_wait {
    enum pp_wait_kind kind;
    int32_t message; /* must arrive, or its reader must release the slot */
};

/* mid: end of the I half of a B, when its message leaves; else equal to end */
typedef void pp_walk_visit(void *ctx, int rank, int k, int64_t mid, int64_t end);

struct pp_walk {
    const struct pp_plan *plan;
    /* respect message slots, as the executor does, without times: waiting for a slot takes no
     * time */
    bool slots;
    pp_walk_visit *visit; /* only called with times */
    void *ctx;

    int64_t *avail;           /* [n_messages] time of arrival plus 1; 0: not yet */
    bool *there;              /* [n_messages] the same without times, with slots */
    int32_t *sent, *released; /* [n_channels] messages so far, with slots */
    int64_t *now;             /* [P] */
    int *at;                  /* [P] next action */
    struct pp_wait *wait;
    /* Ranks that may run, as bits in blocks of 64 neighbours, and a queue of the blocks that have
     * any. A block runs as long as it can, so that its data stays in the cache. */
    uint64_t *ready;
    int *turn;
    int n_blocks, first_turn, n_turns;
};

/* Allocates the memory of a walk. Set `visit` and `ctx` before the run. pp_walk_fini() accepts a
 * half-built or zeroed walk. */
int pp_walk_init(struct pp_walk *w, const struct pp_plan *plan, bool slots);
/* Runs the lists of all ranks. Returns 0, or PP_EFORMAT with the circle of waits. */
int pp_walk_run(struct pp_walk *w);
void pp_walk_fini(struct pp_walk *w);

/* Fails with PP_EFORMAT and a text that describes the waits that form a circle. Called for a
 * finished walk in which some ranks still wait. */
int pp_walk_fail_cycle(const struct pp_walk *w);

/* Describes what a waiting rank waits for, unless bytes is 0. Returns the rank that would end the
 * wait; -1 when that rank does not wait itself. */
typedef int pp_tell_wait(const void *ctx, int rank, char *text, size_t bytes);

/* Fails with PP_EFORMAT and the circle of waits that starts at rank r; the text begins with
 * `under`. */
int pp_fail_circle(const char *under, int n_ranks, int r, pp_tell_wait *tell, const void *ctx);

#endif
