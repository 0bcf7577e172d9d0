/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures that are made: with data.augment or data.resize a step's samples are not gathered from
 * the data set but from bytes that a thread beside computing makes a step ahead, or the device where
 * it can. The bytes are a
 * function of (seed, epoch, sample), whatever was made before.
 */
#ifndef PPCLI_AHEAD_H
#define PPCLI_AHEAD_H

#include "ppcli/dataset.h"

struct pp_ahead;

/* Whether the samples of this split are made. */
bool pp_ahead_makes(const struct pp_config *cfg, enum pp_split split);

/* Whether pictures are only cropped and flipped, so that a device with memory of its own can do it to
 * those it holds: no thread then. */
bool pp_ahead_moves(const struct pp_config *cfg, enum pp_split split);

/* moves[n] for struct pp_move_pictures: the same bytes, of these training samples. */
void pp_ahead_move(const struct pp_config *cfg, uint64_t epoch, int n, const uint32_t *index,
                   uint32_t *moves);

/*
 * Starts the thread. buffers: n >= 2 of them, each for the largest share of a step, [rows] of
 * struct pp_dataset's `input`; they and the data stay the caller's. test may be NULL when no test
 * step is asked for. Errors: PP_ERESOURCE. Local, as all of these.
 */
int pp_ahead_create(const struct pp_config *cfg, const struct pp_dataset *train,
                    const struct pp_dataset *test, uint8_t *const *buffers, int n_buffers,
                    struct pp_ahead **out);
void pp_ahead_destroy(struct pp_ahead **a); /* accepts NULL inside */

/*
 * The pictures of the loader's share of a step, in its order; they stay until n_buffers - 1 further
 * calls. Waits until they are made, and has those of the next step begun, if the epoch has one.
 * Allocates nothing.
 */
uint8_t *pp_ahead_take(struct pp_ahead *a, const struct pp_loader *ld, enum pp_split split,
                       uint64_t epoch, int step);

/* Stop making, and forget what was made: to be called before a loader's order changes. */
void pp_ahead_rest(struct pp_ahead *a);

#endif
