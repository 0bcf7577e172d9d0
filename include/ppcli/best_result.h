/* SPDX-License-Identifier: Apache-2.0 */
/* What `plan --best` finds: the search over a config, how its first rows ran, and why they are so fast. */
#ifndef PPCLI_BEST_RESULT_H
#define PPCLI_BEST_RESULT_H

#include "ppcli/tune.h"

#define PP_BEST_SHOWN 20 /* lines of the table */

/* A candidate that ran. Both times are medians over rounds in which all candidates take turns. */
struct pp_checked {
    struct pp_prediction measured;
    double calibrated; /* seconds of a step, simulated with the times of the actions of a round */
    double error;      /* of calibrated in two rounds beside the step measured between them */
    double waited; /* share of the ranks' time waiting for a core; -1: the system does not tell */
};

struct pp_best_result {
    struct pp_best_spec spec;
    struct pp_division *shapes; /* owned, and so are model, costs and links.host */
    struct pp_model *model;
    struct pp_costs *costs;
    struct pp_links links; /* between processes; no host where ranks are threads */
    struct pp_best best;
    int n_checked;                                        /* of the first ones */
    struct pp_checked checked[PP_BEST_SHOWN], as_is, one; /* measured.step 0: not checked */
    char advice[PP_ADVICE_MAX];
    int batch, ranks; /* most ranks of any candidate */
    const char *word; /* the config as it was given */
};

struct pp_best_asked {
    struct pp_config *const *configs; /* [n] that differ in stages and replicas, without problems */
    int n;
    bool stages, replicas; /* these are said, and not for the search to choose */
    enum pp_run_need need;
};

/* Measure this machine and search. Set before: spec.cores, .memory (0: run.memory) and .own, links,
 * word. Errors: as of the data, the model and pp_best_find(). pp_best_result_fini() even then. */
int pp_best_result_find(const struct pp_best_asked *asked, struct pp_best_result *out);
void pp_best_result_fini(struct pp_best_result *r);

/* The bubbles of the candidates that are shown, and the advice. Errors: PP_ERESOURCE. */
int pp_best_result_explain(struct pp_best_result *r);

/* 0 where something can run. Errors: PP_ECONFIG, why nothing can. memory: --memory as written; NULL:
 * not given. */
int pp_best_result_verdict(const struct pp_best_result *r, const char *memory);

/* The candidate that ran fastest, or is predicted to; there is at least one. */
int pp_best_result_first(const struct pp_best_result *r);
/* How that one ran: as one of the first, or as one stage; measured.step 0: it did not. */
const struct pp_checked *pp_best_result_ran(const struct pp_best_result *r, int first);
/* Whether the config as it is was measured, and no candidate was faster. */
bool pp_best_result_keeps(const struct pp_best_result *r);

#endif
