/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/plan/machine_plan.h that only this module uses. */
#ifndef PPCLI_SRC_PLAN_MACHINE_PLAN_H
#define PPCLI_SRC_PLAN_MACHINE_PLAN_H

#include "ppcli/plan/machine_plan.h"

/* "tp=4 pp=4 vp=20 mbs=1" to a price: also dp, cp, ep, zero, recompute (none, selective, full), schedule
 * and layout. What is not said: 1; dp fills up the ranks; 1f1b, with vp interleaved; zero=1. p may be
 * NULL. PP_EUSAGE. */
int pp_estimate_words(const struct pp_estimate_spec *s, const char *words, struct pp_division *p,
                      struct pp_estimate *out);

#endif
