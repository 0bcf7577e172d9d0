/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs to hand a block of memory from one rank to another, through the calls that the
 * executor makes: the producer writes it where it is, the consumer reads all of it there.
 */
#ifndef PPCLI_HANDOVER_H
#define PPCLI_HANDOVER_H

#include <stdbool.h>
#include <stddef.h>

#include "ppcli/transport.h"

struct pp_handover {
    size_t bytes;
    double one_way;   /* seconds from before writing to after reading, half of there and back */
    double fastest;   /* the best block of it; one_way is the median */
    double same_core; /* seconds of the same writing and reading by one rank alone */
    double copy;      /* seconds of a memcpy of as many bytes by one rank alone */
};

/*
 * Fill in items[n], whose `bytes` (a multiple of 8, at least 64) the caller has set, on rank 0.
 * Collective over the two ranks of `tp`, whose channels it opens. Errors: those of the transport;
 * PP_EINTERNAL when other bytes arrived than were sent.
 */
int pp_handover_measure(struct pp_transport *tp, struct pp_handover *items, int n);

/* The same between two threads, each bound to a core of those that this thread may use; of the
 * whole machine's, where a launcher has bound this process to one. Local. Errors: also
 * PP_ERESOURCE. */
int pp_handover_threads(struct pp_handover *items, int n, bool whole_machine);

#endif
