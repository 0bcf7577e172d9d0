/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator: how long a plan takes when its pieces take given times. Ranks run their lists in
 * order; a transfer delays only its receiver (latency + bytes / bandwidth) and costs the sender
 * nothing but the launch overhead. Times are in any one unit (seconds, milliseconds, ticks).
 *
 *   bubble        = 1 - sum_r work_r / (P * makespan), as everywhere in ppcli
 *   bubble_global = 1 - max_r work_r / makespan
 *   bubble_span   = 1 - max_r work_r / max_r (last end_r - first start_r)
 * The last two are the zero-bubble papers', whose "zero" is the span.
 */
#ifndef PPCLI_SIM_H
#define PPCLI_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/plan.h"

/* A rank's messages to other hosts leave it one after the other, each as long as its transfer. */
struct pp_sim_wire {
    bool used;
    double latency; /* in place of the common one */
    double copy;    /* either rank's own time; the reader's passes while it waits for the message */
};

/* What a rank waits for before its optimizer: nothing; until every
 * rank has done its last I, from which it knows that its gradients will be finite; or its list, after
 * which it reads them. */
enum pp_sim_vote {
    PP_SIM_VOTE_NONE,
    PP_SIM_VOTE_AT_I,
    PP_SIM_VOTE_AT_END
};

struct pp_sim_costs {
    const double *f, *i, *w;   /* [n_virtual] of one micro-batch; B = I + W, R = F */
    const double *const *each; /* [P][actions] what each action takes in place of those; NULL */
    const double *const
        *after;             /* and how long its rank is kept by its messages; NULL: not at all */
    const double *tie;      /* [n_ties] to copy the tied tensor, or to add it up, once; NULL: 0 */
    const double *rows;     /* [M] size of each micro-batch relative to a full one; NULL: all 1 */
    double latency;         /* alpha: of every transfer between two ranks */
    const double *transfer; /* [n_channels] beta * bytes of the channel's messages; NULL: all 0 */
    const struct pp_sim_wire *wires; /* [n_channels] of links between hosts; NULL: none */
    double launch;                   /* added to every action of a rank; counts as its work */
    double overlap;  /* an overlapped F;B pair is one piece of work that takes this part of
                                F + B; 0: ranks cannot overlap, a pair is F and then B */
    bool fused_send; /* B's message leaves at its end (textbook) or after its I half (ppcli) */
    bool slots;      /* a sender waits for a free message slot, as the executor does */
    /* The same batch this many times over (0: once). In between each rank waits for the vote, spends
     * between[r] (its optimizer; NULL: nothing), which counts as work, and goes on. The
     * results are of all steps together; times, when asked for, of the last one. */
    int steps;
    enum pp_sim_vote vote;
    const double *between; /* [P] */
    /* [n_virtual] how long the gradients of a stage are under way to the other replicas: from its last
     * W on, those of a rank one after the other, while it computes. The step ends when they are there.
     * NULL: no time. */
    const double *reduce;
};

struct pp_sim_result {
    double makespan;
    double bubble, bubble_global, bubble_span;
    double *work, *idle;            /* [P] idle = makespan - work */
    double *first_start, *last_end; /* [P] */
    int *peak;             /* [P] live activations, in chunks: +1 at F or R, -1 at W or B and at
                                 the end of an F whose R is to come */
    double **start, **end; /* [P][actions]; NULL unless asked for */
};

/* Errors: PP_ERESOURCE. Linear in the number of actions. The caller owns the arrays of *out:
 * pp_sim_result_fini(). */
int pp_sim_run(const struct pp_plan *plan, const struct pp_sim_costs *costs, bool with_times,
               struct pp_sim_result *out);
void pp_sim_result_fini(struct pp_sim_result *r);

/* How long a G or T takes, beside launch: a T without a message adds, and copies the sum. */
double pp_sim_tie(const struct pp_sim_costs *costs, const struct pp_action *a);

/*
 * A lower bound: no schedule with the placement of this training plan does costs->steps steps in
 * less. Either the busiest rank works without a pause from its first input on, or its last input
 * gradient still has to travel to the first stage and become weights there; and the next step
 * cannot begin before. Transfers count, message slots do not. Errors: PP_ERESOURCE. Linear
 * in the number of virtual stages.
 */
int pp_sim_bound(const struct pp_plan *plan, const struct pp_sim_costs *costs, double *out);

/* Costs of a geometry whose ranks all take (f, i, w): every virtual stage takes 1/V of it.
 * arrays[3 * n_virtual] is the caller's storage. */
void pp_sim_uniform(const struct pp_plan *plan, double f, double i, double w, double *arrays,
                    struct pp_sim_costs *out);

/* As one draws it on a whiteboard: every F, I and W of a stage takes 1, a B 2, and its message
 * leaves at its end. arrays as above. */
void pp_sim_textbook(const struct pp_plan *plan, double *arrays, struct pp_sim_costs *out);

#endif
