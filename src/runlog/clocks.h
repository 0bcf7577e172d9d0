/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks of ranks that are processes, which may be on several machines, against rank 0's. */
#ifndef PPCLI_RUNLOG_CLOCKS_H
#define PPCLI_RUNLOG_CLOCKS_H

#include "ppcli/transport.h"

/*
 * Collective. On rank 0 offset_ns[ranks] is what each rank's pp_clock_ns() is ahead of rank 0's,
 * and error_ns[ranks] how far that can be off: half of the shortest round trip. Other ranks' arrays
 * are 0, and all are where ranks share one process.
 */
int clocks_compare(struct pp_transport *tp, int64_t *offset_ns, int64_t *error_ns);

#endif
