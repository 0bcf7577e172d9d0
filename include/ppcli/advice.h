/* SPDX-License-Identifier: Apache-2.0 */
/* One sentence about a bubble: what limits the pipeline (cut, schedule, hand-over, or a busy
 * machine), and what would help. Local. */
#ifndef PPCLI_ADVICE_H
#define PPCLI_ADVICE_H

#include "ppcli/bubble.h"
#include "ppcli/layout.h"

#define PP_ADVICE_MAX 512
#define PP_ADVICE_OVER 0.05 /* a bubble so far over the ideal one deserves advice */

struct pp_advice_spec { /* nothing is owned */
    const struct pp_layout *layout;
    const struct pp_bubble *bubble;
    const double *cost; /* [n_layers] time of each layer: F + I + W, in any unit */
    bool searched;      /* this is the best of all schedules and micro-batch counts */
    double waited;      /* share of the ranks' time that they waited for a core; < 0: unknown */
};

/* Errors: PP_ERESOURCE. One stage: "". */
int pp_advice(const struct pp_advice_spec *spec, char out[PP_ADVICE_MAX]);

/* cost[n_layers] from times of virtual stages: each layer gets its part of the stage's flops. */
void pp_advice_costs(const struct pp_layout *l, const double *f, const double *i, const double *w,
                     double *cost);

#endif
