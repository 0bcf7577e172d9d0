/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/comm/transport.h that only this module uses. */
#ifndef PPCLI_SRC_COMM_TRANSPORT_H
#define PPCLI_SRC_COMM_TRANSPORT_H

#include "ppcli/comm/transport.h"

int pp_threads_create(int size, const struct pp_places *places, struct pp_threads **out);
void pp_threads_destroy(struct pp_threads **group);
/* Wakes every rank of the group, also a rank that is not attached yet. Any thread. */
void pp_threads_abort(struct pp_threads *group);
int pp_threads_attach(struct pp_threads *group, int rank, struct pp_transport **out);

#endif
