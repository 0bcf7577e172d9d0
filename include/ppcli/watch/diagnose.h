/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks of a run are at, who waits for whom, and who holds all others up: read from their
 * rings, while they run or long after. The watchdog and `ppcli diagnose` use the same eyes.
 */
#ifndef PPCLI_WATCH_DIAGNOSE_H
#define PPCLI_WATCH_DIAGNOSE_H

#include "ppcli/base/cores.h"
#include "ppcli/pipe/layout.h"
#include "ppcli/sim/trace.h"

#define PP_VIEW_ACTIONS 20

enum pp_rank_state {
    PP_RANK_UNKNOWN, /* no ring to look at */
    PP_RANK_RUNNING,
    PP_RANK_STOPPED,   /* its process was stopped by a signal */
    PP_RANK_TRACED,    /* its process is held by a debugger */
    PP_RANK_GONE,      /* its process ended in the middle of work */
    PP_RANK_ELSEWHERE, /* at work on another machine, as far as its ring tells */
    PP_RANK_FINISHED,
    PP_RANK_FAILED,
};

/* One rank at one moment. */
struct pp_rank_view {
    enum pp_rank_state state;
    int64_t pid;
    char host[PP_HOST_MAX]; /* "" when unknown */
    uint32_t machine;
    uint64_t begun;                           /* actions since its start */
    uint64_t opened_ns, waited_ns;            /* as in the head of the ring */
    int n;                                    /* of actions */
    struct pp_event actions[PP_VIEW_ACTIONS]; /* the last ones, oldest first */
};

enum pp_verdict {
    PP_VERDICT_NONE,    /* the ranks make progress, or there is nothing to see */
    PP_VERDICT_HANGS,   /* one rank is stuck in what it does */
    PP_VERDICT_STOPPED, /* its process is stopped */
    PP_VERDICT_GONE,    /* its process is gone and the others are not */
    PP_VERDICT_UNSEEN,  /* the others wait for a rank that cannot be looked at */
    PP_VERDICT_CYCLE,   /* ranks wait for each other in a circle */
    PP_VERDICT_ALL_WAIT /* all wait together, and for nobody in particular */
};

struct pp_diagnosis {
    const struct pp_layout *layout; /* not owned; NULL: the plan is not known */
    double hang_timeout;            /* run.hang_timeout; 0: not known */
    int ranks;
    struct pp_rank_view *views; /* [ranks], owned; whoever looks fills them in */
    /* Results of pp_diagnosis_judge(): */
    int *waits_for;   /* [ranks], owned; -1: does not wait, or for nobody known */
    bool live;        /* at least one process was there when it was looked at */
    uint64_t now_ns;  /* live: the clock; else the last sign of life of any rank */
    uint64_t idle_ns; /* since any rank got on */
    enum pp_verdict verdict;
    int culprit;  /* rank; of a circle any of its ranks; -1: none */
    int suspects; /* ranks that can be seen, are not at their end and do not wait for another */
};

/* All views unknown. Local. Errors: PP_ERESOURCE. */
void pp_diagnosis_fini(struct pp_diagnosis *d); /* accepts a zeroed one */

/*
 * Look at all ranks whose rings are in the run folder and judge. layout: NULL when the plan could
 * not be rebuilt; everything else is read from the folder and believed only within bounds. Local.
 * Errors: PP_ENOINPUT (no such folder, no rings), PP_EFORMAT (a ring that is none), PP_ERESOURCE.
 */
int pp_diagnosis_open(struct pp_diagnosis *d, const struct pp_layout *layout, double hang_timeout,
                      const char *dir);

/* The verdict for people: what happened, who waits for whom, what to do. dir: the run folder, ""
 * when there is none. Allocates nothing. */
void pp_diagnosis_print(const struct pp_diagnosis *d, const char *dir, FILE *f);
/* What rank r is in: "recv of the gradient of micro-batch 3 from rank 1, step 12". Returns out. */
#define PP_DIAGNOSIS_TEXT 256
/* The state and the last actions of every rank. Allocates nothing. */
void pp_diagnosis_print_ranks(const struct pp_diagnosis *d, FILE *f);
/* Everything, for machines. hang: what the watchdog said, "" when it did not. */
void pp_diagnosis_print_json(const struct pp_diagnosis *d, const char *dir, const char *hang,
                             FILE *f);

#endif
