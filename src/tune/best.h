/* SPDX-License-Identifier: Apache-2.0 */
/* What the search and its candidates share. */
#ifndef PPCLI_TUNE_BEST_H
#define PPCLI_TUNE_BEST_H

#include "ppcli/best.h"

/* Rows of replica 0's share of a full batch. */
int best_share(const struct pp_best_spec *spec);

/* Set c->time.step, c->peak_bytes and c->identity. Errors: PP_ECONFIG (not legal), PP_ERESOURCE. */
int best_evaluate(const struct pp_best_spec *spec, const struct pp_costs *costs,
                  struct pp_candidate *c);

#endif
