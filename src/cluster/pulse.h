/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/cluster/pulse.h that only this module uses. */
#ifndef PPCLI_SRC_CLUSTER_PULSE_H
#define PPCLI_SRC_CLUSTER_PULSE_H

#include "ppcli/cluster/pulse.h"

/* A rank that will beat if any does, on a host as the list of hosts names it: it is lost when it has
 * not come 2 times timeout (seconds) and 8 s after the listener was opened. */
void pp_listener_expect(struct pp_listener *l, int rank, const char *host, double timeout);
int pp_listener_connected(const struct pp_listener *l); /* ranks and keepers that are there */
/* "rank 1 (host b, pid 12, in F of ...)": who was the first to be gone or silent in the middle of
 * work, or has not come though expected. Returns text; "" when all are well. */
const char *pp_listener_first_lost(const struct pp_listener *l, char text[PP_PULSE_TEXT]);

#endif
