/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A schedule turns (ranks, chunks, micro-batches) into one list of compute actions per rank, and
 * nothing else: no messages, no memory, no time. It is one file in src/sched/orders/ and one line
 * in src/sched/schedules.def.
 *
 * F forward, I input gradient, W weight gradient, B = I and W fused. (Passes add R, a recomputed
 * forward, and G and T, the exchange of tied tensors, to any plan: see ppcli/sched/plan.h.) All
 * schedules accumulate the weight gradient of a virtual stage in ascending micro-batch order (W, or
 * B), which is why every schedule gives the bits of one rank. A schedule that was published
 * otherwise sets `descends`.
 */
#ifndef PPCLI_SCHED_SCHEDULE_H
#define PPCLI_SCHED_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ppcli/base/base.h"

enum pp_op {
    PP_OP_F,
    PP_OP_I,
    PP_OP_W,
    PP_OP_B, /* the last that a schedule may emit */
    PP_OP_R,
    PP_OP_G,
    PP_OP_T,
    PP_OPS
};
#define PP_OP_LETTERS "FIWBRGT" /* in this order */

/* One cell of a rank's list: `op` of micro-batch `mb` on virtual stage `stage`. */
struct pp_cell {
    uint8_t op; /* enum pp_op up to B; R in a table */
    /* F only: meant to run together with the B that follows it in the list (DualPipeV). A rank
     * that cannot overlap runs them one after the other. */
    bool overlap;
    int32_t stage;
    int32_t mb;
};

/* Durations of one micro-batch on one whole rank, in any unit, for schedules that depend on them.
 * A chunk costs 1/V of it. All zero: F = I = W = 1, comm = 0. */
struct pp_schedule_costs {
    double f, i, w;
    double comm; /* one transfer */
};

/* The shape of a schedule and its other inputs. Everything after microbatches may be 0. */
struct pp_geometry {
    int stages;       /* P >= 1 */
    int chunks;       /* V >= 1; virtual stages = P*V */
    int microbatches; /* M >= 1 */
    /* micro-batches whose weight gradients are computed as one sum, see ppcli/sched/plan.h; 0 or 1:
     * each alone */
    int coalesce;
#define PP_GEOMETRY_INT(k) int k;
#define PP_GEOMETRY_FLOAT(k) double k;
#define PP_KEY(section, TYPE, k, ...) PP_GEOMETRY_##TYPE(k)
#include "ppcli/base/keys_schedule.def"
#undef PP_KEY
    struct pp_schedule_costs costs;
    /* zb-fit: [3PV + 1] time of F, I and W of each virtual stage, then of a transfer, none
     * negative; read while a plan is made. NULL: all 1, and 0. */
    const int64_t *ticks;
    /* zb-fit: [PV] chunks whose forwards are recomputed; read while a plan is made. NULL: none. */
    const bool *recompute;
};

/* virtual stage -> rank */
enum pp_placement {
    PP_PLACE_LOOP,
    PP_PLACE_V
};

/* Collects the cells of emit(); grows as needed. */
struct pp_emit;

struct pp_schedule_ops {
    enum pp_placement placement;
    int chunks;         /* required chunks per rank; 0: any number */
    int default_chunks; /* default if `chunks` is 0; 0 means 1 */
    bool eager;         /* reads geometry.eager, and the costs if that is 0 */
    bool fits;          /* is made for geometry.ticks */
    bool proves;        /* takes as long as a proof takes: searches do not try it */
    /* accepts any number of micro-batches: used for the last batch of an epoch when the chosen
     * schedule of the same placement refuses it */
    bool stands_in;
    /* B is whole, and no step is longer when the W of several micro-batches are one product: a run
     * then merges them by itself. If the schedule places W freely, merging would leave nothing to
     * place. */
    bool merges;
    /* emit gives the published order, which has descending backwards. A plan of it splits them: I
     * in place of B, W as soon as all earlier micro-batches of the stage have theirs. */
    bool descends;
    /* 2: two pipelines in opposite directions, each with its copy of the weights and half of the
     * micro-batches (see struct pp_plan). For plan and simulation only. 0 means 1. emit() gets the
     * geometry of one copy: M/2. */
    int copies;
    /* Checks whether this geometry, which has legal chunks, may run: 0, or PP_ECONFIG with the rule
     * and the nearest legal shape. NULL: every geometry may run. */
    int (*check)(const struct pp_geometry *g);
    /* Emits the compute actions of one rank, in order. Errors: those of pp_emit_cell(). */
    int (*emit)(const struct pp_geometry *g, int rank, struct pp_emit *e);
    /* Returns the chunks whose activations a rank holds at most, as the paper counts them and without
     * regard to M: for an estimate that makes no plan. NULL: there is no formula. */
    int (*held)(const struct pp_geometry *g, int rank);
    /* Replaces emit (NULL) in schedules that are made for all ranks together: e[P], by rank. */
    int (*emit_all)(const struct pp_geometry *g, struct pp_emit **e);
};

const struct pp_schedule_ops *pp_schedule_find(const char *name); /* NULL when unknown */
/* Returns the name that the table of schedules has for `ops`. */
const char *pp_schedule_name(const struct pp_schedule_ops *ops);

/* Returns the schedules that can train, which those of two copies cannot; NULL-terminated, in .def
 * order. */
const char *const *pp_schedule_names(void);

/* Returns for all schedules a name, its line of help, the next name, ...; NULL-terminated. */
const char *const *pp_schedule_help(void);

/* Checks whether this geometry may run. Errors: PP_ECONFIG, which names the schedule, the rule and
 * the nearest legal shape. */
int pp_schedule_check(const struct pp_schedule_ops *ops, const struct pp_geometry *g);

/* Returns the name of the first schedule that can stand in for others of this placement
 * (`stands_in`) and allows so many chunks. */
const char *pp_schedule_stand_in(enum pp_placement placement, int chunks);

/* Rounds the times of virtual stages, costs[3][n_virtual] of F, I and W, and of a transfer to
 * ticks[3 * n_virtual + 1] in the order of geometry.ticks. The longest time becomes 1000 ticks; F, I and W
 * take at least 1. */
void pp_schedule_ticks(const double *costs, int n_virtual, double comm, int64_t *ticks);

/* Returns the number of chunks per rank for a config that does not set it: at least 1. */
int pp_schedule_default_chunks(const struct pp_schedule_ops *ops);

/* Returns the k of 1f1b-eager for a geometry that it accepts: g->eager, or the k that is best for
 * the costs; never more than M. Costs that are all zero give 1, which is 1f1b. */
int pp_schedule_eager(const struct pp_geometry *g);

/*
 * Prints the schedule as published, in the format of pp_plan_print_csv(), without making a plan. It
 * differs from the plan's rows for schedules with `descends`, and proves nothing. Errors: the
 * schedule's PP_ECONFIG, PP_ERESOURCE, PP_EIO.
 */
int pp_schedule_print_csv(const struct pp_schedule_ops *ops, const struct pp_geometry *g, FILE *f);

/* Returns the rank of virtual stage s. In a loop that is s mod P; in a V (zigzag), with k = s / P
 * and j = s mod P, it is j for even k and P-1-j for odd k. */
int pp_place(enum pp_placement placement, int stages, int s);

#endif
