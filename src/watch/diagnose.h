/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/watch/diagnose.h that only this module uses. */
#ifndef PPCLI_SRC_WATCH_DIAGNOSE_H
#define PPCLI_SRC_WATCH_DIAGNOSE_H

#include "ppcli/watch/diagnose.h"

int pp_diagnosis_init(struct pp_diagnosis *d, const struct pp_layout *layout, double hang_timeout,
                      int ranks);

/* Take what a ring and the process behind it show now. Local; any thread or process. */
void pp_rank_look(const struct pp_ring *ring, struct pp_rank_view *out);

/* The action that a rank is in; NULL: in none. */
const struct pp_event *pp_rank_current(const struct pp_rank_view *v);

/* Both ends and the cargo of the message of rank r's event, when it has one and the plan knows it. */
bool pp_diagnosis_message(const struct pp_diagnosis *d, const struct pp_event *e, int r, int *src,
                          int *dst, const char **what);

uint64_t pp_rank_progress_ns(const struct pp_rank_view *v); /* the clock, when it got on last */

/* Whether it has waited for others within the last second and has not got on since; and how long
 * ago it got on. Of a rank of this machine. */
bool pp_rank_waits(const struct pp_rank_view *v, uint64_t *out_idle_ns);

/* From the views to a verdict. Allocates nothing. Local. */
void pp_diagnosis_judge(struct pp_diagnosis *d);
const char *pp_diagnosis_action(const struct pp_diagnosis *d, int r, char out[PP_DIAGNOSIS_TEXT]);

#endif
