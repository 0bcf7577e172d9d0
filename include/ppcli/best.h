/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for the fastest way to run a config: schedules, micro-batch counts, chunks and cuts,
 * each as the plans and the memory that would really run, with the step time predicted from
 * measured costs.
 */
#ifndef PPCLI_BEST_H
#define PPCLI_BEST_H

#include "ppcli/advice.h"
#include "ppcli/planner.h"
#include "ppcli/run.h"

struct pp_candidate {
    char schedule[PP_NAME_MAX];
    int order; /* in the list of schedules */
    int stages, microbatches, chunks;
    int eager;                     /* 1f1b-eager: its k; else 0 */
    enum pp_assignment assignment; /* TIME: cut by measured times; else as the config says */
    struct pp_prediction time;
    size_t peak_bytes; /* of the rank that holds most */
    uint64_t identity; /* equal for equal lists of actions on equal layers */
    char also[256];    /* other schedules that are the same plan here: "gpipe, naive" */
};

struct pp_best_spec {
    const struct pp_config *cfg;
    const struct pp_model *model;
    int train_n, test_n;
    const int *stages; /* [n_stages] to search over; none: the config's */
    int n_stages;
    size_t memory;  /* bytes a rank may hold; 0: any number */
    bool all_m;     /* micro-batch counts other than the config's too */
    bool time_cuts; /* cuts by measured time too, unless the config gives ranges */
};

struct pp_best {
    struct pp_candidate *items; /* best first */
    int n;
    struct pp_candidate one; /* one stage with the config's micro-batches; step 0: cannot run */
    struct pp_candidate smallest; /* of those over the memory limit */
    int tried;                    /* shapes that were asked for */
    int same;                     /* of them the same plan as another */
    int refused;                  /* of them not legal for their schedule or this config */
    int too_large;                /* of them legal, but over the memory limit */
};

/*
 * The micro-batch counts that are looked at: the config's own; and with all_m the divisors of a
 * replica's share of the batch and the powers of two, at least 4 rows each, at most 64 or 8 for
 * every stage, and not two within a sixth of each other. out[max], ascending; returns how many.
 */
int pp_best_counts(const struct pp_best_spec *spec, int *out, int max);
#define PP_BEST_COUNTS_MAX 64

/* Measure what the search of this spec needs within about `seconds`. Errors: those of
 * pp_costs_measure() and pp_backend_resolve(). The caller owns *out. */
int pp_best_measure(const struct pp_best_spec *spec, double seconds, struct pp_costs **out);

/*
 * Try every schedule x count x chunks (the config's; when it says 0: 1, 2, 4 and the schedule's
 * own) x cut, and sort by predicted step time. Times within a thousandth count as equal: then less
 * memory, fewer chunks, fewer micro-batches, the order of the list of schedules. Finding nothing
 * is no failure. Errors: PP_ERESOURCE. Local. The caller owns out->items: pp_best_fini().
 */
int pp_best_search(const struct pp_best_spec *spec, const struct pp_costs *costs,
                   struct pp_best *out);
void pp_best_fini(struct pp_best *best);

/* Set c->time.bubble; advice, where not NULL: one sentence about what limits it. Errors:
 * PP_ERESOURCE. */
int pp_best_explain(const struct pp_best_spec *spec, const struct pp_costs *costs,
                    struct pp_candidate *c, char advice[PP_ADVICE_MAX]);

/* A copy of cfg in which the candidate's values stand, its cut as ranges: for trying, not for
 * keeping. It shares cfg's origins and must be gone before cfg is; pp_free() it. costs: for
 * assignment = time. Errors: PP_ERESOURCE. */
int pp_best_config(const struct pp_config *cfg, const struct pp_model *model,
                   const struct pp_candidate *c, const struct pp_costs *costs,
                   struct pp_config **out);

/* Rows of the largest micro-batch when a replica's share of a full batch is cut into m. */
int pp_best_rows(const struct pp_best_spec *spec, int m);

/* The k of 1f1b-eager for m micro-batches: pipeline.eager, or what the measured costs ask for. */
int pp_best_eager(const struct pp_best_spec *spec, const struct pp_costs *costs, int stages, int m);

/*
 * Replace `schedule = auto`, `assignment = time` and, for 1f1b-eager, `eager = 0` by what measuring
 * on this machine chooses, at the config's own micro-batch count (so that the weights do not depend
 * on a measurement); chunks and eager are chosen with the schedule where they are 0. One line on
 * stderr says what and why. Nothing to do for other configs. tp: NULL, or collective over tp: rank
 * 0 measures, all take its choice. Errors: PP_ECONFIG when nothing can run, PP_ERESOURCE.
 */
int pp_choose(struct pp_config *cfg, enum pp_run_need need, struct pp_transport *tp);
/* Does the config leave anything to pp_choose()? */
bool pp_choose_wanted(const struct pp_config *cfg);

#endif
