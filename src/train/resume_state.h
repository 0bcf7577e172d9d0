/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a checkpoint as the trainer's; used by resume.c alone. See resume.h. */
#ifndef PPCLI_TRAIN_RESUME_STATE_H
#define PPCLI_TRAIN_RESUME_STATE_H

#include "loop.h"

/* Could it be of a run with this config, and were these the data? Local. path: for messages.
 * Errors: PP_EFORMAT. */
int resume_check_state(const struct trainer *tr, const struct pp_ckpt_state *s, const char *path);

/* Steps that had changed the weights. Local. */
int64_t resume_updates(const struct pp_ckpt_state *s);

/* Go on from there. Local. */
void resume_take_state(struct trainer *tr, const struct pp_ckpt_state *s);

#endif
