/* SPDX-License-Identifier: Apache-2.0 */
/* Converts between the state of a checkpoint and the trainer's; used by resume.c and differences.c.
 * See resume.h. */
#ifndef PPCLI_TRAIN_RESUME_STATE_H
#define PPCLI_TRAIN_RESUME_STATE_H

#include "loop.h"

/* Checks that a run with this config and these data could have written the checkpoint. Local.
 * Errors: PP_EFORMAT; PP_ECONFIG: no step begins at the checkpoint with this batch size. */
int resume_check_state(const struct trainer *tr, const struct pp_ckpt *ck);

/* Returns how many steps of the checkpoint's run had changed the weights. Local. */
int64_t resume_updates(const struct pp_ckpt_state *s);

/* Sets the trainer to the state of the checkpoint. Local. */
void resume_take_state(struct trainer *tr, const struct pp_ckpt *ck);

/* Returns the tr->offset of a run that continues from the checkpoint; see struct trainer. Local. */
int64_t resume_offset(const struct trainer *tr, const struct pp_ckpt *ck);

/* Names of numbers in the state: the step up to which checkpoints are kept, the samples of an
 * epoch. resume_crc_name() writes the name of the checksum of images (what 0) or labels (1), and
 * returns out. */
#define RESUME_KEPT "checkpoint.kept"
#define RESUME_SAMPLES "data.train.samples"
const char *resume_crc_name(int split, int what, char out[32]);

/* ---- differences.c */

/* Checks that a run with this config may continue from the checkpoint; prints the changes and adds
 * them to tr->changes. On rank 0. Errors: PP_ECONFIG, PP_ERESOURCE. */
int resume_check_config(struct trainer *tr, const struct pp_ckpt *ck);

/* Values of the checkpoint's config. */
struct resume_past {
    int64_t batch;
    bool other_test; /* it was tested on another number of samples */
};
struct resume_past resume_past(const struct pp_config *cfg, const struct pp_ckpt *ck);

#endif
