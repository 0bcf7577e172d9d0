/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator of a plan, and the analysis of its idle time. */
#ifndef PPCLI_SIM_SIM_H
#define PPCLI_SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/base/files.h"
#include "ppcli/sched/plan.h"

/* ---- simulator */

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

/* Messages of a rank to other hosts leave it one after the other, each as long as its transfer. */
struct pp_sim_wire {
    bool used;
    double latency; /* replaces the common latency */
    double copy; /* copy time of either rank; the reader's passes while it waits for the message */
};

/* The event that a rank waits for before its optimizer: none; until every rank has done its last I,
 * from which it knows that its gradients will be finite; or the end of its list, after which it
 * reads them. */
enum pp_sim_vote {
    PP_SIM_VOTE_NONE,
    PP_SIM_VOTE_AT_I,
    PP_SIM_VOTE_AT_END
};

struct pp_sim_costs {
    const double *f, *i, *w;   /* [n_virtual] of one micro-batch; B = I + W, R = F */
    const double *const *each; /* [P][actions] time of each action instead of f, i, w; NULL */
    const double *const
        *after;             /* [P][actions] time that messages occupy the rank after it; NULL: 0 */
    const double *tie;      /* [n_ties] time to copy or to add a tied tensor once; NULL: 0 */
    const double *rows;     /* [M] size of each micro-batch relative to a full one; NULL: all 1 */
    double latency;         /* alpha of every transfer between two ranks */
    const double *transfer; /* [n_channels] beta * bytes of the channel's messages; NULL: all 0 */
    const struct pp_sim_wire *wires; /* [n_channels] links between hosts; NULL: none */
    double launch;                   /* added to every action of a rank; counts as its work */
    /* an overlapped F;B pair is one piece of work that takes this part of F + B; 0: ranks
     * cannot overlap, a pair is F and then B */
    double overlap;
    bool fused_send; /* B's message leaves at its end (textbook) or after its I half (ppcli) */
    bool slots;      /* a sender waits for a free message slot, as the executor does */
    /* Number of repetitions of the batch (0: one). After each, a rank waits for the vote, spends
     * between[r] (its optimizer; NULL: 0), which counts as work, and continues. The results are of
     * all steps together; times, if asked for, of the last step. */
    int steps;
    enum pp_sim_vote vote;
    const double *between; /* [P] */
    /* [n_virtual] time to send a stage's gradients to the other replicas: from its last W on, those
     * of a rank one after the other, while it computes. The step ends when they have arrived. NULL:
     * no time. */
    const double *reduce;
};

/* The costs of a plan's stages with the arrays that hold them. */
struct pp_stage_costs {
    struct pp_sim_costs costs;  /* has f, i, w and tie; points to the others once they are used */
    double *f, *i, *w, *reduce; /* [n_virtual]; owned in one block with the next four */
    double *tie, *rows;         /* [n_ties], [M] */
    double *transfer, *between; /* [n_channels], [P] */
    struct pp_sim_wire *wires;  /* [n_channels]; owned */
};

/* Allocates the arrays for `plan`, all 0. Errors: PP_ERESOURCE. pp_stage_costs_fini() even then. */
int pp_stage_costs_init(const struct pp_plan *plan, struct pp_stage_costs *out);
void pp_stage_costs_fini(struct pp_stage_costs *q);

/* Returns costs whose F, I and W are the thirds of times[3][n_virtual]. */
static inline struct pp_sim_costs pp_sim_costs_of(const double *times, int n_virtual)
{
    return (struct pp_sim_costs){
        .f = times, .i = times + n_virtual, .w = times + 2 * (size_t)n_virtual};
}

struct pp_sim_result {
    double makespan;
    double bubble, bubble_global, bubble_span;
    double *work, *idle;            /* [P] idle = makespan - work */
    double *first_start, *last_end; /* [P] */
    /* [P] live activations, in chunks: +1 at F or R, -1 at W or B and at the end of an F whose
     * R comes later */
    int *peak;
    double **start, **end; /* [P][actions]; NULL unless asked for */
};

/* Simulates a plan. Errors: PP_ERESOURCE. Linear in the number of actions. The caller owns the
 * arrays of *out: pp_sim_result_fini(). */
int pp_sim_run(const struct pp_plan *plan, const struct pp_sim_costs *costs, bool with_times,
               struct pp_sim_result *out);
void pp_sim_result_fini(struct pp_sim_result *r);

/*
 * Computes a lower bound: no schedule with the placement of this training plan does costs->steps
 * steps in less. Either the busiest rank works without a pause from its first input on, or its last
 * input gradient still has to travel to the first stage and update weights there, and the next step
 * cannot begin before. Transfers count, message slots do not. Errors: PP_ERESOURCE. Linear in the
 * number of virtual stages.
 */
int pp_sim_bound(const struct pp_plan *plan, const struct pp_sim_costs *costs, double *out);

/* Sets textbook costs: every F, I and W of a stage takes 1, a B takes 2, and its message leaves at
 * its end. The caller owns arrays[3 * n_virtual]. */
void pp_sim_textbook(const struct pp_plan *plan, double *arrays, struct pp_sim_costs *out);

/* ---- bubble */

/*
 * The bubble: the mean idle share of all ranks, from step to step, and its causes. train, bench,
 * ppcli tune, explain and summary.json all take it from here. Local, no clock, no device.
 */

struct pp_bubble {
    double idle;     /* the bubble; the three parts below add up to it, none below 0 */
    double schedule; /* the plan with equal stages (measured means) and free transfers */
    /* what the times of the real stages add; for a schedule that is made for them: the least
     * that any order has, and `schedule` is the rest */
    double imbalance;
    double waiting;      /* the rest: transfer, waking up, waiting for a core */
    int stages, busiest; /* stages: of the plan; busiest: the stage with most work */
    double work;         /* and its share of all work */
};

/* Share of the ranks' time spent waiting for a core above which figures are unreliable. */
#define PP_BUBBLE_WAITED 0.02

/* Returns the idle share of `ranks` ranks that computed `busy` together within `time`, in the same
 * unit. */
double pp_bubble_idle(double busy, double time, int ranks);

/*
 * Computes the ideal bubble of textbooks: of the plan's schedule with equal chunks, F = I = W = 1,
 * fused B, free transfers, one batch, nothing merged and nothing recomputed. (P-1)/(M+P-1) for
 * gpipe and 1f1b. Errors: PP_ERESOURCE.
 */
int pp_bubble_ideal(const struct pp_plan *plan, double *out);
/* Computes the ideal bubble as pp_bubble_ideal() does, but for the plan itself and not for the
 * textbook form of its schedule. */
int pp_bubble_equal(const struct pp_plan *plan, double *out);

/* Computes work[P], the time that each rank works in one step, with the optimizer and
 * costs->launch. Returns the sum. */
double pp_sim_work(const struct pp_plan *plan, const struct pp_sim_costs *costs, double *work);

/*
 * Computes the time from step to step when the same batch repeats. The ranks wait for each other
 * every n steps; then the pipeline drains and fills. n is meet_every, or as many steps as take
 * meet_after if those are fewer; both 0: never. Errors: PP_ERESOURCE.
 */
int pp_sim_step(const struct pp_plan *plan, const struct pp_sim_costs *costs, double meet_every,
                double meet_after, double *out_step, double *out_idle);

/*
 * Splits an idle share into its parts. costs: mean times of the virtual stages; latency, transfer
 * and launch count as waiting. What one part explains is not available to the next, so that the sum
 * is `idle` also if that is less than simulated. Errors: PP_ERESOURCE.
 */
int pp_bubble_explain(const struct pp_plan *plan, const struct pp_sim_costs *costs,
                      double meet_every, double idle, struct pp_bubble *out);

/* Writes the parts, the busiest stage and its share into the open object. */
void pp_bubble_write_json(const struct pp_bubble *b, struct pp_json *j);

/* Formats the parts in percent; they add up to a tenth: "31.2 = 20.0 + 8.1 + 3.1", for one stage
 * "0.8". */
#define PP_BUBBLE_TEXT_MAX 160
char *pp_bubble_parts(const struct pp_bubble *b, char out[PP_BUBBLE_TEXT_MAX]);
/* Formats the parts in words: "31.2 %: schedule 20.0 + imbalance 8.1 + transfers and waiting 3.1;
 * stage 0 has 67 % of the work". Both return out. */
char *pp_bubble_text(const struct pp_bubble *b, char out[PP_BUBBLE_TEXT_MAX]);

/* ---- stage costs */

/* Costs of the stages of a plan, from lists of numbers as in --cost-f and similar options. */

enum {
    PP_COST_F,
    PP_COST_I,
    PP_COST_W,
    PP_COST_B,
    PP_COST_COMM,
    PP_COST_OVERLAP,
    PP_COST_TIE,
    PP_COSTS
};
extern const char *const pp_cost_names[PP_COSTS]; /* "cost-f" */

struct pp_cost_list {
    double *at; /* owned */
    int n;      /* 0: not given */
};

/* Reads lists such as "2,1,1,1"; a text is NULL if the option was not given. Half of the cost of a
 * whole backward is its I, and half its W. The caller owns the `at` of each list, also after an
 * error. Errors: PP_EUSAGE, PP_ERESOURCE. */
int pp_cost_lists_read(const char *const texts[PP_COSTS], struct pp_cost_list out[PP_COSTS]);

/* Returns the means of the lists of F, I, W and transfers; 1, 1, 1 and 0 for lists that are not given. */
struct pp_schedule_costs pp_cost_means(const struct pp_cost_list lists[PP_COSTS]);

#define PP_COST_TEXT_MAX 1024

/* Writes F, I, W and transfers as lists such as "2,1,1,1", as a program gets them, to `text`;
 * words[k] points to list k, or is NULL if the list was not given. */
void pp_cost_lists_write(const struct pp_cost_list lists[PP_COSTS], char text[4][PP_COST_TEXT_MAX],
                         const char *words[4]);

/* Sets the costs of a plan from lists: for F, I and W one number, one for each rank or one for each
 * chunk; for transfers one number, or one for each boundary. May be called again for the same *out,
 * which is zeroed before the first call. Errors: PP_EUSAGE, PP_ERESOURCE. */
int pp_stage_costs_set(const struct pp_plan *plan, const struct pp_cost_list lists[PP_COSTS],
                       struct pp_stage_costs *out);

#endif
