/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/watch/diagnose.h that only this module uses. */
#ifndef PPCLI_SRC_WATCH_DIAGNOSE_H
#define PPCLI_SRC_WATCH_DIAGNOSE_H

#include "ppcli/watch/diagnose.h"

/* Prepares a diagnosis with all views unknown. Local. Errors: PP_ERESOURCE. */
int pp_diagnosis_init(struct pp_diagnosis *d, const struct pp_layout *layout, double hang_timeout,
                      int ranks);

/* Reads the state of a ring and of its process into *out. Local; any thread or process. */
void pp_rank_look(const struct pp_ring *ring, struct pp_rank_view *out);

/* Returns the action that a rank is in; NULL if it is in none. */
const struct pp_event *pp_rank_current(const struct pp_rank_view *v);

/* Finds the ranks at both ends of the message of rank r's event, and what it carries. Returns false
 * if the event has no message, or the plan does not know it. */
bool pp_diagnosis_message(const struct pp_diagnosis *d, const struct pp_event *e, int r, int *src,
                          int *dst, const char **what);

/* Returns the time at which the rank last made progress. */
uint64_t pp_rank_progress_ns(const struct pp_rank_view *v);

/* Returns whether a rank of this machine was seen to wait for others within the last second and has
 * made no progress since. *out_idle_ns is the time since its last progress. */
bool pp_rank_waits(const struct pp_rank_view *v, uint64_t *out_idle_ns);

/* Sets the verdict from the views. Allocates nothing. Local. */
void pp_diagnosis_judge(struct pp_diagnosis *d);
const char *pp_diagnosis_action(const struct pp_diagnosis *d, int r, char out[PP_DIAGNOSIS_TEXT]);

#endif
