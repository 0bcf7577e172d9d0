/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank does from its first to its last step. */
#ifndef PPCLI_TRAIN_RANK_H
#define PPCLI_TRAIN_RANK_H

#include "ppcli/train.h"

struct rank_spec {
    const struct pp_run *run;
    const struct pp_train_options *options;
    int rank;
    const struct pp_dataset *shared[2]; /* by enum pp_split; NULL: open what this rank needs */
    struct pp_watchdog *watchdog;       /* of this process; may be NULL */
    bool failed_alone;                  /* out: failed where the other ranks could not know */
    uint64_t failed_ns;                 /* out: when; the clock before the others were told */
    struct pp_backend *be;              /* out: for rank_free() */
    struct pp_exec *x;                  /* out: for rank_free() */
    struct pp_ring *ring;               /* out: for rank_free() */
};

/* Collective. A rank that fails alone (in the middle of a step) has aborted the transport. Whatever
 * comes back, rank_free() follows. */
int rank_main(struct rank_spec *spec, struct pp_transport *tp);

/* What a rank's record of actions takes. Local. */
size_t rank_ring_bytes(const struct pp_layout *l, const struct pp_train_options *options);

/* What this rank does outside the executor, into its ring. step: optimizer steps done. Local. */
void rank_event_begin(struct rank_spec *spec, enum pp_event_kind kind, int64_t step);
void rank_event_end(struct rank_spec *spec);

/* Local, in the thread of rank_main(), when all ranks that are threads of this process have
 * returned from it: until then they may be reading and writing this one's message slots. */
void rank_free(struct rank_spec *spec);

#endif
