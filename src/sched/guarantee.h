/* SPDX-License-Identifier: Apache-2.0 */
/* The halves of the proof of lists with messages. */
#ifndef PPCLI_SCHED_GUARANTEE_H
#define PPCLI_SCHED_GUARANTEE_H

#include "comms.h"

/* A cell of the lists; rank -1: none. */
struct pp_comm_place {
    int rank, k;
};

/* Each list alone: all messages paired, in a possible place. PP_EFORMAT with the cell at fault in
 * *out_at (may be NULL), PP_ERESOURCE. */
int pp_comms_pair(const struct pp_plan *plan, const struct pp_comms *comms,
                  struct pp_comm_place *out_at);

/* Of paired lists: do two ranks send and take their messages in one order? The same errors. */
int pp_comms_one_order(const struct pp_plan *plan, const struct pp_comms *comms);

#endif
