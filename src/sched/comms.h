/* SPDX-License-Identifier: Apache-2.0 */
/* What lowered lists and their printers, readers and proofs share. */
#ifndef PPCLI_SCHED_COMMS_H
#define PPCLI_SCHED_COMMS_H

#include "ppcli/exchange.h"

#include "pass.h"

/* Room for "2147483647SEND_F2147483647" and the likes. */
#define PP_COMM_NAME_MAX 48

/* A cell as torch writes it. POST and WAIT, which torch does not have, are called RECV. */
const char *pp_comm_name(const struct pp_plan *plan, int rank, const struct pp_comm *c,
                         char name[PP_COMM_NAME_MAX]);

/* Does the message go to another rank? */
bool pp_comm_travels(const struct pp_plan *plan, int32_t message);

/* Zeroed lists of n_ranks ranks. Errors: PP_ERESOURCE. */
int pp_comms_init(int n_ranks, struct pp_comms *out);

/* Errors: PP_ERESOURCE. */
int pp_comm_add(struct pp_comm_list *list, enum pp_comm_kind kind, bool merged, int32_t index);

#endif
