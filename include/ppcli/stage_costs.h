/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of the stages of a plan, from lists of numbers as the options --cost-f and the like have them. */
#ifndef PPCLI_STAGE_COSTS_H
#define PPCLI_STAGE_COSTS_H

#include "ppcli/sim.h"

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

/* "2,1,1,1" of one cost. Errors: PP_EUSAGE, PP_ERESOURCE. The caller owns out->at, even then. */
int pp_cost_list_read(int cost, const char *text, struct pp_cost_list *out);
/* One such number. option: "memory-cap". Errors: PP_EUSAGE. */
int pp_cost_number(const char *option, const char *text, double *out);

double pp_cost_mean(const struct pp_cost_list *l, double none);

/* A whole backward is its I and its W, half of it each. Errors: PP_EUSAGE where these are given too. */
int pp_cost_lists_halve(struct pp_cost_list lists[PP_COSTS]);

/* F, I, W and transfers as a program gets them: "2,1,1,1"; NULL: not given. */
struct pp_cost_words {
    char text[4][1024];
    const char *at[4];
};
void pp_cost_lists_write(const struct pp_cost_list lists[PP_COSTS], struct pp_cost_words *out);

struct pp_stage_costs { /* zeroed at first */
    struct pp_sim_costs costs;
    double *arrays, *transfer; /* [3][n_virtual] F, I, W, and [n_ties]; owned */
};

/* The costs of a plan: of an operation one number for all stages, one a rank or one a chunk; of transfers
 * one, or one for each boundary. May be called again. Errors: PP_EUSAGE, PP_ERESOURCE. */
int pp_stage_costs_set(const struct pp_plan *plan, const struct pp_cost_list lists[PP_COSTS],
                       struct pp_stage_costs *out);
void pp_stage_costs_fini(struct pp_stage_costs *q);

#endif
