/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/cluster/pulse.h that only this module uses. */
#ifndef PPCLI_SRC_CLUSTER_PULSE_H
#define PPCLI_SRC_CLUSTER_PULSE_H

#include "ppcli/cluster/pulse.h"

/* Declares that a rank on `host` (a name of the list of hosts) will send heartbeats if any rank
 * does. It counts as lost if it has not come 2 times timeout (seconds) and 8 s after the listener
 * was opened. */
void pp_listener_expect(struct pp_listener *l, int rank, const char *host, double timeout);
/* Returns the number of connected ranks and keepers. */
int pp_listener_connected(const struct pp_listener *l);
/* Describes the rank that was the first to be gone or silent while it worked, or an expected rank
 * that has not come: "rank 1 (host b, pid 12, in F of ...)". Returns text; "" if there is none. */
const char *pp_listener_first_lost(const struct pp_listener *l, char text[PP_PULSE_TEXT]);

#endif
