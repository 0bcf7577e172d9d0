/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/sim/sim.h that only this module uses. */
#ifndef PPCLI_SRC_SIM_SIM_H
#define PPCLI_SRC_SIM_SIM_H

#include "ppcli/sim/sim.h"

/* How long a G or T takes, beside launch: a T without a message adds, and copies the sum. */
double pp_sim_tie(const struct pp_sim_costs *costs, const struct pp_action *a);

/* Costs of a geometry whose ranks all take (f, i, w): every virtual stage takes 1/V of it.
 * arrays[3 * n_virtual] is the caller's storage. */
void pp_sim_uniform(const struct pp_plan *plan, double f, double i, double w, double *arrays,
                    struct pp_sim_costs *out);

#endif
