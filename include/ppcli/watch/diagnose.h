/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnoses a run from the rings of its ranks, while it runs or after it ended: the action of each
 * rank, which rank it waits for, and which rank blocks all others. The watchdog and `ppcli
 * diagnose` use it.
 */
#ifndef PPCLI_WATCH_DIAGNOSE_H
#define PPCLI_WATCH_DIAGNOSE_H

#include "ppcli/base/cores.h"
#include "ppcli/pipe/layout.h"
#include "ppcli/sim/trace.h"

#define PP_VIEW_ACTIONS 20

enum pp_rank_state {
    PP_RANK_UNKNOWN, /* no ring */
    PP_RANK_RUNNING,
    PP_RANK_STOPPED,   /* its process was stopped by a signal */
    PP_RANK_TRACED,    /* its process is held by a debugger */
    PP_RANK_GONE,      /* its process ended while it worked */
    PP_RANK_ELSEWHERE, /* at work on another machine, according to its ring */
    PP_RANK_FINISHED,
    PP_RANK_FAILED,
};

/* One rank at one moment. */
struct pp_rank_view {
    enum pp_rank_state state;
    int64_t pid;
    char host[PP_HOST_MAX]; /* "" if unknown */
    uint32_t machine;
    uint64_t begun;                           /* actions since its start */
    uint64_t opened_ns, waited_ns;            /* see the head of the ring */
    int n;                                    /* number of actions */
    struct pp_event actions[PP_VIEW_ACTIONS]; /* the last actions, the oldest first */
};

enum pp_verdict {
    PP_VERDICT_NONE,    /* the ranks make progress, or nothing can be seen */
    PP_VERDICT_HANGS,   /* one rank is stuck in its action */
    PP_VERDICT_STOPPED, /* its process is stopped */
    PP_VERDICT_GONE,    /* its process is gone, the others are not */
    PP_VERDICT_UNSEEN,  /* the others wait for a rank that cannot be seen */
    PP_VERDICT_CYCLE,   /* ranks wait for each other in a circle */
    PP_VERDICT_ALL_WAIT /* all ranks wait, and none is known to be late */
};

struct pp_diagnosis {
    const struct pp_layout *layout; /* not owned; NULL: the plan is unknown */
    double hang_timeout;            /* run.hang_timeout; 0: unknown */
    int ranks;
    struct pp_rank_view *views; /* [ranks] filled in by the caller; owned */
    /* Results of pp_diagnosis_judge(): */
    int *waits_for;   /* [ranks] owned; -1: it does not wait, or its partner is unknown */
    bool live;        /* at least one process was alive */
    uint64_t now_ns;  /* if live, the clock; else the last sign of life of any rank */
    uint64_t idle_ns; /* time since the last progress of any rank */
    enum pp_verdict verdict;
    int culprit;  /* a rank; in a circle, any of its ranks; -1: no rank */
    int suspects; /* ranks that can be seen, have not ended and do not wait for another rank */
};

void pp_diagnosis_fini(struct pp_diagnosis *d); /* accepts a zeroed diagnosis */

/* Reads the rings in the run folder and diagnoses the run. `layout` is NULL if the plan could not
 * be rebuilt. Everything else is read from the folder, and checked so that a damaged file does no
 * harm. Local. Errors: PP_ENOINPUT (no such folder, no rings), PP_EFORMAT (a damaged ring),
 * PP_ERESOURCE. */
int pp_diagnosis_open(struct pp_diagnosis *d, const struct pp_layout *layout, double hang_timeout,
                      const char *dir);

/* Prints the diagnosis: what happened, which rank waits for which, what to do. `dir` is the run
 * folder, "" if there is none. Allocates nothing. */
void pp_diagnosis_print(const struct pp_diagnosis *d, const char *dir, FILE *f);
#define PP_DIAGNOSIS_TEXT 256
/* Prints the state and the last actions of every rank. Allocates nothing. */
void pp_diagnosis_print_ranks(const struct pp_diagnosis *d, FILE *f);
/* Prints everything as JSON. `hang` is the watchdog's message, "" if it wrote none. */
void pp_diagnosis_print_json(const struct pp_diagnosis *d, const char *dir, const char *hang,
                             FILE *f);

#endif
