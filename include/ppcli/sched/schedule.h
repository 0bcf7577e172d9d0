/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A schedule turns (ranks, chunks, micro-batches) into one list of compute actions per rank, and
 * nothing else: no messages, no memory, no time. One file in src/sched/orders/ and one line in
 * src/sched/schedules.def.
 *
 * F forward, I input-gradient, W weight-gradient, B = I and W fused. (R, a forward that is computed
 * again, and G and T, the exchange of tied tensors, are no schedule's business: passes add them to
 * any plan, see ppcli/sched/plan.h.) All schedules accumulate the weight gradient of a virtual stage in
 * ascending micro-batch order (W, or B), which is why every schedule gives the bits of one rank. One
 * that was published otherwise says so (`descends`).
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
    uint8_t op;   /* enum pp_op, not beyond B; of a table R */
    bool overlap; /* F only: meant to run together with the B that follows it in the list
                     (DualPipeV). A rank that cannot overlap runs them one after the other. */
    int32_t stage;
    int32_t mb;
};

/* Durations of one micro-batch on one whole rank, in any unit, for schedules that depend on them.
 * A chunk costs 1/V of it. All zero: F = I = W = 1, comm = 0. */
struct pp_schedule_costs {
    double f, i, w;
    double comm; /* one transfer */
};

/* The shape of a schedule and what it depends on. Everything after microbatches may be 0. */
struct pp_geometry {
    int stages;       /* P >= 1 */
    int chunks;       /* V >= 1; virtual stages = P*V */
    int microbatches; /* M >= 1 */
    int coalesce;     /* micro-batches whose weight gradients are computed as one sum, see
                          ppcli/sched/plan.h; 0 or 1: each by itself */
#define PP_GEOMETRY_INT(k) int k;
#define PP_GEOMETRY_FLOAT(k) double k;
#define PP_KEY(section, TYPE, k, ...) PP_GEOMETRY_##TYPE(k)
#include "ppcli/base/keys_schedule.def"
#undef PP_KEY
    struct pp_schedule_costs costs;
    /* zb-fit: [3PV + 1] time of F, I and W of each virtual stage, then of a transfer, none
     * negative; read while a plan is made. NULL: 1, and 0. */
    const int64_t *ticks;
    /* zb-fit: [PV] whose forwards are computed again; read while a plan is made. NULL: none. */
    const bool *recompute;
};

/* virtual stage -> rank */
enum pp_placement {
    PP_PLACE_LOOP,
    PP_PLACE_V
};

/* Where emit() puts its cells: grows as needed. */
struct pp_emit;

struct pp_schedule_ops {
    enum pp_placement placement;
    int chunks;         /* per rank, no other number; 0: any */
    int default_chunks; /* of those that take any, when the config says nothing; 0 means 1 */
    bool eager;         /* reads geometry.eager, and the costs where that is 0 */
    bool fits;          /* made for geometry.ticks */
    bool proves;        /* searches for as long as a proof takes: no other search tries it */
    bool stands_in;     /* takes any number of micro-batches: for the last batch of an epoch, where
                           the schedule of the same placement that was asked for refuses it */
    /* B is whole, and no step is longer when the W of several micro-batches are one product: then a
     * run merges them by itself. Where the schedule places W freely, that would leave nothing to place. */
    bool merges;
    /* The published order, which emit gives, has descending backwards. A plan of it splits them: I
     * where B stood, W as soon as all earlier micro-batches of the stage have theirs. */
    bool descends;
    /* 2: two pipelines in opposite directions, each with its copy of the weights and half of the
     * micro-batches (see struct pp_plan). For plan and simulation only. 0 means 1. emit() gets the
     * geometry of one copy: M/2. */
    int copies;
    /* May this geometry, of legal chunks, run? 0, or PP_ECONFIG with the rule and the nearest legal
     * shape. NULL: any may. */
    int (*check)(const struct pp_geometry *g);
    /* The compute actions of one rank, in order. Errors: those of pp_emit_cell(). */
    int (*emit)(const struct pp_geometry *g, int rank, struct pp_emit *e);
    /* Instead of emit (NULL), for schedules that are made for all ranks together: e[P], by rank. */
    int (*emit_all)(const struct pp_geometry *g, struct pp_emit **e);
};

const struct pp_schedule_ops *pp_schedule_find(const char *name); /* NULL when unknown */
/* See struct pp_schedule_ops; false for names that are no schedule's, such as a table's. */
const char *pp_schedule_name(const struct pp_schedule_ops *ops);

/* Those that can be trained with, not those of two copies; NULL-terminated, .def order. */
const char *const *pp_schedule_names(void);

/* Of all schedules: a name, its line of help, the next name, ...; NULL-terminated. */
const char *const *pp_schedule_help(void);

/* May this geometry run? 0, or PP_ECONFIG naming schedule, rule and nearest legal shape. */
int pp_schedule_check(const struct pp_schedule_ops *ops, const struct pp_geometry *g);

/* The name of the first schedule with `stands_in` of this placement that keeps so many chunks. */
const char *pp_schedule_stand_in(enum pp_placement placement, int chunks);

/* Is it one whose k (pipeline.eager) follows from the cost of a transfer where none is set? */
bool pp_schedule_is_eager(const char *name);

/* Is it one that is made for the times of geometry.ticks? */
bool pp_schedule_fits(const char *name);

/* Is it one that searches for a proof, and so for none of those who try many? */
bool pp_schedule_proves(const char *name);

/* Times as ticks, both [3 * n_virtual + 1] as geometry.ticks has them: the longest becomes 1000, and
 * none but the transfer less than 1. */
void pp_schedule_ticks(const double *times, int n_virtual, int64_t *ticks);

/* Chunks per rank when the config says nothing: at least 1. */
int pp_schedule_default_chunks(const struct pp_schedule_ops *ops);

/* The k of 1f1b-eager for a geometry that it accepts: g->eager, or what the costs ask for; never
 * more than M. Costs that are all zero give 1, which is 1f1b. */
int pp_schedule_eager(const struct pp_geometry *g);

/*
 * The schedule as published, in the format of pp_plan_print_csv(), without making a plan of it:
 * differs from the plan's rows for schedules with `descends`, and proves nothing. Errors: the
 * schedule's PP_ECONFIG, PP_ERESOURCE, PP_EIO.
 */
int pp_schedule_print_csv(const struct pp_schedule_ops *ops, const struct pp_geometry *g, FILE *f);

/* The rank that holds virtual stage s: loop s mod P; V (zigzag) k=s/P, j=s mod P, j or P-1-j. */
int pp_place(enum pp_placement placement, int stages, int s);

#endif
