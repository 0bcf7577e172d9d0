/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/sim/sim.h that only this module uses. */
#ifndef PPCLI_SRC_SIM_SIM_H
#define PPCLI_SRC_SIM_SIM_H

#include "ppcli/sim/sim.h"
#include "ppcli/sim/trace.h"

/* Returns the track on which the trace shows an event of this enum pp_event_kind. */
enum pp_chrome_track pp_chrome_track_of(int kind);

/* Returns the time of a G or T without the launch overhead. A T without a message that completes a
 * sum takes twice as long, because it adds and then copies the sum. */
double pp_sim_tie(const struct pp_plan *plan, const struct pp_sim_costs *costs,
                  const struct pp_action *a);

/* Sets costs with which every rank takes f, i and w per micro-batch: each virtual stage takes 1/V
 * of them. The caller owns arrays[3 * n_virtual]. */
void pp_sim_make_uniform(const struct pp_plan *plan, double f, double i, double w, double *arrays,
                         struct pp_sim_costs *out);

#endif
