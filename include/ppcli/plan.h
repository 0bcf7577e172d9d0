/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of one pipeline and one batch: what every rank does, in order, with messages and memory
 * slots filled in and proved. Immutable after pp_plan_build(); shared read-only by all ranks.
 * Everything interesting is an interpreter of it: the executor runs it, the printer shows it.
 *
 * Passes: generate (schedule) -> check order -> lower (messages) -> slots -> prove (no deadlock).
 *
 * Executor semantics, which the proof models, for action a of a rank, in order:
 *   F  wait for message a.recv (if >= 0); take the slot of message a.send (wait until its last
 *      reader released it); compute into it; post a.send. Keeps state slot a.slot and the received
 *      message until the W (or B) of the same (stage, mb).
 *   I  wait for a.recv (gradient of this stage's output); take the slot of a.send; compute; post
 *      a.send. Keeps the received message and gradient slot a.gslot until the matching W.
 *   W  compute; release both messages held since F and I, the state slot and the gradient slot.
 *   B  as I immediately followed by W: a.send is posted after the I half, before the W half.
 * The loss is part of F on the last virtual stage; gradients are accumulated by W.
 * A message between two virtual stages of the same rank (V placement) is local: same memory, no
 * transfer; it has a slot like any other.
 */
#ifndef PPCLI_PLAN_H
#define PPCLI_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ppcli/schedule.h"

enum pp_plan_kind { PP_PLAN_TRAIN, PP_PLAN_EVAL }; /* EVAL: forward only, M in, losses out */

/*
 * A channel is one directed path between two neighbouring virtual stages. Channel ids:
 *   forward  of boundary s (stage s -> s+1):  2*s      carries y of stage s
 *   backward of boundary s (stage s+1 -> s):  2*s + 1  carries the gradient of that y
 * Its messages go through `slots` fixed pieces of memory.
 */
struct pp_channel {
    int src_stage, dst_stage; /* virtual stages */
    int src_rank, dst_rank;   /* pipeline ranks 0..P-1; equal when the hand-over is local */
    int slots;                /* 0: unused (eval has no backward channels) */
};

/* One message of one micro-batch on one channel. */
struct pp_message {
    int32_t channel;
    int32_t mb;
    int32_t slot;         /* in its channel */
    int32_t next_in_slot; /* message that uses this slot next in this plan, -1: none. The receiver
                             posts its receive when it releases this one. */
    bool first_in_slot;   /* the receiver posts its receive before the first action */
};

struct pp_action {
    uint8_t op; /* enum pp_op */
    bool first_w;  /* W/B: first accumulation into this stage's gradient: overwrite, do not add */
    int32_t stage; /* virtual stage */
    int32_t mb;
    int32_t slot;  /* state slot of (this rank's chunk, mb): taken by F, freed by W/B; eval: 0 */
    int32_t gslot; /* gradient slot: taken by I, freed by W (B: taken and freed); -1 for F */
    int32_t recv;  /* message to wait for, -1: none (first stage's F, last stage's I/B) */
    int32_t send;  /* message to post, -1: none */
};

struct pp_rank_plan {
    struct pp_action *actions;
    int n_actions;
};

struct pp_plan {
    enum pp_plan_kind kind;
    struct pp_geometry geometry;
    const struct pp_schedule_ops *schedule; /* NULL for eval */
    int n_virtual;                          /* P*V */
    int *rank_of;                           /* [n_virtual] */
    struct pp_rank_plan *ranks;             /* [P] */
    struct pp_channel *channels;            /* [2*(n_virtual-1)], by channel id */
    int n_channels;
    struct pp_message *messages;
    int n_messages;
    int *state_slots; /* [n_virtual]: F-to-W slots the stage's chunk needs = its peak in flight */
    int *grad_slots;  /* [n_virtual]: I-to-W slots */
};

/*
 * Build and prove. An impossible geometry gives PP_ECONFIG (the schedule's own sentence); a list
 * that fails its proof gives PP_EINTERNAL with the wait cycle in the text. Local. The caller owns
 * *out: pp_plan_destroy().
 */
int pp_plan_build(const char *schedule, const struct pp_geometry *g, struct pp_plan **out);
int pp_plan_build_eval(const struct pp_geometry *g, enum pp_placement placement,
                       struct pp_plan **out);

/*
 * The passes one by one, for lists that did not come from a schedule (tests now, files later):
 * cells[r] is rank r's list of n_cells[r] cells; rank_of[s] gives the rank of virtual stage s.
 * PP_EFORMAT with the reason when the lists are not a legal training step.
 */
int pp_plan_from_cells(const struct pp_geometry *g, const int *rank_of,
                       const struct pp_cell *const *cells, const int *n_cells,
                       struct pp_plan **out);
void pp_plan_destroy(struct pp_plan **plan);

/*
 * Integer time line under in-order ranks and free hand-overs: how long a cell of each op takes, in
 * ticks per virtual stage (B = i + w; with fused_send B's message leaves at the end of B, as the
 * textbook draws it, else after its I half, as the executor does). Any of the outputs may be NULL.
 *   start[r][k], end[r][k] of action k of rank r (caller's arrays)
 *   *makespan: end of the last action; work[r]: busy ticks of rank r
 * Errors: PP_ERESOURCE. Cannot deadlock: the plan is proved.
 */
struct pp_ticks {
    int64_t f, i, w;
    bool fused_send;
};
int pp_plan_timeline(const struct pp_plan *plan, const struct pp_ticks *ticks, int64_t *const *start,
                     int64_t *const *end, int64_t *makespan, int64_t *work);

/* bubble_global of the textbook time line (F = I = W, fused B, free hand-over):
 * 1 - max work / makespan. (P-1)/(M+P-1) for gpipe and 1f1b. Errors: PP_ERESOURCE. */
int pp_plan_bubble(const struct pp_plan *plan, double *out);

/* Compute cells as CSV (torch.distributed.pipelining's compute-only format, no idle cells): one
 * row per rank, "0F0,0F1,0B0". */
int pp_plan_print_csv(const struct pp_plan *plan, FILE *f);

/* A picture for people: ranks down, unit time across, as one would draw it on a whiteboard. */
int pp_plan_print_grid(const struct pp_plan *plan, FILE *f);

#endif
