/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.json of a run: one step as it was and, beside it, as it should have been from the mean
 * times of its actions. Every run with a folder leaves one; it costs a copy of the ring per epoch.
 */
#ifndef PPCLI_TRAIN_TIMELINE_H
#define PPCLI_TRAIN_TIMELINE_H

#include "forecast.h"
#include "ppcli/trace.h"

struct timeline;

/* What the last step of an epoch leaves in the ring. Local. The caller owns *out.
 * Errors: PP_ERESOURCE. */
int timeline_create(const struct pp_ring *ring, struct timeline **out);
void timeline_destroy(struct timeline **t); /* accepts NULL in *t */

/* Remember the training steps that are in the ring now, before an evaluation overwrites them.
 * Local; allocates nothing. */
void timeline_keep(struct timeline *t, const struct pp_ring *ring);

struct timeline_spec { /* nothing is owned */
    const struct pp_layout *layout;
    struct pp_transport *tp;
    const struct forecast *forecast;
    const char *dir;     /* run folder */
    int64_t epoch_steps; /* of training, in an epoch */
    int test_steps;
};

/*
 * Collective: of the remembered steps of a full batch that all ranks have whole, the one of median
 * length is written by rank 0; nothing when there is none. Errors: PP_EIO, PP_EPERM, PP_ERESOURCE.
 */
int timeline_write(const struct timeline *t, const struct timeline_spec *spec);

#endif
